package dev.osb;

import static dev.osb.Task.await;

import dev.osb.wire.CreateKeyRequest;
import dev.osb.wire.CreateTokenRequest;
import dev.osb.wire.ListKeysResponse;
import dev.osb.wire.NewApiKey;
import dev.osb.wire.RotateKeyRequest;
import java.util.concurrent.CompletableFuture;

/** Extension: the API keys of a server, for administrators, and tokens made from them. */
public final class Keys {
    private final Target server;

    Keys(Target server) {
        this.server = server;
    }

    /** All that the caller looks after, and tokens that are good. */
    public ListKeysResponse list() {
        return await(listAsync());
    }

    /** {@link #list} without blocking. */
    public CompletableFuture<ListKeysResponse> listAsync() {
        return server.json(Call.get("/keys"), ListKeysResponse::fromJson);
    }

    /** Makes a key, whose value is shown this once. */
    public NewApiKey create(CreateKeyRequest request) {
        return await(createAsync(request));
    }

    /** {@link #create} without blocking. */
    public CompletableFuture<NewApiKey> createAsync(CreateKeyRequest request) {
        return server.json(Call.post("/keys").json(request), NewApiKey::fromJson);
    }

    /** Gives a key a new value. What is open with the old one ends, and it is good for as long as the request says. */
    public NewApiKey rotate(String id, RotateKeyRequest request) {
        return await(rotateAsync(id, request));
    }

    /** {@link #rotate} without blocking. */
    public CompletableFuture<NewApiKey> rotateAsync(String id, RotateKeyRequest request) {
        return server.json(Call.post("/keys/" + Text.segment(id) + "/rotate").json(request), NewApiKey::fromJson);
    }

    /** Revokes a key with its tokens; what is open with them ends. */
    public void revoke(String id) {
        await(revokeAsync(id));
    }

    /** {@link #revoke} without blocking. */
    public CompletableFuture<Void> revokeAsync(String id) {
        return server.done(Call.delete("/keys/" + Text.segment(id)));
    }

    /** Makes a token from this client's own key: a key for a short time that may do no more. */
    public NewApiKey createToken(CreateTokenRequest request) {
        return await(createTokenAsync(request));
    }

    /** {@link #createToken} without blocking. */
    public CompletableFuture<NewApiKey> createTokenAsync(CreateTokenRequest request) {
        return server.json(Call.post("/tokens").json(request), NewApiKey::fromJson);
    }
}
