// One sandbox, and everything that is reached from it.

using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.IO;
using System.Net.Http;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>What a sandbox uses.</summary>
    public sealed class SandboxMetrics
    {
        internal SandboxMetrics(Metrics wire)
        {
            CpuCount = wire.CpuCount;
            CpuUsedPercent = wire.CpuUsedPct;
            MemoryTotalMiB = wire.MemTotalMib;
            MemoryUsedMiB = wire.MemUsedMib;
            At = DateTimeOffset.FromUnixTimeMilliseconds(wire.Timestamp);
        }

        /// <summary>Processors it may use.</summary>
        public double CpuCount { get; }

        /// <summary>How much of them it used since the last sample, from 0 to 100.</summary>
        public double CpuUsedPercent { get; }

        /// <summary>Memory it may use.</summary>
        public double MemoryTotalMiB { get; }

        /// <summary>How much of it is in use.</summary>
        public double MemoryUsedMiB { get; }

        /// <summary>When.</summary>
        public DateTimeOffset At { get; }
    }

    /// <summary>The URL of a port, and the headers to send.</summary>
    public sealed class PortAddress
    {
        internal PortAddress(string url, IReadOnlyDictionary<string, string> headers)
        {
            Url = url;
            Headers = headers;
        }

        /// <summary>Where, without a slash at the end.</summary>
        public string Url { get; }

        /// <summary>What every request must carry.</summary>
        public IReadOnlyDictionary<string, string> Headers { get; }
    }

    /// <summary>A sandbox. One that was made here ends when its <c>await using</c> block is left, unless it is kept; one that
    /// was connected to does not. Without such a block, <see cref="KillAsync"/> ends it, or the end of its time.</summary>
    /// <example><code>
    /// await using var sandbox = await Sandbox.CreateAsync("python:3.12");
    /// var output = await sandbox.Commands.RunAsync("echo hello from $(hostname)");
    /// Console.WriteLine(output.Stdout);
    /// </code></example>
    public sealed class Sandbox : IAsyncDisposable
    {
        /// <summary>Where the daemon in every sandbox listens.</summary>
        private const int ExecPort = 44772;

        /// <summary>Where the egress API of a sandbox is asked for.</summary>
        private const int EgressPort = 18080;

        /// <summary>Where the daemon and the egress API are, once asked for.</summary>
        private readonly ConcurrentDictionary<int, Target> _targets = new ConcurrentDictionary<int, Target>();
        private bool _isOwned;

        internal Sandbox(Client client, string id, bool isOwned)
        {
            Client = client;
            Id = id;
            _isOwned = isOwned;
            Commands = new Commands(this);
            Sessions = new Sessions(this);
            Terminals = new Terminals(this);
            Files = new Files(this);
            Code = new Code(this);
            Egress = new Egress(this);
            CredentialVault = new CredentialVault(this);
        }

        /// <summary>Its id.</summary>
        public string Id { get; }

        /// <summary>The client it is reached by.</summary>
        public Client Client { get; }

        /// <summary>Runs commands.</summary>
        public Commands Commands { get; }

        /// <summary>Live shells.</summary>
        public Sessions Sessions { get; }

        /// <summary>Terminals.</summary>
        public Terminals Terminals { get; }

        /// <summary>Files and directories.</summary>
        public Files Files { get; }

        /// <summary>Code that remembers.</summary>
        public Code Code { get; }

        /// <summary>What it may reach.</summary>
        public Egress Egress { get; }

        /// <summary>Credentials that are put into its requests on the way out.</summary>
        public CredentialVault CredentialVault { get; }

        /// <summary>Makes a sandbox and waits until it can be used, by a client with the settings of the environment and of the
        /// command line's file.</summary>
        /// <param name="source">An image, a snapshot or a template.</param>
        /// <param name="options">What it should have.</param>
        /// <param name="connection">Settings over those that are found.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public static Task<Sandbox> CreateAsync(
            SandboxSource source, CreateOptions? options = null, ConnectionOptions? connection = null, CancellationToken cancellationToken = default) =>
            new Client(connection).CreateAsync(source, options, cancellationToken);

        /// <summary>Connects to a sandbox that exists, by a client with the settings of the environment and of the command
        /// line's file.</summary>
        /// <param name="id">Which.</param>
        /// <param name="options">How.</param>
        /// <param name="connection">Settings over those that are found.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public static Task<Sandbox> ConnectAsync(
            string id, ConnectOptions? options = null, ConnectionOptions? connection = null, CancellationToken cancellationToken = default) =>
            new Client(connection).ConnectAsync(id, options, cancellationToken);

        /// <summary>What the server knows of it.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<SandboxInfo> InfoAsync(CancellationToken cancellationToken = default) => Client.GetAsync(Id, cancellationToken);

        /// <summary>What it uses now.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<SandboxMetrics> MetricsAsync(CancellationToken cancellationToken = default)
        {
            var exec = await ExecAsync(cancellationToken).ConfigureAwait(false);
            return new SandboxMetrics(await exec.JsonAsync<Metrics>("GET", "/metrics", null, cancellationToken).ConfigureAwait(false));
        }

        /// <summary>What it uses, each second.</summary>
        /// <param name="cancellationToken">Ends reading early, also later.</param>
        public async Task<ValueStream<SandboxMetrics>> WatchMetricsAsync(CancellationToken cancellationToken = default)
        {
            var exec = await ExecAsync(cancellationToken).ConfigureAwait(false);
            var answer = await exec.SendAsync("GET", "/metrics/watch", null, cancellationToken).ConfigureAwait(false);
            return new ValueStream<SandboxMetrics>(
                answer, "metrics", json => new SandboxMetrics(JsonSerializer.Deserialize<Metrics>(json.Span, Json.Options)));
        }

        /// <summary>Whether the daemon in it answers.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<bool> IsHealthyAsync(CancellationToken cancellationToken = default)
        {
            try
            {
                await PingAsync(cancellationToken).ConfigureAwait(false);
                return true;
            }
            catch (OpenSandboxException)
            {
                return false;
            }
        }

        /// <summary>Asks the daemon in it whether it is up.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task PingAsync(CancellationToken cancellationToken = default)
        {
            var exec = await ExecAsync(cancellationToken).ConfigureAwait(false);
            await exec.DoneAsync("GET", "/ping", null, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Where one of its ports is reached from outside.</summary>
        /// <param name="port">Which.</param>
        /// <param name="expires">As a link that lets anyone in until then.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<Endpoint> EndpointAsync(int port, DateTimeOffset? expires = null, CancellationToken cancellationToken = default) =>
            Client.EndpointAsync(Id, port, expires, cancellationToken);

        /// <summary>The URL of one of its ports, and the headers to send.</summary>
        /// <param name="port">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<PortAddress> UrlAsync(int port, CancellationToken cancellationToken = default)
        {
            var target = await TargetAsync(port, cancellationToken).ConfigureAwait(false);
            return new PortAddress(target.Place, target.Headers);
        }

        /// <summary>A link to one of its ports that lets anyone in until it expires. The server must have a key to sign with.</summary>
        /// <param name="port">Which.</param>
        /// <param name="expires">When.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<string> PreviewUrlAsync(int port, DateTimeOffset expires, CancellationToken cancellationToken = default) =>
            UrlOf(await EndpointAsync(port, expires, cancellationToken).ConfigureAwait(false));

        /// <summary>Extension: a link by which a browser reaches one of its ports, good for once. Needs a server with an ingress
        /// gateway.</summary>
        /// <param name="port">Which.</param>
        /// <param name="until">The browser is let in until then; nothing is for as long as the server says.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<string> LinkAsync(int port, DateTimeOffset? until = null, CancellationToken cancellationToken = default) =>
            Client.LinkAsync(Id, port, until, cancellationToken);

        /// <summary>A request to one of its ports. Its address is below that port: <c>/index.html</c>. Redirects are not
        /// followed, and the answer's body is the caller's to read and to dispose.</summary>
        /// <param name="port">Which.</param>
        /// <param name="request">The request.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<HttpResponseMessage> FetchAsync(int port, HttpRequestMessage request, CancellationToken cancellationToken = default)
        {
            var target = await TargetAsync(port, cancellationToken).ConfigureAwait(false);
            var path = request.RequestUri?.OriginalString ?? "";
            request.RequestUri = new Uri($"{target.Place}/{path.TrimStart('/')}");
            foreach (var (name, value) in target.Headers)
            {
                request.Headers.Remove(name);
                request.Headers.TryAddWithoutValidation(name, value);
            }
            try
            {
                return await Client.Config.Http.SendAsync(request, cancellationToken).ConfigureAwait(false);
            }
            catch (HttpRequestException error)
            {
                throw new ConnectionException(target.Place, false, error);
            }
        }

        /// <summary>A GET request to one of its ports.</summary>
        /// <param name="port">Which.</param>
        /// <param name="path">Below that port: <c>/index.html</c>.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<HttpResponseMessage> FetchAsync(int port, string path, CancellationToken cancellationToken = default) =>
            FetchAsync(port, new HttpRequestMessage(HttpMethod.Get, new Uri($"/{path.TrimStart('/')}", UriKind.Relative)), cancellationToken);

        /// <summary>Extension: a plain byte stream to one of its ports, for whatever does not speak HTTP. Reading gives what
        /// comes from the port, writing sends to it, disposing ends both.</summary>
        /// <param name="port">Which.</param>
        /// <param name="cancellationToken">Ends opening early.</param>
        public async Task<Stream> TunnelAsync(int port, CancellationToken cancellationToken = default) =>
            await Tunnel.OpenAsync(await TargetAsync(port, cancellationToken).ConfigureAwait(false), cancellationToken).ConfigureAwait(false);

        /// <summary>Lets it live this much longer, from now; answers when it ends.</summary>
        /// <param name="lifetime">How long.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<DateTimeOffset> RenewAsync(TimeSpan lifetime, CancellationToken cancellationToken = default) =>
            Client.RenewAsync(Id, lifetime, cancellationToken);

        /// <summary>Sets labels, and removes those that are null.</summary>
        /// <param name="patch">By name.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<SandboxInfo> PatchMetadataAsync(IReadOnlyDictionary<string, string?> patch, CancellationToken cancellationToken = default) =>
            Client.PatchMetadataAsync(Id, patch, cancellationToken);

        /// <summary>Freezes it; answers when it is frozen.</summary>
        /// <param name="timeout">How long that may take.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task PauseAsync(TimeSpan? timeout = null, CancellationToken cancellationToken = default) =>
            Client.PauseAsync(Id, timeout, cancellationToken);

        /// <summary>Lets it run on; answers when it runs.</summary>
        /// <param name="timeout">How long that may take.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task ResumeAsync(TimeSpan? timeout = null, CancellationToken cancellationToken = default)
        {
            // It may come back at another address.
            _targets.Clear();
            return Client.ResumeAsync(Id, timeout, cancellationToken);
        }

        /// <summary>Waits until it is in this state; fails when it gets into one from which it never comes.</summary>
        /// <param name="state">One of <see cref="SandboxState"/>.</param>
        /// <param name="timeout">How long that may take.</param>
        /// <param name="cancellationToken">Stops waiting.</param>
        public Task WaitForStateAsync(string state, TimeSpan? timeout = null, CancellationToken cancellationToken = default) =>
            Client.WaitForStateAsync(Id, state, timeout, cancellationToken);

        /// <summary>Keeps a copy of its filesystem; answers when sandboxes can be made from it.</summary>
        /// <param name="name">The copy's name.</param>
        /// <param name="timeout">How long that may take.</param>
        /// <param name="cancellationToken">Stops waiting.</param>
        public async Task<Snapshot> SnapshotAsync(string? name = null, TimeSpan? timeout = null, CancellationToken cancellationToken = default)
        {
            var begun = await Client.CreateSnapshotAsync(Id, name, cancellationToken).ConfigureAwait(false);
            return await Client.WaitForSnapshotAsync(begun.Id, timeout, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Its logs for whoever looks for what went wrong.</summary>
        /// <param name="scope"><c>container</c> or <c>all</c>.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<DiagnosticContentResponse> DiagnosticLogsAsync(string scope, CancellationToken cancellationToken = default) =>
            Client.Operator.DiagnosticLogsAsync(Id, scope, cancellationToken);

        /// <summary>What happened to it.</summary>
        /// <param name="scope"><c>runtime</c> or <c>all</c>.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<DiagnosticContentResponse> DiagnosticEventsAsync(string scope, CancellationToken cancellationToken = default) =>
            Client.Operator.DiagnosticEventsAsync(Id, scope, cancellationToken);

        /// <summary>Which isolation its daemon has for sessions of their own.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<IsolatedCapabilities> IsolatedCapabilitiesAsync(CancellationToken cancellationToken = default)
        {
            var exec = await ExecAsync(cancellationToken).ConfigureAwait(false);
            return await exec.JsonAsync<IsolatedCapabilities>("GET", "/v1/isolated/capabilities", null, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Ends it. One that is already gone is no error.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task KillAsync(CancellationToken cancellationToken = default)
        {
            try
            {
                await Client.KillAsync(Id, cancellationToken).ConfigureAwait(false);
            }
            catch (OpenSandboxException error) when (error.IsNotFound)
            {
            }
        }

        /// <summary>Lets it outlive its <c>await using</c> block.</summary>
        public Sandbox Keep()
        {
            _isOwned = false;
            return this;
        }

        /// <summary>Ends it, if it was made here and is not kept.</summary>
        public async ValueTask DisposeAsync()
        {
            if (_isOwned) await KillAsync().ConfigureAwait(false);
        }

        /// <summary>Ends it if that works; it ends by itself if not.</summary>
        internal async Task TryKillAsync()
        {
            try
            {
                await KillAsync().ConfigureAwait(false);
            }
            catch (OpenSandboxException)
            {
            }
        }

        /// <summary>The daemon inside.</summary>
        internal ValueTask<Target> ExecAsync(CancellationToken token) => KeptAsync(ExecPort, token);

        /// <summary>The egress API.</summary>
        internal ValueTask<Target> EgressApiAsync(CancellationToken token) => KeptAsync(EgressPort, token);

        private async ValueTask<Target> KeptAsync(int port, CancellationToken token)
        {
            if (_targets.TryGetValue(port, out var known)) return known;
            return _targets[port] = await TargetAsync(port, token).ConfigureAwait(false);
        }

        private async Task<Target> TargetAsync(int port, CancellationToken token)
        {
            var endpoint = await EndpointAsync(port, null, token).ConfigureAwait(false);
            var headers = new Dictionary<string, string>();
            // Only the server may see the key; a sandbox never does.
            if (Client.Config.ApiKey != null && Client.Config.UseServerProxy) headers[Target.ApiKeyHeader] = Client.Config.ApiKey;
            if (endpoint.Headers != null) foreach (var (name, value) in endpoint.Headers) headers[name] = value;
            return new Target(Client.Config, UrlOf(endpoint), headers);
        }

        private string UrlOf(Endpoint endpoint)
        {
            var address = endpoint.Address.TrimEnd('/');
            return address.Contains("://", StringComparison.Ordinal) ? address : $"{Client.Config.Scheme}://{address}";
        }
    }
}
