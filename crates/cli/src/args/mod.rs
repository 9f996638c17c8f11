//! Everything that can be written on the command line.
//!
//! Commands and options of the published `osb` 1.1.1 keep their names; what is added stands
//! beside them. Says what there is, not what it does.

pub mod access;
pub mod docker;
pub mod exec;
pub mod file;
pub mod instead;
pub mod local;
pub mod manage;
pub mod run;
pub mod sandbox;
pub mod sandbox_side;
pub mod transfer;
pub mod up;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand};

use crate::output::Format;

/// Sandboxes for AI agents, from your terminal.
#[derive(Debug, Parser)]
#[command(
    name = "osb",
    bin_name = "osb",
    version,
    propagate_version = false,
    infer_subcommands = false,
    after_help = "The server is the one that --domain, OPEN_SANDBOX_DOMAIN or \
                  ~/.opensandbox/config.toml names, else the one of `osb up`, else \
                  localhost:8080. Start one with `sudo osb up`, then try \
                  `osb run host -- echo hello`."
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub globals: Globals,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Globals {
    /// API key [env: OPEN_SANDBOX_API_KEY].
    #[arg(long, global = true, value_name = "TEXT")]
    pub api_key: Option<String>,
    /// Where the server is, such as localhost:8080 or unix:///PATH [env: OPEN_SANDBOX_DOMAIN].
    #[arg(long, global = true, value_name = "TEXT")]
    pub domain: Option<String>,
    /// How the server is spoken to.
    #[arg(long, global = true, value_name = "http|https", value_parser = ["http", "https"])]
    pub protocol: Option<String>,
    /// The SHA-256 of the server's certificate, or of its authority's, as `osb server tls init` prints it: then
    /// no other server is spoken to [env: OPEN_SANDBOX_TLS_FINGERPRINT].
    #[arg(long, global = true, value_name = "SHA256")]
    pub tls_fingerprint: Option<String>,
    /// Seconds an answer may take.
    #[arg(long, global = true, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub request_timeout: Option<u64>,
    /// Reach sandboxes through the server.
    #[arg(long, global = true, overrides_with = "no_use_server_proxy")]
    pub use_server_proxy: bool,
    /// Reach sandboxes where the server says they are.
    #[arg(long, global = true, overrides_with = "use_server_proxy")]
    pub no_use_server_proxy: bool,
    /// The configuration file.
    #[arg(long, global = true, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// Say more about errors.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// No colours.
    #[arg(long, global = true)]
    pub no_color: bool,
    /// How results are printed; a table at a terminal, plain columns in a pipe.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        ignore_case = true,
        value_name = "FORMAT"
    )]
    pub output: Option<Format>,
}

impl Globals {
    /// What was said about the server's proxy.
    pub fn server_proxy(&self) -> Option<bool> {
        match (self.use_server_proxy, self.no_use_server_proxy) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one command in a new sandbox, then remove it.
    Run(Box<run::Run>),
    /// Run a command in a sandbox; with -it at a terminal of its own.
    Exec(exec::Exec),
    /// Open a shell in a sandbox, or in a new one.
    Shell(exec::Shell),
    /// Go back to a terminal that was left running.
    Attach(exec::Attach),
    /// Run code in an interpreter that remembers, line by line or from a file.
    Code(exec::Code),
    /// Copy files and directories into and out of a sandbox.
    Cp(transfer::Cp),
    /// Show what a sandbox's main program printed.
    Logs(exec::Logs),
    /// Reach ports of a sandbox on this machine.
    PortForward(transfer::PortForward),
    /// Print a link by which a browser opens a port of a sandbox.
    Url(transfer::Url),
    /// List sandboxes.
    Ls(sandbox::List),
    /// List sandboxes that have not ended.
    Ps(manage::Ps),
    /// Kill sandboxes.
    Rm(sandbox::Remove),
    /// Halt sandboxes, with all that runs in them; `osb start` lets them go on where they were.
    Stop(sandbox::Ids),
    /// Let sandboxes go on that were halted.
    Start(sandbox::Ids),
    /// Give a sandbox another name.
    Rename(manage::Rename),
    /// Show everything about sandboxes, as JSON.
    Inspect(manage::Inspect),
    /// What the server keeps, and how to get rid of it.
    #[command(subcommand)]
    System(manage::System),
    /// Hold ports open and remove a sandbox at its end, for `osb run -d`.
    #[command(hide = true)]
    Attend(manage::Attend),
    /// Show what sandboxes use, live.
    #[command(visible_alias = "top")]
    Stats(sandbox::Stats),
    /// Show what happens to sandboxes and snapshots.
    Events(sandbox::Events),
    /// Manage sandboxes.
    #[command(subcommand)]
    Sandbox(sandbox::Sandbox),
    /// Manage snapshots of sandboxes.
    #[command(subcommand)]
    Snapshot(sandbox::Snapshot),
    /// Manage templates: images built in advance.
    #[command(subcommand)]
    Template(sandbox::Template),
    /// Run commands in a sandbox.
    #[command(subcommand)]
    Command(exec::Command),
    /// Work with the files of a sandbox.
    #[command(subcommand)]
    File(file::File),
    /// What a sandbox may reach, while it runs.
    #[command(subcommand)]
    Egress(sandbox_side::Egress),
    /// Credentials that are put into a sandbox's requests on their way out.
    #[command(subcommand)]
    CredentialVault(sandbox_side::Vault),
    /// Logs and events of a sandbox.
    #[command(subcommand)]
    Diagnostics(sandbox_side::Diagnostics),
    /// Everything about a sandbox, as text for people.
    #[command(subcommand)]
    Devops(sandbox_side::Devops),
    /// The images that the server keeps.
    Image(local::Image),
    /// The named volumes that the server keeps.
    Volume(local::Volume),
    /// Who may use the server: API keys and tokens.
    #[command(subcommand)]
    Key(access::Key),
    /// Teams on one server, each of which sees its own sandboxes alone.
    #[command(subcommand)]
    Tenant(access::Tenant),
    /// Settings of the command line.
    #[command(subcommand)]
    Config(local::Config),
    /// Instructions for AI coding tools.
    #[command(subcommand)]
    Skills(local::Skills),
    /// Measure how fast the server makes and reaches sandboxes.
    Bench(local::Bench),
    /// Start a server of your own in the background, if none runs; needs root.
    Up(up::Up),
    /// End the server that `osb up` started; sandboxes live on.
    Down(up::Down),
    /// Show the version of this program and of the server.
    Version,
    /// Print a shell's completions.
    Completions(local::Completions),
    /// Names and ids that the server knows, for the scripts of `osb completions`.
    #[command(hide = true)]
    Complete(local::Complete),
    /// Print a manual page, or write all of them to a directory.
    Man(local::Man),
    /// Serve the OpenSandbox API; `osb server --help` tells all about it.
    #[command(disable_help_flag = true)]
    Server(Elsewhere),
    /// What this machine can do for sandboxes, and what is missing.
    #[command(disable_help_flag = true)]
    Doctor(Elsewhere),
    /// Serve the Model Context Protocol to AI agents; `osb mcp --help` tells all about it.
    #[command(disable_help_flag = true)]
    Mcp(Elsewhere),
}

/// Arguments of another part of the program, which reads them itself.
#[derive(Debug, Args)]
pub struct Elsewhere {
    /// Its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub arguments: Vec<OsString>,
}

/// A pair written `KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Before the first equals sign.
    pub key: String,
    /// Behind it.
    pub value: String,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| format!("expected KEY=VALUE, got '{text}'"))?;
        Ok(Self {
            key: key.to_owned(),
            value: value.to_owned(),
        })
    }
}

impl Pair {
    /// Pairs as a map; nothing when there are none.
    pub fn map(pairs: &[Self]) -> Option<std::collections::BTreeMap<String, String>> {
        let map = pairs
            .iter()
            .map(|pair| (pair.key.clone(), pair.value.clone()));
        (!pairs.is_empty()).then(|| map.collect())
    }
}
