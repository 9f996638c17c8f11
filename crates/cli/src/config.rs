//! The settings of the command line: flags over environment over file over defaults. The server of which
//! nothing is said is the one of `osb up`, if there is one.
//!
//! The file is that of the published command line, `~/.opensandbox/config.toml`, with its keys.
//! Changing it keeps its comments. It holds a key, so it is made for its owner's eyes only.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use opensandbox::{
    ConnectionConfig, ENV_API_KEY, ENV_DOMAIN, ENV_PROTOCOL, ENV_REQUEST_TIMEOUT,
    ENV_TLS_FINGERPRINT, ENV_USE_SERVER_PROXY, Protocol, RetryPolicy,
};
use serde::Deserialize;

use crate::args::Globals;
use crate::output::Record;

/// What `osb config init` writes.
const TEMPLATE: &str = r#"# OpenSandbox command line.
# Flags come before environment variables, those before this file, and it before the defaults.

[connection]
# api_key = "your-api-key"
# domain = "localhost:8080"  # default: the server of `osb up`, else this
# protocol = "http"
# tls_fingerprint = "the server's, or its authority's, as osb server tls init prints it"
# request_timeout = 30
# use_server_proxy = false

[output]
# color = true

[defaults]
# image = "python:3.11"
# timeout = "10m"  # or "none": the sandbox stays until it is killed
"#;

/// An answer may take this long, in seconds, unless something else was said.
const REQUEST_TIMEOUT_SECONDS: u64 = 30;

/// A person who waits would rather know that nobody is there: one more attempt, soon.
const RETRIES: RetryPolicy = RetryPolicy {
    attempts: 1,
    first_delay: Duration::from_millis(100),
    longest_delay: Duration::from_secs(2),
};

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read or written.
    #[error("the configuration file {} cannot be {action}", path.display())]
    Io {
        /// Read, or written.
        action: &'static str,
        /// The configuration file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("the configuration file {} is not valid: {message}", path.display())]
    Invalid {
        /// The configuration file.
        path: PathBuf,
        /// Where and why.
        message: String,
    },
    /// There is no file to change.
    #[error("there is no configuration file {}", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Nobody said where the file is, and there is no home to look in.
    #[error("there is no home directory to keep the configuration in")]
    NoHome,
    /// A key is not of two parts.
    #[error("the key {0:?} must be like section.field, for example connection.domain")]
    Key(String),
    /// A key leads through something that has no fields.
    #[error("{key} cannot be set: {section:?} is not a section")]
    NotASection {
        /// The whole key.
        key: String,
        /// Its first part.
        section: String,
    },
    /// A value is of no use.
    #[error("{0}")]
    Value(String),
}

/// The settings that hold.
#[derive(Debug, Clone)]
pub struct Config {
    api_key: Option<String>,
    domain: Option<String>,
    /// Whether the domain is that of `osb up`, because nobody said anything else.
    is_local: bool,
    protocol: String,
    tls_fingerprint: Option<String>,
    request_timeout: u64,
    use_server_proxy: bool,
    /// Whether colours are wanted.
    pub color: bool,
    /// The image of a sandbox for which none was named.
    pub default_image: Option<String>,
    /// The lifetime of a sandbox for which none was named.
    pub default_timeout: Option<String>,
    path: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
struct File {
    #[serde(default)]
    connection: ConnectionSection,
    #[serde(default)]
    output: OutputSection,
    #[serde(default)]
    defaults: DefaultsSection,
}

#[derive(Debug, Default, Deserialize)]
struct ConnectionSection {
    api_key: Option<String>,
    domain: Option<String>,
    protocol: Option<String>,
    tls_fingerprint: Option<String>,
    request_timeout: Option<u64>,
    use_server_proxy: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct OutputSection {
    color: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct DefaultsSection {
    image: Option<String>,
    timeout: Option<String>,
}

impl Config {
    /// All settings, from where each comes first.
    pub fn resolve(globals: &Globals) -> Result<Self, Error> {
        let path = path(globals);
        let file = match &path {
            Some(path) => read(path)?.unwrap_or_default(),
            None => File::default(),
        };
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let connection = file.connection;
        let number = |text: String| text.parse().ok();
        let chosen = first([
            globals.domain.clone(),
            variable(ENV_DOMAIN),
            connection.domain,
        ]);
        let is_local = chosen.is_none();
        Ok(Self {
            api_key: first([
                globals.api_key.clone(),
                variable("OPEN_SANDBOX_API_KEY"),
                connection.api_key,
            ]),
            domain: chosen.or_else(ConnectionConfig::local_domain),
            is_local,
            protocol: first([
                globals.protocol.clone(),
                variable("OPEN_SANDBOX_PROTOCOL"),
                connection.protocol,
            ])
            .unwrap_or_else(|| "http".to_owned()),
            tls_fingerprint: first([
                globals.tls_fingerprint.clone(),
                variable(ENV_TLS_FINGERPRINT),
                connection.tls_fingerprint,
            ]),
            request_timeout: first([
                globals.request_timeout,
                variable("OPEN_SANDBOX_REQUEST_TIMEOUT").and_then(number),
                connection.request_timeout,
            ])
            .unwrap_or(REQUEST_TIMEOUT_SECONDS),
            use_server_proxy: first([
                globals.server_proxy(),
                variable("OPEN_SANDBOX_USE_SERVER_PROXY").and_then(|text| flag(&text)),
                connection.use_server_proxy,
            ])
            .unwrap_or(false),
            color: !globals.no_color && file.output.color.unwrap_or(true),
            default_image: file.defaults.image,
            default_timeout: file.defaults.timeout,
            path,
        })
    }

    /// How to speak to the server.
    pub fn connection(&self) -> Result<ConnectionConfig, opensandbox::Error> {
        let mut connection = ConnectionConfig::new()
            .protocol(self.protocol.parse::<Protocol>()?)
            .request_timeout(Duration::from_secs(self.request_timeout))
            .use_server_proxy(self.use_server_proxy)
            .user_agent(concat!("osb/", env!("CARGO_PKG_VERSION")))
            .retry(RETRIES);
        if let Some(domain) = &self.domain {
            connection = connection.domain(domain);
        }
        if let Some(key) = &self.api_key {
            connection = connection.api_key(key);
        }
        if let Some(fingerprint) = &self.tls_fingerprint {
            connection = connection.tls_fingerprint(fingerprint.parse()?);
        }
        Ok(connection)
    }

    /// The environment in which another `osb` has the same connection.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            (ENV_DOMAIN, self.domain().to_owned()),
            (ENV_PROTOCOL, self.protocol.clone()),
            (ENV_REQUEST_TIMEOUT, self.request_timeout.to_string()),
            (ENV_USE_SERVER_PROXY, self.use_server_proxy.to_string()),
        ];
        let fingerprint = self.tls_fingerprint.clone();
        variables.extend(fingerprint.map(|it| (ENV_TLS_FINGERPRINT, it)));
        variables.extend(self.api_key.clone().map(|key| (ENV_API_KEY, key)));
        variables
    }

    /// Where the server is said to be, for messages.
    pub fn domain(&self) -> &str {
        self.domain.as_deref().unwrap_or("localhost:8080")
    }

    /// Where the server is, if anybody said so.
    pub(crate) fn chosen_domain(&self) -> Option<&str> {
        self.domain.as_deref().filter(|_| !self.is_local)
    }

    /// Whether this is the server of `osb up`, which nobody had to name.
    pub(crate) fn is_of_up(&self) -> bool {
        self.is_local && self.domain.is_some()
    }

    /// Whether requests carry a key.
    pub fn has_key(&self) -> bool {
        self.api_key.is_some()
    }

    /// The settings as they are shown, the key only by its shape.
    pub fn shown(&self) -> Record {
        let path = self.path.as_ref();
        let shown = Record::new()
            .with("api_key", self.api_key.as_deref().map(mask))
            .with("domain", self.domain.clone())
            .with("protocol", self.protocol.clone())
            .with("request_timeout", self.request_timeout)
            .with("use_server_proxy", self.use_server_proxy)
            .with("color", self.color)
            .with("default_image", self.default_image.clone())
            .with("default_timeout", self.default_timeout.clone())
            .with("config_path", path.map(|path| path.display().to_string()))
            .with("config_file_exists", path.is_some_and(|path| path.exists()));
        // The published command line has no such row.
        match &self.tls_fingerprint {
            Some(fingerprint) => shown.with("tls_fingerprint", fingerprint.clone()),
            None => shown,
        }
    }
}

/// Writes a commented file; `None` when there is one already that may not be replaced.
pub fn init(globals: &Globals, force: bool) -> Result<(PathBuf, bool), Error> {
    let path = path(globals).ok_or(Error::NoHome)?;
    if path.exists() && !force {
        return Ok((path, false));
    }
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        std::fs::create_dir_all(parent).map_err(|source| written(&path, source))?;
    }
    write(&path, TEMPLATE)?;
    Ok((path, true))
}

/// Changes one value and keeps everything else of the file as it is.
pub fn set(globals: &Globals, key: &str, value: &str) -> Result<(), Error> {
    let path = path(globals).ok_or(Error::NoHome)?;
    let (section, field) = key
        .split_once('.')
        .filter(|(section, field)| !section.is_empty() && !field.is_empty() && !field.contains('.'))
        .ok_or_else(|| Error::Key(key.to_owned()))?;
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::Missing { path });
        }
        Err(source) => return Err(unread(&path, source)),
    };
    let mut document: toml_edit::DocumentMut =
        text.parse()
            .map_err(|error: toml_edit::TomlError| Error::Invalid {
                path: path.clone(),
                message: error.to_string(),
            })?;
    let table = document
        .entry(section)
        .or_insert_with(toml_edit::table)
        .as_table_like_mut()
        .ok_or_else(|| Error::NotASection {
            key: key.to_owned(),
            section: section.to_owned(),
        })?;
    table.insert(field, toml_edit::value(scalar(value)));
    write(&path, &document.to_string())
}

/// The file that is read: the one named, else the one at home.
fn path(globals: &Globals) -> Option<PathBuf> {
    globals
        .config
        .clone()
        .or_else(ConnectionConfig::default_file)
}

fn read(path: &Path) -> Result<Option<File>, Error> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(unread(path, source)),
    };
    toml::from_str(&text)
        .map(Some)
        .map_err(|error| Error::Invalid {
            path: path.to_owned(),
            message: error.to_string(),
        })
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(|source| written(path, source))?;
    file.write_all(text.as_bytes())
        .map_err(|source| written(path, source))
}

fn unread(path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        action: "read",
        path: path.to_owned(),
        source,
    }
}

fn written(path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        action: "written",
        path: path.to_owned(),
        source,
    }
}

/// A value as TOML has it: yes or no, a number, else text.
fn scalar(text: &str) -> toml_edit::Value {
    match text.to_ascii_lowercase().as_str() {
        "true" => return true.into(),
        "false" => return false.into(),
        _ => {}
    }
    if let Ok(whole) = text.parse::<i64>() {
        return whole.into();
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => number.into(),
        _ => text.into(),
    }
}

fn first<T>(from: impl IntoIterator<Item = Option<T>>) -> Option<T> {
    from.into_iter().flatten().next()
}

fn flag(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// A secret's shape: enough to tell two apart, too little to use.
fn mask(secret: &str) -> String {
    let letters: Vec<char> = secret.chars().collect();
    match letters.as_slice() {
        [a, b, middle @ .., y, z] if !middle.is_empty() => {
            format!("{a}{b}{}{y}{z}", "*".repeat(middle.len()))
        }
        all => "*".repeat(all.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globals(path: &Path) -> Globals {
        Globals {
            config: Some(path.to_owned()),
            ..Globals::default()
        }
    }

    #[test]
    fn setting_a_value_keeps_the_comments() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/config.toml");
        let globals = globals(&path);
        assert!(matches!(
            set(&globals, "connection.domain", "x"),
            Err(Error::Missing { .. })
        ));
        assert!(init(&globals, false).unwrap().1);
        assert!(!init(&globals, false).unwrap().1);
        set(&globals, "connection.domain", "localhost:9090").unwrap();
        set(&globals, "connection.request_timeout", "7").unwrap();
        set(&globals, "output.color", "false").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("# image = \"python:3.11\""), "{text}");
        let config = Config::resolve(&globals).unwrap();
        assert_eq!(config.request_timeout, 7);
        assert!(!config.color);
        for key in ["x", "a.b.c", ".a", "a."] {
            assert!(
                matches!(set(&globals, key, "1"), Err(Error::Key(_))),
                "{key}"
            );
        }
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn flags_come_before_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        std::fs::write(
            &path,
            "[connection]\ndomain = \"file\"\nuse_server_proxy = true\n",
        )
        .unwrap();
        let mut globals = globals(&path);
        globals.domain = Some("flag".to_owned());
        globals.no_use_server_proxy = true;
        let config = Config::resolve(&globals).unwrap();
        assert_eq!(config.domain(), "flag");
        assert!(!config.use_server_proxy);
        std::fs::write(&path, "[connection\n").unwrap();
        assert!(matches!(
            Config::resolve(&globals),
            Err(Error::Invalid { .. })
        ));
    }

    #[test]
    fn a_key_is_shown_by_its_shape() {
        assert_eq!(mask("secret-key"), "se******ey");
        assert_eq!(mask("abcd"), "****");
    }
}
