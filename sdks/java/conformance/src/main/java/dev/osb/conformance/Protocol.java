package dev.osb.conformance;

import dev.osb.OpenSandboxException;
import dev.osb.wire.Json;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Reads calls from stdin, one JSON object a line, and answers on stdout, as sdks/conformance/README.md says. How a call
 * is made and given up is the language's affair.
 */
public abstract class Protocol {
    /** What a call leaves under a name: the object, what is shown of it, and how it is closed; the latter two may be null. */
    public record Held(Object value, Object shown, AutoCloseable close) {}

    private final Map<String, Held> held = Collections.synchronizedMap(new LinkedHashMap<>());
    private final Map<Long, Runnable> running = new ConcurrentHashMap<>();
    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    /** Makes a call and gives its result to {@link #done}, or its error to {@link #failed}; answers how it is given up. */
    protected abstract Runnable start(long id, String name, Object on, Arguments with);

    public final void serve() throws IOException {
        answer(Shapes.map("ready", true));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<?, ?> message = (Map<?, ?>) Json.parse(line);
            if (message.get("cancel") instanceof Long id) running.getOrDefault(id, () -> {}).run();
            else call(message);
        }
        // Whatever still waits has nobody to answer.
        System.exit(0);
    }

    private void call(Map<?, ?> message) {
        long id = (Long) message.get("id");
        String name = (String) message.get("call");
        String on = (String) message.get("on");
        Held object = on == null ? null : held.get(on);
        if (on != null && object == null) {
            answer(Shapes.map("id", id, "error", Shapes.map("kind", "runner", "message", "nothing is held as " + on)));
            return;
        }
        names.put(id, message.get("as") instanceof String as ? as : "");
        Map<?, ?> with = message.get("with") instanceof Map<?, ?> given ? given : Map.of();
        running.put(id, start(id, name, object == null ? null : object.value(), new Arguments(with)));
    }

    private final Map<Long, String> names = new ConcurrentHashMap<>();

    protected final void done(long id, Object result) {
        String as = names.remove(id);
        running.remove(id);
        Object shown = result;
        if (result instanceof Held kept) {
            held.put(as, kept);
            shown = kept.shown();
        }
        answer(Shapes.map("id", id, "result", shown));
    }

    protected final void failed(long id, Throwable error, boolean isCancelled) {
        names.remove(id);
        running.remove(id);
        answer(Shapes.map("id", id, "error", isCancelled ? Shapes.map("kind", "cancelled", "message", String.valueOf(error)) : described(error)));
    }

    private static Object described(Throwable error) {
        if (error instanceof Loaded.Told told) return told.error;
        if (error instanceof OpenSandboxException ours) return Shapes.error(ours);
        StringWriter trace = new StringWriter();
        error.printStackTrace(new PrintWriter(trace));
        return Shapes.map("kind", "runner", "message", trace.toString());
    }

    /** Closes and forgets everything that is held, the last first. */
    protected final void reset() throws Exception {
        List<Held> all;
        synchronized (held) {
            all = new ArrayList<>(held.values());
            held.clear();
        }
        Collections.reverse(all);
        for (Held kept : all) if (kept.close() != null) kept.close().close();
    }

    private void answer(Map<String, Object> message) {
        String line = Json.write(message);
        synchronized (out) {
            out.println(line);
        }
    }
}
