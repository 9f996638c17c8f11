package dev.osb.kotlin

import dev.osb.wire.CreateKeyRequest
import dev.osb.wire.CreateTokenRequest
import dev.osb.wire.ListKeysResponse
import dev.osb.wire.ListTenantsResponse
import dev.osb.wire.NewApiKey
import dev.osb.wire.RotateKeyRequest
import dev.osb.wire.Tenant
import kotlinx.coroutines.future.await

/** Extension: the API keys of a server, for administrators, and tokens made from them. */
public class Keys internal constructor(private val java: dev.osb.Keys) {
    /** All that the caller looks after, and tokens that are good. */
    public suspend fun list(): ListKeysResponse = java.listAsync().await()

    /** Makes a key, whose value is shown this once. */
    public suspend fun create(request: CreateKeyRequest): NewApiKey = java.createAsync(request).await()

    /** Gives a key a new value. What is open with the old one ends, and it is good for as long as the request says. */
    public suspend fun rotate(id: String, request: RotateKeyRequest): NewApiKey = java.rotateAsync(id, request).await()

    /** Revokes a key with its tokens; what is open with them ends. */
    public suspend fun revoke(id: String) {
        java.revokeAsync(id).await()
    }

    /** Makes a token from this client's own key: a key for a short time that may do no more. */
    public suspend fun createToken(request: CreateTokenRequest): NewApiKey = java.createTokenAsync(request).await()
}

/** Extension: the tenants of a server, for administrators. */
public class Tenants internal constructor(private val java: dev.osb.Tenants) {
    /** All but the built-in one. */
    public suspend fun list(): ListTenantsResponse = java.listAsync().await()

    /** One of them. */
    public suspend fun get(name: String): Tenant = java.getAsync(name).await()

    /** Makes a tenant. */
    public suspend fun create(name: String): Tenant = java.createAsync(name).await()

    /** Removes a tenant that has nothing any more, with its keys. */
    public suspend fun remove(name: String) {
        java.removeAsync(name).await()
    }
}
