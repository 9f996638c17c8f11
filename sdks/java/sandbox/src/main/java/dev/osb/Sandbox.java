package dev.osb;

import static dev.osb.Task.await;

import dev.osb.wire.DiagnosticContentResponse;
import dev.osb.wire.Endpoint;
import dev.osb.wire.IsolatedCapabilities;
import dev.osb.wire.Metrics;
import dev.osb.wire.SandboxInfo;
import dev.osb.wire.Snapshot;
import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A sandbox. One that was made here ends when its try-with-resources block is left, unless it is {@link #keep kept}; one
 * that was connected to does not. Without such a block, {@link #kill} ends it, or the end of its time.
 *
 * <pre>{@code
 * try (Sandbox sandbox = Sandbox.create("python:3.12")) {
 *     Output output = sandbox.commands().run("python -c 'print(6 * 7)'");
 *     System.out.println(output.stdout());
 * }
 * }</pre>
 */
public final class Sandbox implements AutoCloseable {
    /** Where the daemon in every sandbox listens. */
    private static final int EXEC_PORT = 44772;

    /** Where the egress API of a sandbox is asked for. */
    private static final int EGRESS_PORT = 18080;

    private final Client client;
    private final String id;
    private final Commands commands = new Commands(this);
    private final Sessions sessions = new Sessions(this);
    private final Terminals terminals = new Terminals(this);
    private final Files files = new Files(this, "");
    private final Code code = new Code(this);
    private final Egress egress = new Egress(this);
    private final CredentialVault credentialVault = new CredentialVault(this);
    /** Where the daemon and the egress API are, once asked for. */
    private final Map<Integer, Target> targets = new ConcurrentHashMap<>();
    private volatile boolean isOwned;

    Sandbox(Client client, String id, boolean isOwned) {
        this.client = client;
        this.id = id;
        this.isOwned = isOwned;
    }

    /** Makes a sandbox from an image with the settings of the environment and of the command line's file. */
    public static Sandbox create(String image) {
        return new Client().create(image);
    }

    /** Makes a sandbox from an image with the settings of the environment and of the command line's file. */
    public static Sandbox create(String image, CreateOptions options) {
        return new Client().create(image, options);
    }

    /** Connects to a sandbox that exists, with the settings of the environment and of the command line's file. */
    public static Sandbox connect(String id) {
        return new Client().connect(id);
    }

    /** Its id. */
    public String id() {
        return id;
    }

    /** The client it is reached by. */
    public Client client() {
        return client;
    }

    /** Runs commands. */
    public Commands commands() {
        return commands;
    }

    /** Live shells. */
    public Sessions sessions() {
        return sessions;
    }

    /** Terminals. */
    public Terminals terminals() {
        return terminals;
    }

    /** Files and directories. */
    public Files files() {
        return files;
    }

    /** Code that remembers. */
    public Code code() {
        return code;
    }

    /** What it may reach. */
    public Egress egress() {
        return egress;
    }

    /** Credentials that are put into its requests on the way out. */
    public CredentialVault credentialVault() {
        return credentialVault;
    }

    /** What the server knows of it. */
    public SandboxInfo info() {
        return await(infoAsync());
    }

    /** {@link #info} without blocking. */
    public CompletableFuture<SandboxInfo> infoAsync() {
        return client.getAsync(id);
    }

    /** What it uses now. */
    public Metrics metrics() {
        return await(metricsAsync());
    }

    /** {@link #metrics} without blocking. */
    public CompletableFuture<Metrics> metricsAsync() {
        return exec(target -> target.json(Call.get("/metrics"), Metrics::fromJson));
    }

    /** What it uses, each second. */
    public ValueStream<Metrics> watchMetrics() {
        return await(watchMetricsAsync());
    }

    /** {@link #watchMetrics} without blocking. */
    public CompletableFuture<ValueStream<Metrics>> watchMetricsAsync() {
        return exec(target -> Task.map(target.send(Call.get("/metrics/watch")), answer -> new ValueStream<>(answer, "metrics", Metrics::fromJson)));
    }

    /** Asks the daemon in it whether it is up. */
    public void ping() {
        await(pingAsync());
    }

    /** {@link #ping} without blocking. */
    public CompletableFuture<Void> pingAsync() {
        return exec(target -> target.done(Call.get("/ping")));
    }

    /** Whether the daemon in it answers. */
    public boolean isHealthy() {
        return await(isHealthyAsync());
    }

    /** {@link #isHealthy} without blocking. */
    public CompletableFuture<Boolean> isHealthyAsync() {
        return Task.start(task -> task.link(this::pingAsync).handle((nothing, thrown) -> {
            if (thrown == null) return CompletableFuture.completedFuture(true);
            Throwable error = Task.unwrapped(thrown);
            return error instanceof OpenSandboxException
                ? CompletableFuture.completedFuture(false) : CompletableFuture.<Boolean>failedFuture(error);
        }).thenCompose(result -> result));
    }

    /** Where one of its ports is reached from outside. */
    public Endpoint endpoint(int port) {
        return await(endpointAsync(port));
    }

    /** {@link #endpoint} without blocking. */
    public CompletableFuture<Endpoint> endpointAsync(int port) {
        return client.endpointAsync(id, port, null);
    }

    /** Where one of its ports is reached by anyone until this time. The server must have a key to sign with. */
    public Endpoint signedEndpoint(int port, Instant expires) {
        return await(signedEndpointAsync(port, expires));
    }

    /** {@link #signedEndpoint} without blocking. */
    public CompletableFuture<Endpoint> signedEndpointAsync(int port, Instant expires) {
        return client.endpointAsync(id, port, expires);
    }

    /**
     * The address of a port, and what a request to it must carry.
     *
     * @param url the address
     * @param headers the headers to send
     */
    public record PortUrl(String url, Map<String, String> headers) {}

    /** The URL of one of its ports, and the headers to send. */
    public PortUrl url(int port) {
        return await(urlAsync(port));
    }

    /** {@link #url} without blocking. */
    public CompletableFuture<PortUrl> urlAsync(int port) {
        return Task.map(targetAsync(port), target -> new PortUrl(target.base, target.headers));
    }

    /** A link to one of its ports that lets anyone in until it expires. The server must have a key to sign with. */
    public String previewUrl(int port, Instant expires) {
        return await(previewUrlAsync(port, expires));
    }

    /** {@link #previewUrl} without blocking. */
    public CompletableFuture<String> previewUrlAsync(int port, Instant expires) {
        return Task.map(signedEndpointAsync(port, expires), this::urlOf);
    }

    /**
     * Extension: a link by which a browser reaches one of its ports, good for once. The browser is let in until then, or for
     * as long as the server says where that is null. Needs a server with an ingress gateway.
     */
    public String link(int port, Instant until) {
        return await(linkAsync(port, until));
    }

    /** {@link #link} without blocking. */
    public CompletableFuture<String> linkAsync(int port, Instant until) {
        return client.linkAsync(id, port, until);
    }

    /** Extension: a plain byte stream to one of its ports, for whatever does not speak HTTP. */
    public Tunnel tunnel(int port) {
        return await(tunnelAsync(port));
    }

    /** {@link #tunnel} without blocking. */
    public CompletableFuture<Tunnel> tunnelAsync(int port) {
        return Task.start(task -> task.link(() -> targetAsync(port)).thenCompose(target -> task.link(() -> Tunnel.open(target))));
    }

    /** Lets it live this much longer, from now; answers when it ends. */
    public Instant renew(Duration lifetime) {
        return await(renewAsync(lifetime));
    }

    /** {@link #renew} without blocking. */
    public CompletableFuture<Instant> renewAsync(Duration lifetime) {
        return client.renewAsync(id, lifetime);
    }

    /** Sets labels, and removes those that are null. */
    public SandboxInfo patchMetadata(Map<String, String> patch) {
        return await(patchMetadataAsync(patch));
    }

    /** {@link #patchMetadata} without blocking. */
    public CompletableFuture<SandboxInfo> patchMetadataAsync(Map<String, String> patch) {
        return client.patchMetadataAsync(id, patch);
    }

    /** Freezes it; answers when it is frozen. */
    public void pause() {
        await(pauseAsync());
    }

    /** {@link #pause} without blocking. */
    public CompletableFuture<Void> pauseAsync() {
        return client.pauseAsync(id);
    }

    /** Lets it run on; answers when it runs. */
    public void resume() {
        await(resumeAsync());
    }

    /** {@link #resume} without blocking. */
    public CompletableFuture<Void> resumeAsync() {
        // It may come back at another address.
        targets.clear();
        return client.resumeAsync(id);
    }

    /** Waits until it is in this {@link dev.osb.wire.SandboxState state}; fails when it gets into one from which it never comes. */
    public void waitForState(String state, Duration timeout) {
        await(waitForStateAsync(state, timeout));
    }

    /** {@link #waitForState} without blocking. */
    public CompletableFuture<Void> waitForStateAsync(String state, Duration timeout) {
        return client.waitForStateAsync(id, state, timeout);
    }

    /** Keeps a copy of its filesystem, under a name, which may be null; answers when sandboxes can be made from it. */
    public Snapshot snapshot(String name) {
        return await(snapshotAsync(name));
    }

    /** {@link #snapshot} without blocking. */
    public CompletableFuture<Snapshot> snapshotAsync(String name) {
        return Task.start(task -> task.link(() -> client.createSnapshotAsync(id, name))
            .thenCompose(begun -> task.link(() -> client.waitForSnapshotAsync(begun.id(), Client.CHANGE_TIMEOUT))));
    }

    /** Its logs for whoever looks for what went wrong; {@code container} and {@code all} are scopes. */
    public DiagnosticContentResponse diagnosticLogs(String scope) {
        return client.operator().diagnosticLogs(id, scope);
    }

    /** What happened to it; {@code runtime} and {@code all} are scopes. */
    public DiagnosticContentResponse diagnosticEvents(String scope) {
        return client.operator().diagnosticEvents(id, scope);
    }

    /** Which isolation its daemon has for sessions of their own. */
    public IsolatedCapabilities isolatedCapabilities() {
        return await(isolatedCapabilitiesAsync());
    }

    /** {@link #isolatedCapabilities} without blocking. */
    public CompletableFuture<IsolatedCapabilities> isolatedCapabilitiesAsync() {
        return exec(target -> target.json(Call.get("/v1/isolated/capabilities"), IsolatedCapabilities::fromJson));
    }

    /** Ends it. One that is already gone is no error. */
    public void kill() {
        await(killAsync());
    }

    /** {@link #kill} without blocking. */
    public CompletableFuture<Void> killAsync() {
        return Task.start(task -> task.link(() -> client.killAsync(id)).exceptionallyCompose(thrown -> {
            Throwable error = Task.unwrapped(thrown);
            boolean isGone = error instanceof OpenSandboxException ours && ours.isNotFound();
            return isGone ? CompletableFuture.completedFuture(null) : CompletableFuture.failedFuture(error);
        }));
    }

    /** Lets it outlive its try-with-resources block. */
    public Sandbox keep() {
        isOwned = false;
        return this;
    }

    /** Ends it, if it was made here and is not kept. */
    @Override
    public void close() {
        if (!isOwned) return;
        // A block that is left by an interrupt ends its sandbox all the same.
        boolean isInterrupted = Thread.interrupted();
        try {
            kill();
        } finally {
            if (isInterrupted) Thread.currentThread().interrupt();
        }
    }

    /** {@link #close} without blocking. */
    public CompletableFuture<Void> closeAsync() {
        return isOwned ? killAsync() : CompletableFuture.completedFuture(null);
    }

    /** Nobody took it: the call that made it was given up. */
    void discard() {
        closeAsync();
    }

    /** Asks the daemon inside. */
    <T> CompletableFuture<T> exec(java.util.function.Function<Target, CompletableFuture<T>> ask) {
        return at(EXEC_PORT, ask);
    }

    /** Asks the egress API. */
    <T> CompletableFuture<T> egressApi(java.util.function.Function<Target, CompletableFuture<T>> ask) {
        return at(EGRESS_PORT, ask);
    }

    private <T> CompletableFuture<T> at(int port, java.util.function.Function<Target, CompletableFuture<T>> ask) {
        Target known = targets.get(port);
        if (known != null) return ask.apply(known);
        return Task.start(task -> task.link(() -> targetAsync(port)).thenCompose(target -> {
            targets.put(port, target);
            return task.link(() -> ask.apply(target));
        }));
    }

    private CompletableFuture<Target> targetAsync(int port) {
        return Task.map(endpointAsync(port), endpoint -> {
            ConnectionConfig config = client.config();
            Map<String, String> headers = new LinkedHashMap<>();
            // Only the server may see the key; a sandbox never does.
            if (config.apiKey() != null && config.useServerProxy()) headers.put(Target.API_KEY_HEADER, config.apiKey());
            if (endpoint.headers() != null) headers.putAll(endpoint.headers());
            return new Target(config, urlOf(endpoint), headers);
        });
    }

    private String urlOf(Endpoint endpoint) {
        String address = endpoint.endpoint().replaceAll("/+$", "");
        return address.contains("://") ? address : client.config().scheme() + "://" + address;
    }

    @Override
    public String toString() {
        return "Sandbox[" + id + "]";
    }
}
