package dev.osb;

import static dev.osb.Task.await;

import dev.osb.wire.CredentialBindingListResponse;
import dev.osb.wire.CredentialBindingMetadata;
import dev.osb.wire.CredentialListResponse;
import dev.osb.wire.CredentialMetadata;
import dev.osb.wire.CredentialVaultCreateRequest;
import dev.osb.wire.CredentialVaultMutationRequest;
import dev.osb.wire.CredentialVaultState;
import java.util.concurrent.CompletableFuture;

/** Credentials that are put into a sandbox's requests on the way out, asked of its egress API. */
public final class CredentialVault {
    private static final String VAULT = "/credential-vault";

    private final Sandbox sandbox;

    CredentialVault(Sandbox sandbox) {
        this.sandbox = sandbox;
    }

    /** Makes the vault. */
    public CredentialVaultState create(CredentialVaultCreateRequest request) {
        return await(createAsync(request));
    }

    /** {@link #create} without blocking. */
    public CompletableFuture<CredentialVaultState> createAsync(CredentialVaultCreateRequest request) {
        return sandbox.egressApi(api -> api.json(Call.post(VAULT).json(request), CredentialVaultState::fromJson));
    }

    /** The vault, without any secret. */
    public CredentialVaultState get() {
        return await(getAsync());
    }

    /** {@link #get} without blocking. */
    public CompletableFuture<CredentialVaultState> getAsync() {
        return sandbox.egressApi(api -> api.json(Call.get(VAULT), CredentialVaultState::fromJson));
    }

    /** Changes the vault, all or nothing. */
    public CredentialVaultState patch(CredentialVaultMutationRequest request) {
        return await(patchAsync(request));
    }

    /** {@link #patch} without blocking. */
    public CompletableFuture<CredentialVaultState> patchAsync(CredentialVaultMutationRequest request) {
        return sandbox.egressApi(api -> api.json(Call.patch(VAULT).json(request), CredentialVaultState::fromJson));
    }

    /** Removes the vault. */
    public void delete() {
        await(deleteAsync());
    }

    /** {@link #delete} without blocking. */
    public CompletableFuture<Void> deleteAsync() {
        return sandbox.egressApi(api -> api.done(Call.delete(VAULT)));
    }

    /** Its credentials, without any secret. */
    public CredentialListResponse credentials() {
        return await(credentialsAsync());
    }

    /** {@link #credentials} without blocking. */
    public CompletableFuture<CredentialListResponse> credentialsAsync() {
        return sandbox.egressApi(api -> api.json(Call.get(VAULT + "/credentials"), CredentialListResponse::fromJson));
    }

    /** One credential, without any secret. */
    public CredentialMetadata credential(String name) {
        return await(credentialAsync(name));
    }

    /** {@link #credential} without blocking. */
    public CompletableFuture<CredentialMetadata> credentialAsync(String name) {
        return sandbox.egressApi(api -> api.json(Call.get(VAULT + "/credentials/" + Text.segment(name)), CredentialMetadata::fromJson));
    }

    /** Its bindings. */
    public CredentialBindingListResponse bindings() {
        return await(bindingsAsync());
    }

    /** {@link #bindings} without blocking. */
    public CompletableFuture<CredentialBindingListResponse> bindingsAsync() {
        return sandbox.egressApi(api -> api.json(Call.get(VAULT + "/bindings"), CredentialBindingListResponse::fromJson));
    }

    /** One binding. */
    public CredentialBindingMetadata binding(String name) {
        return await(bindingAsync(name));
    }

    /** {@link #binding} without blocking. */
    public CompletableFuture<CredentialBindingMetadata> bindingAsync(String name) {
        return sandbox.egressApi(api -> api.json(Call.get(VAULT + "/bindings/" + Text.segment(name)), CredentialBindingMetadata::fromJson));
    }
}
