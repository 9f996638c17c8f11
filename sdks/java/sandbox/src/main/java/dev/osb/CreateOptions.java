package dev.osb;

import dev.osb.wire.CreateSandboxRequest;
import dev.osb.wire.CredentialProxyConfig;
import dev.osb.wire.ImageSpec;
import dev.osb.wire.NetworkPolicy;
import dev.osb.wire.PlatformSpec;
import dev.osb.wire.SandboxLifecycle;
import dev.osb.wire.Volume;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What a sandbox should have. */
public final class CreateOptions {
    /** How long a sandbox lives that nothing was said about, as in the other SDKs. */
    public static final Duration DEFAULT_LIFETIME = Duration.ofMinutes(10);

    /** What a sandbox may use that nothing was said about, as in the other SDKs. */
    private static final Map<String, String> DEFAULT_RESOURCES = Map.of("cpu", "1", "memory", "2Gi");

    /** What a sandbox does that nothing was said about: it stays. */
    private static final List<String> DEFAULT_ENTRYPOINT = List.of("tail", "-f", "/dev/null");

    /** Renews a sandbox by this many seconds on each access through the server. */
    private static final String EXTENSION_RENEW_SECONDS = "access.renew.extend.seconds";

    private final ReadyOptions ready = new ReadyOptions();
    private Duration lifetime = DEFAULT_LIFETIME;
    private final Map<String, String> env = new LinkedHashMap<>();
    private final Map<String, String> metadata = new LinkedHashMap<>();
    private final Map<String, String> resources = new LinkedHashMap<>();
    private final Map<String, String> resourceRequests = new LinkedHashMap<>();
    private final Map<String, String> extensions = new LinkedHashMap<>();
    private final List<Volume> volumes = new ArrayList<>();
    private List<String> entrypoint;
    private NetworkPolicy networkPolicy;
    private Boolean credentialProxy;
    private Boolean secureAccess;
    private PlatformSpec platform;
    private SandboxLifecycle lifecycle;
    private String idempotencyKey;

    /** What is said of nothing is as in the other SDKs. */
    public CreateOptions() {}

    CreateOptions copy() {
        CreateOptions copy = new CreateOptions().readyTimeout(ready.readyTimeout)
            .healthCheckInterval(ready.healthCheckInterval).skipReady(ready.skipReady);
        copy.lifetime = lifetime;
        copy.env.putAll(env);
        copy.metadata.putAll(metadata);
        copy.resources.putAll(resources);
        copy.resourceRequests.putAll(resourceRequests);
        copy.extensions.putAll(extensions);
        copy.volumes.addAll(volumes);
        copy.entrypoint = entrypoint;
        copy.networkPolicy = networkPolicy;
        copy.credentialProxy = credentialProxy;
        copy.secureAccess = secureAccess;
        copy.platform = platform;
        copy.lifecycle = lifecycle;
        copy.idempotencyKey = idempotencyKey;
        return copy;
    }

    /** A label {@code name}, by which it can be listed. */
    public CreateOptions name(String name) {
        return metadata("name", name);
    }

    /** How long it lives; null is until it is killed. */
    public CreateOptions lifetime(Duration lifetime) {
        this.lifetime = lifetime;
        return this;
    }

    /** Each request to it through the server lets it live so much longer; the operator must allow it. */
    public CreateOptions renewOnAccess(Duration by) {
        return extension(EXTENSION_RENEW_SECONDS, String.valueOf(Durations.wholeSeconds(by)));
    }

    /** A variable of the environment of everything that runs in it. */
    public CreateOptions env(String name, String value) {
        env.put(name, value);
        return this;
    }

    /** Variables of the environment of everything that runs in it. */
    public CreateOptions env(Map<String, String> variables) {
        env.putAll(variables);
        return this;
    }

    /** A label. */
    public CreateOptions metadata(String name, String value) {
        metadata.put(name, value);
        return this;
    }

    /** Labels. */
    public CreateOptions metadata(Map<String, String> labels) {
        metadata.putAll(labels);
        return this;
    }

    /** How much it may use of {@code cpu}, {@code memory}, {@code disk}, {@code pids} or {@code gpu}, over the defaults. */
    public CreateOptions resource(String name, String amount) {
        resources.put(name, amount);
        return this;
    }

    /** How much it may use, by name, over the defaults. */
    public CreateOptions resources(Map<String, String> limits) {
        resources.putAll(limits);
        return this;
    }

    /** How much it is sure to get, by name. */
    public CreateOptions resourceRequests(Map<String, String> requests) {
        resourceRequests.putAll(requests);
        return this;
    }

    /** The command that it supervises. */
    public CreateOptions entrypoint(String... command) {
        entrypoint = List.of(command);
        return this;
    }

    /** What it may reach. */
    public CreateOptions networkPolicy(NetworkPolicy policy) {
        networkPolicy = policy;
        return this;
    }

    /** Whether credentials are put into its requests on the way out. */
    public CreateOptions credentialProxy(boolean isOn) {
        credentialProxy = isOn;
        return this;
    }

    /** Whether its endpoints need a token of their own. */
    public CreateOptions secureAccess(boolean isOn) {
        secureAccess = isOn;
        return this;
    }

    /** What is mounted into it; see {@link Volumes#host} and {@link Volumes#named}. */
    public CreateOptions volume(Volume volume) {
        volumes.add(volume);
        return this;
    }

    /** Its platform. */
    public CreateOptions platform(String os, String arch) {
        platform = new PlatformSpec(arch, os);
        return this;
    }

    /** Hooks that run in it. */
    public CreateOptions lifecycle(SandboxLifecycle hooks) {
        lifecycle = hooks;
        return this;
    }

    /** A further setting by name. */
    public CreateOptions extension(String name, String value) {
        extensions.put(name, value);
        return this;
    }

    /** Extension: makes the request safe to repeat, also by this library after a broken connection. */
    public CreateOptions idempotencyKey(String key) {
        idempotencyKey = key;
        return this;
    }

    /** How long it may take to be ready, pulling its image included. */
    public CreateOptions readyTimeout(Duration timeout) {
        ready.readyTimeout(timeout);
        return this;
    }

    /** How long to wait before asking again whether it is ready. */
    public CreateOptions healthCheckInterval(Duration interval) {
        ready.healthCheckInterval(interval);
        return this;
    }

    /** Does not wait until it answers. */
    public CreateOptions skipReady(boolean skip) {
        ready.skipReady(skip);
        return this;
    }

    ReadyOptions ready() {
        return ready;
    }

    String idempotencyKey() {
        return idempotencyKey;
    }

    /** The request as it goes over the wire. */
    CreateSandboxRequest request(SandboxSource source) {
        CreateSandboxRequest request = new CreateSandboxRequest();
        if (source instanceof SandboxSource.Image image) {
            if (image.reference() == null || image.reference().isEmpty()) throw sourceMissing();
            request = request.withImage(new ImageSpec(image.auth(), image.reference()));
        } else if (source instanceof SandboxSource.Snapshot snapshot) {
            request = request.withSnapshotId(snapshot.id());
        } else if (source instanceof SandboxSource.Template template) {
            request = request.withTemplateId(template.id());
        } else {
            throw sourceMissing();
        }
        // A template says by itself what its sandboxes may use and do.
        boolean isFree = !(source instanceof SandboxSource.Template);
        Map<String, String> limits = new LinkedHashMap<>(isFree ? DEFAULT_RESOURCES : Map.of());
        limits.putAll(resources);
        List<String> command = entrypoint == null && isFree ? DEFAULT_ENTRYPOINT : entrypoint;
        return request
            .withTimeout(lifetime == null ? null : Durations.wholeSeconds(lifetime))
            .withResourceLimits(orNull(limits))
            .withResourceRequests(orNull(resourceRequests))
            .withEntrypoint(command)
            .withEnv(orNull(env))
            .withMetadata(orNull(metadata))
            .withNetworkPolicy(networkPolicy)
            .withCredentialProxy(credentialProxy == null ? null : new CredentialProxyConfig(credentialProxy))
            .withSecureAccess(secureAccess)
            .withVolumes(volumes.isEmpty() ? null : List.copyOf(volumes))
            .withPlatform(platform)
            .withLifecycle(lifecycle)
            .withExtensions(orNull(extensions));
    }

    private static InvalidArgumentException sourceMissing() {
        return new InvalidArgumentException("a sandbox starts from an image, a snapshot or a template; name one");
    }

    private static Map<String, String> orNull(Map<String, String> map) {
        return map.isEmpty() ? null : map;
    }
}
