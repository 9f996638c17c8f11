package dev.osb;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Everything an execution gave. */
public final class Output {
    private final StringBuilder stdout = new StringBuilder();
    private final StringBuilder stderr = new StringBuilder();
    private final List<RichResult> results = new ArrayList<>();
    private String id;
    private ExecutionFailure failure;
    private Integer count;
    private Duration took;
    private boolean isComplete;

    Output() {}

    /** Takes an event in. */
    void push(ExecutionEvent event) {
        if (event instanceof ExecutionEvent.Stdout out) {
            stdout.append(out.text());
        } else if (event instanceof ExecutionEvent.Stderr err) {
            stderr.append(err.text());
        } else if (event instanceof ExecutionEvent.Started started) {
            id = started.id();
        } else if (event instanceof ExecutionEvent.Result result) {
            results.add(result.result());
        } else if (event instanceof ExecutionEvent.Count counted) {
            count = counted.count();
        } else if (event instanceof ExecutionEvent.Failed failed) {
            failure = failed.failure();
        } else if (event instanceof ExecutionEvent.Completed completed) {
            took = completed.took();
            isComplete = true;
        }
    }

    /** What to ask by; null if it did not begin. */
    public String id() {
        return id;
    }

    /** Its output. */
    public String stdout() {
        return stdout.toString();
    }

    /** Its error output. */
    public String stderr() {
        return stderr.toString();
    }

    /** Values and displays of code. */
    public List<RichResult> results() {
        return Collections.unmodifiableList(results);
    }

    /** How it failed; null if it did not. */
    public ExecutionFailure failure() {
        return failure;
    }

    /** How many cells the context has run; null for what is not code. */
    public Integer count() {
        return count;
    }

    /** How long it took; null where the daemon does not say. */
    public Duration took() {
        return took;
    }

    /**
     * The exit code: 0 when it completed, -1 for a signal, null when there is none because it did not start or was code
     * that failed.
     */
    public Integer exitCode() {
        if (failure == null) return isComplete ? 0 : null;
        return failure.value().matches("[+-]?\\d{1,9}") ? Integer.valueOf(failure.value()) : null;
    }

    /** How it ended. */
    public Ending ending() {
        String prefix = "signal: ";
        String first = failure == null || failure.traceback().isEmpty() ? "" : failure.traceback().get(0);
        if (first.startsWith(prefix)) return new Ending.Signal(first.substring(prefix.length()));
        Integer code = exitCode();
        return code == null ? new Ending.Failed() : new Ending.Code(code);
    }

    /** Whether it succeeded. */
    public boolean isSuccess() {
        return failure == null && isComplete;
    }

    /** The text of the last value of code; null if there is none. */
    public String text() {
        for (int at = results.size() - 1; at >= 0; at--) {
            if (results.get(at).text() != null) return results.get(at).text();
        }
        return null;
    }

    @Override
    public String toString() {
        return "Output[id=" + id + ", exitCode=" + exitCode() + ", stdout=" + stdout + ", stderr=" + stderr + ", failure=" + failure + "]";
    }
}
