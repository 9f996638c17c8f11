//! Commands that Docker's users know: `ps`, `stop`, `start`, `rename`, `inspect`, `system`, and
//! what runs in the background for `osb run -d`.

use clap::{Args, Subcommand};

use super::docker::Publish;
use super::sandbox::List;

/// `osb ps`.
#[derive(Debug, Clone, Args)]
pub struct Ps {
    /// Those that have ended, too.
    #[arg(short, long)]
    pub all: bool,
    /// What to list.
    #[command(flatten)]
    pub list: List,
}

/// `osb rename`.
#[derive(Debug, Clone, Args)]
pub struct Rename {
    /// The sandbox: its name, its id, or the beginning of that.
    pub sandbox_id: String,
    /// The name it shall have; '' for none.
    pub name: String,
}

/// `osb inspect`.
#[derive(Debug, Clone, Args)]
pub struct Inspect {
    /// The sandboxes: names, ids, or beginnings of those.
    #[arg(required = true)]
    pub sandbox_ids: Vec<String>,
    /// What to print of each, such as '{{.status.state}}' or '{{json .metadata}}'.
    #[arg(short, long, value_name = "TEMPLATE", conflicts_with = "output")]
    pub format: Option<String>,
}

/// `osb system`.
#[derive(Debug, Subcommand)]
pub enum System {
    /// What sandboxes, images, snapshots and volumes there are, and what they take.
    Df,
    /// Remove sandboxes that have ended, images without a name and layers without an image.
    Prune {
        /// Volumes that no sandbox has mounted, too, with all they hold.
        #[arg(long)]
        volumes: bool,
        /// Do not ask.
        #[arg(short, long)]
        force: bool,
    },
}

/// What stays in the background for `osb run -d`.
#[derive(Debug, Clone, Args)]
pub struct Attend {
    /// The sandbox's id.
    pub sandbox_id: String,
    /// Reach this port while the sandbox runs; repeatable.
    #[arg(long)]
    pub publish: Vec<Publish>,
    /// Remove the sandbox when its main program has ended.
    #[arg(long)]
    pub rm: bool,
}
