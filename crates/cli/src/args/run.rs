//! `osb run`: what `docker run` takes, as far as it makes sense for a sandbox, and what is our own.

use std::path::PathBuf;

use clap::Args;

use super::Pair;
use super::docker::{Mount, Network, Publish, User, Variable, cpus, memory};
use super::exec::DETACH_KEYS;
use crate::terminal::DetachKeys;

/// `osb run`.
#[derive(Debug, Clone, Args)]
#[command(
    override_usage = "osb run [OPTIONS] IMAGE [COMMAND]...\n       \
                      osb run [OPTIONS] IMAGE -- COMMAND...\n       \
                      osb run [OPTIONS] --snapshot SNAPSHOT [COMMAND]...",
    after_help = "Exits with the command's own code, 125 when osb itself failed. Without a command \
                  there is a shell at a terminal, and the image's own command elsewhere, with -d or \
                  with -t. Words behind the image go to its ENTRYPOINT, if it has one, as with \
                  docker run; behind -- stands the whole command.\n\nThe sandbox is removed when \
                  the command ends, also after Ctrl-C; --keep leaves it. With -d it stays until it \
                  is removed, or until --timeout. Directories of -v are those of the server's \
                  machine, as far as it allows them; ports of -p are reached on this machine alone \
                  unless an address is named."
)]
pub struct Run {
    /// Image, such as python:3.11, or `host` for this machine's own programs; behind it the
    /// command and its arguments.
    // One argument, so that everything behind the image is handed on, and `--` can be seen.
    #[arg(
        required_unless_present = "snapshot",
        trailing_var_arg = true,
        allow_hyphen_values = false,
        value_name = "IMAGE"
    )]
    pub words: Vec<String>,
    /// The image among the words.
    #[arg(skip)]
    pub image: Option<String>,
    /// The words that go to the image's own command.
    #[arg(skip)]
    pub arguments: Vec<String>,
    /// The words behind `--`: the whole command.
    #[arg(skip)]
    pub command: Vec<String>,
    /// Begin from this snapshot, by id or name, instead of an image.
    #[arg(long, value_name = "SNAPSHOT")]
    pub snapshot: Option<String>,
    /// Make the command the sandbox's main program, say the sandbox's id, and leave it running.
    #[arg(short, long, conflicts_with = "keep")]
    pub detach: bool,
    /// Hand on standard input.
    #[arg(short, long)]
    pub interactive: bool,
    /// Give the command a terminal.
    #[arg(short, long)]
    pub tty: bool,
    /// Remove the sandbox when the command ends. Without -d that is so anyhow.
    #[arg(long, conflicts_with = "keep")]
    pub rm: bool,
    /// Leave the sandbox when the command ends, and say its id.
    #[arg(long)]
    pub keep: bool,
    /// A name that no other sandbox has.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Reach a port of the sandbox on this machine while it runs; repeatable.
    #[arg(short, long, value_name = "[HOST_PORT:]PORT")]
    pub publish: Vec<Publish>,
    /// Mount a volume or a directory; repeatable.
    #[arg(short, long, value_name = "SOURCE:TARGET[:ro]", value_parser = Mount::from_volume_flag)]
    pub volume: Vec<Mount>,
    /// The same in Docker's long form: type=bind|volume,source=…,target=…, then readonly if it is to be so; repeatable.
    #[arg(long, value_name = "MOUNT", value_parser = Mount::from_mount_flag)]
    pub mount: Vec<Mount>,
    /// Environment variable, KEY alone for the value it has here; repeatable.
    #[arg(short, long, value_name = "KEY[=VALUE]")]
    pub env: Vec<Variable>,
    /// File with environment variables, one a line; repeatable.
    #[arg(long, value_name = "PATH")]
    pub env_file: Vec<PathBuf>,
    /// Working directory.
    #[arg(short, long, value_name = "PATH")]
    pub workdir: Option<String>,
    /// Run the command as this user of the sandbox, by name or number.
    #[arg(short, long, value_name = "USER[:GROUP]")]
    pub user: Option<User>,
    /// Memory at most, such as 512m or 2g.
    #[arg(short, long, value_name = "AMOUNT", value_parser = memory)]
    pub memory: Option<String>,
    /// Processors at most, such as 2 or 0.5.
    #[arg(long, value_name = "NUMBER", value_parser = cpus)]
    pub cpus: Option<String>,
    /// none: nothing can be reached from the sandbox.
    #[arg(long, visible_alias = "net", value_name = "NETWORK")]
    pub network: Option<Network>,
    /// Run this instead of the image's ENTRYPOINT; '' for none.
    #[arg(long, value_name = "PROGRAM")]
    pub entrypoint: Option<String>,
    /// Label; repeatable.
    #[arg(short, long, visible_alias = "metadata", value_name = "KEY=VALUE")]
    pub label: Vec<Pair>,
    /// Platform, such as linux/arm64; the server's own otherwise.
    #[arg(long, value_name = "OS/ARCH")]
    pub platform: Option<String>,
    /// When to bring the image here: only if it is missing, or its newest state always.
    #[arg(long, value_parser = ["missing", "always"], default_value = "missing", value_name = "WHEN")]
    pub pull: String,
    /// A process that collects ended ones; always so in a sandbox.
    #[arg(long)]
    pub init: bool,
    /// Lifetime at most, such as 10m or 1h. Without this it lives as long as the command, and ten
    /// minutes more; with -d until it is removed.
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Limit, such as cpu=1, memory=2Gi or disk=5Gi; repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    pub resource: Vec<Pair>,
    /// JSON file with a network policy.
    #[arg(long, value_name = "PATH", conflicts_with = "network")]
    pub network_policy_file: Option<PathBuf>,
    /// Let the sandbox reach this name, *.name, address or range, and nothing else but what other --allow
    /// say; repeatable.
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["network", "network_policy_file"])]
    pub allow: Vec<String>,
    /// The same with a list of targets that the server's operator defined under this name; repeatable.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["network", "network_policy_file"])]
    pub allow_preset: Vec<String>,
    /// JSON file with a list of volumes.
    #[arg(long, value_name = "PATH")]
    pub volumes_file: Option<PathBuf>,
    // -v is a volume here, as with docker run, and not what it is everywhere else.
    /// Say more about errors.
    #[arg(long)]
    pub verbose: bool,
    /// Keys that leave the terminal running.
    #[arg(long, value_name = "KEYS", default_value = DETACH_KEYS)]
    pub detach_keys: DetachKeys,
}
