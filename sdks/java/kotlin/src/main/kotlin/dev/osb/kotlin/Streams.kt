package dev.osb.kotlin

import dev.osb.ExecutionEvent
import dev.osb.Output
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.future.await
import java.util.concurrent.CompletableFuture

/** Batches of values, one at a time; an empty batch is the end. */
internal class Reading<T>(private val readAsync: () -> CompletableFuture<List<T>>) {
    private var ready: Iterator<T> = emptyList<T>().iterator()

    suspend fun next(): T? {
        if (!ready.hasNext()) ready = readAsync().await().iterator()
        return if (ready.hasNext()) ready.next() else null
    }

    fun asFlow(close: () -> Unit): Flow<T> = flow {
        try {
            while (true) emit(next() ?: break)
        } finally {
            close()
        }
    }
}

/**
 * What runs in a sandbox: its [events], one by one with [next], or all of it by [output]. A stream that breaks is taken up
 * again where it broke, so that every event is given out exactly once. Leaving the flow, or [close], gives the stream up; what
 * runs goes on.
 */
public class Execution internal constructor(private val java: dev.osb.Execution) : AutoCloseable {
    /** What to ask by, once it has begun. */
    public val id: String? get() = java.id()

    /** The number of the last event that was given out, to follow a command from; null where the server does not number them. */
    public val lastSeq: Long? get() = java.lastSeq()

    /** The next event; null at the end. */
    public suspend fun next(): ExecutionEvent? = java.nextAsync().await()

    /** The events as they come. */
    public fun events(): Flow<ExecutionEvent> = Reading { java.readAsync() }.asFlow { close() }

    /** Reads to the end and answers everything that [next] has not given. */
    public suspend fun output(): Output = java.outputAsync().await()

    /** Gives the stream up; what runs goes on. */
    override fun close(): Unit = java.close()
}

/** Values as they come: a flow by [values], or one by one with [next]. Leaving the flow, or [close], gives the connection up. */
public class ValueStream<T> internal constructor(private val java: dev.osb.ValueStream<T>) : AutoCloseable {
    private val reading = Reading { java.readAsync() }

    /** The next value; null at the end. */
    public suspend fun next(): T? = reading.next()

    /** The values as they come. */
    public fun values(): Flow<T> = reading.asFlow { close() }

    /** Gives the stream up. */
    override fun close(): Unit = java.close()
}

/** Bytes as they arrive. Leaving the flow, or [close], gives the rest up. */
public class ByteStream internal constructor(private val java: dev.osb.ByteStream) : AutoCloseable {
    /** How many bytes there are in all, if that is known. */
    public val length: Long? get() = java.length()

    /** The pieces as they come. */
    public fun pieces(): Flow<ByteArray> {
        val reading = Reading { java.readAsync() }
        return flow {
            try {
                while (true) {
                    val piece = reading.next() ?: break
                    emit(ByteArray(piece.remaining()).also(piece::get))
                }
            } finally {
                close()
            }
        }
    }

    /** Reads to the end. */
    public suspend fun bytes(): ByteArray = java.readAllAsync().await()

    /** The same as a blocking stream. */
    public fun inputStream(): java.io.InputStream = java

    /** Gives the rest up. */
    override fun close(): Unit = java.close()
}
