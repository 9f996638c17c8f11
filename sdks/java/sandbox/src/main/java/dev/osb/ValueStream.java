package dev.osb;

import dev.osb.wire.JsonException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/**
 * Values as they come. Closing it, or cancelling a read, gives the connection up. It has one reader at a time.
 *
 * @param <T> what comes
 */
public final class ValueStream<T> implements Iterator<T>, Iterable<T>, AutoCloseable {
    private final EventStream wire;
    private List<T> ready = new ArrayList<>();
    private int readyAt;
    private boolean isOver;
    private volatile boolean isClosed;

    ValueStream(Target.Answer answer, String what, Function<Object, T> read) {
        wire = new EventStream(answer.body(), what, reader -> {
            try {
                ready.add(read.apply(reader.value()));
            } catch (JsonException error) {
                throw new UnreadableException(what, error.getMessage(), error);
            }
        });
    }

    @Override
    public Iterator<T> iterator() {
        return this;
    }

    /** Whether there is another value; waits for it. */
    @Override
    public boolean hasNext() {
        if (readyAt < ready.size()) return true;
        Task.await(fillAsync());
        return readyAt < ready.size();
    }

    /** The next value; waits for it. */
    @Override
    public T next() {
        if (!hasNext()) throw new NoSuchElementException("the stream is over");
        return ready.get(readyAt++);
    }

    /** The values that have come since the last read, at least one; an empty list at the end. */
    public CompletableFuture<List<T>> readAsync() {
        return Task.start(task -> task.link(this::fillAsync).thenApply(filled -> {
            List<T> values = ready.subList(readyAt, ready.size());
            ready = new ArrayList<>();
            readyAt = 0;
            return values;
        }));
    }

    private CompletableFuture<Boolean> fillAsync() {
        if (readyAt < ready.size()) return CompletableFuture.completedFuture(true);
        ready.clear();
        readyAt = 0;
        return Task.start(task -> {
            // Whoever cancels a read gives the stream up.
            task.onEnd(() -> {
                if (task.isCompletedExceptionally()) close();
            });
            CompletableFuture<Boolean> filled = Task.until(() -> isOver || isClosed
                ? CompletableFuture.completedFuture(true)
                : wire.read().thenApply(isEnd -> {
                    isOver |= isEnd;
                    return ready.isEmpty() ? null : true;
                }));
            return filled.exceptionallyCompose(thrown -> {
                // The reader that waited when the stream was given up is told of its end, not of an error.
                if (isClosed && !task.isDone()) return CompletableFuture.completedFuture(true);
                close();
                return CompletableFuture.failedFuture(thrown);
            });
        });
    }

    /** Gives the stream up. A reader that waits is told of the end. */
    @Override
    public void close() {
        isClosed = true;
        wire.close();
    }
}
