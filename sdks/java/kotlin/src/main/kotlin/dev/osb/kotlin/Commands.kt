package dev.osb.kotlin

import dev.osb.CodeOptions
import dev.osb.CommandOptions
import dev.osb.ExecutionEvent
import dev.osb.Output
import dev.osb.wire.CodeContext
import dev.osb.wire.CommandStatusResponse
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.emitAll
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.future.await

/** Commands in a sandbox: to the end, as a flow, or in the background. */
public class Commands internal constructor(private val java: dev.osb.Commands) {
    /** Runs shell text to its end. */
    public suspend fun run(command: String, options: CommandOptions.() -> Unit = {}): Output =
        java.runAsync(command, CommandOptions().apply(options)).await()

    /** Runs a program with its arguments, without a shell, to its end. */
    public suspend fun run(argv: List<String>, options: CommandOptions.() -> Unit = {}): Output =
        java.runAsync(argv, CommandOptions().apply(options)).await()

    /** The events of shell text, which is started when the flow is collected. */
    public fun stream(command: String, options: CommandOptions.() -> Unit = {}): Flow<ExecutionEvent> = flow {
        emitAll(start(command, options).events())
    }

    /** Starts shell text. */
    public suspend fun start(command: String, options: CommandOptions.() -> Unit = {}): Execution =
        Execution(java.startAsync(command, CommandOptions().apply(options)).await())

    /** Starts a program with its arguments, without a shell. */
    public suspend fun start(argv: List<String>, options: CommandOptions.() -> Unit = {}): Execution =
        Execution(java.startAsync(argv, CommandOptions().apply(options)).await())

    /** Starts shell text in the background and answers its id. */
    public suspend fun background(command: String, options: CommandOptions.() -> Unit = {}): String =
        java.backgroundAsync(command, CommandOptions().apply(options)).await()

    /** Starts a program with its arguments, without a shell, in the background and answers its id. */
    public suspend fun background(argv: List<String>, options: CommandOptions.() -> Unit = {}): String =
        java.backgroundAsync(argv, CommandOptions().apply(options)).await()

    /** How a command is going. */
    public suspend fun status(id: String): CommandStatusResponse = java.statusAsync(id).await()

    /** Extension: the commands that the daemon still knows. */
    public suspend fun list(): List<CommandStatusResponse> = java.listAsync().await()

    /** Waits until a command has ended, also one that runs in the background, and answers how. */
    public suspend fun waitFor(id: String): CommandStatusResponse = java.waitForAsync(id).await()

    /** Output of a command from a cursor on; null is from its beginning. */
    public suspend fun logs(id: String, cursor: Long? = null): dev.osb.Commands.Logs = java.logsAsync(id, cursor).await()

    /** Interrupts a command, or what runs in a session. */
    public suspend fun interrupt(id: String) {
        java.interruptAsync(id).await()
    }

    /** Extension: writes to the stdin of a command that was started with it open; [close] ends its input. */
    public suspend fun writeStdin(id: String, input: String, close: Boolean = false): Long = writeStdin(id, input.encodeToByteArray(), close)

    /** Extension: writes to the stdin of a command that was started with it open; [close] ends its input. */
    public suspend fun writeStdin(id: String, input: ByteArray, close: Boolean = false): Long = java.writeStdinAsync(id, input, close).await()

    /** Extension: follows a command, also one that runs in the background, from the event after this one on. */
    public suspend fun follow(id: String, after: Long = 0): Execution = Execution(java.followAsync(id, after).await())

    /** Makes variables part of the environment of every command from now on. */
    public suspend fun setEnv(variables: Map<String, String>) {
        java.setEnvAsync(variables).await()
    }
}

/** Code that remembers: contexts, and cells that run in them. */
public class Code internal constructor(private val java: dev.osb.Code) {
    /** Runs code. An exception of it is no error: look at `failure` of the output. */
    public suspend fun run(code: String, options: CodeOptions.() -> Unit = {}): Output = java.runAsync(code, CodeOptions().apply(options)).await()

    /** The events of code, which is started when the flow is collected. */
    public fun stream(code: String, options: CodeOptions.() -> Unit = {}): Flow<ExecutionEvent> = flow {
        emitAll(start(code, options).events())
    }

    /** Starts code. */
    public suspend fun start(code: String, options: CodeOptions.() -> Unit = {}): Execution =
        Execution(java.startAsync(code, CodeOptions().apply(options)).await())

    /** Makes a context of a language. */
    public suspend fun createContext(language: String, cwd: String? = null, env: Map<String, String> = emptyMap()): CodeContext =
        java.createContextAsync(language, cwd, env).await()

    /** A context. */
    public suspend fun getContext(id: String): CodeContext = java.getContextAsync(id).await()

    /** The contexts of a language; null is of all. */
    public suspend fun listContexts(language: String? = null): List<CodeContext> = java.listContextsAsync(language).await()

    /** Ends a context. */
    public suspend fun deleteContext(id: String) {
        java.deleteContextAsync(id).await()
    }

    /** Ends the contexts of a language. */
    public suspend fun deleteContexts(language: String) {
        java.deleteContextsAsync(language).await()
    }

    /** Interrupts what runs in a context, which is named by the id of the event `Started`. */
    public suspend fun interrupt(id: String) {
        java.interruptAsync(id).await()
    }
}
