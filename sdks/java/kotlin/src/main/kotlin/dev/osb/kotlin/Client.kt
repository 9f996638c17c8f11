package dev.osb.kotlin

import dev.osb.ConnectionConfig
import dev.osb.CreateOptions
import dev.osb.ReadyOptions
import dev.osb.SandboxFilter
import dev.osb.SandboxSource
import dev.osb.SnapshotFilter
import dev.osb.wire.CreateSandboxRequest
import dev.osb.wire.CreateSandboxResponse
import dev.osb.wire.Endpoint
import dev.osb.wire.HealthResponse
import dev.osb.wire.LifecycleEvent
import dev.osb.wire.ListSandboxesResponse
import dev.osb.wire.ListSnapshotsResponse
import dev.osb.wire.LogEvent
import dev.osb.wire.SandboxInfo
import dev.osb.wire.Snapshot
import dev.osb.wire.VersionResponse
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.future.await
import java.time.Instant
import kotlin.time.Duration
import kotlin.time.Duration.Companion.minutes
import kotlin.time.Duration.Companion.seconds
import kotlin.time.toJavaDuration

/** How long pausing, resuming and snapshots may take before waiting for them ends. */
internal val CHANGE_TIMEOUT: Duration = 5.minutes

/**
 * The control plane: sandboxes by their ids, lists, snapshots, events. Every call suspends, and cancelling its coroutine gives
 * it up. Errors are those of the Java SDK, [dev.osb.OpenSandboxException].
 */
public class Client(
    /** The same client, for Java. */
    public val java: dev.osb.Client,
) {
    /** With these settings; those of the environment and of the command line's file unless said. Sends nothing yet. */
    public constructor(config: ConnectionConfig = ConnectionConfig.load()) : this(dev.osb.Client(config))

    /** Its settings. */
    public val config: ConnectionConfig get() = java.config()

    /** Extension: the images that the server keeps. */
    public val images: Images = Images(java.images())

    /** Extension: the API keys of the server. */
    public val keys: Keys = Keys(java.keys())

    /** Extension: the tenants of the server. */
    public val tenants: Tenants = Tenants(java.tenants())

    /** Extension: the named volumes that the server keeps. */
    public val volumes: Volumes = Volumes(java.volumes())

    /** Templates, pools of the server, policies, diagnostics and the audit record. */
    public val operator: Operator = Operator(java.operator())

    /** Makes a sandbox from an image, and waits until it can be used. */
    public suspend fun create(image: String, options: CreateOptions.() -> Unit = {}): Sandbox = create(SandboxSource.image(image), options)

    /** Makes a sandbox, and waits until it can be used. */
    public suspend fun create(source: SandboxSource, options: CreateOptions.() -> Unit = {}): Sandbox =
        create(source, CreateOptions().apply(options))

    /** Makes a sandbox, and waits until it can be used. */
    public suspend fun create(source: SandboxSource, options: CreateOptions): Sandbox =
        Sandbox(this, java.createAsync(source, options).await())

    /** Connects to a sandbox that exists; with [resume] to a paused one as well. */
    public suspend fun connect(id: String, readyTimeout: Duration = 30.seconds, resume: Boolean = false, skipReady: Boolean = false): Sandbox {
        val options = ReadyOptions().readyTimeout(readyTimeout.toJavaDuration()).resume(resume).skipReady(skipReady)
        return Sandbox(this, java.connectAsync(id, options).await())
    }

    /** A handle to a sandbox without any request. */
    public fun sandbox(id: String): Sandbox = Sandbox(this, java.sandbox(id))

    /** Sends a request to make a sandbox and does not wait until it is ready. A key makes the request safe to repeat. */
    public suspend fun createRequest(
        request: CreateSandboxRequest,
        timeout: Duration = 30.seconds,
        idempotencyKey: String? = null,
    ): CreateSandboxResponse = java.createRequestAsync(request, timeout.toJavaDuration(), idempotencyKey).await()

    /** What the server knows of a sandbox. */
    public suspend fun get(id: String): SandboxInfo = java.getAsync(id).await()

    /** Sandboxes, newest first, page by page as they are collected. */
    public fun list(filter: SandboxFilter.() -> Unit = {}): Flow<SandboxInfo> = flow {
        var number = 1
        while (true) {
            val page = java.listPageAsync(SandboxFilter().apply(filter).page(number++)).await()
            page.items().forEach { emit(it) }
            if (!page.pagination().hasNextPage()) break
        }
    }

    /** One page of sandboxes, newest first. */
    public suspend fun listPage(filter: SandboxFilter = SandboxFilter()): ListSandboxesResponse = java.listPageAsync(filter).await()

    /** Ends a sandbox. */
    public suspend fun kill(id: String) {
        java.killAsync(id).await()
    }

    /** Freezes a sandbox; answers when it is frozen. */
    public suspend fun pause(id: String) {
        java.pauseAsync(id).await()
    }

    /** Lets a sandbox run on; answers when it runs. */
    public suspend fun resume(id: String) {
        java.resumeAsync(id).await()
    }

    /** Waits until a sandbox is in this state; fails when it gets into one from which it never comes. */
    public suspend fun waitForState(id: String, state: String, timeout: Duration = CHANGE_TIMEOUT) {
        java.waitForStateAsync(id, state, timeout.toJavaDuration()).await()
    }

    /** Lets a sandbox live this much longer, from now; answers when it ends. */
    public suspend fun renew(id: String, lifetime: Duration): Instant = java.renewAsync(id, lifetime.toJavaDuration()).await()

    /** Sets labels of a sandbox, and removes those that are null. */
    public suspend fun patchMetadata(id: String, patch: Map<String, String?>): SandboxInfo = java.patchMetadataAsync(id, patch).await()

    /** Where a port of a sandbox is reached from outside; with a time, as a link that lets anyone in until then. */
    public suspend fun endpoint(id: String, port: Int, expires: Instant? = null): Endpoint = java.endpointAsync(id, port, expires).await()

    /** Begins a copy of a sandbox's filesystem. */
    public suspend fun createSnapshot(id: String, name: String? = null): Snapshot = java.createSnapshotAsync(id, name).await()

    /** A snapshot. */
    public suspend fun getSnapshot(id: String): Snapshot = java.getSnapshotAsync(id).await()

    /** Waits until sandboxes can be made from a snapshot. */
    public suspend fun waitForSnapshot(id: String, timeout: Duration = CHANGE_TIMEOUT): Snapshot =
        java.waitForSnapshotAsync(id, timeout.toJavaDuration()).await()

    /** Snapshots, newest first, page by page as they are collected. */
    public fun listSnapshots(filter: SnapshotFilter.() -> Unit = {}): Flow<Snapshot> = flow {
        var number = 1
        while (true) {
            val page = java.listSnapshotsPageAsync(SnapshotFilter().apply(filter).page(number++)).await()
            page.items().forEach { emit(it) }
            if (!page.pagination().hasNextPage()) break
        }
    }

    /** One page of snapshots, newest first. */
    public suspend fun listSnapshotsPage(filter: SnapshotFilter = SnapshotFilter()): ListSnapshotsResponse =
        java.listSnapshotsPageAsync(filter).await()

    /** Removes a snapshot. */
    public suspend fun deleteSnapshot(id: String) {
        java.deleteSnapshotAsync(id).await()
    }

    /** Extension: what happens to sandboxes, as it happens; of one only, and only after this event, if given. */
    public suspend fun events(sandboxId: String? = null, after: Long? = null): ValueStream<LifecycleEvent> =
        ValueStream(java.eventsAsync(sandboxId, after).await())

    /** Extension: what a sandbox's main program prints, as it does, after at most [tail] of the lines before. */
    public suspend fun followLogs(id: String, tail: Int? = null): ValueStream<LogEvent> = ValueStream(java.followLogsAsync(id, tail).await())

    /** Whether the server is well. */
    public suspend fun health(): HealthResponse = java.healthAsync().await()

    /** The version of the contract that the server speaks. */
    public suspend fun version(): VersionResponse = java.versionAsync().await()

    /** Any request of the control plane that has no function of its own yet: a path below `/v1`, and a JSON body. */
    public suspend fun request(method: String, path: String, body: Any? = null): Any? = java.requestAsync(method, path, body).await()
}
