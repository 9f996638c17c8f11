package dev.osb;

import static dev.osb.Task.await;

import dev.osb.wire.PtyStatus;
import java.util.concurrent.CompletableFuture;

/**
 * A shell with a screen, over a WebSocket that can be left and come back to. It ends with {@link #delete}, or when a
 * try-with-resources block is left.
 */
public final class Terminal implements AutoCloseable {
    private final Sandbox sandbox;
    private final String id;

    Terminal(Sandbox sandbox, String id) {
        this.sandbox = sandbox;
        this.id = id;
    }

    /** Its id. */
    public String id() {
        return id;
    }

    /** How it stands. */
    public PtyStatus status() {
        return await(statusAsync());
    }

    /** {@link #status} without blocking. */
    public CompletableFuture<PtyStatus> statusAsync() {
        Call call = Call.get("/pty/" + Text.segment(id));
        return sandbox.exec(exec -> exec.json(call, PtyStatus::fromJson));
    }

    /** Ends it. */
    public void delete() {
        await(deleteAsync());
    }

    /** {@link #delete} without blocking. */
    public CompletableFuture<Void> deleteAsync() {
        Call call = Call.delete("/pty/" + Text.segment(id));
        return sandbox.exec(exec -> exec.done(call));
    }

    /** Ends it. */
    @Override
    public void close() {
        delete();
    }

    /** Connects to it; the first connection starts its shell. */
    public TerminalConnection connect() {
        return connect(new TerminalOptions());
    }

    /** Connects to it; the first connection starts its shell. */
    public TerminalConnection connect(TerminalOptions options) {
        return await(connectAsync(options));
    }

    /** {@link #connect(TerminalOptions)} without blocking. */
    public CompletableFuture<TerminalConnection> connectAsync(TerminalOptions options) {
        Call call = Call.get("/pty/" + Text.segment(id) + "/ws");
        call.query = options.query();
        return sandbox.exec(exec -> Task.start(task ->
            task.link(() -> TerminalConnection.open(exec, call)).exceptionallyCompose(thrown -> {
                Throwable error = Task.unwrapped(thrown);
                if (error instanceof OpenSandboxException || Task.isCancellation(error)) return CompletableFuture.failedFuture(error);
                // A WebSocket does not say why it was refused; the same request without the upgrade does.
                return task.link(() -> exec.done(call)).handle((nothing, why) -> why == null ? null : Task.unwrapped(why)).thenCompose(why -> {
                    boolean isAnswer = why instanceof OpenSandboxException ours && ours.status() != 400;
                    return CompletableFuture.failedFuture(isAnswer ? why : new TerminalException(
                        "what answered is not a WebSocket", "check for a proxy in between that does not pass WebSockets on", error));
                });
            })));
    }
}
