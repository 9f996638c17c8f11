//! Commands that run something in a sandbox.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::docker::{User, Variable};
pub use crate::commands::Choice as Graphics;
use crate::duration;
use crate::terminal::DetachKeys;

/// Keys that leave a terminal running, unless others are named.
pub(crate) const DETACH_KEYS: &str = "ctrl-p,ctrl-q";

/// `osb command`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command in a sandbox; write -- before it.
    #[command(
        after_help = "Write -- before the command. Its words are put together to one line for a \
                      shell; --argv hands them to the program as they are, so that $HOME, quotes \
                      and empty words stay what they are."
    )]
    Run(CommandRun),
    /// How a command stands.
    Status {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// The command's id.
        execution_id: String,
    },
    /// What a command printed.
    Logs {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// The command's id.
        execution_id: String,
        /// Only what comes behind this place.
        #[arg(long, value_name = "INTEGER")]
        cursor: Option<u64>,
        /// Go on with what it prints, until it has ended.
        #[arg(short, long)]
        follow: bool,
    },
    /// Interrupt a command.
    Interrupt {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// The command's id.
        execution_id: String,
    },
    /// Shells that keep their variables and directory.
    #[command(subcommand)]
    Session(Session),
}

/// `osb command run`.
#[derive(Debug, Clone, Args)]
pub struct CommandRun {
    /// The sandbox: its name, its id, or the beginning of that.
    pub sandbox_id: String,
    /// The command and its arguments.
    #[arg(required = true)]
    pub command: Vec<String>,
    /// Leave it running and say its id.
    #[arg(short = 'd', long)]
    pub background: bool,
    /// Working directory.
    #[arg(short, long, value_name = "TEXT")]
    pub workdir: Option<String>,
    /// End it after this long, such as 30s or 5m.
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub timeout: Option<Duration>,
    /// Hand the words to the program as they are, without a shell.
    #[arg(long)]
    pub argv: bool,
}

/// `osb command session`.
#[derive(Debug, Subcommand)]
pub enum Session {
    /// Start a shell.
    Create {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// Working directory to begin in.
        #[arg(short, long, value_name = "TEXT")]
        workdir: Option<String>,
    },
    /// Run a command in a shell; write -- before it.
    Run {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// The session's id.
        session_id: String,
        /// The command and its arguments.
        #[arg(required = true)]
        command: Vec<String>,
        /// Working directory for this command.
        #[arg(short, long, value_name = "TEXT")]
        workdir: Option<String>,
        /// End it after this long, such as 30s or 5m.
        #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
        timeout: Option<Duration>,
    },
    /// End a shell.
    Delete {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// The session's id.
        session_id: String,
    },
}

/// `osb exec`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Exits with the command's own code, 125 when osb itself failed.")]
pub struct Exec {
    /// The sandbox: its name, its id, or the beginning of that.
    pub sandbox_id: String,
    /// The command and its arguments, handed on as they are.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
    /// Hand on standard input.
    #[arg(short, long)]
    pub interactive: bool,
    /// Give the command a terminal.
    #[arg(short, long)]
    pub tty: bool,
    /// Leave it running and say its id.
    #[arg(short, long, conflicts_with_all = ["interactive", "tty"])]
    pub detach: bool,
    /// Working directory.
    #[arg(short, long, value_name = "TEXT")]
    pub workdir: Option<String>,
    /// Environment variable, KEY alone for the value it has here; repeatable.
    #[arg(short, long, value_name = "KEY[=VALUE]")]
    pub env: Vec<Variable>,
    /// File with environment variables, one a line; repeatable.
    #[arg(long, value_name = "PATH")]
    pub env_file: Vec<PathBuf>,
    /// Run as this user of the sandbox, by name or number.
    #[arg(short, long, value_name = "USER[:GROUP]")]
    pub user: Option<User>,
    /// End it after this long, such as 30s or 5m.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub timeout: Option<Duration>,
    /// Keys that leave the terminal running.
    #[arg(long, value_name = "KEYS", default_value = DETACH_KEYS)]
    pub detach_keys: DetachKeys,
}

/// `osb shell`.
#[derive(Debug, Clone, Args)]
pub struct Shell {
    /// The sandbox: its name, its id, or the beginning of that.
    #[arg(required_unless_present = "image")]
    pub sandbox_id: Option<String>,
    /// Make a sandbox from this image, and remove it when the shell ends.
    #[arg(long, value_name = "IMAGE", conflicts_with = "sandbox_id")]
    pub image: Option<String>,
    /// With --image: how long the sandbox lives, such as 1h. Without this it lives as long as the
    /// shell has somebody at it, and ten minutes more.
    #[arg(long, value_name = "DURATION", requires = "image")]
    pub timeout: Option<String>,
    /// Working directory.
    #[arg(short, long, value_name = "TEXT")]
    pub workdir: Option<String>,
    /// Keys that leave the terminal running.
    #[arg(long, value_name = "KEYS", default_value = DETACH_KEYS)]
    pub detach_keys: DetachKeys,
}

/// `osb attach`.
#[derive(Debug, Clone, Args)]
pub struct Attach {
    /// The sandbox: its name, its id, or the beginning of that.
    pub sandbox_id: String,
    /// The terminal's id, as it was said on leaving.
    pub terminal_id: String,
    /// Do not show again what was printed before.
    #[arg(long)]
    pub no_replay: bool,
    /// Keys that leave the terminal running.
    #[arg(long, value_name = "KEYS", default_value = DETACH_KEYS)]
    pub detach_keys: DetachKeys,
}

/// `osb code`.
#[derive(Debug, Clone, Args)]
pub struct Code {
    /// The sandbox: its name, its id, or the beginning of that.
    #[arg(required_unless_present = "image")]
    pub sandbox_id: Option<String>,
    /// Make a sandbox from this image, and remove it at the end.
    #[arg(long, value_name = "IMAGE", conflicts_with = "sandbox_id")]
    pub image: Option<String>,
    /// Language: python, bash, javascript, typescript, java, go, or any other that the sandbox has
    /// a Jupyter kernel for.
    #[arg(short, long, value_name = "NAME", default_value = "python")]
    pub language: String,
    /// Run this and end.
    #[arg(short = 'c', long, value_name = "CODE", allow_hyphen_values = true)]
    pub code: Option<String>,
    /// Run this file and end; - is standard input.
    #[arg(short, long, value_name = "PATH", conflicts_with = "code")]
    pub file: Option<PathBuf>,
    /// Where figures and tables are saved: figure-1.png, table-1.html and so on. `figures` below
    /// the current directory when none is named.
    #[arg(long, value_name = "DIRECTORY")]
    pub figures: Option<PathBuf>,
    /// Whether and how figures are also shown at the terminal.
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    pub graphics: Graphics,
    /// Go on in this context instead of a new one, and leave it.
    #[arg(long, value_name = "ID")]
    pub context: Option<String>,
}

/// `osb logs`.
#[derive(Debug, Clone, Args)]
pub struct Logs {
    /// The sandbox: its name, its id, or the beginning of that.
    pub sandbox_id: String,
    /// A command's id: what that printed, instead of the sandbox's main program.
    pub execution_id: Option<String>,
    /// Go on with what is printed from now.
    #[arg(short, long)]
    pub follow: bool,
    /// How many of the last lines.
    #[arg(short = 'n', long, value_name = "LINES")]
    pub tail: Option<u32>,
    /// Only if something was printed since then: a time such as 2026-01-31T12:00:00Z, or how long
    /// ago, such as 10m. The lines themselves have no times.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["follow", "execution_id"])]
    pub since: Option<String>,
    /// With -f: begin each line with the time at which it came.
    #[arg(short, long, requires = "follow", conflicts_with = "execution_id")]
    pub timestamps: bool,
}
