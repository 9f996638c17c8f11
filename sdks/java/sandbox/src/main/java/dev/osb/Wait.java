package dev.osb;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/** Waiting for a change on the server: told by its stream of events where it has one, by asking again where not. */
final class Wait {
    /** How long to wait before asking a server again that tells nobody of changes. */
    private static final Duration ASK_AGAIN = Duration.ofMillis(500);

    private Wait() {}

    /** Calls {@code check} now and after every change until it answers something, or the time has passed. */
    static <T> CompletableFuture<T> until(
        Client client, String what, String sandboxId, Duration limit, Supplier<CompletableFuture<T>> check) {
        return Task.start(task -> {
            task.deadline(limit, () -> new TimedOutException("waiting for " + what, limit));
            boolean[] isFirst = {true};
            return Task.until(() -> {
                if (isFirst[0]) {
                    isFirst[0] = false;
                    return task.link(check);
                }
                return byEvents(client, sandboxId, task, check).thenCompose(told ->
                    told != null ? CompletableFuture.completedFuture(told)
                        : task.pause(ASK_AGAIN).thenCompose(nothing -> task.link(check)));
            });
        });
    }

    /** Null when the server has no events, or when their stream ends before what is waited for came. */
    private static <T> CompletableFuture<T> byEvents(Client client, String sandboxId, Task<T> task, Supplier<CompletableFuture<T>> check) {
        return task.link(() -> client.eventsAsync(sandboxId, null)).thenCompose(events -> {
            task.onEnd(events::close);
            boolean[] isOver = {false};
            // Asked only now that no change can be missed any more.
            CompletableFuture<Object> told = Task.until(() -> task.link(check).thenCompose(done -> {
                if (done != null) return CompletableFuture.completedFuture((Object) done);
                return events.readAsync().thenApply(seen -> {
                    isOver[0] = seen.isEmpty();
                    return isOver[0] ? (Object) isOver : null;
                });
            }));
            @SuppressWarnings("unchecked") // What is not the mark of the end is what check answered.
            CompletableFuture<T> result = told.thenApply(value -> value == isOver ? null : (T) value);
            return result;
        }).exceptionallyCompose(thrown -> {
            Throwable error = Task.unwrapped(thrown);
            boolean isWithoutEvents = error instanceof ApiException refused && Set.of(404, 405, 501).contains(refused.status())
                && refused.request().endsWith("/events");
            return isWithoutEvents || error instanceof ConnectionException
                ? CompletableFuture.completedFuture(null) : CompletableFuture.failedFuture(error);
        });
    }
}
