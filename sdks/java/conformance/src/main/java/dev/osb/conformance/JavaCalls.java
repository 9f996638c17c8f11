package dev.osb.conformance;

import dev.osb.AuditFilter;
import dev.osb.Client;
import dev.osb.Contents;
import dev.osb.Pool;
import dev.osb.ReadyOptions;
import dev.osb.Sandbox;
import dev.osb.Tunnel;
import dev.osb.ValueStream;
import dev.osb.conformance.Protocol.Held;
import dev.osb.wire.CreateKeyRequest;
import dev.osb.wire.CreatePoolRequest;
import dev.osb.wire.CreateTemplateRequest;
import dev.osb.wire.CreateTokenRequest;
import dev.osb.wire.CredentialVaultCreateRequest;
import dev.osb.wire.CredentialVaultMutationRequest;
import dev.osb.wire.MetricsEvent;
import dev.osb.wire.NetworkPolicy;
import dev.osb.wire.NetworkRule;
import dev.osb.wire.PlatformSpec;
import dev.osb.wire.RotateKeyRequest;
import dev.osb.wire.UpdatePoolRequest;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;

/** The calls of sdks/conformance/README.md by the blocking SDK. */
final class JavaCalls {
    private JavaCalls() {}

    static Object make(String name, Object on, Arguments with) throws Exception {
        String subject = name.substring(0, name.indexOf('.'));
        String call = name.substring(name.indexOf('.') + 1);
        return switch (subject) {
            case "config" -> Settings.loaded(with);
            case "client" -> call.equals("new") ? new Held(new Client(Settings.connection(with)), null, null) : client((Client) on, call, with);
            case "images" -> images((Client) on, call, with);
            case "volumes" -> volumes((Client) on, call, with);
            case "keys" -> keys((Client) on, call, with);
            case "tenants" -> tenants((Client) on, call, with);
            case "sandbox" -> on instanceof Client client ? made(client, call, with) : sandbox((Sandbox) on, call, with);
            case "stream" -> stream((ValueStream<?>) on, call);
            case "tunnel" -> tunnel((Tunnel) on, call, with);
            case "egress" -> egress((Sandbox) on, call, with);
            case "vault" -> vault((Sandbox) on, call, with);
            case "pool" -> on instanceof Client client ? pool(client, with) : pool((Pool) on, call, with);
            default -> JavaInside.make(subject, call, on, with);
        };
    }

    static IllegalArgumentException unknown(String call) {
        return new IllegalArgumentException("this runner has no call " + call);
    }

    /** For calls without a result. */
    interface Act {
        void run() throws Exception;
    }

    static Object nothing(Act act) throws Exception {
        act.run();
        return null;
    }

    static Held held(AutoCloseable value) {
        return new Held(value, null, value);
    }

    private static Held held(Sandbox sandbox) {
        return new Held(sandbox, Shapes.map("id", sandbox.id()), null);
    }

    private static Object client(Client client, String call, Arguments with) throws Exception {
        String id = with.text("id");
        return switch (call) {
            case "health" -> client.health();
            case "version" -> client.version();
            case "get" -> client.get(id);
            case "kill" -> nothing(() -> client.kill(id));
            case "list" -> client.listPage(Settings.sandboxes(with));
            case "list_all" -> client.list(Settings.sandboxes(with)).stream().limit(limit(with)).map(Object.class::cast).toList();
            case "pause" -> nothing(() -> client.pause(id));
            case "resume" -> nothing(() -> client.resume(id));
            case "request" -> client.request(with.text("method"), with.text("path"), with.get("body"));
            case "get_snapshot" -> client.getSnapshot(id);
            case "delete_snapshot" -> nothing(() -> client.deleteSnapshot(id));
            case "list_snapshots" -> client.listSnapshotsPage(Settings.snapshots(with));
            case "list_all_snapshots" -> client.listSnapshots(Settings.snapshots(with)).stream().limit(limit(with)).map(Object.class::cast).toList();
            case "events" -> held(client.events(with.text("sandbox_id"), with.wide("after")));
            case "follow_logs" -> held(client.followLogs(id, with.integer("tail")));
            default -> operator(client, call, with);
        };
    }

    private static long limit(Arguments with) {
        return with.wide("limit") == null ? Long.MAX_VALUE : with.wide("limit");
    }

    private static Object operator(Client client, String call, Arguments with) throws Exception {
        var operator = client.operator();
        String id = with.text("id");
        String name = with.text("name");
        return switch (call) {
            case "create_template" -> operator.createTemplate(with.wire("request", CreateTemplateRequest::fromJson));
            case "get_template" -> operator.getTemplate(id);
            case "list_templates" -> operator.listTemplates(with.map("metadata"), with.integer("page"), with.integer("page_size"));
            case "delete_template" -> nothing(() -> operator.deleteTemplate(id));
            case "create_pool" -> operator.createPool(with.wire("request", CreatePoolRequest::fromJson));
            case "get_pool" -> operator.getPool(name);
            case "list_pools" -> operator.listPools();
            case "update_pool" -> operator.updatePool(name, with.wire("request", UpdatePoolRequest::fromJson));
            case "delete_pool" -> nothing(() -> operator.deletePool(name));
            case "network_policy" -> operator.networkPolicy(id);
            case "set_network_policy" -> operator.setNetworkPolicy(id, with.wire("policy", NetworkPolicy::fromJson));
            case "patch_network_policy" -> operator.patchNetworkPolicy(id, with.list("rules", NetworkRule::fromJson));
            case "delete_network_policy" -> operator.deleteNetworkPolicy(id, with.texts("targets"));
            case "audit_events" -> operator.auditEvents(audit(with));
            case "diagnostic_logs" -> operator.diagnosticLogs(id, with.text("scope"));
            case "diagnostic_events" -> operator.diagnosticEvents(id, with.text("scope"));
            case "diagnostics_text" -> Shapes.map("text", operator.diagnosticsText(id, with.text("kind"), with.map("query")));
            case "metrics_text" -> Shapes.map("text", operator.metricsText());
            case "openapi" -> operator.openapi();
            case "report_event" -> nothing(() -> operator.reportEvent(with.wire("event", MetricsEvent::fromJson)));
            default -> throw unknown("client." + call);
        };
    }

    static AuditFilter audit(Arguments with) {
        AuditFilter filter = new AuditFilter().resource(with.text("resource")).actor(with.text("actor"));
        if (with.get("before") != null) filter.before(with.wide("before"));
        if (with.get("limit") != null) filter.limit(with.integer("limit"));
        return filter;
    }

    private static Object images(Client client, String call, Arguments with) throws Exception {
        return switch (call) {
            case "list" -> client.images().list();
            case "prune" -> client.images().prune();
            case "pull" -> held(client.images().pull(with.text("image"), null, with.wire("platform", PlatformSpec::fromJson)));
            case "import" -> client.images().importArchive(Contents.of(Archives.packed(with.map("files"))), with.text("name"));
            case "export" -> Archives.entries(client.images().export(with.text("reference")), false);
            case "tag" -> client.images().tag(with.text("reference"), with.text("name"));
            case "remove" -> nothing(() -> client.images().remove(with.text("reference")));
            default -> throw unknown("images." + call);
        };
    }

    private static Object keys(Client client, String call, Arguments with) throws Exception {
        return switch (call) {
            case "list" -> client.keys().list();
            case "create" -> client.keys().create(with.wire("request", CreateKeyRequest::fromJson));
            case "create_token" -> client.keys().createToken(with.wire("request", CreateTokenRequest::fromJson));
            case "rotate" -> client.keys().rotate(with.text("id"), new RotateKeyRequest(with.wide("grace_s")));
            case "revoke" -> nothing(() -> client.keys().revoke(with.text("id")));
            default -> throw unknown("keys." + call);
        };
    }

    private static Object tenants(Client client, String call, Arguments with) throws Exception {
        return switch (call) {
            case "list" -> client.tenants().list();
            case "get" -> client.tenants().get(with.text("name"));
            case "create" -> client.tenants().create(with.text("name"));
            case "remove" -> nothing(() -> client.tenants().remove(with.text("name")));
            default -> throw unknown("tenants." + call);
        };
    }

    private static Object volumes(Client client, String call, Arguments with) throws Exception {
        return switch (call) {
            case "list" -> client.volumes().list();
            case "create" -> client.volumes().create(with.text("name"));
            case "remove" -> nothing(() -> client.volumes().remove(with.text("name"), with.flag("force")));
            default -> throw unknown("volumes." + call);
        };
    }

    private static Object made(Client client, String call, Arguments with) {
        return switch (call) {
            case "create" -> held(client.create(Settings.source(with), Settings.create(with)));
            case "connect" -> held(client.connect(with.text("id"), connecting(with)));
            case "scope" -> scope(client, with);
            default -> throw unknown("sandbox." + call);
        };
    }

    static ReadyOptions connecting(Arguments with) {
        ReadyOptions options = new ReadyOptions().resume(with.flag("resume"));
        return with.get("timeout_ms") == null ? options : options.readyTimeout(with.milliseconds("timeout_ms"));
    }

    private static final class LeftByAnError extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    private static Object scope(Client client, Arguments with) {
        String[] id = {null};
        try (Sandbox sandbox = client.create(Settings.source(with), Settings.create(with))) {
            id[0] = sandbox.id();
            if (with.flag("keep")) sandbox.keep();
            if (with.flag("fail")) throw new LeftByAnError();
        } catch (LeftByAnError error) {
            // Asked for.
        }
        return Shapes.map("id", id[0]);
    }

    private static Object sandbox(Sandbox sandbox, String call, Arguments with) throws Exception {
        Duration limit = with.get("timeout_ms") == null ? Client.CHANGE_TIMEOUT : with.milliseconds("timeout_ms");
        int port = with.get("port") == null ? 0 : with.integer("port");
        return switch (call) {
            case "info" -> sandbox.info();
            case "metrics" -> sandbox.metrics();
            case "kill" -> nothing(sandbox::kill);
            case "pause" -> nothing(sandbox::pause);
            case "resume" -> nothing(sandbox::resume);
            case "ping" -> nothing(sandbox::ping);
            case "is_healthy" -> Shapes.map("healthy", sandbox.isHealthy());
            case "renew" -> Shapes.map("expires_at", sandbox.renew(with.seconds("lifetime_s")));
            case "patch_metadata" -> sandbox.patchMetadata(with.map("patch"));
            case "wait_for_state" -> nothing(() -> sandbox.waitForState(with.text("state"), limit));
            case "endpoint" -> sandbox.endpoint(port);
            case "url" -> Shapes.map("url", sandbox.url(port).url(), "headers", sandbox.url(port).headers());
            case "signed_endpoint" -> sandbox.signedEndpoint(port, Instant.now().plus(with.seconds("expires_in_s")));
            case "link" -> Shapes.map("link", sandbox.link(port, Instant.now().plus(with.seconds("expires_in_s"))));
            case "snapshot" -> sandbox.snapshot(with.text("name"));
            case "watch_metrics" -> held(sandbox.watchMetrics());
            case "tunnel" -> held(sandbox.tunnel(port));
            case "isolated_capabilities" -> sandbox.isolatedCapabilities();
            default -> throw unknown("sandbox." + call);
        };
    }

    private static Object stream(ValueStream<?> stream, String call) throws Exception {
        return switch (call) {
            case "next" -> stream.hasNext() ? stream.next() : null;
            case "close" -> nothing(stream::close);
            default -> throw unknown("stream." + call);
        };
    }

    static Object tunnel(Tunnel tunnel, String call, Arguments with) throws Exception {
        return switch (call) {
            case "write" -> nothing(() -> tunnel.output().write(with.text("text").getBytes(StandardCharsets.UTF_8)));
            case "read" -> Shapes.map("text", new String(tunnel.input().readNBytes(with.integer("bytes")), StandardCharsets.UTF_8));
            case "close" -> nothing(tunnel::close);
            default -> throw unknown("tunnel." + call);
        };
    }

    private static Object egress(Sandbox sandbox, String call, Arguments with) {
        return switch (call) {
            case "policy" -> sandbox.egress().policy();
            case "patch" -> sandbox.egress().patch(with.list("rules", NetworkRule::fromJson));
            case "delete" -> sandbox.egress().delete(with.texts("targets"));
            case "replace" -> sandbox.egress().set(with.wire("policy", NetworkPolicy::fromJson));
            default -> throw unknown("egress." + call);
        };
    }

    private static Object vault(Sandbox sandbox, String call, Arguments with) throws Exception {
        var vault = sandbox.credentialVault();
        return switch (call) {
            case "create" -> vault.create(with.wire("request", CredentialVaultCreateRequest::fromJson));
            case "get" -> vault.get();
            case "patch" -> vault.patch(with.wire("request", CredentialVaultMutationRequest::fromJson));
            case "delete" -> nothing(vault::delete);
            case "credentials" -> vault.credentials();
            case "credential" -> vault.credential(with.text("name"));
            case "bindings" -> vault.bindings();
            case "binding" -> vault.binding(with.text("name"));
            default -> throw unknown("vault." + call);
        };
    }

    private static Object pool(Client client, Arguments with) {
        return held(new Pool(client, with.text("image"), Settings.pool(with)));
    }

    private static Object pool(Pool pool, String call, Arguments with) throws Exception {
        return switch (call) {
            case "acquire" -> held(pool.acquire(Settings.lifetime(with)));
            case "status" -> Shapes.poolStatus(pool.status());
            case "resize" -> nothing(() -> pool.resize(with.integer("max_idle")));
            case "wait_until_warm" -> nothing(() -> pool.waitUntilWarm(with.milliseconds("timeout_ms")));
            case "shutdown" -> nothing(pool::shutdown);
            default -> throw unknown("pool." + call);
        };
    }
}
