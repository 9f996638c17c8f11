//! Commands about whole sandboxes, snapshots and templates.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::Pair;
use crate::duration;

/// `osb sandbox`.
#[derive(Debug, Subcommand)]
pub enum Sandbox {
    /// Make a sandbox from an image, a template, a snapshot, or a request file.
    Create(Box<Create>),
    /// List sandboxes.
    List(List),
    /// Show a sandbox.
    Get(Id),
    /// Kill one or more sandboxes.
    Kill(Ids),
    /// Pause a running sandbox.
    Pause(Id),
    /// Resume a paused sandbox.
    Resume(Resume),
    /// Let a sandbox live longer.
    Renew(Renew),
    /// Where a port of a sandbox is reached.
    Endpoint(Endpoint),
    /// Whether a sandbox answers.
    Health(Id),
    /// What a sandbox uses.
    Metrics(Metrics),
}

/// What a new sandbox is like.
#[derive(Debug, Clone, Default, Args)]
pub struct Create {
    /// Image, such as python:3.11; the configured default when there is one.
    #[arg(short, long, value_name = "TEXT")]
    pub image: Option<String>,
    /// User name for a private image's registry.
    #[arg(long, value_name = "TEXT")]
    pub image_auth_username: Option<String>,
    /// Password or token for a private image's registry.
    #[arg(long, value_name = "TEXT")]
    pub image_auth_password: Option<String>,
    /// Template (tpl_…) to start from, instead of an image or a snapshot.
    #[arg(long, value_name = "TEXT")]
    pub template: Option<String>,
    /// Snapshot to start from, instead of an image or a template.
    #[arg(long, value_name = "TEXT")]
    pub snapshot_id: Option<String>,
    /// File with a whole request as JSON, in the protocol's names; the only source then.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Lifetime such as 10m or 1h; 'none' lives until it is killed.
    #[arg(short, long, value_name = "TEXT")]
    pub timeout: Option<String>,
    /// Environment variable; repeatable.
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub env: Vec<Pair>,
    /// Label; repeatable.
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub metadata: Vec<Pair>,
    /// A name that no other sandbox has.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Further setting; repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    pub extension: Vec<Pair>,
    /// Limit, such as cpu=1 or memory=2Gi; repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    pub resource: Vec<Pair>,
    /// One word of the entrypoint; repeat for the whole of it.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub entrypoint: Vec<String>,
    /// JSON file with a network policy.
    #[arg(long, value_name = "PATH")]
    pub network_policy_file: Option<PathBuf>,
    /// Put credentials into requests on their way out; needs --network-policy-file.
    #[arg(long)]
    pub credential_proxy: bool,
    /// JSON file with a list of volumes.
    #[arg(long, value_name = "PATH")]
    pub volumes_file: Option<PathBuf>,
    /// Do not wait until the sandbox answers.
    #[arg(long)]
    pub skip_health_check: bool,
    /// How long to wait until it answers, such as 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub ready_timeout: Option<Duration>,
    /// What `osb run` mounts.
    #[arg(skip)]
    pub mounts: Vec<api::volume::Volume>,
    /// What `osb run` lets it reach.
    #[arg(skip)]
    pub network_policy: Option<api::network_policy::NetworkPolicy>,
    /// The platform that `osb run` names: operating system and processor.
    #[arg(skip)]
    pub platform: Option<(String, String)>,
}

/// `osb sandbox list`, `osb ls`.
#[derive(Debug, Clone, Args)]
pub struct List {
    /// Only in this state (Pending, Running, Paused, …); repeatable.
    #[arg(short, long, value_name = "TEXT")]
    pub state: Vec<String>,
    /// Only with this label; repeatable.
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub metadata: Vec<Pair>,
    /// Page, from 1.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub page: Option<u32>,
    /// Sandboxes a page.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub page_size: Option<u32>,
    /// Show changes as they happen, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Ids only.
    #[arg(short, long, conflicts_with_all = ["format", "output"])]
    pub quiet: bool,
    /// Whole ids and times.
    #[arg(long)]
    pub no_trunc: bool,
    /// Only what this says: name=PART, status=STATE, label=KEY=VALUE, ancestor=IMAGE; repeatable.
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub filter: Vec<Pair>,
    /// What to print of each, such as '{{.ID}} {{.Name}}' or '{{json .}}'.
    #[arg(long, value_name = "TEMPLATE", conflicts_with_all = ["output", "watch"])]
    pub format: Option<String>,
}

/// `osb rm`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Sandboxes are named one by one, or by what they have in common: --all, --state, \
                  --metadata."
)]
pub struct Remove {
    /// The sandboxes: names, ids, or beginnings of those.
    #[arg(required_unless_present_any = ["all", "state", "metadata"])]
    pub sandbox_ids: Vec<String>,
    /// All sandboxes.
    #[arg(short, long, conflicts_with_all = ["sandbox_ids", "state", "metadata"])]
    pub all: bool,
    /// Those in this state; repeatable.
    #[arg(short, long, value_name = "TEXT", conflicts_with = "sandbox_ids")]
    pub state: Vec<String>,
    /// Those with this label; repeatable.
    #[arg(short, long, value_name = "KEY=VALUE", conflicts_with = "sandbox_ids")]
    pub metadata: Vec<Pair>,
    /// Those that are not there are no error.
    #[arg(short, long)]
    pub force: bool,
}

/// A sandbox.
#[derive(Debug, Clone, Args)]
pub struct Id {
    /// The sandbox: its name, its id, or the beginning of that.
    pub sandbox_id: String,
}

/// Sandboxes.
#[derive(Debug, Clone, Args)]
pub struct Ids {
    /// The sandboxes: names, ids, or beginnings of those.
    #[arg(required = true)]
    pub sandbox_ids: Vec<String>,
}

/// `osb sandbox resume`.
#[derive(Debug, Clone, Args)]
pub struct Resume {
    /// The sandbox: its name, its id, or the beginning of that.
    pub sandbox_id: String,
    /// Do not wait until it answers.
    #[arg(long)]
    pub skip_health_check: bool,
    /// How long to wait until it answers, such as 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub resume_timeout: Option<Duration>,
}

/// `osb sandbox renew`.
#[derive(Debug, Clone, Args)]
pub struct Renew {
    /// The sandbox: its name, its id, or the beginning of that.
    pub sandbox_id: String,
    /// How long from now, such as 30m or 2h.
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub timeout: Duration,
}

/// `osb sandbox endpoint`.
#[derive(Debug, Clone, Args)]
pub struct Endpoint {
    /// The sandbox: its name, its id, or the beginning of that.
    pub sandbox_id: String,
    /// The port inside.
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
}

/// `osb sandbox metrics`.
#[derive(Debug, Clone, Args)]
pub struct Metrics {
    /// The sandbox: its name, its id, or the beginning of that.
    pub sandbox_id: String,
    /// Go on showing, each second.
    #[arg(long)]
    pub watch: bool,
}

/// `osb stats`, `osb top`.
#[derive(Debug, Clone, Args)]
pub struct Stats {
    /// Sandboxes; all that run when none is named.
    pub sandbox_ids: Vec<String>,
    /// Show once and end.
    #[arg(long)]
    pub no_stream: bool,
}

/// `osb events`.
#[derive(Debug, Clone, Args)]
pub struct Events {
    /// Go on with what happens from now.
    #[arg(short, long)]
    pub follow: bool,
    /// Only of this sandbox.
    #[arg(long, value_name = "ID")]
    pub sandbox_id: Option<String>,
    /// With -f: also events after this number, as far back as the server remembers.
    #[arg(long, value_name = "NUMBER", requires = "follow")]
    pub after: Option<u64>,
    /// Without -f: how many of the newest entries of the record.
    #[arg(short = 'n', long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub limit: u64,
}

/// `osb snapshot`.
#[derive(Debug, Subcommand)]
pub enum Snapshot {
    /// Make a snapshot of a sandbox.
    Create {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// A name.
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
        /// Wait until it can be used.
        #[arg(long)]
        wait: bool,
    },
    /// Show a snapshot.
    Get {
        /// The snapshot's id.
        snapshot_id: String,
    },
    /// List snapshots.
    List {
        /// Only of this sandbox.
        #[arg(long, value_name = "TEXT")]
        sandbox_id: Option<String>,
        /// Only with this name.
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
        /// Only in this state; repeatable.
        #[arg(long, value_name = "TEXT")]
        state: Vec<String>,
        /// Page, from 1.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        page: Option<u32>,
        /// Snapshots a page.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        page_size: Option<u32>,
    },
    /// Delete a snapshot.
    Delete {
        /// The snapshot's id.
        snapshot_id: String,
    },
}

/// `osb template`.
#[derive(Debug, Subcommand)]
pub enum Template {
    /// Make a template and begin to build it.
    Create(Box<TemplateCreate>),
    /// Show a template and how its build stands.
    Get {
        /// The template's id.
        template_id: String,
    },
    /// List templates.
    List {
        /// Only with this label; repeatable.
        #[arg(short, long, value_name = "KEY=VALUE")]
        metadata: Vec<Pair>,
        /// Page, from 1.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        page: Option<u32>,
        /// Templates a page.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        page_size: Option<u32>,
    },
    /// Delete a template; sandboxes made from it run on.
    Delete {
        /// The template's id.
        template_id: String,
    },
}

/// `osb template create`.
#[derive(Debug, Clone, Args)]
pub struct TemplateCreate {
    /// Image it is built from; required without --file.
    #[arg(short, long, value_name = "TEXT")]
    pub image: Option<String>,
    /// Where it is published, such as s3://bucket/publish; required without --file.
    #[arg(short, long, value_name = "TEXT")]
    pub publish: Option<String>,
    /// File with a whole request as JSON, in the protocol's names; the only source then.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Size of the machine, such as cpu=1, memory=512Mi or disk=2Gi; repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    pub resource: Vec<Pair>,
    /// One word of the command inside; repeat for the whole of it.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub entrypoint: Vec<String>,
    /// Environment variable that is built in; repeatable.
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub env: Vec<Pair>,
    /// Label; repeatable.
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub metadata: Vec<Pair>,
    /// How it is stored; the server's default otherwise.
    #[arg(long, value_parser = ["native", "overlaybd"])]
    pub format: Option<String>,
    /// What says that it is ready, such as tcp://127.0.0.1:44772 or cmd://COMMAND.
    #[arg(long, value_name = "TEXT")]
    pub readiness_probe: Option<String>,
    /// Seconds to wait where there is no probe.
    #[arg(long, value_name = "SECONDS")]
    pub warmup_seconds: Option<u32>,
}
