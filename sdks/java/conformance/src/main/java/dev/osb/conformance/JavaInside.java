package dev.osb.conformance;

import static dev.osb.conformance.JavaCalls.held;
import static dev.osb.conformance.JavaCalls.nothing;
import static dev.osb.conformance.JavaCalls.unknown;

import dev.osb.Contents;
import dev.osb.Execution;
import dev.osb.Files;
import dev.osb.Permission;
import dev.osb.Sandbox;
import dev.osb.Session;
import dev.osb.Terminal;
import dev.osb.TerminalConnection;
import dev.osb.conformance.Protocol.Held;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The calls inside a sandbox, by the blocking SDK. */
final class JavaInside {
    private JavaInside() {}

    static Object make(String subject, String call, Object on, Arguments with) throws Exception {
        return switch (subject) {
            case "commands" -> commands((Sandbox) on, call, with);
            case "execution" -> execution((Execution) on, call);
            case "sessions" -> created(((Sandbox) on).sessions().create(with.text("cwd")));
            case "session" -> session((Session) on, call, with);
            case "terminals" -> created(((Sandbox) on).terminals().create(with.text("command"), with.text("cwd"), Settings.size(with)));
            case "terminal" -> terminal((Terminal) on, call, with);
            case "connection" -> connection((TerminalConnection) on, call, with);
            case "code" -> code((Sandbox) on, call, with);
            case "files" -> files(filesOf((Sandbox) on, with), call, with);
            default -> throw unknown(subject + "." + call);
        };
    }

    private static Object commands(Sandbox sandbox, String call, Arguments with) throws Exception {
        var commands = sandbox.commands();
        String id = with.text("id");
        List<String> argv = with.get("argv") == null ? null : with.texts("argv");
        return switch (call) {
            case "run" -> Shapes.output(argv == null
                ? commands.run(with.text("command"), Settings.command(with)) : commands.run(argv, Settings.command(with)));
            case "start" -> held(argv == null
                ? commands.start(with.text("command"), Settings.command(with)) : commands.start(argv, Settings.command(with)));
            case "background" -> Shapes.map("id", argv == null
                ? commands.background(with.text("command"), Settings.command(with)) : commands.background(argv, Settings.command(with)));
            case "follow" -> held(commands.follow(id, with.get("after") == null ? 0 : with.wide("after")));
            case "status" -> commands.status(id);
            case "list" -> commands.list();
            case "logs" -> {
                var logs = commands.logs(id, with.wide("cursor"));
                yield Shapes.map("text", logs.text(), "cursor", logs.cursor());
            }
            case "interrupt" -> nothing(() -> commands.interrupt(id));
            case "write_stdin" -> Shapes.map("written", commands.writeStdin(id, with.contents(), with.flag("close")));
            case "set_env" -> nothing(() -> commands.setEnv(with.map("variables")));
            default -> throw unknown("commands." + call);
        };
    }

    private static Object execution(Execution execution, String call) throws Exception {
        return switch (call) {
            case "next" -> execution.hasNext() ? Shapes.event(execution.next()) : null;
            case "output" -> Shapes.output(execution.output());
            case "close" -> nothing(execution::close);
            default -> throw unknown("execution." + call);
        };
    }

    private static Held created(Session session) {
        return new Held(session, Shapes.map("id", session.id()), null);
    }

    private static Held created(Terminal terminal) {
        return new Held(terminal, Shapes.map("id", terminal.id()), null);
    }

    private static Object session(Session session, String call, Arguments with) throws Exception {
        return switch (call) {
            case "run" -> Shapes.output(session.run(with.text("command"), Settings.session(with)));
            case "start" -> held(session.start(with.text("command"), Settings.session(with)));
            case "interrupt" -> nothing(session::interrupt);
            case "delete" -> nothing(session::delete);
            default -> throw unknown("session." + call);
        };
    }

    private static Object terminal(Terminal terminal, String call, Arguments with) throws Exception {
        return switch (call) {
            case "status" -> terminal.status();
            case "delete" -> nothing(terminal::delete);
            case "connect" -> held(terminal.connect(Settings.terminal(with)));
            default -> throw unknown("terminal." + call);
        };
    }

    private static Object connection(TerminalConnection connection, String call, Arguments with) throws Exception {
        return switch (call) {
            case "next" -> connection.hasNext() ? Shapes.terminalEvent(connection.next()) : null;
            case "write" -> nothing(() -> connection.write(with.text("text")));
            case "resize" -> nothing(() -> connection.resize(with.integer("columns"), with.integer("rows")));
            case "signal" -> nothing(() -> connection.signal(with.text("signal")));
            case "ping" -> nothing(connection::ping);
            case "close" -> nothing(connection::close);
            default -> throw unknown("connection." + call);
        };
    }

    private static Object code(Sandbox sandbox, String call, Arguments with) throws Exception {
        var code = sandbox.code();
        String id = with.text("id");
        return switch (call) {
            case "run" -> Shapes.output(code.run(with.text("code"), Settings.code(with)));
            case "start" -> held(code.start(with.text("code"), Settings.code(with)));
            case "create_context" -> code.createContext(with.text("language"), with.text("cwd"), Map.of());
            case "get_context" -> code.getContext(id);
            case "delete_context" -> nothing(() -> code.deleteContext(id));
            case "interrupt" -> nothing(() -> code.interrupt(id));
            case "list_contexts" -> code.listContexts(with.text("language"));
            case "delete_contexts" -> nothing(() -> code.deleteContexts(with.text("language")));
            default -> throw unknown("code." + call);
        };
    }

    private static Files filesOf(Sandbox sandbox, Arguments with) {
        if (!(with.get("as_user") instanceof List<?> user)) return sandbox.files();
        return sandbox.files().asUser(((Long) user.get(0)).intValue(), ((Long) user.get(1)).intValue());
    }

    private static Object files(Files files, String call, Arguments with) throws Exception {
        String path = with.text("path");
        return switch (call) {
            case "read" -> base64(files.read(path));
            case "read_text" -> Shapes.map("text", files.readText(path));
            case "read_range" -> base64(files.readRange(path, with.wide("start"), with.wide("end")));
            case "read_lines" -> Shapes.map("text", files.readLines(path, with.wide("first"), with.wide("count")));
            case "download" -> Archives.counted(files.download(path));
            case "write" -> nothing(() -> files.write(path, Contents.of(with.contents()), Settings.permission(with)));
            case "write_all" -> nothing(() -> files.writeAll(with.list("files", Settings::file)));
            case "upload" -> {
                files.write(path, Contents.of(Archives.madeUp(with.wide("bytes"))), Permission.DEFAULT);
                yield Archives.counted(Archives.madeUp(with.wide("bytes")));
            }
            case "info" -> {
                Map<String, Object> found = new LinkedHashMap<>();
                files.info(with.texts("paths")).forEach((name, info) -> found.put(name, Shapes.fileInfo(info)));
                yield found;
            }
            case "exists" -> Shapes.map("exists", files.exists(path));
            case "list" -> files.list(path, with.get("depth") == null ? 1 : with.integer("depth")).stream().map(Shapes::fileInfo).map(Object.class::cast).toList();
            case "search" -> files.search(path, with.text("pattern")).stream().map(Shapes::fileInfo).map(Object.class::cast).toList();
            case "rename" -> nothing(() -> files.rename(with.text("from"), with.text("to")));
            case "delete" -> nothing(() -> files.delete(with.texts("paths")));
            case "create_directories" -> nothing(() -> files.createDirectories(with.texts("paths")));
            case "delete_directories" -> nothing(() -> files.deleteDirectories(with.texts("paths")));
            case "set_permissions" -> nothing(() -> files.setPermissions(Map.of(path, Settings.permission(with))));
            case "replace" -> Shapes.map("count", files.replace(path, with.text("old"), with.text("new")));
            case "download_archive" -> Archives.entries(files.downloadArchive(path), true);
            case "upload_archive" -> files.uploadArchive(path, Contents.of(Archives.packed(with.map("files"))));
            default -> throw unknown("files." + call);
        };
    }

    private static Object base64(byte[] bytes) {
        return Shapes.map("base64", Base64.getEncoder().encodeToString(bytes));
    }
}
