package dev.osb.conformance

import dev.osb.CodeOptions
import dev.osb.CommandOptions
import dev.osb.Contents
import dev.osb.Permission
import dev.osb.SessionRunOptions
import dev.osb.TerminalOptions
import dev.osb.conformance.Protocol.Held
import dev.osb.kotlin.Execution
import dev.osb.kotlin.Files
import dev.osb.kotlin.Sandbox
import dev.osb.kotlin.Session
import dev.osb.kotlin.Terminal
import dev.osb.kotlin.TerminalConnection
import java.security.MessageDigest
import java.util.Base64
import java.util.HexFormat

/** The calls inside a sandbox, by coroutines. */
internal object KotlinInside {
    suspend fun make(subject: String, call: String, on: Any?, with: Arguments): Any? = when (subject) {
        "commands" -> commands(on as Sandbox, call, with)
        "execution" -> execution(on as Execution, call)
        "sessions" -> (on as Sandbox).sessions.create(with.text("cwd")).let { Held(it, shown("id" to it.id), null) }
        "session" -> session(on as Session, call, with)
        "terminals" -> (on as Sandbox).terminals.create(with.text("command"), with.text("cwd"), Settings.size(with))
            .let { Held(it, shown("id" to it.id), null) }
        "terminal" -> terminal(on as Terminal, call, with)
        "connection" -> connection(on as TerminalConnection, call, with)
        "code" -> code(on as Sandbox, call, with)
        "files" -> files(filesOf(on as Sandbox, with), call, with)
        else -> unknown("$subject.$call")
    }

    private fun CommandOptions.from(with: Arguments) {
        env(with.map("env")).stdinOpen(with.flag("stdin_open"))
        with.text("cwd")?.let(::cwd)
        with.milliseconds("timeout_ms")?.let(::timeout)
        with.integer("uid")?.let(::uid)
        with.integer("gid")?.let(::gid)
        with.text("stdin")?.let(::stdin)
    }

    private suspend fun commands(sandbox: Sandbox, call: String, with: Arguments): Any? {
        val commands = sandbox.commands
        val id = with.text("id") ?: ""
        val argv = if (with.get("argv") == null) null else with.texts("argv")
        val command = with.text("command") ?: ""
        return when (call) {
            "run" -> Shapes.output(if (argv == null) commands.run(command) { from(with) } else commands.run(argv) { from(with) })
            "start" -> held(if (argv == null) commands.start(command) { from(with) } else commands.start(argv) { from(with) })
            "background" -> shown("id" to if (argv == null) commands.background(command) { from(with) } else commands.background(argv) { from(with) })
            "follow" -> held(commands.follow(id, with.wide("after") ?: 0))
            "status" -> commands.status(id)
            "list" -> commands.list()
            "logs" -> commands.logs(id, with.wide("cursor")).let { shown("text" to it.text(), "cursor" to it.cursor()) }
            "interrupt" -> commands.interrupt(id)
            "write_stdin" -> shown("written" to commands.writeStdin(id, with.contents(), with.flag("close")))
            "set_env" -> commands.setEnv(with.map("variables"))
            else -> unknown("commands.$call")
        }
    }

    private suspend fun execution(execution: Execution, call: String): Any? = when (call) {
        "next" -> execution.next()?.let(Shapes::event)
        "output" -> Shapes.output(execution.output())
        "close" -> execution.close()
        else -> unknown("execution.$call")
    }

    private fun SessionRunOptions.from(with: Arguments) {
        cwd(with.text("cwd")).timeout(with.milliseconds("timeout_ms"))
    }

    private suspend fun session(session: Session, call: String, with: Arguments): Any? = when (call) {
        "run" -> Shapes.output(session.run(with.text("command")) { from(with) })
        "start" -> held(session.start(with.text("command")) { from(with) })
        "interrupt" -> session.interrupt()
        "delete" -> session.delete()
        else -> unknown("session.$call")
    }

    private suspend fun terminal(terminal: Terminal, call: String, with: Arguments): Any? = when (call) {
        "status" -> terminal.status()
        "delete" -> terminal.delete()
        "connect" -> held(terminal.connect { connecting(with) })
        else -> unknown("terminal.$call")
    }

    private fun TerminalOptions.connecting(with: Arguments) {
        pipes(with.flag("pipes")).takeOver(with.flag("take_over")).size(Settings.size(with))
        with.wide("since")?.let(::since)
    }

    private suspend fun connection(connection: TerminalConnection, call: String, with: Arguments): Any? = when (call) {
        "next" -> connection.next()?.let(Shapes::terminalEvent)
        "write" -> connection.write(with.text("text"))
        "resize" -> connection.resize(with.integer("columns")!!, with.integer("rows")!!)
        "signal" -> connection.signal(with.text("signal"))
        "ping" -> connection.ping()
        "close" -> connection.close()
        else -> unknown("connection.$call")
    }

    private fun CodeOptions.from(with: Arguments) {
        language(with.text("language")).context(with.text("context")).timeout(with.milliseconds("timeout_ms"))
    }

    private suspend fun code(sandbox: Sandbox, call: String, with: Arguments): Any? {
        val code = sandbox.code
        val id = with.text("id") ?: ""
        return when (call) {
            "run" -> Shapes.output(code.run(with.text("code")) { from(with) })
            "start" -> held(code.start(with.text("code")) { from(with) })
            "create_context" -> code.createContext(with.text("language"), with.text("cwd"))
            "get_context" -> code.getContext(id)
            "delete_context" -> code.deleteContext(id)
            "interrupt" -> code.interrupt(id)
            "list_contexts" -> code.listContexts(with.text("language"))
            "delete_contexts" -> code.deleteContexts(with.text("language"))
            else -> unknown("code.$call")
        }
    }

    private fun filesOf(sandbox: Sandbox, with: Arguments): Files {
        val user = with.get("as_user") as? List<*> ?: return sandbox.files
        return sandbox.files.asUser((user[0] as Long).toInt(), (user[1] as Long).toInt())
    }

    private suspend fun files(files: Files, call: String, with: Arguments): Any? {
        val path = with.text("path") ?: ""
        return when (call) {
            "read" -> base64(files.read(path))
            "read_text" -> shown("text" to files.readText(path))
            "read_range" -> base64(files.readRange(path, with.wide("start")!!, with.wide("end")!!))
            "read_lines" -> shown("text" to files.readLines(path, with.wide("first")!!, with.wide("count")!!))
            "download" -> counted(files, path)
            "write" -> files.write(path, with.contents(), Settings.permission(with))
            "write_all" -> files.writeAll(with.list("files", Settings::file))
            "upload" -> {
                files.write(path, Contents.of(Archives.madeUp(with.wide("bytes")!!)), Permission.DEFAULT)
                Archives.counted(Archives.madeUp(with.wide("bytes")!!))
            }
            "info" -> files.info(with.texts("paths")).mapValues { Shapes.fileInfo(it.value) }
            "exists" -> shown("exists" to files.exists(path))
            "list" -> files.list(path, with.integer("depth") ?: 1).map(Shapes::fileInfo)
            "search" -> files.search(path, with.text("pattern")).map(Shapes::fileInfo)
            "rename" -> files.rename(with.text("from"), with.text("to"))
            "delete" -> files.delete(with.texts("paths"))
            "create_directories" -> files.createDirectories(with.texts("paths"))
            "delete_directories" -> files.deleteDirectories(with.texts("paths"))
            "set_permissions" -> files.setPermissions(mapOf(path to Settings.permission(with)))
            "replace" -> shown("count" to files.replace(path, with.text("old"), with.text("new")))
            "download_archive" -> Archives.entries(files.downloadArchive(path).bytes().inputStream(), true)
            "upload_archive" -> files.uploadArchive(path, Contents.of(Archives.packed(with.map("files"))))
            else -> unknown("files.$call")
        }
    }

    /** By the flow of pieces. */
    private suspend fun counted(files: Files, path: String): Any {
        val hash = MessageDigest.getInstance("SHA-256")
        var bytes = 0L
        files.download(path).pieces().collect {
            hash.update(it)
            bytes += it.size
        }
        return shown("bytes" to bytes, "sha256" to HexFormat.of().formatHex(hash.digest()))
    }

    private fun base64(bytes: ByteArray) = shown("base64" to Base64.getEncoder().encodeToString(bytes))
}
