package dev.osb.kotlin

import dev.osb.wire.CredentialBindingListResponse
import dev.osb.wire.CredentialBindingMetadata
import dev.osb.wire.CredentialListResponse
import dev.osb.wire.CredentialMetadata
import dev.osb.wire.CredentialVaultCreateRequest
import dev.osb.wire.CredentialVaultMutationRequest
import dev.osb.wire.CredentialVaultState
import dev.osb.wire.NetworkPolicy
import dev.osb.wire.NetworkRule
import dev.osb.wire.PolicyStatusResponse
import kotlinx.coroutines.future.await

/** What a sandbox may reach, asked of its egress API. */
public class Egress internal constructor(private val java: dev.osb.Egress) {
    /** The policy. */
    public suspend fun policy(): PolicyStatusResponse = java.policyAsync().await()

    /** Replaces the policy. */
    public suspend fun set(policy: NetworkPolicy): PolicyStatusResponse = java.setAsync(policy).await()

    /** Puts rules before the others. */
    public suspend fun patch(rules: List<NetworkRule>): PolicyStatusResponse = java.patchAsync(rules).await()

    /** Removes the rules of these targets. */
    public suspend fun delete(targets: List<String>): PolicyStatusResponse = java.deleteAsync(targets).await()
}

/** Credentials that are put into a sandbox's requests on the way out, asked of its egress API. */
public class CredentialVault internal constructor(private val java: dev.osb.CredentialVault) {
    /** Makes the vault. */
    public suspend fun create(request: CredentialVaultCreateRequest): CredentialVaultState = java.createAsync(request).await()

    /** The vault, without any secret. */
    public suspend fun get(): CredentialVaultState = java.getAsync().await()

    /** Changes the vault, all or nothing. */
    public suspend fun patch(request: CredentialVaultMutationRequest): CredentialVaultState = java.patchAsync(request).await()

    /** Removes the vault. */
    public suspend fun delete() {
        java.deleteAsync().await()
    }

    /** Its credentials, without any secret. */
    public suspend fun credentials(): CredentialListResponse = java.credentialsAsync().await()

    /** One credential, without any secret. */
    public suspend fun credential(name: String): CredentialMetadata = java.credentialAsync(name).await()

    /** Its bindings. */
    public suspend fun bindings(): CredentialBindingListResponse = java.bindingsAsync().await()

    /** One binding. */
    public suspend fun binding(name: String): CredentialBindingMetadata = java.bindingAsync(name).await()
}
