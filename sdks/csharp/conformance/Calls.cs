// The calls of sdks/conformance/README.md by name: those of the client and of sandboxes as a whole. The object they
// are made on, their arguments and a token in, the result out; what a call leaves under a name comes as Held.

using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox.Conformance
{
    using Made = Func<object?, Arguments, CancellationToken, Task<object?>>;

    internal static class Calls
    {
        private static readonly Dictionary<string, Made> All = new[]
            {
                ConfigCalls(), ClientCalls(), OperatorCalls(), InventoryCalls(), SandboxCalls(), PoolCalls(),
                InsideCalls.Running(), InsideCalls.Shells(), InsideCalls.Files(), InsideCalls.Network(),
            }
            .SelectMany(table => table).ToDictionary(pair => pair.Key, pair => pair.Value);

        internal static Task<object?> MakeAsync(string name, object? on, Arguments with, CancellationToken token) =>
            All.TryGetValue(name, out var made) ? made(on, with, token) : throw new InvalidOperationException($"this runner has no call {name}");

        /// <summary>A call on an object of this type.</summary>
        internal static Made On<T>(Func<T, Arguments, CancellationToken, Task<object?>> made) => (on, with, token) => made((T)on!, with, token);

        internal static async Task<object?> Of<T>(Task<T> made) => await made;

        internal static async Task<object?> Done(Task made)
        {
            await made;
            return null;
        }

        internal static async Task<object?> Opened<T>(Task<ValueStream<T>> opened, Func<T?, object?> shape)
            where T : class
        {
            var stream = await opened;
            return new Held(new Stream(async () => shape(await stream.NextAsync()), stream), null, () => stream.DisposeAsync().AsTask());
        }

        private static Dictionary<string, Made> ConfigCalls() => new Dictionary<string, Made>
        {
            ["config.load"] = (_, w, __) => Task.FromResult(Loaded(w)),
            ["client.new"] = (_, w, __) => Task.FromResult<object?>(new Held(new Client(Connection(w)))),
        };

        private static Dictionary<string, Made> ClientCalls() => new Dictionary<string, Made>
        {
            ["client.health"] = On<Client>((c, w, t) => Of(c.HealthAsync(t))),
            ["client.version"] = On<Client>((c, w, t) => Of(c.VersionAsync(t))),
            ["client.get"] = On<Client>((c, w, t) => Of(c.GetAsync(w.NeedText("id"), t))),
            ["client.kill"] = On<Client>((c, w, t) => Done(c.KillAsync(w.NeedText("id"), t))),
            ["client.list"] = On<Client>((c, w, t) => Of(c.ListPageAsync(Filter(w), t))),
            ["client.list_all"] = On<Client>((c, w, t) => Of(CollectedAsync(c.ListAsync(Filter(w), t), w.Int("limit")))),
            ["client.pause"] = On<Client>((c, w, t) => Done(c.PauseAsync(w.NeedText("id"), null, t))),
            ["client.resume"] = On<Client>((c, w, t) => Done(c.ResumeAsync(w.NeedText("id"), null, t))),
            ["client.request"] = On<Client>((c, w, t) => Of(c.RequestAsync(w.NeedText("method"), w.NeedText("path"), w.Element("body"), t))),
            ["client.get_snapshot"] = On<Client>((c, w, t) => Of(c.GetSnapshotAsync(w.NeedText("id"), t))),
            ["client.delete_snapshot"] = On<Client>((c, w, t) => Done(c.DeleteSnapshotAsync(w.NeedText("id"), t))),
            ["client.list_snapshots"] = On<Client>((c, w, t) => Of(c.ListSnapshotsPageAsync(SnapshotFilter(w), t))),
            ["client.list_all_snapshots"] = On<Client>((c, w, t) => Of(CollectedAsync(c.ListSnapshotsAsync(SnapshotFilter(w), t), w.Int("limit")))),
            // A stream outlives the call that opens it, and its token; reading it is ended by closing it.
            ["client.events"] = On<Client>((c, w, t) => Opened(c.EventsAsync(w.Text("sandbox_id"), w.Long("after")), value => value)),
            ["client.follow_logs"] = On<Client>((c, w, t) => Opened(c.FollowLogsAsync(w.NeedText("id"), w.Int("tail")), value => value)),
        };

        private static Dictionary<string, Made> OperatorCalls() => new Dictionary<string, Made>
        {
            ["client.create_template"] = On<Client>((c, w, t) => Of(c.Operator.CreateTemplateAsync(w.Need<CreateTemplateRequest>("request"), t))),
            ["client.get_template"] = On<Client>((c, w, t) => Of(c.Operator.GetTemplateAsync(w.NeedText("id"), t))),
            ["client.list_templates"] = On<Client>((c, w, t) => Of(c.Operator.ListTemplatesAsync(
                new TemplateFilter { Metadata = w.Map("metadata"), Page = w.Int("page"), PageSize = w.Int("page_size") }, t))),
            ["client.delete_template"] = On<Client>((c, w, t) => Done(c.Operator.DeleteTemplateAsync(w.NeedText("id"), t))),
            ["client.create_pool"] = On<Client>((c, w, t) => Of(c.Operator.CreatePoolAsync(w.Need<CreatePoolRequest>("request"), t))),
            ["client.get_pool"] = On<Client>((c, w, t) => Of(c.Operator.GetPoolAsync(w.NeedText("name"), t))),
            ["client.list_pools"] = On<Client>((c, w, t) => Of(c.Operator.ListPoolsAsync(t))),
            ["client.update_pool"] = On<Client>((c, w, t) => Of(c.Operator.UpdatePoolAsync(w.NeedText("name"), w.Need<UpdatePoolRequest>("request"), t))),
            ["client.delete_pool"] = On<Client>((c, w, t) => Done(c.Operator.DeletePoolAsync(w.NeedText("name"), t))),
            ["client.network_policy"] = On<Client>((c, w, t) => Of(c.Operator.NetworkPolicyAsync(w.NeedText("id"), t))),
            ["client.set_network_policy"] = On<Client>((c, w, t) => Of(c.Operator.SetNetworkPolicyAsync(w.NeedText("id"), w.Need<NetworkPolicy>("policy"), t))),
            ["client.patch_network_policy"] = On<Client>((c, w, t) => Of(c.Operator.PatchNetworkPolicyAsync(w.NeedText("id"), w.Need<List<NetworkRule>>("rules"), t))),
            ["client.delete_network_policy"] = On<Client>((c, w, t) => Of(c.Operator.DeleteNetworkPolicyAsync(w.NeedText("id"), w.Need<List<string>>("targets"), t))),
            ["client.audit_events"] = On<Client>((c, w, t) => Of(c.Operator.AuditEventsAsync(
                new AuditFilter { Resource = w.Text("resource"), Actor = w.Text("actor"), Before = w.Long("before"), Limit = w.Int("limit") }, t))),
            ["client.diagnostic_logs"] = On<Client>((c, w, t) => Of(c.Operator.DiagnosticLogsAsync(w.NeedText("id"), w.NeedText("scope"), t))),
            ["client.diagnostic_events"] = On<Client>((c, w, t) => Of(c.Operator.DiagnosticEventsAsync(w.NeedText("id"), w.NeedText("scope"), t))),
            ["client.diagnostics_text"] = On<Client>(async (c, w, t) => new
            {
                text = await c.Operator.DiagnosticsTextAsync(w.NeedText("id"), w.NeedText("kind"), TextMap(w, "query"), t),
            }),
            ["client.metrics_text"] = On<Client>(async (c, w, t) => new { text = await c.Operator.MetricsTextAsync(t) }),
            ["client.openapi"] = On<Client>((c, w, t) => Of(c.Operator.OpenApiAsync(t))),
            ["client.report_event"] = On<Client>((c, w, t) => Done(c.Operator.ReportEventAsync(w.Need<MetricsEvent>("event"), t))),
        };

        private static Dictionary<string, Made> InventoryCalls() => new Dictionary<string, Made>
        {
            ["images.list"] = On<Client>((c, w, t) => Of(c.Images.ListAsync(t))),
            ["images.prune"] = On<Client>((c, w, t) => Of(c.Images.PruneAsync(t))),
            ["images.pull"] = On<Client>((c, w, t) => Opened(
                c.Images.PullAsync(w.NeedText("image"), new PullOptions { Platform = w.Get<PlatformSpec>("platform") }), value => value)),
            ["images.import"] = On<Client>((c, w, t) => Of(c.Images.ImportAsync(Archives.Packed(w), w.Text("name"), t))),
            ["images.export"] = On<Client>(async (c, w, t) => await Archives.EntriesAsync(await c.Images.ExportAsync(w.NeedText("reference"), t), false)),
            ["images.tag"] = On<Client>((c, w, t) => Of(c.Images.TagAsync(w.NeedText("reference"), w.NeedText("name"), t))),
            ["images.remove"] = On<Client>((c, w, t) => Done(c.Images.RemoveAsync(w.NeedText("reference"), t))),
            ["keys.list"] = On<Client>((c, w, t) => Of(c.Keys.ListAsync(t))),
            ["keys.create"] = On<Client>((c, w, t) => Of(c.Keys.CreateAsync(w.Need<CreateKeyRequest>("request"), t))),
            ["keys.create_token"] = On<Client>((c, w, t) => Of(c.Keys.CreateTokenAsync(w.Need<CreateTokenRequest>("request"), t))),
            ["keys.rotate"] = On<Client>((c, w, t) => Of(c.Keys.RotateAsync(
                w.NeedText("id"), new RotateKeyRequest { GraceSeconds = w.Long("grace_s") }, t))),
            ["keys.revoke"] = On<Client>((c, w, t) => Done(c.Keys.RevokeAsync(w.NeedText("id"), t))),
            ["tenants.list"] = On<Client>((c, w, t) => Of(c.Tenants.ListAsync(t))),
            ["tenants.get"] = On<Client>((c, w, t) => Of(c.Tenants.GetAsync(w.NeedText("name"), t))),
            ["tenants.create"] = On<Client>((c, w, t) => Of(c.Tenants.CreateAsync(w.NeedText("name"), t))),
            ["tenants.remove"] = On<Client>((c, w, t) => Done(c.Tenants.RemoveAsync(w.NeedText("name"), t))),
            ["volumes.list"] = On<Client>((c, w, t) => Of(c.Volumes.ListAsync(t))),
            ["volumes.create"] = On<Client>((c, w, t) => Of(c.Volumes.CreateAsync(w.NeedText("name"), t))),
            ["volumes.remove"] = On<Client>((c, w, t) => Done(c.Volumes.RemoveAsync(w.NeedText("name"), w.Flag("force"), t))),
        };

        private static Dictionary<string, Made> SandboxCalls() => new Dictionary<string, Made>
        {
            ["sandbox.create"] = On<Client>(async (c, w, t) => HeldSandbox(await c.CreateAsync(Source(w), Options(w), t))),
            ["sandbox.connect"] = On<Client>(async (c, w, t) => HeldSandbox(await c.ConnectAsync(
                w.NeedText("id"), new ConnectOptions { ReadyTimeout = w.Milliseconds("timeout_ms") ?? ReadyOptions.DefaultReadyTimeout, Resume = w.Flag("resume") }, t))),
            ["sandbox.scope"] = On<Client>(ScopeAsync),
            ["sandbox.info"] = On<Sandbox>((s, w, t) => Of(s.InfoAsync(t))),
            ["sandbox.metrics"] = On<Sandbox>(async (s, w, t) => Shapes.Metrics(await s.MetricsAsync(t))),
            ["sandbox.kill"] = On<Sandbox>((s, w, t) => Done(s.KillAsync(t))),
            ["sandbox.pause"] = On<Sandbox>((s, w, t) => Done(s.PauseAsync(null, t))),
            ["sandbox.resume"] = On<Sandbox>((s, w, t) => Done(s.ResumeAsync(null, t))),
            ["sandbox.ping"] = On<Sandbox>((s, w, t) => Done(s.PingAsync(t))),
            ["sandbox.is_healthy"] = On<Sandbox>(async (s, w, t) => new { healthy = await s.IsHealthyAsync(t) }),
            ["sandbox.renew"] = On<Sandbox>(async (s, w, t) => new { expires_at = (await s.RenewAsync(w.Seconds("lifetime_s")!.Value, t)).UtcDateTime }),
            ["sandbox.patch_metadata"] = On<Sandbox>((s, w, t) => Of(s.PatchMetadataAsync(w.Need<Dictionary<string, string?>>("patch"), t))),
            ["sandbox.wait_for_state"] = On<Sandbox>((s, w, t) => Done(s.WaitForStateAsync(w.NeedText("state"), w.Milliseconds("timeout_ms"), t))),
            ["sandbox.endpoint"] = On<Sandbox>((s, w, t) => Of(s.EndpointAsync(w.Int("port")!.Value, null, t))),
            ["sandbox.url"] = On<Sandbox>(async (s, w, t) =>
            {
                var place = await s.UrlAsync(w.Int("port")!.Value, t);
                return new { url = place.Url, headers = place.Headers };
            }),
            ["sandbox.signed_endpoint"] = On<Sandbox>((s, w, t) => Of(s.EndpointAsync(
                w.Int("port")!.Value, DateTimeOffset.UtcNow + w.Seconds("expires_in_s")!.Value, t))),
            ["sandbox.link"] = On<Sandbox>(async (s, w, t) => new
            {
                link = await s.LinkAsync(w.Int("port")!.Value, DateTimeOffset.UtcNow + w.Seconds("expires_in_s")!.Value, t),
            }),
            ["sandbox.snapshot"] = On<Sandbox>((s, w, t) => Of(s.SnapshotAsync(w.Text("name"), null, t))),
            ["sandbox.watch_metrics"] = On<Sandbox>((s, w, t) => Opened(s.WatchMetricsAsync(), Shapes.Metrics)),
            ["sandbox.tunnel"] = On<Sandbox>(async (s, w, t) =>
            {
                var tunnel = await s.TunnelAsync(w.Int("port")!.Value, t);
                return new Held(tunnel, null, () => tunnel.DisposeAsync().AsTask());
            }),
            ["sandbox.isolated_capabilities"] = On<Sandbox>((s, w, t) => Of(s.IsolatedCapabilitiesAsync(t))),
            ["stream.next"] = On<Stream>((s, w, t) => s.Next()),
            ["stream.close"] = On<Stream>((s, w, t) => Done(s.Close.DisposeAsync().AsTask())),
        };

        private static Dictionary<string, Made> PoolCalls() => new Dictionary<string, Made>
        {
            ["pool.start"] = On<Client>((c, w, t) =>
            {
                var options = new PoolOptions { MaxIdle = w.Int("max_idle")!.Value, Policy = w.Text("policy") == "fail" ? PoolPolicy.Fail : PoolPolicy.Create };
                options.Sandbox = new CreateOptions { Metadata = w.Map("metadata"), Resources = w.Map("resources") };
                if (w.Seconds("idle_timeout_s") is TimeSpan idle) options.IdleTimeout = idle;
                var pool = new Pool(c, w.NeedText("image"), options);
                return Task.FromResult<object?>(new Held(pool, null, pool.ShutdownAsync));
            }),
            ["pool.acquire"] = On<Pool>(async (p, w, t) => HeldSandbox(await p.AcquireAsync(w.Seconds("lifetime_s") ?? CreateOptions.DefaultLifetime, t))),
            ["pool.status"] = On<Pool>((p, w, t) =>
            {
                var status = p.Status;
                return Task.FromResult<object?>(new { idle = status.Idle, warming = status.Warming, max_idle = status.MaxIdle, is_degraded = status.IsDegraded });
            }),
            ["pool.resize"] = On<Pool>((p, w, t) => Done(p.ResizeAsync(w.Int("max_idle")!.Value))),
            ["pool.wait_until_warm"] = On<Pool>((p, w, t) => Done(p.WaitUntilWarmAsync(w.Milliseconds("timeout_ms")!.Value, t))),
            ["pool.shutdown"] = On<Pool>((p, w, t) => Done(p.ShutdownAsync())),
        };

        private static Held HeldSandbox(Sandbox sandbox) => new Held(sandbox, new { id = sandbox.Id });

        private static ConnectionConfig Connection(Arguments w)
        {
            RetryPolicy? retry = null;
            if (w.Element("retry") is System.Text.Json.JsonElement given)
            {
                retry = new RetryPolicy();
                if (given.TryGetProperty("attempts", out var attempts)) retry.Attempts = attempts.GetInt32();
                if (given.TryGetProperty("first_delay_ms", out var first)) retry.FirstDelay = TimeSpan.FromMilliseconds(first.GetDouble());
                if (given.TryGetProperty("longest_delay_ms", out var longest)) retry.LongestDelay = TimeSpan.FromMilliseconds(longest.GetDouble());
            }
            return new ConnectionConfig(new ConnectionOptions
            {
                Domain = w.Text("domain"),
                ApiKey = w.Text("api_key"),
                Protocol = w.Text("protocol"),
                RequestTimeout = w.Milliseconds("request_timeout_ms"),
                UseServerProxy = w.Value<bool>("use_server_proxy"),
                Headers = w.Map("headers"),
                Retry = retry,
            });
        }

        private static SandboxSource Source(Arguments w)
        {
            if (w.Text("snapshot_id") is string snapshot) return SandboxSource.Snapshot(snapshot);
            return w.Text("template_id") is string template ? SandboxSource.Template(template) : w.Text("image") ?? "";
        }

        private static CreateOptions Options(Arguments w)
        {
            var options = new CreateOptions
            {
                Name = w.Text("name"),
                RenewOnAccess = w.Seconds("renew_on_access_s"),
                IdempotencyKey = w.Text("idempotency_key"),
                Env = w.Map("env"),
                Metadata = w.Map("metadata"),
                Resources = w.Map("resources"),
                Entrypoint = w.Get<List<string>>("entrypoint"),
                Volumes = w.Get<List<Volume>>("volumes"),
                NetworkPolicy = w.Get<NetworkPolicy>("network_policy"),
                CredentialProxy = w.Value<bool>("credential_proxy"),
                SecureAccess = w.Value<bool>("secure_access"),
                Extensions = w.Map("extensions"),
                Platform = w.Get<PlatformSpec>("platform"),
                Lifecycle = w.Get<SandboxLifecycle>("lifecycle"),
                SkipReady = w.Flag("skip_ready"),
            };
            if (w.IsNull("lifetime_s")) options.Lifetime = Timeout.InfiniteTimeSpan;
            else if (w.Seconds("lifetime_s") is TimeSpan lifetime) options.Lifetime = lifetime;
            if (w.Milliseconds("ready_timeout_ms") is TimeSpan ready) options.ReadyTimeout = ready;
            return options;
        }

        private static SandboxFilter Filter(Arguments w) => new SandboxFilter
        {
            States = w.Get<List<string>>("states"), Metadata = w.Map("metadata"), Page = w.Int("page"), PageSize = w.Int("page_size"),
        };

        private static SnapshotFilter SnapshotFilter(Arguments w) => new SnapshotFilter
        {
            SandboxId = w.Text("sandbox_id"), Name = w.Text("name"), States = w.Get<List<string>>("states"),
            Page = w.Int("page"), PageSize = w.Int("page_size"),
        };

        /// <summary>Values of a query, which may be numbers.</summary>
        private static Dictionary<string, string>? TextMap(Arguments w, string name) =>
            w.Element(name)?.EnumerateObject().ToDictionary(pair => pair.Name, pair => pair.Value.ToString());

        private static async Task<List<T>> CollectedAsync<T>(IAsyncEnumerable<T> items, int? limit)
        {
            var all = new List<T>();
            await foreach (var item in items)
            {
                all.Add(item);
                if (all.Count == limit) break;
            }
            return all;
        }

        private static async Task<object?> ScopeAsync(Client client, Arguments w, CancellationToken token)
        {
            string? id = null;
            try
            {
                await using var sandbox = await client.CreateAsync(Source(w), Options(w), token);
                id = sandbox.Id;
                if (w.Flag("keep")) sandbox.Keep();
                if (w.Flag("fail")) throw new ApplicationException("left by an error");
            }
            catch (ApplicationException)
            {
            }
            return new { id };
        }

        /// <summary>Settings from an environment and a file alone: the variables of this process, put back afterwards.</summary>
        private static object? Loaded(Arguments w)
        {
            var home = Path.Combine(Path.GetTempPath(), $"osb-config-{Guid.NewGuid():N}");
            var given = w.Map("environment") ?? new Dictionary<string, string>();
            var known = Environment.GetEnvironmentVariables().Keys.Cast<string>().Where(name => name.StartsWith("OPEN_SANDBOX_"));
            var before = known.Concat(given.Keys).Append("HOME").Distinct().ToDictionary(name => name, Environment.GetEnvironmentVariable);
            try
            {
                foreach (var name in before.Keys) Environment.SetEnvironmentVariable(name, null);
                foreach (var (name, value) in given) Environment.SetEnvironmentVariable(name, value);
                Environment.SetEnvironmentVariable("HOME", home);
                Directory.CreateDirectory(Path.Combine(home, ".opensandbox"));
                if (w.Text("file") is string file) File.WriteAllText(Path.Combine(home, ".opensandbox", "config.toml"), file);
                var config = ConnectionConfig.Load();
                return new
                {
                    base_url = config.BaseUrl,
                    request_timeout_ms = config.RequestTimeout.TotalMilliseconds,
                    use_server_proxy = config.UseServerProxy,
                    has_api_key = config.HasApiKey,
                };
            }
            finally
            {
                foreach (var (name, value) in before) Environment.SetEnvironmentVariable(name, value);
                Directory.Delete(home, true);
            }
        }

        /// <summary>A stream of values, whatever they are of.</summary>
        internal sealed class Stream
        {
            internal Stream(Func<Task<object?>> next, IAsyncDisposable close)
            {
                Next = next;
                Close = close;
            }

            internal Func<Task<object?>> Next { get; }

            internal IAsyncDisposable Close { get; }
        }
    }
}
