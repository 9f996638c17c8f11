package dev.osb;

import dev.osb.wire.CreatePtyRequest;
import dev.osb.wire.CreatePtyResponse;
import java.util.concurrent.CompletableFuture;

/** The terminals of a sandbox. */
public final class Terminals {
    private final Sandbox sandbox;

    Terminals(Sandbox sandbox) {
        this.sandbox = sandbox;
    }

    /** Makes a terminal with an interactive shell. */
    public Terminal create() {
        return create(null, null, null);
    }

    /** Makes a terminal: this shell text instead of an interactive shell, and in this directory, unless these are null. */
    public Terminal create(String command, String cwd) {
        return create(command, cwd, null);
    }

    /**
     * Makes a terminal: this shell text instead of an interactive shell, in this directory and with this size, unless these
     * are null. A shell that is told its size only while it starts may miss it.
     */
    public Terminal create(String command, String cwd, TerminalSize size) {
        return Task.await(createAsync(command, cwd, size));
    }

    /** {@link #create(String, String, TerminalSize)} without blocking. */
    public CompletableFuture<Terminal> createAsync(String command, String cwd, TerminalSize size) {
        CreatePtyRequest request = new CreatePtyRequest().withCommand(command).withCwd(cwd);
        if (size != null) request = request.withCols(size.columns()).withRows(size.rows());
        Call call = Call.post("/pty").json(request);
        return sandbox.exec(exec -> exec.json(call, json -> get(CreatePtyResponse.fromJson(json).sessionId())));
    }

    /** A terminal by its id, without any request. */
    public Terminal get(String id) {
        return new Terminal(sandbox, id);
    }
}
