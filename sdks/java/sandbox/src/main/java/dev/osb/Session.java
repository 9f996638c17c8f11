package dev.osb;

import static dev.osb.Task.await;

import java.util.concurrent.CompletableFuture;

/** A live shell. It ends with {@link #delete}, or when a try-with-resources block is left. */
public final class Session implements AutoCloseable {
    private final Sandbox sandbox;
    private final String id;

    Session(Sandbox sandbox, String id) {
        this.sandbox = sandbox;
        this.id = id;
    }

    /** Its id. */
    public String id() {
        return id;
    }

    /** Runs shell text in it to the end. */
    public Output run(String command) {
        return run(command, new SessionRunOptions());
    }

    /** Runs shell text in it to the end. */
    public Output run(String command, SessionRunOptions options) {
        return await(runAsync(command, options));
    }

    /** {@link #run(String, SessionRunOptions)} without blocking. */
    public CompletableFuture<Output> runAsync(String command, SessionRunOptions options) {
        return Commands.watched(startAsync(command, options), options.onStdout, options.onStderr);
    }

    /** Runs shell text in it and answers its events as they come. */
    public Execution start(String command, SessionRunOptions options) {
        return await(startAsync(command, options));
    }

    /** {@link #start} without blocking. */
    public CompletableFuture<Execution> startAsync(String command, SessionRunOptions options) {
        Call call = Call.post("/session/" + Text.segment(id) + "/run").json(options.request(command));
        return sandbox.exec(exec -> Task.map(exec.send(call), answer -> new Execution(answer, Execution.Kind.SESSION, exec, null, null)));
    }

    /** Interrupts what runs in it. */
    public void interrupt() {
        await(interruptAsync());
    }

    /** {@link #interrupt} without blocking. */
    public CompletableFuture<Void> interruptAsync() {
        return sandbox.commands().interruptAsync(id);
    }

    /** Ends it. */
    public void delete() {
        await(deleteAsync());
    }

    /** {@link #delete} without blocking. */
    public CompletableFuture<Void> deleteAsync() {
        String path = "/session/" + Text.segment(id);
        return sandbox.exec(exec -> exec.done(Call.delete(path)));
    }

    /** Ends it. */
    @Override
    public void close() {
        delete();
    }
}
