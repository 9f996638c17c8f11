package dev.osb;

import static dev.osb.Task.await;

import dev.osb.wire.CreateSandboxRequest;
import dev.osb.wire.CreateSandboxResponse;
import dev.osb.wire.Endpoint;
import dev.osb.wire.HealthResponse;
import dev.osb.wire.Json;
import dev.osb.wire.LifecycleEvent;
import dev.osb.wire.ListSandboxesResponse;
import dev.osb.wire.ListSnapshotsResponse;
import dev.osb.wire.LogEvent;
import dev.osb.wire.RenewSandboxExpirationRequest;
import dev.osb.wire.RenewSandboxExpirationResponse;
import dev.osb.wire.SandboxInfo;
import dev.osb.wire.Snapshot;
import dev.osb.wire.VersionResponse;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * The control plane: sandboxes by their ids, lists, snapshots, events. Every call blocks; its twin that ends with
 * {@code Async} answers a future, and cancelling that future gives the call up. A thread that waits in a blocking call
 * gives it up when it is interrupted, with a {@link CancelledException}.
 *
 * <p>A client has no connections to close: they are shared, and go when nobody uses them.
 */
public final class Client {
    /** How long pausing, resuming and snapshots may take before waiting for them ends. */
    public static final Duration CHANGE_TIMEOUT = Duration.ofMinutes(5);

    private final ConnectionConfig config;
    private final Target server;
    private final Target root;
    private final Images images;
    private final Keys keys;
    private final Tenants tenants;
    private final Volumes volumes;
    private final Operator operator;

    /** With the settings of the environment and of the command line's file. Sends nothing yet. */
    public Client() {
        this(ConnectionConfig.load());
    }

    /** With these settings. Sends nothing yet. */
    public Client(ConnectionConfig config) {
        this.config = config;
        Map<String, String> headers = config.apiKey() == null ? Map.of() : Map.of(Target.API_KEY_HEADER, config.apiKey());
        server = new Target(config, config.baseUrl(), headers);
        root = new Target(config, config.rootUrl(), headers);
        images = new Images(server);
        keys = new Keys(server);
        tenants = new Tenants(server);
        volumes = new Volumes(server);
        operator = new Operator(server, root);
    }

    /** Its settings. */
    public ConnectionConfig config() {
        return config;
    }

    /** Extension: the API keys of the server. */
    public Keys keys() {
        return keys;
    }

    /** Extension: the tenants of the server. */
    public Tenants tenants() {
        return tenants;
    }

    /** Extension: the images that the server keeps. */
    public Images images() {
        return images;
    }

    /** Extension: the named volumes that the server keeps. */
    public Volumes volumes() {
        return volumes;
    }

    /** Templates, pools of the server, policies, diagnostics and the audit record. */
    public Operator operator() {
        return operator;
    }

    /** Makes a sandbox from an image, and waits until it can be used. */
    public Sandbox create(String image) {
        return create(SandboxSource.image(image), new CreateOptions());
    }

    /** Makes a sandbox from an image, and waits until it can be used. */
    public Sandbox create(String image, CreateOptions options) {
        return create(SandboxSource.image(image), options);
    }

    /** Makes a sandbox, and waits until it can be used. */
    public Sandbox create(SandboxSource source, CreateOptions options) {
        return await(createAsync(source, options));
    }

    /** {@link #create(SandboxSource, CreateOptions)} without blocking. */
    public CompletableFuture<Sandbox> createAsync(SandboxSource source, CreateOptions options) {
        return Ready.create(this, source, options.copy());
    }

    /** Connects to a sandbox that exists. */
    public Sandbox connect(String id) {
        return connect(id, new ReadyOptions());
    }

    /** Connects to a sandbox that exists. */
    public Sandbox connect(String id, ReadyOptions options) {
        return await(connectAsync(id, options));
    }

    /** {@link #connect(String, ReadyOptions)} without blocking. */
    public CompletableFuture<Sandbox> connectAsync(String id, ReadyOptions options) {
        return Ready.connect(this, id, options);
    }

    /** A handle to a sandbox without any request. */
    public Sandbox sandbox(String id) {
        return new Sandbox(this, id, false);
    }

    /**
     * Sends a request to make a sandbox and does not wait until it is ready. Our server answers when it is;
     * {@code timeout} is how long that may take. A key, which may be null, makes the request safe to repeat.
     */
    public CreateSandboxResponse createRequest(CreateSandboxRequest request, Duration timeout, String idempotencyKey) {
        return await(createRequestAsync(request, timeout, idempotencyKey));
    }

    /** {@link #createRequest} without blocking. */
    public CompletableFuture<CreateSandboxResponse> createRequestAsync(CreateSandboxRequest request, Duration timeout, String idempotencyKey) {
        Call call = Call.post("/sandboxes").json(request).timeout(longer(timeout));
        // The server makes one sandbox however often the same key comes.
        if (idempotencyKey != null) call.header("Idempotency-Key", idempotencyKey).repeatable();
        return server.json(call, CreateSandboxResponse::fromJson);
    }

    private Duration longer(Duration timeout) {
        return timeout.compareTo(config.requestTimeout()) > 0 ? timeout : config.requestTimeout();
    }

    /** What the server knows of a sandbox. */
    public SandboxInfo get(String id) {
        return await(getAsync(id));
    }

    /** {@link #get} without blocking. */
    public CompletableFuture<SandboxInfo> getAsync(String id) {
        return server.json(Call.get(path(id, "")), SandboxInfo::fromJson);
    }

    /** Sandboxes, newest first, page by page as they are read. */
    public Pages<SandboxInfo> list(SandboxFilter filter) {
        return new Pages<>(filter.page, number -> {
            ListSandboxesResponse page = await(server.json(filter.call(number), ListSandboxesResponse::fromJson));
            return new Pages.Page<>(page.items(), page.pagination().hasNextPage());
        });
    }

    /** One page of sandboxes, newest first. */
    public ListSandboxesResponse listPage(SandboxFilter filter) {
        return await(listPageAsync(filter));
    }

    /** {@link #listPage} without blocking. */
    public CompletableFuture<ListSandboxesResponse> listPageAsync(SandboxFilter filter) {
        return server.json(filter.call(filter.page), ListSandboxesResponse::fromJson);
    }

    /** Ends a sandbox. */
    public void kill(String id) {
        await(killAsync(id));
    }

    /** {@link #kill} without blocking. */
    public CompletableFuture<Void> killAsync(String id) {
        return server.done(Call.delete(path(id, "")));
    }

    /** Freezes a sandbox; answers when it is frozen. */
    public void pause(String id) {
        await(pauseAsync(id));
    }

    /** {@link #pause} without blocking. */
    public CompletableFuture<Void> pauseAsync(String id) {
        return Task.start(task -> task.link(() -> server.done(Call.post(path(id, "/pause"))))
            .thenCompose(nothing -> task.link(() -> waitForStateAsync(id, "Paused", CHANGE_TIMEOUT))));
    }

    /** Lets a sandbox run on; answers when it runs. */
    public void resume(String id) {
        await(resumeAsync(id));
    }

    /** {@link #resume} without blocking. */
    public CompletableFuture<Void> resumeAsync(String id) {
        return Task.start(task -> task.link(() -> server.done(Call.post(path(id, "/resume"))))
            .thenCompose(nothing -> task.link(() -> waitForStateAsync(id, "Running", CHANGE_TIMEOUT))));
    }

    /**
     * Waits until a sandbox is in this {@link dev.osb.wire.SandboxState state}; fails when it gets into one from which it
     * never comes.
     */
    public void waitForState(String id, String state, Duration timeout) {
        await(waitForStateAsync(id, state, timeout));
    }

    /** {@link #waitForState} without blocking. */
    public CompletableFuture<Void> waitForStateAsync(String id, String wanted, Duration timeout) {
        return Task.map(Wait.until(this, "sandbox " + id + " to be " + wanted, id, timeout, () -> Task.map(getAsync(id), info -> {
            String state = info.status().state();
            if (state.equals(wanted)) return info;
            if (state.equals("Failed") || state.equals("Terminated")) {
                throw new FailedException("sandbox " + id, state, info.status().message());
            }
            return null;
        })), info -> null);
    }

    /** Lets a sandbox live this much longer, from now; answers when it ends. */
    public Instant renew(String id, Duration lifetime) {
        return await(renewAsync(id, lifetime));
    }

    /** {@link #renew} without blocking. */
    public CompletableFuture<Instant> renewAsync(String id, Duration lifetime) {
        Call call = Call.post(path(id, "/renew-expiration")).json(new RenewSandboxExpirationRequest(Instant.now().plus(lifetime)));
        return Task.map(server.json(call, RenewSandboxExpirationResponse::fromJson), RenewSandboxExpirationResponse::expiresAt);
    }

    /** Sets labels of a sandbox, and removes those that are null. */
    public SandboxInfo patchMetadata(String id, Map<String, String> patch) {
        return await(patchMetadataAsync(id, patch));
    }

    /** {@link #patchMetadata} without blocking. */
    public CompletableFuture<SandboxInfo> patchMetadataAsync(String id, Map<String, String> patch) {
        return server.json(Call.patch(path(id, "/metadata")).json(patch), SandboxInfo::fromJson);
    }

    /** Where a port of a sandbox is reached from outside; with a time, as a link that lets anyone in until then. */
    public Endpoint endpoint(String id, int port, Instant expires) {
        return await(endpointAsync(id, port, expires));
    }

    /** {@link #endpoint} without blocking. */
    public CompletableFuture<Endpoint> endpointAsync(String id, int port, Instant expires) {
        Call call = Call.get(path(id, "/endpoints/" + port))
            .query("expires", expires == null ? null : expires.getEpochSecond(), "use_server_proxy", config.useServerProxy() ? true : null)
            // Held until the sandbox is ready, which may take as long as its image takes to come.
            .timeout(longer(ReadyOptions.DEFAULT_READY_TIMEOUT));
        return server.json(call, Endpoint::fromJson);
    }

    /** A link for a browser; {@link Sandbox#link} says more. */
    CompletableFuture<String> linkAsync(String id, int port, Instant until) {
        Call call = Call.get(path(id, "/endpoints/" + port)).query("link", true, "expires", until == null ? null : until.getEpochSecond());
        return Task.map(server.json(call, Endpoint::fromJson), endpoint -> {
            if (endpoint.link() != null) return endpoint.link();
            throw new InvalidArgumentException("the server knows no links; use one with an ingress gateway");
        });
    }

    /** Begins a copy of a sandbox's filesystem, under a name, which may be null. */
    public Snapshot createSnapshot(String id, String name) {
        return await(createSnapshotAsync(id, name));
    }

    /** {@link #createSnapshot} without blocking. */
    public CompletableFuture<Snapshot> createSnapshotAsync(String id, String name) {
        // A server may answer only when the copy is made.
        Call call = Call.post(path(id, "/snapshots")).json(name == null ? Map.of() : Map.of("name", name)).timeout(CHANGE_TIMEOUT);
        return server.json(call, Snapshot::fromJson);
    }

    /** A snapshot. */
    public Snapshot getSnapshot(String id) {
        return await(getSnapshotAsync(id));
    }

    /** {@link #getSnapshot} without blocking. */
    public CompletableFuture<Snapshot> getSnapshotAsync(String id) {
        return server.json(Call.get("/snapshots/" + Text.segment(id)), Snapshot::fromJson);
    }

    /** Waits until sandboxes can be made from a snapshot. */
    public Snapshot waitForSnapshot(String id, Duration timeout) {
        return await(waitForSnapshotAsync(id, timeout));
    }

    /** {@link #waitForSnapshot} without blocking. */
    public CompletableFuture<Snapshot> waitForSnapshotAsync(String id, Duration timeout) {
        return Wait.until(this, "snapshot " + id + " to be ready", null, timeout, () -> Task.map(getSnapshotAsync(id), snapshot -> {
            String state = snapshot.status().state();
            if (state.equals("Failed") || state.equals("Deleting")) {
                throw new FailedException("snapshot " + id, state, snapshot.status().message());
            }
            return state.equals("Ready") ? snapshot : null;
        }));
    }

    /** Snapshots, newest first, page by page as they are read. */
    public Pages<Snapshot> listSnapshots(SnapshotFilter filter) {
        return new Pages<>(filter.page, number -> {
            ListSnapshotsResponse page = await(server.json(filter.call(number), ListSnapshotsResponse::fromJson));
            return new Pages.Page<>(page.items(), page.pagination().hasNextPage());
        });
    }

    /** One page of snapshots, newest first. */
    public ListSnapshotsResponse listSnapshotsPage(SnapshotFilter filter) {
        return await(listSnapshotsPageAsync(filter));
    }

    /** {@link #listSnapshotsPage} without blocking. */
    public CompletableFuture<ListSnapshotsResponse> listSnapshotsPageAsync(SnapshotFilter filter) {
        return server.json(filter.call(filter.page), ListSnapshotsResponse::fromJson);
    }

    /** Removes a snapshot. */
    public void deleteSnapshot(String id) {
        await(deleteSnapshotAsync(id));
    }

    /** {@link #deleteSnapshot} without blocking. */
    public CompletableFuture<Void> deleteSnapshotAsync(String id) {
        return server.done(Call.delete("/snapshots/" + Text.segment(id)));
    }

    /**
     * Extension: what happens to sandboxes, as it happens; of one sandbox only, and only after this event, unless these
     * are null.
     */
    public ValueStream<LifecycleEvent> events(String sandboxId, Long after) {
        return await(eventsAsync(sandboxId, after));
    }

    /** {@link #events} without blocking. */
    public CompletableFuture<ValueStream<LifecycleEvent>> eventsAsync(String sandboxId, Long after) {
        Call call = Call.get("/events").query("sandboxId", sandboxId, "after", after);
        return stream(call, answer -> new ValueStream<>(answer, "events", LifecycleEvent::fromJson));
    }

    /**
     * Extension: what a sandbox's main program prints, as it does, after at most {@code tail} of the lines before, which
     * may be null for all. The last event is {@code end}; a stream that ends without it was cut off.
     */
    public ValueStream<LogEvent> followLogs(String id, Integer tail) {
        return await(followLogsAsync(id, tail));
    }

    /** {@link #followLogs} without blocking. */
    public CompletableFuture<ValueStream<LogEvent>> followLogsAsync(String id, Integer tail) {
        Call call = Call.get(path(id, "/logs")).query("tail", tail);
        return stream(call, answer -> new ValueStream<>(answer, "a log", LogEvent::fromJson));
    }

    private <T> CompletableFuture<T> stream(Call call, java.util.function.Function<Target.Answer, T> read) {
        return Task.map(server.send(call), read);
    }

    /** Whether the server is well. */
    public HealthResponse health() {
        return await(healthAsync());
    }

    /** {@link #health} without blocking. */
    public CompletableFuture<HealthResponse> healthAsync() {
        return root.json(Call.get("/health"), HealthResponse::fromJson);
    }

    /** The version of the contract that the server speaks. */
    public VersionResponse version() {
        return await(versionAsync());
    }

    /** {@link #version} without blocking. */
    public CompletableFuture<VersionResponse> versionAsync() {
        return root.json(Call.get("/version"), VersionResponse::fromJson);
    }

    /**
     * Any request of the control plane that has no method of its own yet: a path below {@code /v1} with its encoded query,
     * and a JSON body or null. Answers what {@link Json#parse} gives, null where the answer has no body.
     */
    public Object request(String method, String path, Object body) {
        return await(requestAsync(method, path, body));
    }

    /** {@link #request} without blocking. */
    public CompletableFuture<Object> requestAsync(String method, String path, Object body) {
        int at = path.indexOf('?');
        Call call = Call.of(method, at < 0 ? path : path.substring(0, at));
        if (at >= 0) call.query = path.substring(at + 1);
        if (body != null) call.json(body);
        return Task.map(server.bytes(call), bytes -> bytes.length == 0 ? null : Target.parsed(call.what(), bytes, value -> value));
    }

    private static String path(String id, String rest) {
        return "/sandboxes/" + Text.segment(id) + rest;
    }
}
