// Where the server is and how to speak to it: given, from the environment, from the file that the command
// line uses, or the defaults, in this order.

using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Net.Http;
using System.Text.RegularExpressions;

namespace OpenSandbox
{
    /// <summary>When a request is sent again. Only requests that change nothing, or that did certainly not arrive, are.</summary>
    public sealed class RetryPolicy
    {
        /// <summary>Attempts after the first; 0 is none.</summary>
        public int Attempts { get; set; } = 3;

        /// <summary>The shortest wait between two attempts.</summary>
        public TimeSpan FirstDelay { get; set; } = TimeSpan.FromSeconds(0.5);

        /// <summary>The longest wait between two attempts, also when the server asks for more.</summary>
        public TimeSpan LongestDelay { get; set; } = TimeSpan.FromSeconds(30);
    }

    /// <summary>Where the server is and how to speak to it. What is null comes from elsewhere: see
    /// <see cref="ConnectionConfig.Load"/>.</summary>
    public sealed class ConnectionOptions
    {
        /// <summary>The API key.</summary>
        public string? ApiKey { get; set; }

        /// <summary><c>host[:port]</c>, or with a scheme, which then decides.</summary>
        public string? Domain { get; set; }

        /// <summary><c>http</c> or <c>https</c>: how the server is spoken to, unless the domain says so.</summary>
        public string? Protocol { get; set; }

        /// <summary>How long an answer may take. Streams last as long as they last.</summary>
        public TimeSpan? RequestTimeout { get; set; }

        /// <summary>Whether sandboxes are reached through the server, for where they cannot be reached straight.</summary>
        public bool? UseServerProxy { get; set; }

        /// <summary>Headers of every request.</summary>
        public IReadOnlyDictionary<string, string>? Headers { get; set; }

        /// <summary>How the program calls itself.</summary>
        public string? UserAgent { get; set; }

        /// <summary>When a request is sent again.</summary>
        public RetryPolicy? Retry { get; set; }

        /// <summary>Instead of the connections that all clients of a process share. It must not follow redirects, which
        /// would carry the key elsewhere, and it stays the caller's.</summary>
        public HttpMessageHandler? Handler { get; set; }

        /// <summary>These settings, and what they do not say from others.</summary>
        internal ConnectionOptions Over(ConnectionOptions under) => new ConnectionOptions
        {
            ApiKey = ApiKey ?? under.ApiKey,
            Domain = Domain ?? under.Domain,
            Protocol = Protocol ?? under.Protocol,
            RequestTimeout = RequestTimeout ?? under.RequestTimeout,
            UseServerProxy = UseServerProxy ?? under.UseServerProxy,
            Headers = Headers ?? under.Headers,
            UserAgent = UserAgent ?? under.UserAgent,
            Retry = Retry ?? under.Retry,
            Handler = Handler ?? under.Handler,
        };
    }

    /// <summary>Settings that were looked up and checked.</summary>
    public sealed class ConnectionConfig
    {
        /// <summary>The variable that carries the API key.</summary>
        public const string EnvApiKey = "OPEN_SANDBOX_API_KEY";

        /// <summary>The variable that says where the server is.</summary>
        public const string EnvDomain = "OPEN_SANDBOX_DOMAIN";

        /// <summary>The variable that says <c>http</c> or <c>https</c>.</summary>
        public const string EnvProtocol = "OPEN_SANDBOX_PROTOCOL";

        /// <summary>The variable that says how many seconds an answer may take.</summary>
        public const string EnvRequestTimeout = "OPEN_SANDBOX_REQUEST_TIMEOUT";

        /// <summary>The variable that says whether sandboxes are reached through the server.</summary>
        public const string EnvUseServerProxy = "OPEN_SANDBOX_USE_SERVER_PROXY";

        /// <summary>Where a server listens that nothing was said about.</summary>
        public const string DefaultDomain = "localhost:8080";

        /// <summary>The version of this package.</summary>
        public const string Version = "0.1.0";

        /// <summary>How long an answer may take, as in the other SDKs.</summary>
        public static readonly TimeSpan DefaultRequestTimeout = TimeSpan.FromSeconds(30);

        private static readonly Regex Token = new Regex("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$");

        /// <summary>These settings over the defaults. Looks at no environment and no file.</summary>
        public ConnectionConfig(ConnectionOptions? options = null)
        {
            options ??= new ConnectionOptions();
            Domain = options.Domain ?? DefaultDomain;
            Protocol = ProtocolOf(options.Protocol ?? "http", "Protocol");
            RequestTimeout = options.RequestTimeout ?? DefaultRequestTimeout;
            if (RequestTimeout <= TimeSpan.Zero)
                throw new ConfigException(nameof(RequestTimeout), $"{RequestTimeout} is not a time above 0");
            UseServerProxy = options.UseServerProxy ?? false;
            Headers = CheckedHeaders(options.Headers);
            UserAgent = options.UserAgent ?? $"opensandbox-csharp/{Version}";
            Retry = options.Retry ?? new RetryPolicy();
            ApiKey = options.ApiKey == "" ? null : options.ApiKey;
            if (ApiKey != null) CheckHeader(nameof(ApiKey), ApiKey);
            CheckHeader(nameof(UserAgent), UserAgent);
            Http = new HttpMessageInvoker(options.Handler ?? Connections.Shared, disposeHandler: false);
        }

        /// <summary><c>host[:port]</c>, or with a scheme.</summary>
        public string Domain { get; }

        /// <summary><c>http</c> or <c>https</c>.</summary>
        public string Protocol { get; }

        /// <summary>How long an answer may take.</summary>
        public TimeSpan RequestTimeout { get; }

        /// <summary>Whether sandboxes are reached through the server.</summary>
        public bool UseServerProxy { get; }

        /// <summary>Headers of every request.</summary>
        public IReadOnlyDictionary<string, string> Headers { get; }

        /// <summary>How the program calls itself.</summary>
        public string UserAgent { get; }

        /// <summary>When a request is sent again.</summary>
        public RetryPolicy Retry { get; }

        /// <summary>Whether there is an API key. The key itself is not shown, so that no log of the settings has it.</summary>
        public bool HasApiKey => ApiKey != null;

        /// <summary>Where requests to the server go: <c>https://example.com/v1</c>.</summary>
        public string BaseUrl => $"{RootUrl}/v1";

        /// <summary>Where the server is, without the version: <c>https://example.com</c>.</summary>
        public string RootUrl
        {
            get
            {
                var domain = Domain.Trim().TrimEnd('/');
                var url = HasScheme(domain) ? domain : $"{Protocol}://{domain}";
                if (domain.Any(char.IsWhiteSpace) || !Uri.TryCreate(url, UriKind.Absolute, out var parsed) || parsed.Host == "")
                    throw new ConfigException(nameof(Domain), $"\"{domain}\" is not host[:port]");
                return url;
            }
        }

        /// <summary>The file that the command line uses; nothing where there is no home directory.</summary>
        public static string? DefaultFile
        {
            get
            {
                var home = Environment.GetEnvironmentVariable("HOME");
                if (string.IsNullOrEmpty(home)) home = Environment.GetFolderPath(Environment.SpecialFolder.UserProfile);
                return string.IsNullOrEmpty(home) ? null : Path.Combine(home, ".opensandbox", "config.toml");
            }
        }

        internal string? ApiKey { get; }

        internal HttpMessageInvoker Http { get; }

        /// <summary>The scheme of endpoints, which come without one.</summary>
        internal string Scheme => HasScheme(Domain.Trim()) ? Domain.Trim().Split(':')[0] : Protocol;

        /// <summary>The given settings over the environment over the file of the command line over the defaults. A file
        /// that is not there is no error, one that cannot be read is.</summary>
        public static ConnectionConfig Load(ConnectionOptions? options = null)
        {
            var kept = DefaultFile is string file && File.Exists(file) ? ReadFile(file) : new ConnectionOptions();
            var environment = FromEnvironment(Environment.GetEnvironmentVariable);
            return new ConnectionConfig((options ?? new ConnectionOptions()).Over(environment).Over(kept));
        }

        /// <summary>A file over the defaults.</summary>
        public static ConnectionConfig FromFile(string path) => new ConnectionConfig(ReadFile(path));

        /// <summary>The settings of the environment. An empty variable is as good as none, and what is not a number or not
        /// yes or no is passed over, as in the command line.</summary>
        internal static ConnectionOptions FromEnvironment(Func<string, string?> lookUp)
        {
            string? Value(string name)
            {
                var text = lookUp(name)?.Trim();
                return string.IsNullOrEmpty(text) ? null : text;
            }

            var protocol = Value(EnvProtocol);
            return new ConnectionOptions
            {
                ApiKey = Value(EnvApiKey),
                Domain = Value(EnvDomain),
                Protocol = protocol == null ? null : ProtocolOf(protocol, EnvProtocol),
                RequestTimeout = double.TryParse(Value(EnvRequestTimeout), NumberStyles.Float, CultureInfo.InvariantCulture, out var seconds)
                    ? TimeoutOf(seconds) : null,
                UseServerProxy = Flag(Value(EnvUseServerProxy)),
            };
        }

        /// <summary>The part of the file that is about the connection; the rest is for the command line.</summary>
        internal static ConnectionOptions FromToml(string path, string text)
        {
            Dictionary<string, object> file;
            try
            {
                file = Toml.Parse(text);
            }
            catch (FormatException error)
            {
                throw new ConfigException(path, error.Message, error);
            }
            if (!file.TryGetValue("connection", out var found)) return new ConnectionOptions();
            if (!(found is Dictionary<string, object> connection)) throw new ConfigException(path, "connection is not a table");
            object? Typed<T>(string name, string type)
            {
                if (!connection.TryGetValue(name, out var value)) return null;
                return value is T ? value : throw new ConfigException(path, $"connection.{name} is not {type}");
            }

            var protocol = (string?)Typed<string>("protocol", "text");
            var seconds = (double?)Typed<double>("request_timeout", "a number");
            return new ConnectionOptions
            {
                ApiKey = (string?)Typed<string>("api_key", "text"),
                Domain = (string?)Typed<string>("domain", "text"),
                Protocol = protocol == null ? null : ProtocolOf(protocol, path),
                RequestTimeout = seconds is double given ? TimeoutOf(given) : null,
                UseServerProxy = (bool?)Typed<bool>("use_server_proxy", "true or false"),
            };
        }

        private static ConnectionOptions ReadFile(string path)
        {
            try
            {
                return FromToml(path, File.ReadAllText(path));
            }
            catch (Exception error) when (error is IOException || error is UnauthorizedAccessException)
            {
                throw new ConfigException(path, error.Message, error);
            }
        }

        private static TimeSpan? TimeoutOf(double seconds) =>
            seconds > 0 ? Deadline.Seconds(seconds) : (TimeSpan?)null;

        private static bool HasScheme(string domain) =>
            domain.StartsWith("http://", StringComparison.Ordinal) || domain.StartsWith("https://", StringComparison.Ordinal);

        private static bool? Flag(string? text)
        {
            switch (text?.ToLowerInvariant())
            {
                case "1":
                case "true":
                case "yes":
                case "on":
                    return true;
                case "0":
                case "false":
                case "no":
                case "off":
                    return false;
                default:
                    return null;
            }
        }

        private static string ProtocolOf(string text, string origin)
        {
            var lower = text.ToLowerInvariant();
            return lower == "http" || lower == "https" ? lower : throw new ConfigException(origin, $"\"{text}\" is neither http nor https");
        }

        /// <summary>A header's name is a token and its value has no line end (RFC 9110): what has would begin another
        /// header.</summary>
        private static IReadOnlyDictionary<string, string> CheckedHeaders(IReadOnlyDictionary<string, string>? headers)
        {
            var all = new Dictionary<string, string>();
            foreach (var (name, value) in headers ?? all)
            {
                if (!Token.IsMatch(name)) throw new ConfigException("Headers", $"\"{name}\" is no name of a header");
                CheckHeader($"Headers.{name}", value);
                all[name] = value;
            }
            return all;
        }

        private static void CheckHeader(string origin, string value)
        {
            // Not repeated in the error: any of them may be a credential. SocketsHttpHandler sends ASCII only.
            if (value.Any(character => character != '\t' && (character < ' ' || character > '~')))
                throw new ConfigException(origin, "it has a character that no header can carry");
        }
    }
}
