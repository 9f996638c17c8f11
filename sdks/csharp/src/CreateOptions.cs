// Making a sandbox: what it should have.

using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using System.Threading;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>What a sandbox starts from: an image by its reference, to which text converts by itself, a private one, a
    /// snapshot or a template.</summary>
    public sealed class SandboxSource
    {
        private SandboxSource()
        {
        }

        internal ImageSpec? ImageSpec { get; private set; }

        internal string? SnapshotId { get; private set; }

        internal string? TemplateId { get; private set; }

        /// <summary>An image.</summary>
        /// <param name="reference">Its reference: <c>python:3.12</c>.</param>
        public static implicit operator SandboxSource(string reference) => Image(reference);

        /// <summary>An image.</summary>
        /// <param name="reference">Its reference: <c>python:3.12</c>.</param>
        /// <param name="auth">Credentials for a private registry.</param>
        public static SandboxSource Image(string reference, ImageAuth? auth = null)
        {
            if (string.IsNullOrEmpty(reference)) throw new InvalidArgumentException("a sandbox starts from an image, a snapshot or a template; name one");
            return new SandboxSource { ImageSpec = new ImageSpec { Uri = reference, Auth = auth } };
        }

        /// <summary>A snapshot.</summary>
        /// <param name="id">Which.</param>
        public static SandboxSource Snapshot(string id) => new SandboxSource { SnapshotId = id };

        /// <summary>A template.</summary>
        /// <param name="id">Which.</param>
        public static SandboxSource Template(string id) => new SandboxSource { TemplateId = id };
    }

    /// <summary>How to wait until a sandbox can be used.</summary>
    public class ReadyOptions
    {
        /// <summary>How long a sandbox may take to be ready, as in the other SDKs.</summary>
        public static readonly TimeSpan DefaultReadyTimeout = TimeSpan.FromSeconds(30);

        /// <summary>How long it may take to be ready, pulling its image included.</summary>
        public TimeSpan ReadyTimeout { get; set; } = DefaultReadyTimeout;

        /// <summary>How long to wait before asking again whether it is ready. Our server holds the first request until it is;
        /// the published one tells nobody, so that asking again is all there is.</summary>
        public TimeSpan HealthCheckInterval { get; set; } = TimeSpan.FromMilliseconds(200);

        /// <summary>Do not wait until it answers.</summary>
        public bool SkipReady { get; set; }
    }

    /// <summary>How to connect to a sandbox that exists.</summary>
    public sealed class ConnectOptions : ReadyOptions
    {
        /// <summary>Resume it first, when it is paused.</summary>
        public bool Resume { get; set; }
    }

    /// <summary>What a sandbox should have.</summary>
    public sealed class CreateOptions : ReadyOptions
    {
        /// <summary>How long a sandbox lives that nothing was said about, as in the other SDKs.</summary>
        public static readonly TimeSpan DefaultLifetime = TimeSpan.FromMinutes(10);

        /// <summary>Renews a sandbox by this many seconds on each access through the server.</summary>
        private const string ExtensionRenewSeconds = "access.renew.extend.seconds";

        /// <summary>What a sandbox may use that nothing was said about, as in the other SDKs.</summary>
        private static readonly Dictionary<string, string> DefaultResources = new Dictionary<string, string> { ["cpu"] = "1", ["memory"] = "2Gi" };

        /// <summary>What a sandbox does that nothing was said about: it stays.</summary>
        private static readonly string[] DefaultEntrypoint = { "tail", "-f", "/dev/null" };

        /// <summary>A label <c>name</c>, by which it can be listed.</summary>
        public string? Name { get; set; }

        /// <summary>How long it lives; <see cref="Timeout.InfiniteTimeSpan"/> is until it is killed.</summary>
        public TimeSpan Lifetime { get; set; } = DefaultLifetime;

        /// <summary>Each request to it through the server lets it live so much longer; the operator must allow it.</summary>
        public TimeSpan? RenewOnAccess { get; set; }

        /// <summary>The environment of everything that runs in it.</summary>
        public IReadOnlyDictionary<string, string>? Env { get; set; }

        /// <summary>Labels.</summary>
        public IReadOnlyDictionary<string, string>? Metadata { get; set; }

        /// <summary>How much it may use, over the defaults: <c>cpu</c>, <c>memory</c>, <c>disk</c>, <c>pids</c>, <c>gpu</c>.</summary>
        public IReadOnlyDictionary<string, string>? Resources { get; set; }

        /// <summary>How much it is sure to get.</summary>
        public IReadOnlyDictionary<string, string>? ResourceRequests { get; set; }

        /// <summary>The command that it supervises.</summary>
        public IReadOnlyList<string>? Entrypoint { get; set; }

        /// <summary>What it may reach.</summary>
        public NetworkPolicy? NetworkPolicy { get; set; }

        /// <summary>Whether credentials are put into its requests on the way out.</summary>
        public bool? CredentialProxy { get; set; }

        /// <summary>Whether its endpoints need a token of their own.</summary>
        public bool? SecureAccess { get; set; }

        /// <summary>What is mounted into it; see <see cref="Mount"/>.</summary>
        public IReadOnlyList<Volume>? Volumes { get; set; }

        /// <summary>Its platform.</summary>
        public PlatformSpec? Platform { get; set; }

        /// <summary>Hooks that run in it.</summary>
        public SandboxLifecycle? Lifecycle { get; set; }

        /// <summary>Further settings by name.</summary>
        public IReadOnlyDictionary<string, string>? Extensions { get; set; }

        /// <summary>Extension: makes the request safe to repeat, also by this package after a broken connection.</summary>
        public string? IdempotencyKey { get; set; }

        /// <summary>The request as it goes over the wire.</summary>
        internal CreateSandboxRequest Request(SandboxSource source)
        {
            // A template says by itself what its sandboxes may use and do.
            var isFree = source.TemplateId == null;
            var metadata = Over(Name == null ? null : new Dictionary<string, string> { ["name"] = Name }, Metadata);
            var renew = RenewOnAccess is TimeSpan each ? WholeSeconds(each).ToString(CultureInfo.InvariantCulture) : null;
            return new CreateSandboxRequest
            {
                Image = source.ImageSpec,
                SnapshotId = source.SnapshotId,
                TemplateId = source.TemplateId,
                Timeout = Lifetime == Timeout.InfiniteTimeSpan ? (long?)null : WholeSeconds(Lifetime),
                ResourceLimits = Over(isFree ? DefaultResources : null, Resources),
                ResourceRequests = Over(null, ResourceRequests),
                Entrypoint = (Entrypoint ?? (isFree ? DefaultEntrypoint : null))?.ToList(),
                Env = Env?.ToDictionary(pair => pair.Key, pair => (string?)pair.Value),
                Metadata = metadata,
                NetworkPolicy = NetworkPolicy,
                CredentialProxy = CredentialProxy is bool isOn ? new CredentialProxyConfig { Enabled = isOn } : null,
                SecureAccess = SecureAccess,
                Volumes = Volumes?.ToList(),
                Platform = Platform,
                Lifecycle = Lifecycle,
                Extensions = Over(Extensions, renew == null ? null : new Dictionary<string, string> { [ExtensionRenewSeconds] = renew }),
            };
        }

        /// <summary>The same with another lifetime and no key: what a pool makes each of its sandboxes with.</summary>
        internal CreateOptions WithLifetime(TimeSpan lifetime)
        {
            var copy = (CreateOptions)MemberwiseClone();
            copy.Lifetime = lifetime;
            copy.IdempotencyKey = null;
            return copy;
        }

        internal static long WholeSeconds(TimeSpan time) =>
            time > TimeSpan.Zero ? (long)time.TotalSeconds : throw new InvalidArgumentException($"{time} is not a time above 0");

        private static Dictionary<string, string>? Over(
            IReadOnlyDictionary<string, string>? under, IReadOnlyDictionary<string, string>? over)
        {
            var all = new Dictionary<string, string>();
            if (under != null) foreach (var (name, value) in under) all[name] = value;
            if (over != null) foreach (var (name, value) in over) all[name] = value;
            return all.Count == 0 ? null : all;
        }
    }

    /// <summary>What is mounted into a sandbox.</summary>
    public static class Mount
    {
        /// <summary>A directory of the host. The operator decides which are allowed.</summary>
        /// <param name="name">The mount's name.</param>
        /// <param name="hostPath">The directory there.</param>
        /// <param name="mountPath">Where in the sandbox.</param>
        /// <param name="readOnly">Whether the sandbox only reads it.</param>
        public static Volume Host(string name, string hostPath, string mountPath, bool readOnly = false) =>
            new Volume { Name = name, Host = new HostVolume { Path = hostPath }, MountPath = mountPath, ReadOnly = readOnly };

        /// <summary>A named volume that outlives the sandbox; it is made when it does not exist.</summary>
        /// <param name="name">The mount's name.</param>
        /// <param name="volume">The volume's name.</param>
        /// <param name="mountPath">Where in the sandbox.</param>
        /// <param name="readOnly">Whether the sandbox only reads it.</param>
        public static Volume Named(string name, string volume, string mountPath, bool readOnly = false)
        {
            var claim = new NamedVolume { ClaimName = volume, CreateIfNotExists = true, DeleteOnSandboxTermination = false };
            return new Volume { Name = name, Pvc = claim, MountPath = mountPath, ReadOnly = readOnly };
        }
    }
}
