package dev.osb.conformance

import dev.osb.CreateOptions
import dev.osb.Tunnel
import dev.osb.conformance.Protocol.Held
import dev.osb.kotlin.Client
import dev.osb.kotlin.Pool
import dev.osb.kotlin.Sandbox
import dev.osb.kotlin.ValueStream
import dev.osb.wire.CreateKeyRequest
import dev.osb.wire.CreatePoolRequest
import dev.osb.wire.CreateTemplateRequest
import dev.osb.wire.CreateTokenRequest
import dev.osb.wire.CredentialVaultCreateRequest
import dev.osb.wire.CredentialVaultMutationRequest
import dev.osb.wire.MetricsEvent
import dev.osb.wire.NetworkPolicy
import dev.osb.wire.NetworkRule
import dev.osb.wire.PlatformSpec
import dev.osb.wire.RotateKeyRequest
import dev.osb.wire.UpdatePoolRequest
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.runInterruptible
import java.time.Instant
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.minutes
import kotlin.time.Duration.Companion.seconds
import kotlin.time.toKotlinDuration

internal fun unknown(call: String): Nothing = throw IllegalArgumentException("this runner has no call $call")

internal fun held(value: AutoCloseable) = Held(value, null, value)

internal fun shown(vararg pairs: Pair<String, Any?>): Map<String, Any?> = mapOf(*pairs)

/** The calls of sdks/conformance/README.md by coroutines. */
internal object KotlinCalls {
    suspend fun make(name: String, on: Any?, with: Arguments): Any? {
        val subject = name.substringBefore('.')
        val call = name.substringAfter('.')
        val result = when (subject) {
            "config" -> runInterruptible(Dispatchers.IO) { Settings.loaded(with) }
            "client" -> if (call == "new") Held(Client(Settings.connection(with)), null, null) else client(on as Client, call, with)
            "images" -> images(on as Client, call, with)
            "volumes" -> volumes(on as Client, call, with)
            "keys" -> keys(on as Client, call, with)
            "tenants" -> tenants(on as Client, call, with)
            "sandbox" -> if (on is Client) made(on, call, with) else sandbox(on as Sandbox, call, with)
            "stream" -> stream(on as ValueStream<*>, call)
            "tunnel" -> runInterruptible(Dispatchers.IO) { JavaCalls.tunnel(on as Tunnel, call, with) }
            "egress" -> egress(on as Sandbox, call, with)
            "vault" -> vault(on as Sandbox, call, with)
            "pool" -> if (on is Client) pool(on, with) else pool(on as Pool, call, with)
            else -> KotlinInside.make(subject, call, on, with)
        }
        return if (result == Unit) null else result
    }

    private fun held(sandbox: Sandbox) = Held(sandbox, shown("id" to sandbox.id), null)

    private suspend fun <T> Flow<T>.some(with: Arguments): List<T> = with.integer("limit")?.let { take(it).toList() } ?: toList()

    private suspend fun client(client: Client, call: String, with: Arguments): Any? {
        val id = with.text("id") ?: ""
        return when (call) {
            "health" -> client.health()
            "version" -> client.version()
            "get" -> client.get(id)
            "kill" -> client.kill(id)
            "list" -> client.listPage(Settings.sandboxes(with))
            "list_all" -> client.list {
                states(*with.texts("states").toTypedArray()).metadata(with.map("metadata"))
                with.integer("page_size")?.let(::pageSize)
            }.some(with)
            "pause" -> client.pause(id)
            "resume" -> client.resume(id)
            "request" -> client.request(with.text("method"), with.text("path"), with.get("body"))
            "get_snapshot" -> client.getSnapshot(id)
            "delete_snapshot" -> client.deleteSnapshot(id)
            "list_snapshots" -> client.listSnapshotsPage(Settings.snapshots(with))
            "list_all_snapshots" -> client.listSnapshots {
                sandboxId(with.text("sandbox_id")).name(with.text("name")).states(*with.texts("states").toTypedArray())
                with.integer("page_size")?.let(::pageSize)
            }.some(with)
            "events" -> held(client.events(with.text("sandbox_id"), with.wide("after")))
            "follow_logs" -> held(client.followLogs(id, with.integer("tail")))
            else -> operator(client, call, with)
        }
    }

    private suspend fun operator(client: Client, call: String, with: Arguments): Any? {
        val operator = client.operator
        val id = with.text("id") ?: ""
        val name = with.text("name") ?: ""
        return when (call) {
            "create_template" -> operator.createTemplate(CreateTemplateRequest.fromJson(with.get("request")))
            "get_template" -> operator.getTemplate(id)
            "list_templates" -> operator.listTemplates(with.map("metadata"), with.integer("page"), with.integer("page_size"))
            "delete_template" -> operator.deleteTemplate(id)
            "create_pool" -> operator.createPool(CreatePoolRequest.fromJson(with.get("request")))
            "get_pool" -> operator.getPool(name)
            "list_pools" -> operator.listPools()
            "update_pool" -> operator.updatePool(name, UpdatePoolRequest.fromJson(with.get("request")))
            "delete_pool" -> operator.deletePool(name)
            "network_policy" -> operator.networkPolicy(id)
            "set_network_policy" -> operator.setNetworkPolicy(id, NetworkPolicy.fromJson(with.get("policy")))
            "patch_network_policy" -> operator.patchNetworkPolicy(id, with.list("rules", NetworkRule::fromJson))
            "delete_network_policy" -> operator.deleteNetworkPolicy(id, with.texts("targets"))
            "audit_events" -> operator.auditEvents(JavaCalls.audit(with))
            "diagnostic_logs" -> operator.diagnosticLogs(id, with.text("scope"))
            "diagnostic_events" -> operator.diagnosticEvents(id, with.text("scope"))
            "diagnostics_text" -> shown("text" to operator.diagnosticsText(id, with.text("kind"), with.map("query")))
            "metrics_text" -> shown("text" to operator.metricsText())
            "openapi" -> operator.openapi()
            "report_event" -> operator.reportEvent(MetricsEvent.fromJson(with.get("event")))
            else -> unknown("client.$call")
        }
    }

    private suspend fun images(client: Client, call: String, with: Arguments): Any? = when (call) {
        "list" -> client.images.list()
        "prune" -> client.images.prune()
        "pull" -> held(client.images.pull(with.text("image"), platform = with.wire("platform", PlatformSpec::fromJson)))
        "import" -> client.images.importArchive(dev.osb.Contents.of(Archives.packed(with.map("files"))), with.text("name"))
        "export" -> Archives.entries(client.images.export(with.text("reference")).bytes().inputStream(), false)
        "tag" -> client.images.tag(with.text("reference"), with.text("name"))
        "remove" -> client.images.remove(with.text("reference"))
        else -> unknown("images.$call")
    }

    private suspend fun keys(client: Client, call: String, with: Arguments): Any? = when (call) {
        "list" -> client.keys.list()
        "create" -> client.keys.create(with.wire("request", CreateKeyRequest::fromJson)!!)
        "create_token" -> client.keys.createToken(with.wire("request", CreateTokenRequest::fromJson)!!)
        "rotate" -> client.keys.rotate(with.text("id"), RotateKeyRequest(with.wide("grace_s")))
        "revoke" -> client.keys.revoke(with.text("id"))
        else -> unknown("keys.$call")
    }

    private suspend fun tenants(client: Client, call: String, with: Arguments): Any? = when (call) {
        "list" -> client.tenants.list()
        "get" -> client.tenants.get(with.text("name"))
        "create" -> client.tenants.create(with.text("name"))
        "remove" -> client.tenants.remove(with.text("name"))
        else -> unknown("tenants.$call")
    }

    private suspend fun volumes(client: Client, call: String, with: Arguments): Any? = when (call) {
        "list" -> client.volumes.list()
        "create" -> client.volumes.create(with.text("name"))
        "remove" -> client.volumes.remove(with.text("name"), with.flag("force"))
        else -> unknown("volumes.$call")
    }

    private suspend fun made(client: Client, call: String, with: Arguments): Any? = when (call) {
        "create" -> held(create(client, with))
        "connect" -> {
            val limit = with.wide("timeout_ms")?.milliseconds ?: 30.seconds
            held(client.connect(with.text("id"), limit, with.flag("resume")))
        }
        "scope" -> scope(client, with)
        else -> unknown("sandbox.$call")
    }

    /** The options of both runners are the same objects. */
    private suspend fun create(client: Client, with: Arguments): Sandbox {
        val options: CreateOptions = Settings.create(with)
        return client.create(Settings.source(with), options)
    }

    private class LeftByAnError : RuntimeException()

    private suspend fun scope(client: Client, with: Arguments): Any {
        var id = ""
        try {
            create(client, with).use { sandbox ->
                id = sandbox.id
                if (with.flag("keep")) sandbox.keep()
                if (with.flag("fail")) throw LeftByAnError()
            }
        } catch (_: LeftByAnError) {
            // Asked for.
        }
        return shown("id" to id)
    }

    private suspend fun sandbox(sandbox: Sandbox, call: String, with: Arguments): Any? {
        val port = with.integer("port") ?: 0
        return when (call) {
            "info" -> sandbox.info()
            "metrics" -> sandbox.metrics()
            "kill" -> sandbox.kill()
            "pause" -> sandbox.pause()
            "resume" -> sandbox.resume()
            "ping" -> sandbox.ping()
            "is_healthy" -> shown("healthy" to sandbox.isHealthy())
            "renew" -> shown("expires_at" to sandbox.renew(with.seconds("lifetime_s").toKotlinDuration()))
            "patch_metadata" -> sandbox.patchMetadata(with.map("patch"))
            "wait_for_state" -> sandbox.waitForState(with.text("state"), with.wide("timeout_ms")?.milliseconds ?: 5.minutes)
            "endpoint" -> sandbox.endpoint(port)
            "url" -> sandbox.url(port).let { shown("url" to it.url(), "headers" to it.headers()) }
            "signed_endpoint" -> sandbox.signedEndpoint(port, Instant.now() + with.seconds("expires_in_s"))
            "link" -> shown("link" to sandbox.link(port, Instant.now() + with.seconds("expires_in_s")))
            "snapshot" -> sandbox.snapshot(with.text("name"))
            "watch_metrics" -> held(sandbox.watchMetrics())
            "tunnel" -> held(sandbox.tunnel(port))
            "isolated_capabilities" -> sandbox.isolatedCapabilities()
            else -> unknown("sandbox.$call")
        }
    }

    private suspend fun stream(stream: ValueStream<*>, call: String): Any? = when (call) {
        "next" -> stream.next()
        "close" -> stream.close()
        else -> unknown("stream.$call")
    }

    private suspend fun egress(sandbox: Sandbox, call: String, with: Arguments): Any? = when (call) {
        "policy" -> sandbox.egress.policy()
        "patch" -> sandbox.egress.patch(with.list("rules", NetworkRule::fromJson))
        "delete" -> sandbox.egress.delete(with.texts("targets"))
        "replace" -> sandbox.egress.set(NetworkPolicy.fromJson(with.get("policy")))
        else -> unknown("egress.$call")
    }

    private suspend fun vault(sandbox: Sandbox, call: String, with: Arguments): Any? {
        val vault = sandbox.credentialVault
        return when (call) {
            "create" -> vault.create(CredentialVaultCreateRequest.fromJson(with.get("request")))
            "get" -> vault.get()
            "patch" -> vault.patch(CredentialVaultMutationRequest.fromJson(with.get("request")))
            "delete" -> vault.delete()
            "credentials" -> vault.credentials()
            "credential" -> vault.credential(with.text("name"))
            "bindings" -> vault.bindings()
            "binding" -> vault.binding(with.text("name"))
            else -> unknown("vault.$call")
        }
    }

    private fun pool(client: Client, with: Arguments): Any {
        val pool = Pool(client, Settings.source(with), Settings.pool(with))
        return Held(pool, null) { kotlinx.coroutines.runBlocking { pool.shutdown() } }
    }

    private suspend fun pool(pool: Pool, call: String, with: Arguments): Any? = when (call) {
        "acquire" -> held(pool.acquire(Settings.lifetime(with).toKotlinDuration()))
        "status" -> Shapes.poolStatus(pool.status)
        "resize" -> pool.resize(with.integer("max_idle")!!)
        "wait_until_warm" -> pool.waitUntilWarm(with.wide("timeout_ms")!!.milliseconds)
        "shutdown" -> pool.shutdown()
        else -> unknown("pool.$call")
    }
}
