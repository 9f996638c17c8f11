// Prints the output of a command as it comes, and runs several sandboxes at once.

import dev.osb.ExecutionEvent
import dev.osb.kotlin.Client
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.flow.filterIsInstance
import kotlinx.coroutines.runBlocking

fun main() = runBlocking {
    val client = Client()
    val image = System.getenv("IMAGE") ?: "python:3.12"
    client.create(image).use { sandbox ->
        sandbox.commands.stream("seq 3").filterIsInstance<ExecutionEvent.Stdout>().collect { print(it.text()) }
    }
    val sums = (1..3).map { number ->
        async { client.create(image).use { it.commands.run("echo $((40 + $number))").stdout().trim() } }
    }
    println(sums.awaitAll())
}
