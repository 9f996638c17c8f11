//! Where the server is and how to speak to it: given, from the environment, from the file that
//! the command line uses, or the defaults, in this order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::secret::Secret;
use serde::Deserialize;

use crate::error::{Error, Result};
use crate::tls::TlsFingerprint;

/// The variable that carries the API key.
pub const ENV_API_KEY: &str = "OPEN_SANDBOX_API_KEY";
/// The variable that says where the server is.
pub const ENV_DOMAIN: &str = "OPEN_SANDBOX_DOMAIN";
/// The variable that says `http` or `https`.
pub const ENV_PROTOCOL: &str = "OPEN_SANDBOX_PROTOCOL";
/// The variable that says how many seconds an answer may take.
pub const ENV_REQUEST_TIMEOUT: &str = "OPEN_SANDBOX_REQUEST_TIMEOUT";
/// The variable that says whether sandboxes are reached through the server.
pub const ENV_USE_SERVER_PROXY: &str = "OPEN_SANDBOX_USE_SERVER_PROXY";

/// The variable that says which certificate the server, or its authority, has.
pub const ENV_TLS_FINGERPRINT: &str = "OPEN_SANDBOX_TLS_FINGERPRINT";
/// How a domain begins that is a unix socket.
pub(crate) const UNIX_SCHEME: &str = "unix://";

/// Where a server listens that nothing was said about.
pub const DEFAULT_DOMAIN: &str = "localhost:8080";

/// How long an answer may take, as in the other SDKs.
pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Where the server is and how to speak to it.
///
/// ```
/// use opensandbox::ConnectionConfig;
///
/// let config = ConnectionConfig::new().domain("https://sandboxes.example.com").api_key("secret");
/// assert_eq!(config.base_url().unwrap(), "https://sandboxes.example.com/v1");
/// ```
#[derive(Debug, Clone)]
pub struct ConnectionConfig {
    pub(crate) api_key: Option<Secret>,
    /// As it was given.
    domain: Option<String>,
    pub(crate) protocol: Protocol,
    pub(crate) request_timeout: Duration,
    pub(crate) use_server_proxy: bool,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) user_agent: String,
    pub(crate) retry: RetryPolicy,
    pub(crate) tls_fingerprint: Option<TlsFingerprint>,
}

/// How the server is spoken to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Plain.
    #[default]
    Http,
    /// Over TLS.
    Https,
}

impl Protocol {
    /// As it stands in a URL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl std::str::FromStr for Protocol {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "http" => Ok(Self::Http),
            "https" => Ok(Self::Https),
            _ => Err(Error::Config {
                origin: "protocol".to_owned(),
                message: format!("{text:?} is neither http nor https"),
            }),
        }
    }
}

/// When a request is sent again. Only requests that change nothing, or that did certainly not
/// arrive, are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// Attempts after the first; 0 is none.
    pub attempts: u32,
    /// The shortest wait between two attempts.
    pub first_delay: Duration,
    /// The longest wait between two attempts, also when the server asks for more.
    pub longest_delay: Duration,
}

impl Default for RetryPolicy {
    /// Three more attempts, half a second to half a minute apart, as in the other SDKs.
    fn default() -> Self {
        Self {
            attempts: 3,
            first_delay: Duration::from_millis(500),
            longest_delay: Duration::from_secs(30),
        }
    }
}

impl RetryPolicy {
    /// Never again.
    pub fn disabled() -> Self {
        Self {
            attempts: 0,
            ..Self::default()
        }
    }
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            api_key: None,
            domain: None,
            protocol: Protocol::Http,
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
            use_server_proxy: false,
            headers: BTreeMap::new(),
            user_agent: concat!("opensandbox-rust/", env!("CARGO_PKG_VERSION")).to_owned(),
            retry: RetryPolicy::default(),
            tls_fingerprint: None,
        }
    }
}

impl ConnectionConfig {
    /// The defaults: `http://localhost:8080`, no key. Looks at no environment and no file.
    pub fn new() -> Self {
        Self::default()
    }

    /// The environment over the file of the command line over the defaults. A file that is not
    /// there is no error, one that cannot be read is. Where neither says which server, it is the one
    /// that `osb up` started, if it did.
    pub fn load() -> Result<Self> {
        let mut config = match Self::default_file() {
            Some(path) if path.exists() => Self::from_file(&path)?.with_environment()?,
            _ => Self::from_env()?,
        };
        config.domain = config.domain.or_else(Self::local_domain);
        Ok(config)
    }

    /// The environment over the defaults.
    pub fn from_env() -> Result<Self> {
        Self::default().with_environment()
    }

    /// A file over the defaults.
    pub fn from_file(path: &Path) -> Result<Self> {
        let wrong = |message: String| Error::Config {
            origin: path.display().to_string(),
            message,
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let file: File = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let mut config = Self::default();
        config
            .apply(&file.connection)
            .map_err(|error| wrong(error.to_string()))?;
        Ok(config)
    }

    /// Where the command line keeps its settings: `~/.opensandbox/config.toml`. Nothing where
    /// there is no home.
    pub fn default_file() -> Option<PathBuf> {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
        Some(PathBuf::from(home).join(".opensandbox/config.toml"))
    }

    /// The environment over these settings.
    pub fn with_environment(self) -> Result<Self> {
        self.overlay(|name| std::env::var(name).ok())
    }

    fn overlay(mut self, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        // An empty variable is as good as none, as in the other SDKs.
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let connection = Connection {
            api_key: variable(ENV_API_KEY),
            domain: variable(ENV_DOMAIN),
            protocol: variable(ENV_PROTOCOL),
            // What is not a number or not yes or no is passed over, as in the command line.
            request_timeout: variable(ENV_REQUEST_TIMEOUT).and_then(|text| text.parse().ok()),
            use_server_proxy: variable(ENV_USE_SERVER_PROXY).and_then(|text| flag(&text)),
            tls_fingerprint: variable(ENV_TLS_FINGERPRINT),
        };
        self.apply(&connection)?;
        Ok(self)
    }

    fn apply(&mut self, given: &Connection) -> Result<()> {
        if let Some(key) = &given.api_key {
            self.api_key = Some(Secret::new(key.clone()));
        }
        if let Some(domain) = &given.domain {
            self.domain = Some(domain.clone());
        }
        if let Some(protocol) = &given.protocol {
            self.protocol = protocol.parse()?;
        }
        if let Some(seconds) = given.request_timeout.filter(|seconds| *seconds > 0.0) {
            self.request_timeout = Duration::try_from_secs_f64(seconds)
                .map_err(|error| config_error("request_timeout", error.to_string()))?;
        }
        if let Some(proxy) = given.use_server_proxy {
            self.use_server_proxy = proxy;
        }
        if let Some(fingerprint) = &given.tls_fingerprint {
            self.tls_fingerprint = Some(fingerprint.parse()?);
        }
        Ok(())
    }

    /// Sets the API key.
    #[must_use]
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        let key = key.into();
        self.api_key = (!key.is_empty()).then(|| Secret::new(key));
        self
    }

    /// Sets where the server is: `host[:port]`, or with a scheme, which then decides; or
    /// `unix:///PATH`, a socket of this machine.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Sets how it is spoken to, unless the domain says so.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Sets how long an answer may take. Streams last as long as they last.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets whether sandboxes are reached through the server, for where they cannot be reached
    /// straight.
    #[must_use]
    pub fn use_server_proxy(mut self, proxy: bool) -> Self {
        self.use_server_proxy = proxy;
        self
    }

    /// Adds a header to every request.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sets how the program calls itself.
    #[must_use]
    pub fn user_agent(mut self, agent: impl Into<String>) -> Self {
        self.user_agent = agent.into();
        self
    }

    /// Sets when a request is sent again.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Sets the fingerprint of the certificate that the server, or the authority that signed its certificate, has.
    /// Then no other server is spoken to, and which authorities this machine trusts does not matter.
    #[must_use]
    pub fn tls_fingerprint(mut self, fingerprint: TlsFingerprint) -> Self {
        self.tls_fingerprint = Some(fingerprint);
        self
    }

    /// Whether there is an API key. The key itself is not told.
    pub fn has_api_key(&self) -> bool {
        self.api_key.is_some()
    }

    /// Whether sandboxes are reached through the server. Always so by a unix socket, which is all
    /// that is known of such a server.
    pub fn uses_server_proxy(&self) -> bool {
        self.use_server_proxy || self.socket().is_some()
    }

    /// The unix socket that the server is reached by, if it is.
    pub fn socket(&self) -> Option<&Path> {
        self.given_domain().strip_prefix(UNIX_SCHEME).map(Path::new)
    }

    fn given_domain(&self) -> &str {
        let domain = self.domain.as_deref().unwrap_or(DEFAULT_DOMAIN);
        let domain = domain.trim();
        match domain.starts_with(UNIX_SCHEME) {
            true => domain,
            false => domain.trim_end_matches('/'),
        }
    }

    /// How long an answer may take.
    pub fn request_timeout_value(&self) -> Duration {
        self.request_timeout
    }

    /// Where requests to the server go: `https://example.com/v1`.
    pub fn base_url(&self) -> Result<String> {
        Ok(format!("{}/v1", self.root_url()?))
    }

    /// Where the server is, without the version: `https://example.com`.
    pub fn root_url(&self) -> Result<String> {
        let domain = self.given_domain();
        if let Some(socket) = self.socket() {
            // The name is what the server tells in endpoints; nobody looks it up.
            return match socket.is_absolute() {
                true => Ok("http://localhost".to_owned()),
                false => Err(config_error(
                    "domain",
                    format!("{domain:?} is not unix:///PATH, with the path from / on"),
                )),
            };
        }
        let url = if has_scheme(domain) {
            domain.to_owned()
        } else {
            format!("{}://{domain}", self.protocol.as_str())
        };
        let parsed: http::Uri = url.parse().map_err(|error: http::uri::InvalidUri| {
            config_error("domain", format!("{domain:?} is not host[:port]: {error}"))
        })?;
        match parsed.host() {
            Some(host) if !host.is_empty() => Ok(url),
            _ => Err(config_error(
                "domain",
                format!("{domain:?} is not host[:port]"),
            )),
        }
    }

    /// The scheme of endpoints, which come without one.
    pub(crate) fn scheme(&self) -> &'static str {
        let domain = self.given_domain();
        if self.socket().is_some() {
            "http"
        } else if domain.starts_with("https://") {
            "https"
        } else if domain.starts_with("http://") {
            "http"
        } else {
            self.protocol.as_str()
        }
    }
}

fn has_scheme(domain: &str) -> bool {
    domain.starts_with("http://") || domain.starts_with("https://")
}

fn config_error(origin: &str, message: String) -> Error {
    Error::Config {
        origin: origin.to_owned(),
        message,
    }
}

fn flag(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// The part of the file that is about the connection; the rest is for the command line.
#[derive(Default, Deserialize)]
struct File {
    #[serde(default)]
    connection: Connection,
}

#[derive(Default, Deserialize)]
struct Connection {
    api_key: Option<String>,
    domain: Option<String>,
    protocol: Option<String>,
    request_timeout: Option<f64>,
    use_server_proxy: Option<bool>,
    tls_fingerprint: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Result<ConnectionConfig> {
        let value = |name: &str| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        ConnectionConfig::default().overlay(value)
    }

    #[test]
    fn the_environment_is_over_the_defaults() {
        let config = from(&[
            (ENV_API_KEY, "k"),
            (ENV_DOMAIN, "example.com:1/"),
            (ENV_PROTOCOL, "HTTPS"),
            (ENV_REQUEST_TIMEOUT, "7"),
            (ENV_USE_SERVER_PROXY, "on"),
        ])
        .unwrap();
        assert_eq!(config.base_url().unwrap(), "https://example.com:1/v1");
        assert_eq!(config.request_timeout, Duration::from_secs(7));
        assert_eq!(config.api_key.unwrap().expose(), "k");
        assert!(config.use_server_proxy);
    }

    #[test]
    fn what_is_empty_or_senseless_is_passed_over_or_refused() {
        let config = from(&[
            (ENV_API_KEY, ""),
            (ENV_REQUEST_TIMEOUT, "soon"),
            (ENV_USE_SERVER_PROXY, "perhaps"),
        ])
        .unwrap();
        assert!(config.api_key.is_none());
        assert_eq!(config.request_timeout, DEFAULT_REQUEST_TIMEOUT);
        assert_eq!(config.base_url().unwrap(), "http://localhost:8080/v1");
        assert!(from(&[(ENV_PROTOCOL, "ftp")]).is_err());
        assert!(ConnectionConfig::new().domain("a b").base_url().is_err());
        assert!(ConnectionConfig::new().domain("").base_url().is_err());
    }

    #[test]
    fn a_scheme_in_the_domain_decides() {
        let config = ConnectionConfig::new().domain("https://example.com");
        assert_eq!(config.scheme(), "https");
        assert_eq!(config.base_url().unwrap(), "https://example.com/v1");
    }

    #[test]
    fn a_unix_socket_is_a_domain() {
        let config = ConnectionConfig::new().protocol(Protocol::Https);
        let config = config.domain("unix:///run/a.sock");
        assert_eq!(config.socket(), Some(Path::new("/run/a.sock")));
        assert_eq!(config.base_url().unwrap(), "http://localhost/v1");
        assert_eq!(config.scheme(), "http");
        assert!(config.uses_server_proxy());
        for wrong in ["unix://run/a.sock", "unix://"] {
            let error = ConnectionConfig::new().domain(wrong).base_url();
            assert!(error.is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_key_is_not_shown() {
        let shown = format!("{:?}", ConnectionConfig::new().api_key("very-secret"));
        assert!(!shown.contains("very-secret"), "{shown}");
    }
}
