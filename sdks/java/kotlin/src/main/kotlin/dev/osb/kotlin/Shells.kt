package dev.osb.kotlin

import dev.osb.Output
import dev.osb.SessionRunOptions
import dev.osb.TerminalEvent
import dev.osb.TerminalOptions
import dev.osb.TerminalSize
import dev.osb.wire.PtyStatus
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.future.await
import kotlinx.coroutines.withContext

/** Live shells, which keep their variables, functions and directory between runs. */
public class Sessions internal constructor(private val java: dev.osb.Sessions) {
    /** Starts a shell. */
    public suspend fun create(cwd: String? = null): Session = Session(java.createAsync(cwd).await())

    /** A session by its id, without any request. */
    public fun get(id: String): Session = Session(java.get(id))
}

/** A live shell. It ends with [delete], or when its [use] block is left. */
public class Session internal constructor(private val java: dev.osb.Session) {
    /** Its id. */
    public val id: String get() = java.id()

    /** Runs shell text in it to the end. */
    public suspend fun run(command: String, options: SessionRunOptions.() -> Unit = {}): Output =
        java.runAsync(command, SessionRunOptions().apply(options)).await()

    /** Runs shell text in it and answers its events as they come. */
    public suspend fun start(command: String, options: SessionRunOptions.() -> Unit = {}): Execution =
        Execution(java.startAsync(command, SessionRunOptions().apply(options)).await())

    /** Interrupts what runs in it. */
    public suspend fun interrupt() {
        java.interruptAsync().await()
    }

    /** Ends it. */
    public suspend fun delete() {
        java.deleteAsync().await()
    }

    /** Runs the block and ends the session. */
    public suspend fun <R> use(block: suspend (Session) -> R): R =
        try {
            block(this)
        } finally {
            withContext(NonCancellable) { delete() }
        }
}

/** The terminals of a sandbox. */
public class Terminals internal constructor(private val java: dev.osb.Terminals) {
    /**
     * Makes a terminal: an interactive shell, or this shell text, in this directory and with this size. A shell that is told
     * its size only while it starts may miss it.
     */
    public suspend fun create(command: String? = null, cwd: String? = null, size: TerminalSize? = null): Terminal =
        Terminal(java.createAsync(command, cwd, size).await())

    /** A terminal by its id, without any request. */
    public fun get(id: String): Terminal = Terminal(java.get(id))
}

/** A shell with a screen, over a WebSocket that can be left and come back to. It ends with [delete], or when its [use] block is left. */
public class Terminal internal constructor(private val java: dev.osb.Terminal) {
    /** Its id. */
    public val id: String get() = java.id()

    /** How it stands. */
    public suspend fun status(): PtyStatus = java.statusAsync().await()

    /** Connects to it; the first connection starts its shell. */
    public suspend fun connect(options: TerminalOptions.() -> Unit = {}): TerminalConnection =
        TerminalConnection(java.connectAsync(TerminalOptions().apply(options)).await())

    /** Ends it. */
    public suspend fun delete() {
        java.deleteAsync().await()
    }

    /** Runs the block and ends the terminal. */
    public suspend fun <R> use(block: suspend (Terminal) -> R): R =
        try {
            block(this)
        } finally {
            withContext(NonCancellable) { delete() }
        }
}

/** A connection to a terminal: its [events], or one by one with [next]; its input by functions. */
public class TerminalConnection internal constructor(private val java: dev.osb.TerminalConnection) : AutoCloseable {
    private val reading = Reading { java.readAsync() }

    /** What comes next; null after `Closed`. */
    public suspend fun next(): TerminalEvent? = reading.next()

    /** What comes, until it is closed. Leaving the flow leaves the terminal, which goes on without a client. */
    public fun events(): Flow<TerminalEvent> = reading.asFlow { close() }

    /** Sends keystrokes. */
    public suspend fun write(input: String): Unit = write(input.encodeToByteArray())

    /** Sends keystrokes. */
    public suspend fun write(input: ByteArray) {
        java.writeAsync(input).await()
    }

    /** Says that the window has a new size. */
    public suspend fun resize(columns: Int, rows: Int) {
        java.resizeAsync(columns, rows).await()
    }

    /** Sends a signal to what runs in front. */
    public suspend fun signal(signal: String) {
        java.signalAsync(signal).await()
    }

    /** Asks the daemon for a sign of life, which says in turn that this client lives. */
    public suspend fun ping() {
        java.pingAsync().await()
    }

    /** Leaves the terminal, which goes on without a client. */
    override fun close(): Unit = java.close()
}
