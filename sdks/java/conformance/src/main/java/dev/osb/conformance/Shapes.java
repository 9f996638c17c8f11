package dev.osb.conformance;

import dev.osb.Ending;
import dev.osb.ExecutionEvent;
import dev.osb.ExecutionFailure;
import dev.osb.FileInfo;
import dev.osb.OpenSandboxException;
import dev.osb.Output;
import dev.osb.PoolStatus;
import dev.osb.RichResult;
import dev.osb.TerminalEvent;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;

/** The SDK's own types as sdks/conformance/README.md writes them. */
public final class Shapes {
    private Shapes() {}

    /** Names and values, in turn. */
    public static Map<String, Object> map(Object... pairs) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int at = 0; at < pairs.length; at += 2) map.put((String) pairs[at], pairs[at + 1]);
        return map;
    }

    private static String lower(Enum<?> value) {
        return value.name().toLowerCase(Locale.ROOT);
    }

    private static Long milliseconds(Duration took) {
        return took == null ? null : (Long) took.toMillis();
    }

    private static Map<String, Object> failure(ExecutionFailure failure) {
        if (failure == null) return null;
        return map("name", failure.name(), "value", failure.value(), "traceback", failure.traceback());
    }

    private static Map<String, Object> result(RichResult result) {
        return map("kind", lower(result.kind()), "by_type", result.byType(), "text", result.text(), "count", result.count());
    }

    private static Map<String, Object> ending(Ending ending) {
        if (ending instanceof Ending.Code code) return map("kind", "code", "code", code.code());
        if (ending instanceof Ending.Signal signal) return map("kind", "signal", "signal", signal.signal());
        return map("kind", "failed");
    }

    public static Map<String, Object> output(Output output) {
        return map("id", output.id(), "stdout", output.stdout(), "stderr", output.stderr(), "exit_code", output.exitCode(),
            "ending", ending(output.ending()), "success", output.isSuccess(), "error", failure(output.failure()),
            "results", output.results().stream().map(Shapes::result).map(Object.class::cast).toList(), "text", output.text(),
            "count", output.count(), "took_ms", milliseconds(output.took()));
    }

    public static Map<String, Object> event(ExecutionEvent event) {
        if (event instanceof ExecutionEvent.Started started) return map("type", "started", "id", started.id());
        if (event instanceof ExecutionEvent.Stdout out) return map("type", "stdout", "text", out.text());
        if (event instanceof ExecutionEvent.Stderr err) return map("type", "stderr", "text", err.text());
        if (event instanceof ExecutionEvent.Count count) return map("type", "count", "count", count.count());
        if (event instanceof ExecutionEvent.Completed completed) return map("type", "completed", "took_ms", milliseconds(completed.took()));
        Map<String, Object> shown = event instanceof ExecutionEvent.Result found
            ? result(found.result()) : failure(((ExecutionEvent.Failed) event).failure());
        shown.put("type", event instanceof ExecutionEvent.Result ? "result" : "error");
        return shown;
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    public static Map<String, Object> terminalEvent(TerminalEvent event) {
        if (event instanceof TerminalEvent.Output out) return map("type", "output", "text", text(out.bytes()));
        if (event instanceof TerminalEvent.ErrorOutput err) return map("type", "error_output", "text", text(err.bytes()));
        if (event instanceof TerminalEvent.Replay replay) return map("type", "replay", "offset", replay.offset(), "text", text(replay.bytes()));
        if (event instanceof TerminalEvent.Refused refused) return map("type", "refused", "code", refused.code(), "message", refused.message());
        if (event instanceof TerminalEvent.Exit exit) return map("type", "exit", "code", exit.code(), "signal", exit.signal());
        if (event instanceof TerminalEvent.Closed closed) return map("type", "closed", "code", closed.code(), "reason", closed.reason());
        return map("type", "connected");
    }

    public static Map<String, Object> fileInfo(FileInfo info) {
        return map("path", info.path(), "raw_path", info.rawPath(), "type", info.type(), "size", info.size(),
            "modified_at", info.modifiedAt(), "created_at", info.createdAt(), "owner", info.owner(), "group", info.group(),
            "mode", Integer.valueOf(Integer.toOctalString(info.mode())));
    }

    public static Map<String, Object> poolStatus(PoolStatus status) {
        return map("idle", status.idle(), "warming", status.warming(), "max_idle", status.maxIdle(), "is_degraded", status.isDegraded());
    }

    public static Map<String, Object> error(OpenSandboxException error) {
        // An error that wraps one from the wire gives that one's code.
        boolean wraps = error.getCause() instanceof OpenSandboxException inner && inner.status() != 0;
        String code = wraps ? ((OpenSandboxException) error.getCause()).code() : error.code();
        return map("kind", lower(error.kind()), "message", error.getMessage(), "status", error.status() == 0 ? null : error.status(),
            "code", code, "request_id", error.requestId(), "retryable", error.isRetryable(), "remedy", error.remedy());
    }
}
