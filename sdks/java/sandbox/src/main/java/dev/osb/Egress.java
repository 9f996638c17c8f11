package dev.osb;

import static dev.osb.Task.await;

import dev.osb.wire.NetworkPolicy;
import dev.osb.wire.NetworkRule;
import dev.osb.wire.PolicyStatusResponse;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** What a sandbox may reach, asked of the sandbox's egress API. */
public final class Egress {
    private final Sandbox sandbox;

    Egress(Sandbox sandbox) {
        this.sandbox = sandbox;
    }

    /** The policy. */
    public PolicyStatusResponse policy() {
        return await(policyAsync());
    }

    /** {@link #policy} without blocking. */
    public CompletableFuture<PolicyStatusResponse> policyAsync() {
        return ask(Call.get("/policy"));
    }

    /** Replaces the policy. */
    public PolicyStatusResponse set(NetworkPolicy policy) {
        return await(setAsync(policy));
    }

    /** {@link #set} without blocking. */
    public CompletableFuture<PolicyStatusResponse> setAsync(NetworkPolicy policy) {
        return ask(Call.put("/policy").json(policy));
    }

    /** Puts rules before the others. */
    public PolicyStatusResponse patch(List<NetworkRule> rules) {
        return await(patchAsync(rules));
    }

    /** {@link #patch} without blocking. */
    public CompletableFuture<PolicyStatusResponse> patchAsync(List<NetworkRule> rules) {
        return ask(Call.patch("/policy").json(rules));
    }

    /** Removes the rules of these targets. */
    public PolicyStatusResponse delete(List<String> targets) {
        return await(deleteAsync(targets));
    }

    /** {@link #delete} without blocking. */
    public CompletableFuture<PolicyStatusResponse> deleteAsync(List<String> targets) {
        return ask(Call.delete("/policy").json(targets));
    }

    private CompletableFuture<PolicyStatusResponse> ask(Call call) {
        return sandbox.egressApi(api -> api.json(call, PolicyStatusResponse::fromJson));
    }
}
