package dev.osb.conformance;

import dev.osb.CodeOptions;
import dev.osb.CommandOptions;
import dev.osb.ConnectionConfig;
import dev.osb.Contents;
import dev.osb.CreateOptions;
import dev.osb.Permission;
import dev.osb.PoolOptions;
import dev.osb.RetryPolicy;
import dev.osb.SandboxFilter;
import dev.osb.SandboxSource;
import dev.osb.SessionRunOptions;
import dev.osb.SnapshotFilter;
import dev.osb.TerminalOptions;
import dev.osb.TerminalSize;
import dev.osb.WriteFile;
import dev.osb.wire.NetworkPolicy;
import dev.osb.wire.PlatformSpec;
import dev.osb.wire.SandboxLifecycle;
import dev.osb.wire.Volume;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/** Arguments of calls as the SDK's options, for the runners of both languages. */
public final class Settings {
    private Settings() {}

    public static ConnectionConfig connection(Arguments with) {
        ConnectionConfig.Builder config = ConnectionConfig.builder();
        if (with.text("domain") != null) config.domain(with.text("domain"));
        if (with.text("api_key") != null) config.apiKey(with.text("api_key"));
        if (with.text("protocol") != null) config.protocol(with.text("protocol"));
        if (with.get("request_timeout_ms") != null) config.requestTimeout(with.milliseconds("request_timeout_ms"));
        if (with.get("use_server_proxy") != null) config.useServerProxy(with.flag("use_server_proxy"));
        with.map("headers").forEach(config::header);
        if (with.get("retry") instanceof Map<?, ?> given) {
            Arguments retry = new Arguments(given);
            RetryPolicy usual = RetryPolicy.DEFAULT;
            config.retry(new RetryPolicy(
                retry.integer("attempts") == null ? usual.attempts() : retry.integer("attempts"),
                or(retry.milliseconds("first_delay_ms"), usual.firstDelay()),
                or(retry.milliseconds("longest_delay_ms"), usual.longestDelay())));
        }
        return config.build();
    }

    /** How long a sandbox of a pool lives after it was taken. */
    public static Duration lifetime(Arguments with) {
        return or(with.seconds("lifetime_s"), CreateOptions.DEFAULT_LIFETIME);
    }

    private static Duration or(Duration given, Duration usual) {
        return given == null ? usual : given;
    }

    public static SandboxSource source(Arguments with) {
        if (with.text("snapshot_id") != null) return SandboxSource.snapshot(with.text("snapshot_id"));
        if (with.text("template_id") != null) return SandboxSource.template(with.text("template_id"));
        return SandboxSource.image(with.text("image"));
    }

    public static CreateOptions create(Arguments with) {
        CreateOptions options = new CreateOptions();
        if (with.has("lifetime_s")) options.lifetime(with.seconds("lifetime_s"));
        if (with.text("name") != null) options.name(with.text("name"));
        if (with.get("renew_on_access_s") != null) options.renewOnAccess(with.seconds("renew_on_access_s"));
        if (with.text("idempotency_key") != null) options.idempotencyKey(with.text("idempotency_key"));
        options.env(with.map("env")).metadata(with.map("metadata")).resources(with.map("resources"));
        if (with.get("entrypoint") != null) options.entrypoint(with.texts("entrypoint").toArray(String[]::new));
        with.list("volumes", Volume::fromJson).forEach(options::volume);
        options.networkPolicy(with.wire("network_policy", NetworkPolicy::fromJson));
        if (with.get("credential_proxy") != null) options.credentialProxy(with.flag("credential_proxy"));
        if (with.get("secure_access") != null) options.secureAccess(with.flag("secure_access"));
        with.map("extensions").forEach(options::extension);
        PlatformSpec platform = with.wire("platform", PlatformSpec::fromJson);
        if (platform != null) options.platform(platform.os(), platform.arch());
        options.lifecycle(with.wire("lifecycle", SandboxLifecycle::fromJson));
        if (with.get("ready_timeout_ms") != null) options.readyTimeout(with.milliseconds("ready_timeout_ms"));
        return options.skipReady(with.flag("skip_ready"));
    }

    public static CommandOptions command(Arguments with) {
        CommandOptions options = new CommandOptions().env(with.map("env")).stdinOpen(with.flag("stdin_open"));
        if (with.text("cwd") != null) options.cwd(with.text("cwd"));
        if (with.get("timeout_ms") != null) options.timeout(with.milliseconds("timeout_ms"));
        if (with.get("uid") != null) options.uid(with.integer("uid"));
        if (with.get("gid") != null) options.gid(with.integer("gid"));
        if (with.text("stdin") != null) options.stdin(with.text("stdin"));
        return options;
    }

    public static CodeOptions code(Arguments with) {
        return new CodeOptions().language(with.text("language")).context(with.text("context")).timeout(with.milliseconds("timeout_ms"));
    }

    public static SessionRunOptions session(Arguments with) {
        return new SessionRunOptions().cwd(with.text("cwd")).timeout(with.milliseconds("timeout_ms"));
    }

    public static TerminalOptions terminal(Arguments with) {
        TerminalOptions options = new TerminalOptions().pipes(with.flag("pipes")).takeOver(with.flag("take_over"))
            .size(size(with));
        if (with.get("since") != null) options.since(with.wide("since"));
        return options;
    }

    public static TerminalSize size(Arguments with) {
        return with.get("size") instanceof List<?> size
            ? new TerminalSize(((Number) size.get(0)).intValue(), ((Number) size.get(1)).intValue()) : null;
    }

    public static SandboxFilter sandboxes(Arguments with) {
        SandboxFilter filter = new SandboxFilter().states(with.texts("states").toArray(String[]::new)).metadata(with.map("metadata"));
        if (with.get("page") != null) filter.page(with.integer("page"));
        if (with.get("page_size") != null) filter.pageSize(with.integer("page_size"));
        return filter;
    }

    public static SnapshotFilter snapshots(Arguments with) {
        SnapshotFilter filter = new SnapshotFilter().states(with.texts("states").toArray(String[]::new));
        filter.sandboxId(with.text("sandbox_id")).name(with.text("name"));
        if (with.get("page") != null) filter.page(with.integer("page"));
        if (with.get("page_size") != null) filter.pageSize(with.integer("page_size"));
        return filter;
    }

    public static Permission permission(Arguments with) {
        return new Permission(with.octal("mode"), with.text("owner"), with.text("group"));
    }

    public static WriteFile file(Object json) {
        Arguments with = new Arguments((Map<?, ?>) json);
        return new WriteFile(with.text("path"), Contents.of(with.contents()), permission(with));
    }

    public static PoolOptions pool(Arguments with) {
        PoolOptions options = new PoolOptions(with.integer("max_idle"))
            .sandbox(new CreateOptions().metadata(with.map("metadata")).resources(with.map("resources")));
        if ("fail".equals(with.text("policy"))) options.policy(PoolOptions.Policy.FAIL);
        if (with.get("idle_timeout_s") != null) options.idleTimeout(with.seconds("idle_timeout_s"));
        return options;
    }

    /** Settings from an environment and a file alone, in a process of its own: a running one cannot change its environment. */
    public static Object loaded(Arguments with) throws IOException, InterruptedException {
        Path home = Files.createTempDirectory("osb-config-");
        try {
            if (with.text("file") != null) {
                Files.createDirectory(home.resolve(".opensandbox"));
                Files.writeString(home.resolve(".opensandbox/config.toml"), with.text("file"));
            }
            ProcessBuilder process = new ProcessBuilder(ProcessHandle.current().info().command().orElseThrow(),
                "-cp", System.getProperty("java.class.path"), Loaded.class.getName());
            process.environment().keySet().removeIf(name -> name.startsWith("OPEN_SANDBOX_"));
            process.environment().putAll(with.map("environment"));
            process.environment().put("HOME", home.toString());
            Process loading = process.redirectError(ProcessBuilder.Redirect.INHERIT).start();
            return Loaded.result(new String(loading.getInputStream().readAllBytes(), java.nio.charset.StandardCharsets.UTF_8));
        } finally {
            try (var walk = Files.walk(home)) {
                for (Path path : walk.sorted(java.util.Collections.reverseOrder()).toList()) Files.delete(path);
            }
        }
    }
}
