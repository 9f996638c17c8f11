package dev.osb;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.net.http.HttpClient;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;
import java.util.regex.Pattern;

/**
 * Where the server is and how to speak to it: given, from the environment, from the file that the command line uses, or
 * the defaults, in this order.
 */
public final class ConnectionConfig {
    /** The variable that carries the API key. */
    public static final String ENV_API_KEY = "OPEN_SANDBOX_API_KEY";
    /** The variable that says where the server is. */
    public static final String ENV_DOMAIN = "OPEN_SANDBOX_DOMAIN";
    /** The variable that says {@code http} or {@code https}. */
    public static final String ENV_PROTOCOL = "OPEN_SANDBOX_PROTOCOL";
    /** The variable that says how many seconds an answer may take. */
    public static final String ENV_REQUEST_TIMEOUT = "OPEN_SANDBOX_REQUEST_TIMEOUT";
    /** The variable that says whether sandboxes are reached through the server. */
    public static final String ENV_USE_SERVER_PROXY = "OPEN_SANDBOX_USE_SERVER_PROXY";
    /** Where a server listens that nothing was said about. */
    public static final String DEFAULT_DOMAIN = "localhost:8080";
    /** How long an answer may take, as in the other SDKs. */
    public static final Duration DEFAULT_REQUEST_TIMEOUT = Duration.ofSeconds(30);
    /** The version of this library. */
    public static final String VERSION = "0.1.0";

    // RFC 9110: a name is a token, and a value has no line end, which would begin another header.
    private static final Pattern HEADER_NAME = Pattern.compile("[!#$%&'*+.^_`|~0-9A-Za-z-]+");
    private static final Pattern HEADER_VALUE = Pattern.compile("[\\t\\x20-\\x7e\\x80-\\xff]*");

    private final String apiKey;
    private final String domain;
    private final String protocol;
    private final Duration requestTimeout;
    private final boolean useServerProxy;
    private final Map<String, String> headers;
    private final String userAgent;
    private final RetryPolicy retry;
    private final HttpClient http;

    private ConnectionConfig(Builder given) {
        apiKey = given.apiKey == null || given.apiKey.isEmpty() ? null : given.apiKey;
        domain = Objects.requireNonNullElse(given.domain, DEFAULT_DOMAIN).strip();
        protocol = protocol(Objects.requireNonNullElse(given.protocol, "http"), "protocol");
        requestTimeout = Objects.requireNonNullElse(given.requestTimeout, DEFAULT_REQUEST_TIMEOUT);
        useServerProxy = Boolean.TRUE.equals(given.useServerProxy);
        headers = Map.copyOf(given.headers);
        userAgent = Objects.requireNonNullElse(given.userAgent, "osb-sandbox-java/" + VERSION);
        retry = Objects.requireNonNullElse(given.retry, RetryPolicy.DEFAULT);
        http = given.http;
        if (requestTimeout.isNegative() || requestTimeout.isZero()) {
            throw new ConfigException("requestTimeout", requestTimeout + " is not a time above 0", null);
        }
        headers.forEach((name, value) -> {
            if (!HEADER_NAME.matcher(name).matches()) {
                throw new ConfigException("headers", Text.quoted(name) + " is no name of a header", null);
            }
            checkHeader("headers." + name, value);
        });
        if (apiKey != null) checkHeader("apiKey", apiKey);
        checkHeader("userAgent", userAgent);
        checkDomain();
    }

    /** Settings over the defaults. Looks at no environment and no file. */
    public static Builder builder() {
        return new Builder();
    }

    /** The environment over the file of the command line over the defaults. */
    public static ConnectionConfig load() {
        return load(given -> {});
    }

    /**
     * The given settings over the environment over the file of the command line over the defaults. A file that is not
     * there is no error, one that cannot be read is.
     */
    public static ConnectionConfig load(Consumer<Builder> given) {
        return load(given, System::getenv);
    }

    static ConnectionConfig load(Consumer<Builder> given, UnaryOperator<String> environment) {
        Builder builder = builder();
        Path file = defaultFile(environment);
        if (file != null && Files.exists(file)) builder.readFile(file);
        builder.readEnvironment(environment);
        given.accept(builder);
        return builder.build();
    }

    /** A file over the defaults. */
    public static ConnectionConfig fromFile(Path file) {
        return builder().readFile(file).build();
    }

    /** Where the command line keeps its settings: {@code ~/.opensandbox/config.toml}; null without a home. */
    public static Path defaultFile() {
        return defaultFile(System::getenv);
    }

    private static Path defaultFile(UnaryOperator<String> environment) {
        String home = environment.apply("HOME");
        if (home == null || home.isEmpty()) home = System.getProperty("user.home");
        return home == null || home.isEmpty() ? null : Path.of(home, ".opensandbox", "config.toml");
    }

    private void checkDomain() {
        String host = null;
        try {
            host = new URI(rootUrl()).getRawAuthority();
        } catch (URISyntaxException error) {
            // Told below, with what would be right.
        }
        if (host == null || host.isEmpty()) {
            throw new ConfigException("domain", Text.quoted(domain) + " is not host[:port]", null);
        }
    }

    private static void checkHeader(String origin, String value) {
        // Not repeated in the error: any of them may be a credential.
        if (!HEADER_VALUE.matcher(value).matches()) {
            throw new ConfigException(origin, "it has a character that no header can carry", null);
        }
    }

    private static String protocol(String text, String origin) {
        String lower = text.toLowerCase(Locale.ROOT);
        if (lower.equals("http") || lower.equals("https")) return lower;
        throw new ConfigException(origin, Text.quoted(text) + " is neither http nor https", null);
    }

    /** The API key; null if there is none. */
    public String apiKey() {
        return apiKey;
    }

    /** Where requests to the server go: {@code https://example.com/v1}. */
    public String baseUrl() {
        return rootUrl() + "/v1";
    }

    /** Where the server is, without the version: {@code https://example.com}. */
    public String rootUrl() {
        String bare = domain.replaceAll("/+$", "");
        return bare.startsWith("http://") || bare.startsWith("https://") ? bare : protocol + "://" + bare;
    }

    /** The scheme of endpoints, which come without one. */
    public String scheme() {
        return rootUrl().startsWith("https:") ? "https" : "http";
    }

    /** How long an answer may take. Streams last as long as they last. */
    public Duration requestTimeout() {
        return requestTimeout;
    }

    /** Whether sandboxes are reached through the server. */
    public boolean useServerProxy() {
        return useServerProxy;
    }

    /** Headers of every request. */
    public Map<String, String> headers() {
        return headers;
    }

    /** How the program calls itself. */
    public String userAgent() {
        return userAgent;
    }

    /** When a request is sent again. */
    public RetryPolicy retry() {
        return retry;
    }

    /** What sends requests: the one that was given, or the library's own. */
    public HttpClient httpClient() {
        return http == null ? Shared.HTTP : http;
    }

    /** Without the key, which no log should show. */
    @Override
    public String toString() {
        return "ConnectionConfig[" + rootUrl() + ", requestTimeout=" + requestTimeout + ", useServerProxy=" + useServerProxy + "]";
    }

    /** Made when it is first needed, and one for all, because each has a thread of its own. */
    private static final class Shared {
        static final HttpClient HTTP = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            // Credentials are in headers of our own, which a redirect must not carry elsewhere.
            .followRedirects(HttpClient.Redirect.NEVER)
            .executor(Task.THREADS)
            .build();
    }

    /** Collects settings. What is set later is over what was set before. */
    public static final class Builder {
        private String apiKey;
        private String domain;
        private String protocol;
        private Duration requestTimeout;
        private Boolean useServerProxy;
        private final Map<String, String> headers = new LinkedHashMap<>();
        private String userAgent;
        private RetryPolicy retry;
        private HttpClient http;

        private Builder() {}

        /** The API key. */
        public Builder apiKey(String apiKey) {
            this.apiKey = apiKey;
            return this;
        }

        /** {@code host[:port]}, or with a scheme, which then decides. */
        public Builder domain(String domain) {
            this.domain = domain;
            return this;
        }

        /** {@code http} or {@code https}, unless the domain says so. */
        public Builder protocol(String protocol) {
            this.protocol = protocol;
            return this;
        }

        /** How long an answer may take. */
        public Builder requestTimeout(Duration requestTimeout) {
            this.requestTimeout = requestTimeout;
            return this;
        }

        /** Reaches sandboxes through the server, for where they cannot be reached straight. */
        public Builder useServerProxy(boolean useServerProxy) {
            this.useServerProxy = useServerProxy;
            return this;
        }

        /** A header of every request. */
        public Builder header(String name, String value) {
            headers.put(name, value);
            return this;
        }

        /** How the program calls itself. */
        public Builder userAgent(String userAgent) {
            this.userAgent = userAgent;
            return this;
        }

        /** When a request is sent again. */
        public Builder retry(RetryPolicy retry) {
            this.retry = retry;
            return this;
        }

        /** Sends requests by this client, which has a proxy, certificates or threads of its own. It must not follow redirects. */
        public Builder httpClient(HttpClient client) {
            if (client.followRedirects() != HttpClient.Redirect.NEVER) {
                throw new InvalidArgumentException("an HttpClient that follows redirects would carry the key elsewhere");
            }
            this.http = client;
            return this;
        }

        /** Checks the settings. */
        public ConnectionConfig build() {
            return new ConnectionConfig(this);
        }

        Builder readEnvironment(UnaryOperator<String> environment) {
            // An empty variable is as good as none, as in the other SDKs.
            UnaryOperator<String> value = name -> {
                String text = environment.apply(name);
                return text == null || text.isBlank() ? null : text.strip();
            };
            if (value.apply(ENV_API_KEY) != null) apiKey(value.apply(ENV_API_KEY));
            if (value.apply(ENV_DOMAIN) != null) domain(value.apply(ENV_DOMAIN));
            String given = value.apply(ENV_PROTOCOL);
            if (given != null) protocol(ConnectionConfig.protocol(given, ENV_PROTOCOL));
            // What is not a number or not yes or no is passed over, as in the command line.
            Double seconds = Text.number(value.apply(ENV_REQUEST_TIMEOUT));
            if (seconds != null) requestSeconds(seconds);
            Boolean proxy = Text.flag(value.apply(ENV_USE_SERVER_PROXY));
            if (proxy != null) useServerProxy(proxy);
            return this;
        }

        private void requestSeconds(double seconds) {
            if (seconds > 0) requestTimeout(Duration.ofMillis(Math.max(1, Math.round(seconds * 1000))));
        }

        private Builder readFile(Path file) {
            try {
                return readToml(file.toString(), Files.readString(file));
            } catch (NoSuchFileException error) {
                throw new ConfigException(file.toString(), "there is no such file", error);
            } catch (IOException error) {
                throw new ConfigException(file.toString(), String.valueOf(error.getMessage()), error);
            }
        }

        /** The part of the file that is about the connection; the rest is for the command line. */
        Builder readToml(String path, String text) {
            Object found;
            try {
                found = Toml.parse(text).getOrDefault("connection", Map.of());
            } catch (Toml.TomlException error) {
                throw new ConfigException(path, error.getMessage(), error);
            }
            if (!(found instanceof Map<?, ?> connection)) throw new ConfigException(path, "connection is not a table", null);
            String key = typed(path, connection, "api_key", String.class);
            if (key != null) apiKey(key);
            String place = typed(path, connection, "domain", String.class);
            if (place != null) domain(place);
            String given = typed(path, connection, "protocol", String.class);
            if (given != null) protocol(ConnectionConfig.protocol(given, path));
            Number seconds = typed(path, connection, "request_timeout", Number.class);
            if (seconds != null) requestSeconds(seconds.doubleValue());
            Boolean proxy = typed(path, connection, "use_server_proxy", Boolean.class);
            if (proxy != null) useServerProxy(proxy);
            return this;
        }

        private static <T> T typed(String path, Map<?, ?> table, String name, Class<T> type) {
            Object value = table.get(name);
            if (value == null || type.isInstance(value)) return type.cast(value);
            String wanted = type == String.class ? "text" : type == Number.class ? "a number" : "true or false";
            throw new ConfigException(path, "connection." + name + " is not " + wanted, null);
        }
    }
}
