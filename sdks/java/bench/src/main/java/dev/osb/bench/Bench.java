package dev.osb.bench;

import com.alibaba.opensandbox.sandbox.domain.models.execd.executions.ExecutionHandlers;
import com.alibaba.opensandbox.sandbox.domain.models.execd.executions.RunCommandRequest;
import com.sun.management.OperatingSystemMXBean;
import dev.osb.Client;
import dev.osb.CommandOptions;
import dev.osb.ConnectionConfig;
import dev.osb.CreateOptions;
import dev.osb.Execution;
import dev.osb.ExecutionEvent;
import dev.osb.Sandbox;
import dev.osb.SandboxSource;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;

/**
 * How fast the SDK is beside the published one, in one run against the same servers: a stub that answers at once, which
 * leaves the client's own time, and a real server. Prints a table, and whether what is promised was kept; ends with an
 * error where it was not. {@code bench/run} starts it.
 */
public final class Bench {
    private static final int WARM_UP = 300;
    private static final int ROUNDS = 300;
    private static final int REAL_ROUNDS = 30;
    private static final int LINES = 1_000_000;
    private static final int AT_ONCE = 200;

    private Bench() {}

    /** The median in milliseconds, and the processor time of this process for one, which a busy machine does not change. */
    private record First(double median, double processor) {
        @Override
        public String toString() {
            return String.format("%.2f, %.2f of the processor", median, processor);
        }
    }

    /** Lines a second, and MiB that a million of them added. */
    private record Lines(long rate, long added) {
        @Override
        public String toString() {
            return String.format("%,d lines/s, %d MiB added", rate, added);
        }
    }

    /** Many at once. */
    private record Together(double seconds, int threads) {
        @Override
        public String toString() {
            return String.format("%.2f s, %d threads", seconds, threads);
        }
    }

    /** Both clients behind the same few words. */
    private interface Subject<S> {
        S create();

        /** Runs a command until its first output came; answers what is to be done about the rest of it. */
        Runnable first(S sandbox, String command);

        long lines(S sandbox, String command);

        void end(S sandbox);

        /** Makes and uses so many at once; answers how many threads that took. */
        int atOnce(int count) throws Exception;
    }

    private record Ours(Client client) implements Subject<Sandbox> {
        @Override
        public Sandbox create() {
            return client.create("host");
        }

        @Override
        public Runnable first(Sandbox sandbox, String command) {
            Execution execution = sandbox.commands().start(command);
            while (!(execution.next() instanceof ExecutionEvent.Stdout)) continue;
            return execution::output;
        }

        @Override
        public long lines(Sandbox sandbox, String command) {
            long lines = 0;
            try (Execution execution = sandbox.commands().start(command)) {
                // A line that the daemon had read half of comes as two events.
                while (execution.hasNext()) if (execution.next() instanceof ExecutionEvent.Stdout out && out.text().endsWith("\n")) lines++;
            }
            return lines;
        }

        @Override
        public void end(Sandbox sandbox) {
            sandbox.kill();
        }

        @Override
        public int atOnce(int count) {
            List<CompletableFuture<Sandbox>> making = Stream.generate(() -> client.createAsync(SandboxSource.image("host"), new CreateOptions()))
                .limit(count).toList();
            List<CompletableFuture<Sandbox>> used = making.stream().map(made -> made.thenCompose(sandbox ->
                sandbox.commands().runAsync("echo hi", new CommandOptions()).thenApply(output -> sandbox))).toList();
            int[] threads = {0};
            used.forEach(one -> {
                one.join();
                threads[0] = Math.max(threads[0], Thread.activeCount());
            });
            CompletableFuture.allOf(used.stream().map(one -> one.join().killAsync()).toArray(CompletableFuture[]::new)).join();
            return threads[0];
        }
    }

    private record Published(com.alibaba.opensandbox.sandbox.config.ConnectionConfig config)
        implements Subject<com.alibaba.opensandbox.sandbox.Sandbox> {
        @Override
        public com.alibaba.opensandbox.sandbox.Sandbox create() {
            return com.alibaba.opensandbox.sandbox.Sandbox.builder().connectionConfig(config).image("host").build();
        }

        @Override
        public Runnable first(com.alibaba.opensandbox.sandbox.Sandbox sandbox, String command) {
            // It has no stream that can be left, so that it waits for the end of a short command.
            sandbox.commands().run(command);
            return () -> {};
        }

        @Override
        public long lines(com.alibaba.opensandbox.sandbox.Sandbox sandbox, String command) {
            AtomicLong lines = new AtomicLong();
            ExecutionHandlers handlers = new ExecutionHandlers.Builder().onStdout(message -> lines.incrementAndGet()).build();
            sandbox.commands().run(new RunCommandRequest.Builder().command(command).handlers(handlers).build());
            return lines.get();
        }

        @Override
        public void end(com.alibaba.opensandbox.sandbox.Sandbox sandbox) {
            sandbox.kill();
            sandbox.close();
        }

        @Override
        public int atOnce(int count) throws Exception {
            ExecutorService pool = Executors.newFixedThreadPool(count);
            List<Future<com.alibaba.opensandbox.sandbox.Sandbox>> used = new ArrayList<>();
            for (int at = 0; at < count; at++) {
                used.add(pool.submit(() -> {
                    com.alibaba.opensandbox.sandbox.Sandbox sandbox = create();
                    first(sandbox, "echo hi");
                    return sandbox;
                }));
            }
            int threads = 0;
            for (Future<com.alibaba.opensandbox.sandbox.Sandbox> one : used) {
                one.get();
                threads = Math.max(threads, Thread.activeCount());
            }
            for (Future<com.alibaba.opensandbox.sandbox.Sandbox> one : used) end(one.get());
            pool.shutdown();
            return threads;
        }
    }

    private static <S> First firstOutput(Subject<S> subject, int rounds) {
        double[] times = new double[rounds];
        OperatingSystemMXBean machine = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long processor = 0;
        // The first rounds also pay for compiling the code.
        for (int round = -WARM_UP; round < rounds; round++) {
            long spent = machine.getProcessCpuTime();
            long begun = System.nanoTime();
            S sandbox = subject.create();
            Runnable rest = subject.first(sandbox, "echo hi");
            if (round >= 0) {
                times[round] = (System.nanoTime() - begun) / 1e6;
                processor += machine.getProcessCpuTime() - spent;
            }
            rest.run();
            subject.end(sandbox);
        }
        Arrays.sort(times);
        return new First(times[rounds / 2], processor / 1e6 / rounds);
    }

    private static <S> Lines consume(Subject<S> subject, String command) throws IOException {
        S sandbox = subject.create();
        System.gc();
        long before = residentKibibytes();
        long begun = System.nanoTime();
        long lines = subject.lines(sandbox, command);
        double seconds = (System.nanoTime() - begun) / 1e9;
        long added = residentKibibytes() - before;
        if (lines < LINES) throw new IllegalStateException(lines + " lines came instead of " + LINES);
        subject.end(sandbox);
        return new Lines(Math.round(LINES / seconds), added / 1024);
    }

    private static long residentKibibytes() throws IOException {
        return Files.readAllLines(Path.of("/proc/self/status")).stream().filter(line -> line.startsWith("VmRSS"))
            .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", ""))).findFirst().orElseThrow();
    }

    private static void row(String what, Object ours, Object published) {
        System.out.println("| " + what + " | " + ours + " | " + published + " |");
    }

    /** What a measure of one client says; a client that cannot do it says why. */
    private interface Measure {
        Object of() throws Exception;
    }

    private static Object said(Measure measure) {
        try {
            return measure.of();
        } catch (Exception | OutOfMemoryError error) {
            Throwable cause = error;
            while (cause.getCause() != null) cause = cause.getCause();
            return "fails: " + cause.getClass().getSimpleName() + " " + String.valueOf(cause.getMessage()).lines().findFirst().orElse("");
        }
    }

    private static Object linesOf(Subject<?> subject, String command) {
        return said(() -> {
            consume(subject, command);
            return consume(subject, command);
        });
    }

    public static void main(String[] arguments) {
        String stub = arguments[0];
        String real = arguments[1];
        String key = arguments[2];
        row("Java " + Runtime.version().feature(), "ours", "published");
        row("---", "---", "---");
        Subject<?> ours = new Ours(new Client(ConnectionConfig.builder().domain(stub).apiKey(key).build()));
        Subject<?> published = new Published(config(stub, key));
        Object own = said(() -> firstOutput(ours, ROUNDS));
        row("create to first output at the stub, ms (median)", own, said(() -> firstOutput(published, ROUNDS)));
        Object lines = linesOf(ours, "many");
        row("1,000,000 lines from the stub", lines, linesOf(published, "many"));
        Subject<?> oursReal = new Ours(new Client(ConnectionConfig.builder().domain(real).apiKey(key).build()));
        Subject<?> publishedReal = new Published(config(real, key));
        row("create to first output at a real server, ms (median)", said(() -> firstOutput(oursReal, REAL_ROUNDS)),
            said(() -> firstOutput(publishedReal, REAL_ROUNDS)));
        row("1,000,000 lines from a real sandbox", linesOf(oursReal, "seq " + LINES), linesOf(publishedReal, "seq " + LINES));
        Object together = said(() -> together(oursReal));
        row(AT_ONCE + " sandboxes made and used at once", together, said(() -> together(publishedReal)));
        boolean isKept = promise("the client's own share, ms", own instanceof First first ? first.median() : null, "<=", 5)
            & promise("lines/s", lines instanceof Lines many ? (double) many.rate() : null, ">=", 500_000)
            & promise("memory that a million lines add, MiB", lines instanceof Lines many ? (double) many.added() : null, "<=", 20)
            & promise("threads for 200 sandboxes", together instanceof Together all ? (double) all.threads() : null, "<=", 50);
        System.exit(isKept ? 0 : 1);
    }

    /** Says whether a promise was kept; one that could not be measured was not. */
    private static boolean promise(String what, Double found, String sign, double limit) {
        boolean isKept = found != null && (sign.equals("<=") ? found <= limit : found >= limit);
        String value = found == null ? "not measured" : String.format("%,.1f", found);
        System.out.printf("%-7s %s: %s %s %,.0f%n", isKept ? "kept" : "BROKEN", what, value, sign, limit);
        return isKept;
    }

    private static Together together(Subject<?> subject) throws Exception {
        long begun = System.nanoTime();
        int threads = subject.atOnce(AT_ONCE);
        return new Together((System.nanoTime() - begun) / 1e9, threads);
    }

    private static com.alibaba.opensandbox.sandbox.config.ConnectionConfig config(String domain, String key) {
        // Version 1.0.0 asks without the version of the API, and does not send the headers that an endpoint comes with; the key
        // lets it into its sandboxes as well.
        return com.alibaba.opensandbox.sandbox.config.ConnectionConfig.builder().domain(domain + "/v1").apiKey(key)
            .addHeader("OPEN-SANDBOX-API-KEY", key).build();
    }
}
