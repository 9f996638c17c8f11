package dev.osb;

import java.time.Duration;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ForkJoinWorkerThread;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * A call under way, as a future whose cancellation reaches what it waits for. A plain {@link CompletableFuture} that
 * was composed of others leaves those running when it is cancelled.
 */
final class Task<T> extends CompletableFuture<T> {
    /** Continuations run here. They do not block, and what a program's own callbacks wait for with {@link #await} is compensated. */
    static final ForkJoinPool THREADS =
        new ForkJoinPool(Math.max(2, Runtime.getRuntime().availableProcessors()), Task::thread, null, true);

    private static final ScheduledThreadPoolExecutor TIMER = timer();

    /** What ends with this task. Null once it has ended. */
    private Set<Runnable> linked = new LinkedHashSet<>();

    private Task() {}

    private static ForkJoinWorkerThread thread(ForkJoinPool pool) {
        ForkJoinWorkerThread thread = ForkJoinPool.defaultForkJoinWorkerThreadFactory.newThread(pool);
        thread.setName("osb-" + thread.getPoolIndex());
        thread.setDaemon(true);
        return thread;
    }

    private static ScheduledThreadPoolExecutor timer() {
        ScheduledThreadPoolExecutor timer = new ScheduledThreadPoolExecutor(1, work -> {
            Thread thread = new Thread(work, "osb-timer");
            thread.setDaemon(true);
            return thread;
        });
        timer.setRemoveOnCancelPolicy(true);
        return timer;
    }

    /** Starts a call. What it waits for is given to {@link #link}. */
    static <T> CompletableFuture<T> start(Function<Task<T>, CompletableFuture<T>> work) {
        Task<T> task = new Task<>();
        CompletableFuture<T> inner;
        try {
            inner = work.apply(task);
        } catch (RuntimeException error) {
            inner = failedFuture(error);
        }
        inner.whenComplete((value, error) -> {
            if (error != null) task.completeExceptionally(unwrapped(error));
            // It was cancelled or too late meanwhile, and nobody takes what came.
            else if (!task.complete(value)) discard(value);
            task.end();
        });
        return task;
    }

    /** Lets go of what nobody takes. */
    private static void discard(Object value) {
        if (value instanceof Sandbox sandbox) {
            sandbox.discard();
        } else if (value instanceof AutoCloseable open) {
            try {
                open.close();
            } catch (Exception error) {
                // Nobody is left to be told.
            }
        }
    }

    /** Starts another call, which is cancelled with this one; not when this one has ended. */
    <U> CompletableFuture<U> link(Supplier<CompletableFuture<U>> start) {
        if (isDone()) return failedFuture(new CancellationException("the call was given up"));
        CompletableFuture<U> other = start.get();
        Runnable cancel = () -> other.cancel(true);
        onEnd(cancel);
        other.whenComplete((value, error) -> forget(cancel));
        return other;
    }

    /** A call and what is made of its answer, which are cancelled together; {@code thenApply} would not reach the call. */
    static <A, B> CompletableFuture<B> map(CompletableFuture<A> call, Function<? super A, ? extends B> change) {
        return start(task -> task.link(() -> call).thenApply(change));
    }

    /** Runs this when the task ends, however it does; at once when it has. */
    void onEnd(Runnable act) {
        synchronized (this) {
            if (linked != null) {
                linked.add(act);
                return;
            }
        }
        act.run();
    }

    private synchronized void forget(Runnable act) {
        if (linked != null) linked.remove(act);
    }

    /** Ends the task with an error, and what it waits for. */
    void fail(Throwable error) {
        completeExceptionally(error);
        end();
    }

    /** Fails with this error when so much time has passed; null is never. */
    void deadline(Duration limit, Supplier<? extends RuntimeException> error) {
        if (limit == null) return;
        Runnable stop = after(limit, () -> fail(error.get()));
        onEnd(stop);
    }

    @Override
    public boolean cancel(boolean mayInterrupt) {
        boolean isCancelled = super.cancel(mayInterrupt);
        end();
        return isCancelled;
    }

    private void end() {
        List<Runnable> all;
        synchronized (this) {
            if (linked == null) return;
            all = List.copyOf(linked);
            linked = null;
        }
        all.forEach(Runnable::run);
    }

    /** Runs this after a while, unless what it answers is run before. */
    static Runnable after(Duration delay, Runnable act) {
        long nanoseconds = delay.compareTo(Duration.ofDays(365)) > 0 ? TimeUnit.DAYS.toNanos(365) : delay.toNanos();
        ScheduledFuture<?> timer = TIMER.schedule(() -> THREADS.execute(act), nanoseconds, TimeUnit.NANOSECONDS);
        return () -> timer.cancel(false);
    }

    /** Waits for a while. */
    CompletableFuture<Void> pause(Duration delay) {
        CompletableFuture<Void> over = new CompletableFuture<>();
        onEnd(after(delay, () -> over.complete(null)));
        return over;
    }

    /** Asks again and again until there is an answer. Does not deepen the stack with answers that are there at once. */
    static <T> CompletableFuture<T> until(Supplier<CompletableFuture<T>> ask) {
        CompletableFuture<T> result = new CompletableFuture<>();
        again(ask, result);
        return result;
    }

    private static <T> void again(Supplier<CompletableFuture<T>> ask, CompletableFuture<T> result) {
        try {
            for (;;) {
                CompletableFuture<T> answer = ask.get();
                if (!answer.isDone()) {
                    answer.whenComplete((value, error) -> {
                        if (error != null) result.completeExceptionally(unwrapped(error));
                        else if (value != null) result.complete(value);
                        else again(ask, result);
                    });
                    return;
                }
                T value = answer.join();
                if (value != null) {
                    result.complete(value);
                    return;
                }
            }
        } catch (RuntimeException error) {
            result.completeExceptionally(unwrapped(error));
        }
    }

    /** Waits for a call as its thread; an interrupt gives the call up. */
    static <T> T await(CompletableFuture<T> call) {
        try {
            return call.get();
        } catch (InterruptedException error) {
            call.cancel(true);
            Thread.currentThread().interrupt();
            throw new CancelledException(error);
        } catch (ExecutionException error) {
            Throwable cause = unwrapped(error.getCause());
            if (cause instanceof OpenSandboxException ours) {
                // It was made by another thread; where it was waited for says more.
                ours.fillInStackTrace();
                throw ours;
            }
            if (cause instanceof RuntimeException theirs) throw theirs;
            if (cause instanceof Error fault) throw fault;
            throw new CompletionException(cause);
        }
    }

    /** The error behind those that futures wrap it in. */
    static Throwable unwrapped(Throwable error) {
        while (error instanceof CompletionException && error.getCause() != null) error = error.getCause();
        return error;
    }

    /** Whether a call ended because it was cancelled. */
    static boolean isCancellation(Throwable error) {
        return unwrapped(error) instanceof CancellationException;
    }
}
