// The control plane: sandboxes by their ids, lists, snapshots, events. What is asked for less often, templates,
// pools of the server, policies and diagnostics, is in Operator.cs.

using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>Which sandboxes.</summary>
    public sealed class SandboxFilter
    {
        /// <summary>Only sandboxes in one of these states, which are named in <see cref="SandboxState"/>; none is all.</summary>
        public IReadOnlyList<string>? States { get; set; }

        /// <summary>Only sandboxes with all of these labels.</summary>
        public IReadOnlyDictionary<string, string>? Metadata { get; set; }

        /// <summary>Which page, from 1.</summary>
        public int? Page { get; set; }

        /// <summary>Items per page, at most 200.</summary>
        public int? PageSize { get; set; }
    }

    /// <summary>Which snapshots.</summary>
    public sealed class SnapshotFilter
    {
        /// <summary>Only snapshots of this sandbox.</summary>
        public string? SandboxId { get; set; }

        /// <summary>Only snapshots with this name.</summary>
        public string? Name { get; set; }

        /// <summary>Only snapshots in one of these states, which are named in <see cref="SnapshotState"/>; none is all.</summary>
        public IReadOnlyList<string>? States { get; set; }

        /// <summary>Which page, from 1.</summary>
        public int? Page { get; set; }

        /// <summary>Items per page, at most 200.</summary>
        public int? PageSize { get; set; }
    }

    /// <summary>The control plane. It holds nothing that must be closed: connections are shared by the whole process.</summary>
    public sealed class Client
    {
        /// <summary>How long pausing, resuming and snapshots may take before waiting for them ends.</summary>
        private static readonly TimeSpan ChangeTimeout = TimeSpan.FromSeconds(300);

        private readonly Target _server;
        private readonly Target _root;

        /// <summary>A client with these settings over those of the environment and of the command line's file. Sends nothing
        /// yet.</summary>
        /// <param name="options">The settings.</param>
        public Client(ConnectionOptions? options = null)
            : this(ConnectionConfig.Load(options))
        {
        }

        /// <summary>A client with exactly these settings. Sends nothing yet.</summary>
        /// <param name="config">The settings.</param>
        public Client(ConnectionConfig config)
        {
            Config = config;
            var headers = new Dictionary<string, string>();
            if (config.ApiKey != null) headers[Target.ApiKeyHeader] = config.ApiKey;
            _server = new Target(config, config.BaseUrl, headers);
            _root = new Target(config, config.RootUrl, headers);
            Images = new Images(_server);
            Keys = new Keys(_server);
            Tenants = new Tenants(_server);
            Volumes = new Volumes(_server);
            Operator = new Operator(_server, _root);
        }

        /// <summary>Its settings.</summary>
        public ConnectionConfig Config { get; }

        /// <summary>Extension: the images that the server keeps.</summary>
        public Images Images { get; }

        /// <summary>Extension: the API keys of the server.</summary>
        public Keys Keys { get; }

        /// <summary>Extension: the tenants of the server.</summary>
        public Tenants Tenants { get; }

        /// <summary>Extension: the named volumes that the server keeps.</summary>
        public Volumes Volumes { get; }

        /// <summary>Templates, pools of the server, policies, diagnostics and the audit record.</summary>
        public Operator Operator { get; }

        /// <summary>Makes a sandbox and waits until it can be used.</summary>
        /// <param name="source">What it starts from.</param>
        /// <param name="options">What it should have.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<Sandbox> CreateAsync(
            SandboxSource source, CreateOptions? options = null, CancellationToken cancellationToken = default)
        {
            options ??= new CreateOptions();
            var created = await CreateRequestAsync(options.Request(source), options.ReadyTimeout, options.IdempotencyKey, cancellationToken)
                .ConfigureAwait(false);
            var sandbox = new Sandbox(this, created.Id, true);
            if (options.SkipReady) return sandbox;
            try
            {
                await Ready.WaitAsync(sandbox, options, cancellationToken).ConfigureAwait(false);
            }
            catch (Exception)
            {
                // Nobody would know its id; whether this works is not the caller's question.
                await sandbox.TryKillAsync().ConfigureAwait(false);
                throw;
            }
            return sandbox;
        }

        /// <summary>Connects to a sandbox that exists.</summary>
        /// <param name="id">Which.</param>
        /// <param name="options">How.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<Sandbox> ConnectAsync(string id, ConnectOptions? options = null, CancellationToken cancellationToken = default)
        {
            options ??= new ConnectOptions();
            if (options.Resume) await ResumeAsync(id, null, cancellationToken).ConfigureAwait(false);
            var sandbox = Sandbox(id);
            if (!options.SkipReady) await Ready.WaitAsync(sandbox, options, cancellationToken).ConfigureAwait(false);
            return sandbox;
        }

        /// <summary>A handle to a sandbox without any request.</summary>
        /// <param name="id">Which.</param>
        public Sandbox Sandbox(string id) => new Sandbox(this, id, false);

        /// <summary>Sends a request to make a sandbox and does not wait until it is ready. Our server answers when it is.</summary>
        /// <param name="request">The request.</param>
        /// <param name="timeout">How long that may take.</param>
        /// <param name="idempotencyKey">Extension: makes it safe to repeat: the server makes one sandbox however often the
        /// same key comes.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<CreateSandboxResponse> CreateRequestAsync(
            CreateSandboxRequest request, TimeSpan? timeout = null, string? idempotencyKey = null, CancellationToken cancellationToken = default)
        {
            var call = new Call { Json = request, Limit = Longest(timeout ?? ReadyOptions.DefaultReadyTimeout) };
            if (idempotencyKey != null)
            {
                call.Headers = new Dictionary<string, string> { ["Idempotency-Key"] = idempotencyKey };
                call.IsRepeatable = true;
            }
            return _server.JsonAsync<CreateSandboxResponse>("POST", "/sandboxes", call, cancellationToken);
        }

        /// <summary>What the server knows of a sandbox.</summary>
        /// <param name="id">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<SandboxInfo> GetAsync(string id, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<SandboxInfo>("GET", PathOf(id), null, cancellationToken);

        /// <summary>Sandboxes, newest first, page by page as they are read.</summary>
        /// <param name="filter">Which.</param>
        /// <param name="cancellationToken">Ends reading early.</param>
        public async IAsyncEnumerable<SandboxInfo> ListAsync(
            SandboxFilter? filter = null, [EnumeratorCancellation] CancellationToken cancellationToken = default)
        {
            filter ??= new SandboxFilter();
            for (var page = filter.Page ?? 1; ; page++)
            {
                var next = new SandboxFilter { States = filter.States, Metadata = filter.Metadata, Page = page, PageSize = filter.PageSize };
                var found = await ListPageAsync(next, cancellationToken).ConfigureAwait(false);
                foreach (var item in found.Items) yield return item;
                if (!found.Pagination.HasNextPage) yield break;
            }
        }

        /// <summary>One page of sandboxes, newest first.</summary>
        /// <param name="filter">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<ListSandboxesResponse> ListPageAsync(SandboxFilter? filter = null, CancellationToken cancellationToken = default)
        {
            filter ??= new SandboxFilter();
            var query = Encoded.Query((filter.States ?? Array.Empty<string>()).Select(state => ("state", (object?)state)).Concat(new[]
            {
                ("metadata", Operator.Labels(filter.Metadata)), ("page", (object?)filter.Page), ("pageSize", filter.PageSize),
            }));
            return _server.JsonAsync<ListSandboxesResponse>("GET", "/sandboxes", new Call { Query = query }, cancellationToken);
        }

        /// <summary>Ends a sandbox.</summary>
        /// <param name="id">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task KillAsync(string id, CancellationToken cancellationToken = default) =>
            _server.DoneAsync("DELETE", PathOf(id), null, cancellationToken);

        /// <summary>Freezes a sandbox; answers when it is frozen.</summary>
        /// <param name="id">Which.</param>
        /// <param name="timeout">How long that may take.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task PauseAsync(string id, TimeSpan? timeout = null, CancellationToken cancellationToken = default)
        {
            await _server.DoneAsync("POST", PathOf(id, "/pause"), null, cancellationToken).ConfigureAwait(false);
            await WaitForStateAsync(id, SandboxState.Paused, timeout, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Lets a sandbox run on; answers when it runs.</summary>
        /// <param name="id">Which.</param>
        /// <param name="timeout">How long that may take.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task ResumeAsync(string id, TimeSpan? timeout = null, CancellationToken cancellationToken = default)
        {
            await _server.DoneAsync("POST", PathOf(id, "/resume"), null, cancellationToken).ConfigureAwait(false);
            await WaitForStateAsync(id, SandboxState.Running, timeout, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Waits until a sandbox is in this state; fails when it gets into one from which it never comes.</summary>
        /// <param name="id">Which.</param>
        /// <param name="state">One of <see cref="SandboxState"/>.</param>
        /// <param name="timeout">How long that may take.</param>
        /// <param name="cancellationToken">Stops waiting.</param>
        public Task WaitForStateAsync(string id, string state, TimeSpan? timeout = null, CancellationToken cancellationToken = default)
        {
            var change = new Change<SandboxInfo>(this, id, async token =>
            {
                var info = await GetAsync(id, token).ConfigureAwait(false);
                if (info.Status.State == state) return info;
                if (info.Status.State == SandboxState.Failed || info.Status.State == SandboxState.Terminated)
                    throw new FailedException($"sandbox {id}", info.Status.State, info.Status.Message);
                return null;
            });
            return change.WaitAsync($"sandbox {id} to be {state}", timeout ?? ChangeTimeout, cancellationToken);
        }

        /// <summary>Lets a sandbox live this much longer, from now; answers when it ends.</summary>
        /// <param name="id">Which.</param>
        /// <param name="lifetime">How long.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<DateTimeOffset> RenewAsync(string id, TimeSpan lifetime, CancellationToken cancellationToken = default)
        {
            var now = DateTimeOffset.UtcNow;
            if (lifetime > DateTimeOffset.MaxValue - now) throw new InvalidArgumentException($"{lifetime} is not a lifetime");
            var call = new Call { Json = new RenewSandboxExpirationRequest { ExpiresAt = now + lifetime } };
            var path = PathOf(id, "/renew-expiration");
            return (await _server.JsonAsync<RenewSandboxExpirationResponse>("POST", path, call, cancellationToken).ConfigureAwait(false)).ExpiresAt;
        }

        /// <summary>Sets labels of a sandbox, and removes those that are null.</summary>
        /// <param name="id">Which.</param>
        /// <param name="patch">By name.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<SandboxInfo> PatchMetadataAsync(
            string id, IReadOnlyDictionary<string, string?> patch, CancellationToken cancellationToken = default)
        {
            // Null means something here, so that it must not be left out.
            var json = JsonSerializer.SerializeToUtf8Bytes(patch.ToDictionary(pair => pair.Key, pair => pair.Value));
            var call = new Call { Content = () => JsonContent(json) };
            return _server.JsonAsync<SandboxInfo>("PATCH", PathOf(id, "/metadata"), call, cancellationToken);
        }

        /// <summary>Where a port of a sandbox is reached from outside.</summary>
        /// <param name="id">Which.</param>
        /// <param name="port">Which.</param>
        /// <param name="expires">Signed, it lets anyone in until then.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<Endpoint> EndpointAsync(
            string id, int port, DateTimeOffset? expires = null, CancellationToken cancellationToken = default)
        {
            var call = new Call
            {
                Query = Encoded.Query(("expires", expires?.ToUnixTimeSeconds()), ("use_server_proxy", Config.UseServerProxy ? true : (object?)null)),
                // Held until the sandbox is ready, which may take as long as its image takes to come.
                Limit = Longest(ReadyOptions.DefaultReadyTimeout),
            };
            return _server.JsonAsync<Endpoint>("GET", PathOf(id, $"/endpoints/{port}"), call, cancellationToken);
        }

        internal async Task<string> LinkAsync(string id, int port, DateTimeOffset? until, CancellationToken cancellationToken)
        {
            var call = new Call { Query = Encoded.Query(("link", true), ("expires", until?.ToUnixTimeSeconds())) };
            var endpoint = await _server.JsonAsync<Endpoint>("GET", PathOf(id, $"/endpoints/{port}"), call, cancellationToken).ConfigureAwait(false);
            return endpoint.Link ?? throw new InvalidArgumentException("the server knows no links; use one with an ingress gateway");
        }

        /// <summary>Begins a copy of a sandbox's filesystem.</summary>
        /// <param name="id">Which.</param>
        /// <param name="name">The copy's name.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<Snapshot> CreateSnapshotAsync(string id, string? name = null, CancellationToken cancellationToken = default)
        {
            // A server may answer only when the copy is made.
            var call = new Call { Json = new CreateSnapshotRequest { Name = name }, Limit = ChangeTimeout };
            return _server.JsonAsync<Snapshot>("POST", PathOf(id, "/snapshots"), call, cancellationToken);
        }

        /// <summary>A snapshot.</summary>
        /// <param name="id">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<Snapshot> GetSnapshotAsync(string id, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<Snapshot>("GET", $"/snapshots/{Encoded.Segment(id)}", null, cancellationToken);

        /// <summary>Waits until sandboxes can be made from a snapshot.</summary>
        /// <param name="id">Which.</param>
        /// <param name="timeout">How long that may take.</param>
        /// <param name="cancellationToken">Stops waiting.</param>
        public Task<Snapshot> WaitForSnapshotAsync(string id, TimeSpan? timeout = null, CancellationToken cancellationToken = default)
        {
            var change = new Change<Snapshot>(this, null, async token =>
            {
                var snapshot = await GetSnapshotAsync(id, token).ConfigureAwait(false);
                var state = snapshot.Status.State;
                if (state == SnapshotState.Failed || state == SnapshotState.Deleting)
                    throw new FailedException($"snapshot {id}", state, snapshot.Status.Message);
                return state == SnapshotState.Ready ? snapshot : null;
            });
            return change.WaitAsync($"snapshot {id} to be ready", timeout ?? ChangeTimeout, cancellationToken);
        }

        /// <summary>Snapshots, newest first, page by page as they are read.</summary>
        /// <param name="filter">Which.</param>
        /// <param name="cancellationToken">Ends reading early.</param>
        public async IAsyncEnumerable<Snapshot> ListSnapshotsAsync(
            SnapshotFilter? filter = null, [EnumeratorCancellation] CancellationToken cancellationToken = default)
        {
            filter ??= new SnapshotFilter();
            for (var page = filter.Page ?? 1; ; page++)
            {
                var next = new SnapshotFilter
                {
                    SandboxId = filter.SandboxId, Name = filter.Name, States = filter.States, Page = page, PageSize = filter.PageSize,
                };
                var found = await ListSnapshotsPageAsync(next, cancellationToken).ConfigureAwait(false);
                foreach (var item in found.Items) yield return item;
                if (!found.Pagination.HasNextPage) yield break;
            }
        }

        /// <summary>One page of snapshots, newest first.</summary>
        /// <param name="filter">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<ListSnapshotsResponse> ListSnapshotsPageAsync(SnapshotFilter? filter = null, CancellationToken cancellationToken = default)
        {
            filter ??= new SnapshotFilter();
            var query = Encoded.Query((filter.States ?? Array.Empty<string>()).Select(state => ("state", (object?)state)).Concat(new[]
            {
                ("sandboxId", (object?)filter.SandboxId), ("name", filter.Name), ("page", filter.Page), ("pageSize", filter.PageSize),
            }));
            return _server.JsonAsync<ListSnapshotsResponse>("GET", "/snapshots", new Call { Query = query }, cancellationToken);
        }

        /// <summary>Removes a snapshot.</summary>
        /// <param name="id">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task DeleteSnapshotAsync(string id, CancellationToken cancellationToken = default) =>
            _server.DoneAsync("DELETE", $"/snapshots/{Encoded.Segment(id)}", null, cancellationToken);

        /// <summary>Extension: what happens to sandboxes, as it happens.</summary>
        /// <param name="sandboxId">Only to this one.</param>
        /// <param name="after">Only after this event.</param>
        /// <param name="cancellationToken">Ends reading early, also later.</param>
        public async Task<ValueStream<LifecycleEvent>> EventsAsync(
            string? sandboxId = null, long? after = null, CancellationToken cancellationToken = default)
        {
            var call = new Call { Query = Encoded.Query(("sandboxId", sandboxId), ("after", after)) };
            return new ValueStream<LifecycleEvent>(await _server.SendAsync("GET", "/events", call, cancellationToken).ConfigureAwait(false), "events");
        }

        /// <summary>Extension: what a sandbox's main program prints, as it does. The last event is <c>end</c>; a stream that
        /// ends without it was cut off.</summary>
        /// <param name="id">Which.</param>
        /// <param name="tail">At most so many of the lines before.</param>
        /// <param name="cancellationToken">Ends reading early, also later.</param>
        public async Task<ValueStream<LogEvent>> FollowLogsAsync(string id, int? tail = null, CancellationToken cancellationToken = default)
        {
            var call = new Call { Query = Encoded.Query(("tail", tail)) };
            return new ValueStream<LogEvent>(await _server.SendAsync("GET", PathOf(id, "/logs"), call, cancellationToken).ConfigureAwait(false), "a log");
        }

        /// <summary>Whether the server is well.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<HealthResponse> HealthAsync(CancellationToken cancellationToken = default) =>
            _root.JsonAsync<HealthResponse>("GET", "/health", null, cancellationToken);

        /// <summary>The version of the contract that the server speaks.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<VersionResponse> VersionAsync(CancellationToken cancellationToken = default) =>
            _root.JsonAsync<VersionResponse>("GET", "/version", null, cancellationToken);

        /// <summary>Any request of the control plane that has no method of its own yet.</summary>
        /// <param name="method">How.</param>
        /// <param name="path">Below <c>/v1</c>, with its encoded query.</param>
        /// <param name="body">What System.Text.Json writes.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        /// <returns>The answer's JSON; nothing where it has no body.</returns>
        public async Task<JsonElement?> RequestAsync(
            string method, string path, object? body = null, CancellationToken cancellationToken = default)
        {
            var parts = path.Split('?', 2);
            var call = new Call { Query = parts.Length > 1 ? parts[1] : "", Json = body };
            var bytes = await _server.BytesAsync(method, parts[0], call, cancellationToken).ConfigureAwait(false);
            return bytes.Length == 0 ? (JsonElement?)null : JsonSerializer.Deserialize<JsonElement>(bytes);
        }

        internal static string PathOf(string id, string rest = "") => $"/sandboxes/{Encoded.Segment(id)}{rest}";

        private static System.Net.Http.HttpContent JsonContent(byte[] json)
        {
            var content = new System.Net.Http.ByteArrayContent(json);
            content.Headers.ContentType = new System.Net.Http.Headers.MediaTypeHeaderValue("application/json");
            return content;
        }

        private TimeSpan Longest(TimeSpan limit) => limit > Config.RequestTimeout || limit < TimeSpan.Zero ? limit : Config.RequestTimeout;
    }
}
