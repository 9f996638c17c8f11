package dev.osb;

import static dev.osb.Task.await;

import dev.osb.wire.CreateTenantRequest;
import dev.osb.wire.ListTenantsResponse;
import dev.osb.wire.Tenant;
import java.util.concurrent.CompletableFuture;

/** Extension: the tenants of a server, for administrators. */
public final class Tenants {
    private final Target server;

    Tenants(Target server) {
        this.server = server;
    }

    /** All but the built-in one. */
    public ListTenantsResponse list() {
        return await(listAsync());
    }

    /** {@link #list} without blocking. */
    public CompletableFuture<ListTenantsResponse> listAsync() {
        return server.json(Call.get("/tenants"), ListTenantsResponse::fromJson);
    }

    /** One of them. */
    public Tenant get(String name) {
        return await(getAsync(name));
    }

    /** {@link #get} without blocking. */
    public CompletableFuture<Tenant> getAsync(String name) {
        return server.json(Call.get("/tenants/" + Text.segment(name)), Tenant::fromJson);
    }

    /** Makes a tenant. */
    public Tenant create(String name) {
        return await(createAsync(name));
    }

    /** {@link #create} without blocking. */
    public CompletableFuture<Tenant> createAsync(String name) {
        return server.json(Call.post("/tenants").json(new CreateTenantRequest(name)), Tenant::fromJson);
    }

    /** Removes a tenant that has nothing any more, with its keys. */
    public void remove(String name) {
        await(removeAsync(name));
    }

    /** {@link #remove} without blocking. */
    public CompletableFuture<Void> removeAsync(String name) {
        return server.done(Call.delete("/tenants/" + Text.segment(name)));
    }
}
