package dev.osb.conformance

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.launch

/** The runner of the Kotlin SDK: each call is a coroutine, and is given up by cancelling it. */
class KotlinRunner : Protocol() {
    private val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)

    override fun start(id: Long, name: String, on: Any?, with: Arguments): Runnable {
        val call = scope.launch {
            try {
                if (name == "runner.reset") reset()
                done(id, if (name == "runner.reset") null else KotlinCalls.make(name, on, with))
            } catch (error: Throwable) {
                failed(id, error, error is CancellationException)
            }
        }
        return Runnable { call.cancel() }
    }
}

fun main() {
    KotlinRunner().serve()
}
