//! `osb up` and `osb down`: a server of the user's own, in the background.

use std::path::PathBuf;

use clap::Args;

/// `osb up`.
#[derive(Debug, Clone, Args)]
pub struct Up {
    /// Listen on this port of 127.0.0.1, too: for SDKs, and for every user of this machine.
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// The configuration file of the server; --config is that of the command line.
    #[arg(long, value_name = "PATH")]
    pub server_config: Option<PathBuf>,
    /// Set any key of the server's configuration, as in embedded.data_dir=/data. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// `osb down`.
#[derive(Debug, Clone, Args)]
pub struct Down {
    /// End all sandboxes first, which live on otherwise.
    #[arg(short, long)]
    pub all: bool,
}
