//! The command line: the published server's options, and ours for access and limits.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use opensandbox::{ConnectionConfig, Protocol};

use crate::limits::{Limits, LimitsError};

/// Serves sandboxes as tools over the Model Context Protocol.
#[derive(Debug, Parser)]
#[command(name = "opensandbox-mcp", version, about, long_about = None)]
pub(crate) struct Options {
    /// How clients connect.
    #[arg(long, value_enum, default_value_t = Transport::Stdio)]
    pub(crate) transport: Transport,
    /// Where to listen, with streamable-http.
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// Where to listen, with streamable-http; 0 takes a free port and says which.
    #[arg(long, default_value_t = 8000)]
    pub(crate) port: u16,
    /// The token that HTTP clients must send as `Authorization: Bearer TOKEN`. Needed to listen
    /// on anything but loopback.
    #[arg(long, env = "OPENSANDBOX_MCP_AUTH_TOKEN", hide_env_values = true)]
    pub(crate) auth_token: Option<String>,
    /// An origin whose web pages may connect over HTTP, as http://localhost:6274. May be repeated;
    /// without it no page may.
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,
    /// The server's API key.
    #[arg(long, env = opensandbox::ENV_API_KEY, hide_env_values = true)]
    api_key: Option<String>,
    /// Where the server is: host[:port], or a URL.
    #[arg(long, env = opensandbox::ENV_DOMAIN)]
    domain: Option<String>,
    /// How the server is spoken to.
    #[arg(long, value_parser = ["http", "https"])]
    protocol: Option<String>,
    /// How long an answer of the server may take.
    #[arg(long)]
    request_timeout_seconds: Option<f64>,
    /// Reach sandboxes through the server.
    #[arg(long)]
    use_server_proxy: bool,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
}

/// How clients connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Over stdin and stdout of this process.
    Stdio,
    /// Over HTTP, at /mcp.
    StreamableHttp,
}

/// What the agent may do.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// A TOML file with the limits below, by the same names; options are over it.
    #[arg(long, value_name = "FILE")]
    limits: Option<PathBuf>,
    /// Only images that match; `*` stands for anything. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    allow_image: Vec<String>,
    /// At most this much of a resource for each sandbox, as cpu=2 or memory=4Gi. May be repeated.
    #[arg(long, value_name = "NAME=AMOUNT")]
    max_resource: Vec<String>,
    /// Sandboxes live at most this many seconds.
    #[arg(long, value_name = "SECONDS")]
    max_lifetime: Option<u64>,
    /// At most this many sandboxes at the same time.
    #[arg(long, value_name = "COUNT")]
    max_sandboxes: Option<usize>,
    /// Sandboxes reach nothing outside.
    #[arg(long)]
    no_network: bool,
    /// Nothing is mounted into sandboxes.
    #[arg(long)]
    no_volumes: bool,
    /// Only sandboxes and snapshots that were made through this server can be seen and used.
    #[arg(long)]
    own_sandboxes_only: bool,
}

impl LimitOptions {
    pub(crate) fn load(&self) -> Result<Limits, LimitsError> {
        let mut limits = match &self.limits {
            Some(path) => Limits::from_file(path)?,
            None => Limits::default(),
        };
        if !self.allow_image.is_empty() {
            limits.allow_image.clone_from(&self.allow_image);
        }
        for given in &self.max_resource {
            limits.add_resource(given)?;
        }
        limits.max_lifetime = self.max_lifetime.or(limits.max_lifetime);
        limits.max_sandboxes = self.max_sandboxes.or(limits.max_sandboxes);
        limits.no_network |= self.no_network;
        limits.no_volumes |= self.no_volumes;
        limits.own_sandboxes_only |= self.own_sandboxes_only;
        limits.check()?;
        Ok(limits)
    }
}

impl Options {
    /// Options over the environment over the command line's file.
    pub(crate) fn connection(&self) -> opensandbox::Result<ConnectionConfig> {
        let mut config = ConnectionConfig::load()?
            .user_agent(concat!("opensandbox-mcp/", env!("CARGO_PKG_VERSION")));
        if let Some(key) = &self.api_key {
            config = config.api_key(key.clone());
        }
        if let Some(domain) = &self.domain {
            config = config.domain(domain.clone());
        }
        if let Some(protocol) = &self.protocol {
            config = config.protocol(protocol.parse::<Protocol>()?);
        }
        if let Some(seconds) = self.request_timeout_seconds {
            let timeout = Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|timeout| !timeout.is_zero());
            let timeout = timeout.ok_or_else(|| opensandbox::Error::Config {
                origin: "--request-timeout-seconds".to_owned(),
                message: format!("{seconds} is not a positive number of seconds"),
            })?;
            config = config.request_timeout(timeout);
        }
        if self.use_server_proxy {
            config = config.use_server_proxy(true);
        }
        Ok(config)
    }
}
