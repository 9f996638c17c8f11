package dev.osb;

import static dev.osb.Task.await;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;

/**
 * Sandboxes that are kept ready on the client's side, so that taking one costs one request. The server sees nothing but
 * sandboxes being made and ended. {@link #shutdown} ends those that are ready, as does leaving a try-with-resources block.
 */
public final class Pool implements AutoCloseable {
    /** Failures in a row after which the pool waits before it tries again, as in the other SDKs. */
    private static final int DEGRADED_AFTER = 3;

    /** How long it then waits. There is no event to wait for: the server is busy or away. */
    private static final Duration DEGRADED_DELAY = Duration.ofSeconds(1);

    private record Idle(Sandbox sandbox, Runnable stopExpiry) {}

    private final Client client;
    private final SandboxSource source;
    private final PoolOptions options;
    private final ArrayDeque<Idle> idle = new ArrayDeque<>();
    private final Set<CompletableFuture<Void>> warming = new HashSet<>();
    private final List<Runnable> watchers = new ArrayList<>();
    private int maxIdle;
    private int failures;
    private Throwable lastFailure;
    private boolean isClosed;
    private Runnable stopDelay;

    /** Begins to keep sandboxes of an image ready. */
    public Pool(Client client, String image, PoolOptions options) {
        this(client, SandboxSource.image(image), options);
    }

    /** Begins to keep sandboxes ready. */
    public Pool(Client client, SandboxSource source, PoolOptions options) {
        this.client = client;
        this.source = source;
        this.options = options;
        this.maxIdle = options.maxIdle;
        fill();
    }

    /** Takes a sandbox that is ready; it then lives for so long and belongs to the caller. */
    public Sandbox acquire(Duration lifetime) {
        return await(acquireAsync(lifetime));
    }

    /** {@link #acquire} without blocking. */
    public CompletableFuture<Sandbox> acquireAsync(Duration lifetime) {
        Objects.requireNonNull(lifetime, "lifetime");
        return Task.start(task -> Task.until(() -> {
            Sandbox sandbox = take();
            if (sandbox == null) return task.link(() -> another(lifetime));
            return task.link(() -> Ready.until(sandbox, options.sandbox.ready()))
                .thenCompose(nothing -> task.link(() -> sandbox.renewAsync(lifetime)))
                .handle((expires, thrown) -> {
                    if (thrown == null) return CompletableFuture.completedFuture(sandbox);
                    // It died while it waited; the next may not have.
                    return discard(sandbox).thenCompose(gone -> task.isDone()
                        ? CompletableFuture.<Sandbox>failedFuture(Task.unwrapped(thrown)) : CompletableFuture.<Sandbox>completedFuture(null));
                }).thenCompose(result -> result);
        }));
    }

    private CompletableFuture<Sandbox> another(Duration lifetime) {
        if (options.policy == PoolOptions.Policy.FAIL) return CompletableFuture.failedFuture(new PoolEmptyException(lastFailure()));
        return client.createAsync(source, options.sandbox.copy().lifetime(lifetime));
    }

    private synchronized Throwable lastFailure() {
        return lastFailure;
    }

    /** How it stands. */
    public synchronized PoolStatus status() {
        return new PoolStatus(idle.size(), warming.size(), maxIdle, failures >= DEGRADED_AFTER);
    }

    /** Keeps this many ready from now on; what is too much is ended. */
    public void resize(int maxIdle) {
        await(resizeAsync(maxIdle));
    }

    /** {@link #resize} without blocking. */
    public CompletableFuture<Void> resizeAsync(int count) {
        List<Idle> surplus = new ArrayList<>();
        synchronized (this) {
            maxIdle = count;
            while (idle.size() > maxIdle) surplus.add(idle.poll());
        }
        fill();
        tell();
        return end(surplus);
    }

    /** Waits until as many are ready as should be, or making them failed. */
    public void waitUntilWarm(Duration timeout) {
        await(waitUntilWarmAsync(timeout));
    }

    /** {@link #waitUntilWarm} without blocking. */
    public CompletableFuture<Void> waitUntilWarmAsync(Duration timeout) {
        return Task.start(task -> {
            task.deadline(timeout, () -> new TimedOutException("warming the pool", timeout));
            CompletableFuture<Void> warm = new CompletableFuture<>();
            Runnable look = () -> {
                PoolStatus status = status();
                if (status.idle() >= status.maxIdle()) warm.complete(null);
                else if (status.isDegraded()) warm.completeExceptionally(new PoolEmptyException(lastFailure()));
                else if (isShutDown()) warm.completeExceptionally(new PoolClosedException());
            };
            synchronized (this) {
                watchers.add(look);
            }
            task.onEnd(() -> {
                synchronized (this) {
                    watchers.remove(look);
                }
            });
            look.run();
            return warm;
        });
    }

    private synchronized boolean isShutDown() {
        return isClosed;
    }

    /** Stops, and ends every sandbox that is ready. */
    public void shutdown() {
        await(shutdownAsync());
    }

    /** {@link #shutdown} without blocking. */
    public CompletableFuture<Void> shutdownAsync() {
        CompletableFuture<?>[] beingMade;
        synchronized (this) {
            isClosed = true;
            if (stopDelay != null) stopDelay.run();
            beingMade = warming.toArray(CompletableFuture[]::new);
        }
        // What is being made is made, and then ended with the others.
        return CompletableFuture.allOf(beingMade).handle((done, error) -> null).thenCompose(nothing -> {
            List<Idle> all;
            synchronized (this) {
                all = new ArrayList<>(idle);
                idle.clear();
            }
            tell();
            return end(all);
        });
    }

    /** Stops, and ends every sandbox that is ready. */
    @Override
    public void close() {
        shutdown();
    }

    /** The one that waited longest, so that all are used; null if none is ready. */
    private Sandbox take() {
        Idle found;
        synchronized (this) {
            if (isClosed) throw new PoolClosedException();
            found = idle.poll();
        }
        fill();
        if (found == null) return null;
        found.stopExpiry.run();
        return found.sandbox;
    }

    /** Makes what is missing. */
    private void fill() {
        for (;;) {
            // Done when the sandbox is among those that are ready.
            CompletableFuture<Void> done = new CompletableFuture<>();
            synchronized (this) {
                boolean isFull = idle.size() + warming.size() >= maxIdle || warming.size() >= options.warmupConcurrency;
                if (isClosed || stopDelay != null || isFull) return;
                warming.add(done);
            }
            // An idle sandbox must outlive its time in the pool by at least one use.
            Duration lifetime = options.idleTimeout.plus(CreateOptions.DEFAULT_LIFETIME);
            client.createAsync(source, options.sandbox.copy().lifetime(lifetime))
                // Not in this loop, which a creation that fails at once would never leave.
                .whenCompleteAsync((sandbox, error) -> made(done, sandbox, error), Task.THREADS);
        }
    }

    private void made(CompletableFuture<Void> done, Sandbox sandbox, Throwable error) {
        boolean isTooMuch = false;
        synchronized (this) {
            warming.remove(done);
            if (error == null) {
                failures = 0;
                // The pool became smaller while it was made.
                isTooMuch = idle.size() >= maxIdle;
                if (!isTooMuch) keep(sandbox);
            } else {
                failures++;
                lastFailure = Task.unwrapped(error);
                if (failures >= DEGRADED_AFTER && stopDelay == null && !isClosed) stopDelay = Task.after(DEGRADED_DELAY, this::goOn);
            }
        }
        // Whoever shuts the pool down waits for its end as well.
        if (isTooMuch) discard(sandbox).thenRun(() -> done.complete(null));
        else done.complete(null);
        tell();
        fill();
    }

    private void goOn() {
        synchronized (this) {
            stopDelay = null;
        }
        fill();
    }

    private void keep(Sandbox sandbox) {
        idle.add(new Idle(sandbox, Task.after(options.idleTimeout, () -> expire(sandbox))));
    }

    private void expire(Sandbox sandbox) {
        synchronized (this) {
            if (!idle.removeIf(waiting -> waiting.sandbox == sandbox)) return;
        }
        discard(sandbox);
        fill();
    }

    private void tell() {
        List<Runnable> all;
        synchronized (this) {
            all = List.copyOf(watchers);
        }
        all.forEach(Runnable::run);
    }

    private static CompletableFuture<Void> end(List<Idle> all) {
        return CompletableFuture.allOf(all.stream().map(waiting -> {
            waiting.stopExpiry.run();
            return discard(waiting.sandbox);
        }).toArray(CompletableFuture[]::new));
    }

    private static CompletableFuture<Void> discard(Sandbox sandbox) {
        // It ends by itself when this does not work.
        return sandbox.killAsync().handle((gone, error) -> null);
    }
}
