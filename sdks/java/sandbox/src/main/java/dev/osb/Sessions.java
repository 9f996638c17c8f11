package dev.osb;

import dev.osb.wire.CreateSessionRequest;
import dev.osb.wire.CreateSessionResponse;
import java.util.concurrent.CompletableFuture;

/** Live shells of a sandbox, which keep their variables, functions and directory between runs. */
public final class Sessions {
    private final Sandbox sandbox;

    Sessions(Sandbox sandbox) {
        this.sandbox = sandbox;
    }

    /** Starts a shell. */
    public Session create() {
        return create(null);
    }

    /** Starts a shell in this directory. */
    public Session create(String cwd) {
        return Task.await(createAsync(cwd));
    }

    /** {@link #create(String)} without blocking. */
    public CompletableFuture<Session> createAsync(String cwd) {
        Call call = Call.post("/session").json(new CreateSessionRequest(cwd));
        return sandbox.exec(exec -> exec.json(call, json -> get(CreateSessionResponse.fromJson(json).sessionId())));
    }

    /** A session by its id, without any request. */
    public Session get(String id) {
        return new Session(sandbox, id);
    }
}
