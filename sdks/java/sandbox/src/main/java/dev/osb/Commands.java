package dev.osb;

import static dev.osb.Task.await;

import dev.osb.wire.CommandStatusResponse;
import dev.osb.wire.RunCommandRequest;
import dev.osb.wire.StdinResponse;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * Commands in a sandbox: to the end, as a stream, or in the background. A command that ends with another code than 0 is
 * no error: look at {@link Output#exitCode}. Giving a call up stops waiting; the command goes on until it is interrupted
 * or its time is over.
 */
public final class Commands {
    /** Answers the byte offset to read logs from next. */
    private static final String LOGS_CURSOR_HEADER = "EXECD-COMMANDS-TAIL-CURSOR";

    private final Sandbox sandbox;

    Commands(Sandbox sandbox) {
        this.sandbox = sandbox;
    }

    /** Runs shell text to its end. */
    public Output run(String command) {
        return run(command, new CommandOptions());
    }

    /** Runs shell text to its end. */
    public Output run(String command, CommandOptions options) {
        return await(runAsync(command, options));
    }

    /** Runs a program with its arguments, without a shell, to its end. */
    public Output run(List<String> argv, CommandOptions options) {
        return await(runAsync(argv, options));
    }

    /** {@link #run(String, CommandOptions)} without blocking. */
    public CompletableFuture<Output> runAsync(String command, CommandOptions options) {
        return watched(startAsync(command, options), options.onStdout(), options.onStderr());
    }

    /** {@link #run(List, CommandOptions)} without blocking. */
    public CompletableFuture<Output> runAsync(List<String> argv, CommandOptions options) {
        return watched(startAsync(argv, options), options.onStdout(), options.onStderr());
    }

    /** Starts shell text and answers its events as they come. */
    public Execution start(String command) {
        return start(command, new CommandOptions());
    }

    /** Starts shell text and answers its events as they come. */
    public Execution start(String command, CommandOptions options) {
        return await(startAsync(command, options));
    }

    /** Starts a program with its arguments, without a shell, and answers its events as they come. */
    public Execution start(List<String> argv, CommandOptions options) {
        return await(startAsync(argv, options));
    }

    /** {@link #start(String, CommandOptions)} without blocking. */
    public CompletableFuture<Execution> startAsync(String command, CommandOptions options) {
        return send(options.request(false).withCommand(command));
    }

    /** {@link #start(List, CommandOptions)} without blocking. */
    public CompletableFuture<Execution> startAsync(List<String> argv, CommandOptions options) {
        return send(options.request(false).withArgv(argv));
    }

    /** Starts shell text in the background and answers its id. */
    public String background(String command) {
        return background(command, new CommandOptions());
    }

    /** Starts shell text in the background and answers its id. */
    public String background(String command, CommandOptions options) {
        return await(backgroundAsync(command, options));
    }

    /** Starts a program with its arguments, without a shell, in the background and answers its id. */
    public String background(List<String> argv, CommandOptions options) {
        return await(backgroundAsync(argv, options));
    }

    /** {@link #background(String, CommandOptions)} without blocking. */
    public CompletableFuture<String> backgroundAsync(String command, CommandOptions options) {
        return begun(options.request(true).withCommand(command));
    }

    /** {@link #background(List, CommandOptions)} without blocking. */
    public CompletableFuture<String> backgroundAsync(List<String> argv, CommandOptions options) {
        return begun(options.request(true).withArgv(argv));
    }

    private CompletableFuture<String> begun(RunCommandRequest request) {
        return Task.map(watched(send(request), null, null), output -> {
            if (output.failure() != null) throw new FailedException("the command", "not started", output.failure().value());
            if (output.id() == null) throw new StreamBrokenException("a background command", "it ended without the command's id", null);
            return output.id();
        });
    }

    private CompletableFuture<Execution> send(RunCommandRequest request) {
        return sandbox.exec(exec -> Task.map(exec.send(Call.post("/command").json(request)),
            answer -> new Execution(answer, Execution.Kind.COMMAND, exec, null, null)));
    }

    /** Reads an execution to its end and tells of output on the way. */
    static CompletableFuture<Output> watched(CompletableFuture<Execution> begun, Consumer<String> onStdout, Consumer<String> onStderr) {
        Output output = new Output();
        return Task.start(task -> task.link(() -> begun).thenCompose(execution -> task.link(() -> execution.forEachAsync(event -> {
            output.push(event);
            if (onStdout != null && event instanceof ExecutionEvent.Stdout out) onStdout.accept(out.text());
            if (onStderr != null && event instanceof ExecutionEvent.Stderr err) onStderr.accept(err.text());
        }))).thenApply(nothing -> output));
    }

    /** How a command is going. */
    public CommandStatusResponse status(String id) {
        return await(statusAsync(id));
    }

    /** {@link #status} without blocking. */
    public CompletableFuture<CommandStatusResponse> statusAsync(String id) {
        String path = "/command/status/" + Text.segment(id);
        return sandbox.exec(exec -> exec.json(Call.get(path), CommandStatusResponse::fromJson));
    }

    /** Extension: the commands that the daemon still knows. */
    public List<CommandStatusResponse> list() {
        return await(listAsync());
    }

    /** {@link #list} without blocking. */
    public CompletableFuture<List<CommandStatusResponse>> listAsync() {
        return sandbox.exec(exec -> exec.json(Call.get("/command"), Lists.of(CommandStatusResponse::fromJson)));
    }

    /** Waits until a command has ended, also one that runs in the background, and answers how. */
    public CommandStatusResponse waitFor(String id) {
        return await(waitForAsync(id));
    }

    /** {@link #waitFor} without blocking. */
    public CompletableFuture<CommandStatusResponse> waitForAsync(String id) {
        return Task.start(task -> task.link(() -> followAsync(id, 0))
            // Only its end is of interest; the events before are let pass.
            .thenCompose(execution -> task.link(() -> execution.forEachAsync(event -> {})))
            .thenCompose(nothing -> task.link(() -> statusAsync(id))));
    }

    /**
     * Output of a command so far.
     *
     * @param text the output from the cursor on
     * @param cursor where to read on; null where the daemon does not say
     */
    public record Logs(String text, Long cursor) {}

    /** Output of a command from a cursor on; null is from its beginning. */
    public Logs logs(String id, Long cursor) {
        return await(logsAsync(id, cursor));
    }

    /** {@link #logs} without blocking. */
    public CompletableFuture<Logs> logsAsync(String id, Long cursor) {
        Call call = Call.get("/command/" + Text.segment(id) + "/logs").query("cursor", cursor);
        return sandbox.exec(exec -> Task.start(task -> task.link(() -> exec.send(call)).thenCompose(answer -> {
            String next = Target.header(answer.headers(), LOGS_CURSOR_HEADER);
            return task.link(() -> new ByteStream(answer, call.what()).readAllAsync()).thenApply(bytes ->
                new Logs(new String(bytes, StandardCharsets.UTF_8), next == null || next.isEmpty() ? null : Long.valueOf(next)));
        })));
    }

    /** Interrupts a command, or what runs in a session. */
    public void interrupt(String id) {
        await(interruptAsync(id));
    }

    /** {@link #interrupt} without blocking. */
    public CompletableFuture<Void> interruptAsync(String id) {
        return sandbox.exec(exec -> exec.done(Call.delete("/command").query("id", id)));
    }

    /** Extension: writes to the stdin of a command that was started with it open. Answers how many bytes it took. */
    public long writeStdin(String id, String input) {
        return writeStdin(id, input.getBytes(StandardCharsets.UTF_8), false);
    }

    /**
     * Extension: writes to the stdin of a command that was started with it open, and with {@code close} ends its input.
     * Answers how many bytes it took.
     */
    public long writeStdin(String id, byte[] input, boolean close) {
        return await(writeStdinAsync(id, input, close));
    }

    /** {@link #writeStdin(String, byte[], boolean)} without blocking. */
    public CompletableFuture<Long> writeStdinAsync(String id, byte[] input, boolean close) {
        Call call = Call.post("/command/" + Text.segment(id) + "/stdin").query("close", close).body(Contents.of(input))
            // A command that does not read holds its writer up for as long as it likes.
            .timeout(null);
        return sandbox.exec(exec -> exec.json(call, json -> StdinResponse.fromJson(json).written()));
    }

    /** Extension: follows a command, also one that runs in the background, from the event after this one on; 0 is its beginning. */
    public Execution follow(String id, long after) {
        return await(followAsync(id, after));
    }

    /** {@link #follow} without blocking. */
    public CompletableFuture<Execution> followAsync(String id, long after) {
        Call call = Call.get("/command/" + Text.segment(id) + "/events").query("after", after);
        return sandbox.exec(exec -> Task.map(exec.send(call), answer -> new Execution(answer, Execution.Kind.COMMAND, exec, id, after)));
    }

    /** Makes variables part of the environment of every command from now on, by adding them to the file that the daemon reads. */
    public void setEnv(Map<String, String> variables) {
        await(setEnvAsync(variables));
    }

    /** {@link #setEnv} without blocking. */
    public CompletableFuture<Void> setEnvAsync(Map<String, String> variables) {
        StringBuilder lines = new StringBuilder();
        variables.forEach((name, value) -> {
            if (!name.matches("\\w+") || value.contains("\n")) {
                throw new InvalidArgumentException(
                    Text.quoted(name) + " cannot be kept: a name has letters, digits and _, and a value is one line");
            }
            lines.append(name).append('=').append(value).append('\n');
        });
        String file = "${EXECD_ENVS:-/opt/opensandbox/.env}";
        String text = lines.toString().replace("'", "'\\''");
        String command = "mkdir -p \"$(dirname \"" + file + "\")\" && printf %s '" + text + "' >> \"" + file + "\"";
        return Task.map(runAsync(command, new CommandOptions()), output -> {
            if (!output.isSuccess()) throw new FailedException("sandbox " + sandbox.id(), "not able to keep variables", output.stderr());
            return null;
        });
    }
}
