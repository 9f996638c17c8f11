package dev.osb.kotlin

import dev.osb.Tunnel
import dev.osb.wire.DiagnosticContentResponse
import dev.osb.wire.Endpoint
import dev.osb.wire.IsolatedCapabilities
import dev.osb.wire.Metrics
import dev.osb.wire.SandboxInfo
import dev.osb.wire.Snapshot
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.future.await
import kotlinx.coroutines.withContext
import java.time.Instant
import kotlin.time.Duration
import kotlin.time.toJavaDuration

/**
 * A sandbox. One that was made here ends when its [use] block is left, unless it is kept; one that was connected to does not.
 * Without such a block, [kill] ends it, or the end of its time.
 *
 * ```kotlin
 * Sandbox.create("python:3.12").use { sandbox ->
 *     println(sandbox.commands.run("python -c 'print(6 * 7)'").stdout())
 * }
 * ```
 */
public class Sandbox internal constructor(
    /** The client it is reached by. */
    public val client: Client,
    /** The same sandbox, for Java. */
    public val java: dev.osb.Sandbox,
) {
    /** Makes sandboxes with the settings of the environment and of the command line's file. */
    public companion object {
        /** Makes a sandbox from an image, and waits until it can be used. */
        public suspend fun create(image: String, options: dev.osb.CreateOptions.() -> Unit = {}): Sandbox = Client().create(image, options)

        /** Connects to a sandbox that exists. */
        public suspend fun connect(id: String): Sandbox = Client().connect(id)
    }

    /** Its id. */
    public val id: String get() = java.id()

    /** Runs commands. */
    public val commands: Commands = Commands(java.commands())

    /** Live shells. */
    public val sessions: Sessions = Sessions(java.sessions())

    /** Terminals. */
    public val terminals: Terminals = Terminals(java.terminals())

    /** Files and directories. */
    public val files: Files = Files(java.files())

    /** Code that remembers. */
    public val code: Code = Code(java.code())

    /** What it may reach. */
    public val egress: Egress = Egress(java.egress())

    /** Credentials that are put into its requests on the way out. */
    public val credentialVault: CredentialVault = CredentialVault(java.credentialVault())

    /** Runs the block and ends the sandbox, unless it is kept, also when the block is left by an error or is cancelled. */
    public suspend fun <R> use(block: suspend (Sandbox) -> R): R {
        var thrown: Throwable? = null
        try {
            return block(this)
        } catch (error: Throwable) {
            thrown = error
            throw error
        } finally {
            try {
                withContext(NonCancellable) { close() }
            } catch (error: dev.osb.OpenSandboxException) {
                thrown?.addSuppressed(error) ?: throw error
            }
        }
    }

    /** Lets it outlive its block. */
    public fun keep(): Sandbox = apply { java.keep() }

    /** Ends it, if it was made here and is not kept. */
    public suspend fun close() {
        java.closeAsync().await()
    }

    /** Ends it. One that is already gone is no error. */
    public suspend fun kill() {
        java.killAsync().await()
    }

    /** What the server knows of it. */
    public suspend fun info(): SandboxInfo = java.infoAsync().await()

    /** What it uses now. */
    public suspend fun metrics(): Metrics = java.metricsAsync().await()

    /** What it uses, each second. */
    public suspend fun watchMetrics(): ValueStream<Metrics> = ValueStream(java.watchMetricsAsync().await())

    /** Asks the daemon in it whether it is up. */
    public suspend fun ping() {
        java.pingAsync().await()
    }

    /** Whether the daemon in it answers. */
    public suspend fun isHealthy(): Boolean = java.isHealthyAsync().await()

    /** Where one of its ports is reached from outside. */
    public suspend fun endpoint(port: Int): Endpoint = java.endpointAsync(port).await()

    /** Where one of its ports is reached by anyone until this time. The server must have a key to sign with. */
    public suspend fun signedEndpoint(port: Int, expires: Instant): Endpoint = java.signedEndpointAsync(port, expires).await()

    /** The URL of one of its ports, and the headers to send. */
    public suspend fun url(port: Int): dev.osb.Sandbox.PortUrl = java.urlAsync(port).await()

    /** A link to one of its ports that lets anyone in until it expires. The server must have a key to sign with. */
    public suspend fun previewUrl(port: Int, expires: Instant): String = java.previewUrlAsync(port, expires).await()

    /**
     * Extension: a link by which a browser reaches one of its ports, good for once. The browser is let in until then, or for
     * as long as the server says. Needs a server with an ingress gateway.
     */
    public suspend fun link(port: Int, until: Instant? = null): String = java.linkAsync(port, until).await()

    /** Extension: a plain byte stream to one of its ports, for whatever does not speak HTTP. Reading and writing it block. */
    public suspend fun tunnel(port: Int): Tunnel = java.tunnelAsync(port).await()

    /** Lets it live this much longer, from now; answers when it ends. */
    public suspend fun renew(lifetime: Duration): Instant = java.renewAsync(lifetime.toJavaDuration()).await()

    /** Sets labels, and removes those that are null. */
    public suspend fun patchMetadata(patch: Map<String, String?>): SandboxInfo = java.patchMetadataAsync(patch).await()

    /** Freezes it; answers when it is frozen. */
    public suspend fun pause() {
        java.pauseAsync().await()
    }

    /** Lets it run on; answers when it runs. */
    public suspend fun resume() {
        java.resumeAsync().await()
    }

    /** Waits until it is in this state; fails when it gets into one from which it never comes. */
    public suspend fun waitForState(state: String, timeout: Duration = CHANGE_TIMEOUT) {
        java.waitForStateAsync(state, timeout.toJavaDuration()).await()
    }

    /** Keeps a copy of its filesystem; answers when sandboxes can be made from it. */
    public suspend fun snapshot(name: String? = null): Snapshot = java.snapshotAsync(name).await()

    /** Its logs for whoever looks for what went wrong; `container` and `all` are scopes. */
    public suspend fun diagnosticLogs(scope: String): DiagnosticContentResponse = client.operator.diagnosticLogs(id, scope)

    /** What happened to it; `runtime` and `all` are scopes. */
    public suspend fun diagnosticEvents(scope: String): DiagnosticContentResponse = client.operator.diagnosticEvents(id, scope)

    /** Which isolation its daemon has for sessions of their own. */
    public suspend fun isolatedCapabilities(): IsolatedCapabilities = java.isolatedCapabilitiesAsync().await()
}
