package dev.osb;

import dev.osb.wire.JsonException;
import dev.osb.wire.JsonReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * What runs in a sandbox: its events one by one, or all of it by {@link #output}. A stream that breaks is taken up again
 * where it broke, so that every event is given out exactly once; that needs events that are numbered, which the published
 * daemon does not send: its streams end with a {@link StreamBrokenException} when they break.
 *
 * <p>Closing it, or cancelling a read, gives the stream up; what runs goes on. It has one reader at a time.
 */
public final class Execution implements Iterator<ExecutionEvent>, Iterable<ExecutionEvent>, AutoCloseable {
    /**
     * Attempts to take a broken stream up again without a single event in between: with the growing waits between them
     * some ten seconds, in which a server restarts.
     */
    private static final int RESUME_ATTEMPTS = 8;

    /** The wait before the second attempt; it doubles from there. The first is made at once. */
    private static final Duration RESUME_DELAY = Duration.ofMillis(100);

    /** After the last event the daemon closes the stream at once. A proxy that keeps it open must not keep the caller. */
    private static final Duration DRAIN_TIME = Duration.ofSeconds(1);

    /**
     * What an execution is of, which decides how its stream is read. A command can be taken up again; the events of a
     * session cannot be asked for again; texts of code are as they were written.
     */
    enum Kind { COMMAND, SESSION, CONTEXT }

    private final Kind kind;
    private final Target target;
    private EventStream wire;
    private volatile String id;
    private Long lastSeq;
    /** Attempts to go on since the last event. */
    private int failures;
    /** Events that have come, with their numbers, 0 for none; those before {@code readyAt} were given out. */
    private List<ExecutionEvent> ready = new ArrayList<>();
    private long[] readySeqs = new long[64];
    private int readyAt;
    private Long givenSeq;
    private boolean isOver;
    /** What broke the stream, told when the events that came before it were given out. */
    private Throwable failure;
    private volatile boolean isClosed;
    private volatile boolean isGivenUp;

    Execution(Target.Answer answer, Kind kind, Target target, String id, Long after) {
        this.kind = kind;
        this.target = target;
        this.id = id;
        this.lastSeq = after;
        this.givenSeq = after;
        this.wire = new EventStream(answer.body(), "the stream of " + what(), this::take);
    }

    /** What to ask by, once it has begun; null before. */
    public String id() {
        return id;
    }

    /** The number of the last event that was given out, to follow a command from; null where the server does not number them. */
    public Long lastSeq() {
        return readyAt > 0 && readySeqs[readyAt - 1] != 0 ? (Long) readySeqs[readyAt - 1] : givenSeq;
    }

    @Override
    public Iterator<ExecutionEvent> iterator() {
        return this;
    }

    /** Whether there is another event; waits for it. */
    @Override
    public boolean hasNext() {
        if (readyAt < ready.size() && !isGivenUp) return true;
        Task.await(fillAsync());
        return readyAt < ready.size() && !isGivenUp;
    }

    /** The next event; waits for it. */
    @Override
    public ExecutionEvent next() {
        if (!hasNext()) throw new NoSuchElementException("the execution is over");
        return ready.get(readyAt++);
    }

    /** {@link #next} without blocking; null at the end. */
    public CompletableFuture<ExecutionEvent> nextAsync() {
        if (readyAt < ready.size() && !isGivenUp) return CompletableFuture.completedFuture(ready.get(readyAt++));
        return Task.map(fillAsync(), filled -> readyAt < ready.size() && !isGivenUp ? ready.get(readyAt++) : null);
    }

    /** The events that have come since the last read, at least one; an empty list at the end. */
    public CompletableFuture<List<ExecutionEvent>> readAsync() {
        return Task.start(task -> task.link(this::fillAsync).thenApply(filled -> {
            List<ExecutionEvent> events = readyAt == 0 ? ready : List.copyOf(ready.subList(readyAt, ready.size()));
            if (readyAt == 0 && !events.isEmpty()) {
                givenSeq = readySeqs[events.size() - 1] == 0 ? givenSeq : (Long) readySeqs[events.size() - 1];
                ready = new ArrayList<>();
            } else {
                readyAt = ready.size();
            }
            return events;
        }));
    }

    /** Reads to the end and answers everything. */
    public Output output() {
        return Task.await(outputAsync());
    }

    /** {@link #output} without blocking. */
    public CompletableFuture<Output> outputAsync() {
        Output output = new Output();
        return Task.map(forEachAsync(output::push), nothing -> output);
    }

    /** Calls this with every event, on a thread of the library's, which it must not hold up. */
    public CompletableFuture<Void> forEachAsync(Consumer<? super ExecutionEvent> act) {
        return Task.start(task -> Task.until(() -> task.link(this::readAsync).thenApply(events -> {
            events.forEach(act);
            return events.isEmpty() ? Boolean.TRUE : null;
        })).thenApply(done -> null));
    }

    /** Gives the stream up; what runs goes on. A reader that waits is told of the end. */
    @Override
    public void close() {
        isGivenUp = true;
        closeWire();
    }

    private void closeWire() {
        EventStream open;
        synchronized (this) {
            isClosed = true;
            open = wire;
        }
        open.close();
    }

    /** Sees to it that an event is ready, or that it is known that none comes. */
    private CompletableFuture<Boolean> fillAsync() {
        if (readyAt < ready.size() && !isGivenUp) return CompletableFuture.completedFuture(true);
        if (failure != null) {
            Throwable told = failure;
            // Nothing comes after an error.
            failure = null;
            return CompletableFuture.failedFuture(told);
        }
        return Task.start(task -> {
            CompletableFuture<Boolean> filled = Task.until(() -> {
                forgetReady();
                return isClosed ? CompletableFuture.completedFuture(true) : read(task).thenApply(nothing -> ready.isEmpty() ? null : true);
            });
            // Whoever cancels a read gives the stream up.
            task.onEnd(() -> {
                if (task.isCompletedExceptionally()) closeWire();
            });
            return filled.exceptionallyCompose(thrown -> {
                // The reader that waited when it was given up is told of its end, not of an error.
                if (isClosed && !task.isDone()) return CompletableFuture.completedFuture(true);
                closeWire();
                if (ready.isEmpty() || task.isDone()) return CompletableFuture.failedFuture(thrown);
                failure = Task.unwrapped(thrown);
                return CompletableFuture.completedFuture(true);
            });
        });
    }

    private void forgetReady() {
        givenSeq = lastSeq();
        ready.clear();
        readyAt = 0;
    }

    private CompletableFuture<Void> read(Task<?> task) {
        if (isOver) return drain();
        return wire.read().thenApply(isEnd -> (Object) isEnd).exceptionally(Task::unwrapped).thenCompose(result -> {
            if (result instanceof Boolean isEnd) {
                return isEnd && !isOver ? resume(task, null) : CompletableFuture.completedFuture(null);
            }
            if (result instanceof ConnectionException broken) {
                // What came whole before the connection broke was taken.
                return isOver ? drain() : resume(task, broken);
            }
            return CompletableFuture.failedFuture((Throwable) result);
        });
    }

    /** Everything has come; only the end of the stream is waited for, whatever it is. */
    private CompletableFuture<Void> drain() {
        Runnable stop = Task.after(DRAIN_TIME, wire::close);
        return wire.read().handle((isEnd, error) -> {
            stop.run();
            if (error != null || isEnd) closeWire();
            return null;
        });
    }

    private void take(JsonReader reader) {
        String type = null;
        String text = "";
        Long seq = null;
        Long count = null;
        Long time = null;
        Object results = null;
        Object error = null;
        Object code = null;
        Object message = null;
        reader.object();
        for (String name = reader.name(); name != null; name = reader.name()) {
            switch (name) {
                case "type" -> type = reader.text();
                case "text" -> text = reader.text();
                case "seq" -> seq = reader.wide();
                case "execution_count" -> count = reader.wide();
                case "execution_time" -> time = reader.wide();
                case "results" -> results = reader.value();
                case "error" -> error = reader.value();
                case "code" -> code = reader.value();
                case "message" -> message = reader.value();
                default -> reader.skip();
            }
        }
        if (type == null) throw new StreamBrokenException(what(), message + " (" + code + ")", null);
        if (seq != null) {
            if (lastSeq != null && seq <= lastSeq) return;
            lastSeq = seq;
            failures = 0;
        }
        ExecutionEvent event = switch (type) {
            case "stdout" -> new ExecutionEvent.Stdout(line(text, seq));
            case "stderr" -> new ExecutionEvent.Stderr(line(text, seq));
            case "init" -> new ExecutionEvent.Started(id = text == null ? "" : text.stripTrailing());
            case "result" -> new ExecutionEvent.Result(new RichResult(object(results), count == null ? null : count.intValue()));
            case "execution_count" -> new ExecutionEvent.Count(count == null ? 0 : count.intValue());
            case "error" -> new ExecutionEvent.Failed(failureOf(object(error)));
            case "execution_complete" -> new ExecutionEvent.Completed(time == null ? null : Duration.ofMillis(time));
            default -> null;
        };
        isOver |= event instanceof ExecutionEvent.Failed || event instanceof ExecutionEvent.Completed;
        if (event != null) give(event, seq);
    }

    private void give(ExecutionEvent event, Long seq) {
        if (ready.size() == readySeqs.length) readySeqs = Arrays.copyOf(readySeqs, 2 * readySeqs.length);
        readySeqs[ready.size()] = seq == null ? 0 : seq;
        ready.add(event);
    }

    /** Events without numbers are lines without their ends, except those of code. */
    private String line(String text, Long seq) {
        String given = text == null ? "" : text;
        return seq != null || kind == Kind.CONTEXT || given.endsWith("\n") ? given : given + "\n";
    }

    private static Map<?, ?> object(Object json) {
        if (json == null) return Map.of();
        if (json instanceof Map<?, ?> map) return map;
        throw new JsonException("something else stands where an object should");
    }

    private static ExecutionFailure failureOf(Map<?, ?> error) {
        List<String> traceback = new ArrayList<>();
        if (error.get("traceback") instanceof List<?> lines) lines.forEach(line -> traceback.add(String.valueOf(line)));
        String name = error.get("ename") instanceof String text ? text : "";
        String value = error.get("evalue") instanceof String text ? text : "";
        return new ExecutionFailure(name, value, List.copyOf(traceback));
    }

    private String what() {
        return kind.name().toLowerCase(java.util.Locale.ROOT) + " " + (id == null ? "(not begun)" : id);
    }

    /** Goes on after the last event that came. */
    private CompletableFuture<Void> resume(Task<?> task, Throwable broken) {
        if (id == null || lastSeq == null || kind != Kind.COMMAND) {
            String message = "the connection ended before the last event, and this kind of stream cannot be taken up again";
            return CompletableFuture.failedFuture(new StreamBrokenException(what(), message, broken));
        }
        if (failures >= RESUME_ATTEMPTS) {
            return CompletableFuture.failedFuture(new StreamBrokenException(what(), "the sandbox could not be reached again", broken));
        }
        Duration delay = failures == 0 ? Duration.ZERO : RESUME_DELAY.multipliedBy(1L << failures - 1);
        failures++;
        Call call = Call.get("/command/" + Text.segment(id) + "/events").query("after", lastSeq);
        return task.pause(delay).thenCompose(nothing -> task.link(() -> target.send(call))).handle((answer, thrown) -> {
            if (thrown == null) return goOn(answer);
            Throwable error = Task.unwrapped(thrown);
            if (!(error instanceof OpenSandboxException ours)) return CompletableFuture.<Void>failedFuture(error);
            if (ours.isRetryable()) return resume(task, ours);
            return CompletableFuture.<Void>failedFuture(new StreamBrokenException(what(), "its rest is not to be had", ours));
        }).thenCompose(next -> next);
    }

    private CompletableFuture<Void> goOn(Target.Answer answer) {
        EventStream next = new EventStream(answer.body(), "the stream of " + what(), this::take);
        boolean isLate;
        synchronized (this) {
            wire = next;
            isLate = isClosed;
        }
        if (isLate) next.close();
        return CompletableFuture.completedFuture(null);
    }
}
