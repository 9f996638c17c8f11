//! Images and volumes, settings, skills, and what is made for shells and manuals.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `osb image`.
#[derive(Debug, Args)]
pub struct Image {
    /// Look at the store of this machine that a server's configuration file names, while no server
    /// runs, instead of asking one.
    #[arg(long, global = true, value_name = "PATH")]
    pub server_config: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: ImageCommand,
}

/// `osb image …`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// List images.
    #[command(visible_alias = "list")]
    Ls,
    /// Bring an image here, or its newest state.
    Pull {
        /// The image, such as python:3.11.
        reference: String,
        /// Platform, such as linux/arm64; this machine's otherwise.
        #[arg(long, value_name = "OS/ARCH")]
        platform: Option<String>,
        /// User name for a private registry.
        #[arg(long, value_name = "TEXT")]
        username: Option<String>,
        /// Read the password or token from standard input.
        #[arg(long, requires = "username")]
        password_stdin: bool,
    },
    /// Bring an image here from a file: an OCI layout or archive, `docker save`, or a root filesystem.
    Import {
        /// The file or directory.
        path: PathBuf,
        /// The image's name; those in the archive otherwise.
        reference: Option<String>,
    },
    /// Write an image to a file, as an OCI archive.
    Export {
        /// The image.
        reference: String,
        /// The file.
        path: PathBuf,
    },
    /// Give an image that is here another name, which means exactly this image.
    Tag {
        /// The image, by name or id.
        reference: String,
        /// The name that it is given.
        name: String,
    },
    /// Take names from images; what nobody uses goes with `osb image prune`.
    Rm {
        /// The images, by name or id.
        #[arg(required = true)]
        references: Vec<String>,
    },
    /// Remove images without a name and layers without an image.
    Prune,
}

/// `osb volume`.
#[derive(Debug, Args)]
pub struct Volume {
    /// Look at the store of this machine that a server's configuration file names, while no server
    /// runs, instead of asking one.
    #[arg(long, global = true, value_name = "PATH")]
    pub server_config: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: VolumeCommand,
}

/// `osb volume …`.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// List volumes.
    #[command(visible_alias = "list")]
    Ls,
    /// Make volumes; a sandbox that names one that is not there makes it as well.
    Create {
        /// The volumes.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Remove volumes with all they hold.
    Rm {
        /// The volumes.
        #[arg(required = true)]
        names: Vec<String>,
        /// Also while sandboxes use them.
        #[arg(short, long)]
        force: bool,
    },
}

/// `osb config`.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Write a commented configuration file.
    Init {
        /// Replace the one that is there.
        #[arg(long)]
        force: bool,
    },
    /// Show the settings that hold.
    Show,
    /// Change a setting, such as connection.domain localhost:9090.
    Set {
        /// Section and field, with a dot between.
        key: String,
        /// The value.
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
}

/// `osb skills`.
#[derive(Debug, Subcommand)]
pub enum Skills {
    /// List skills, the tools they can be installed for, and where they are.
    List,
    /// Show a skill.
    Show {
        /// The skill to show.
        #[arg(value_enum, ignore_case = true)]
        skill_name: Skill,
    },
    /// Install skills for an AI tool.
    Install {
        /// The skill to install.
        #[arg(value_enum, ignore_case = true)]
        skill_name: Option<Skill>,
        /// All of them.
        #[arg(long, conflicts_with = "skill_name")]
        all_builtins: bool,
        /// The AI tool.
        #[arg(short, long, value_enum, ignore_case = true)]
        target: Tool,
        /// For this project, or for all of them.
        #[arg(long, value_enum, ignore_case = true)]
        scope: Scope,
        /// Changes nothing: installing never asks and may be repeated.
        #[arg(short, long)]
        force: bool,
    },
    /// Remove a skill from an AI tool.
    Uninstall {
        /// The skill to remove.
        #[arg(value_enum, ignore_case = true, default_value_t = Skill::SandboxTroubleshooting)]
        skill_name: Skill,
        /// The AI tool.
        #[arg(short, long, value_enum, ignore_case = true)]
        target: Tool,
        /// From this project, or from all of them.
        #[arg(long, value_enum, ignore_case = true)]
        scope: Scope,
    },
}

/// The skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Skill {
    /// What to do about a sandbox that does not work.
    SandboxTroubleshooting,
    /// Making, keeping and ending sandboxes.
    SandboxLifecycle,
    /// Running commands.
    CommandExecution,
    /// Working with files.
    FileOperations,
    /// What a sandbox may reach.
    NetworkEgress,
    /// Credentials on the way out.
    CredentialVault,
}

/// AI tools that skills can be installed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Tool {
    /// Claude Code.
    Claude,
    /// Cursor.
    Cursor,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// GitHub Copilot.
    Copilot,
    /// Windsurf.
    Windsurf,
    /// Cline.
    Cline,
    /// OpenCode.
    OpenCode,
    /// All of them.
    All,
}

/// How far an installed skill reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    /// The current directory.
    Project,
    /// The home directory.
    Global,
}

/// `osb bench`.
#[derive(Debug, Clone, Args)]
pub struct Bench {
    /// Image of the sandboxes.
    #[arg(long, default_value = "host")]
    pub image: String,
    /// How many sandboxes are made.
    #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub count: u32,
    /// How many at once.
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub concurrency: u32,
}

/// `osb completions`.
#[derive(Debug, Clone, Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `osb complete`.
#[derive(Debug, Clone, Copy, Args)]
pub struct Complete {
    /// Of what.
    #[arg(value_enum)]
    pub kind: Kind,
}

/// What the server knows names and ids of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Sandboxes.
    Sandboxes,
    /// Snapshots.
    Snapshots,
    /// Images.
    Images,
    /// Volumes.
    Volumes,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Sandboxes,
        Self::Snapshots,
        Self::Images,
        Self::Volumes,
    ];

    /// As it is written on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sandboxes => "sandboxes",
            Self::Snapshots => "snapshots",
            Self::Images => "images",
            Self::Volumes => "volumes",
        }
    }
}

/// `osb man`.
#[derive(Debug, Clone, Args)]
pub struct Man {
    /// The command, such as `sandbox create`; osb itself otherwise.
    pub command: Vec<String>,
    /// Write the pages of all commands to this directory.
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    pub directory: Option<PathBuf>,
}
