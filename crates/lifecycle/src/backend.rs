//! What a place that runs sandboxes must be able to do: the trait [`Backend`] and the plain
//! data that crosses it.
//!
//! A backend makes, stops, pauses, copies and reaches sandboxes. It keeps no policy: lifetimes,
//! names, quotas and retries belong to the service above it. It may be killed at any instant and
//! must find everything it made again with [`Backend::list`], from what is on the host or in the
//! engine alone.
//!
//! Every method is safe to call twice. Methods that end something (`delete`, `delete_snapshot`)
//! answer `Ok` for what is already gone.

mod error;
mod inventory;
mod spec;
mod warm;

use std::collections::BTreeMap;
use std::time::Duration;

use api::egress::policy::{EgressPolicy, PolicyMode};
use api::id::{SandboxId, SnapshotId};
use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{broadcast, mpsc};

pub use error::{ConnectError, Error};
pub use inventory::{Archive, Image, ImageUsage, Inventory, NamedVolume, Pruned};
pub use spec::{Limits, Platform, RegistryAuth, Source, Spec, Volume, VolumeSource};
pub use warm::{Claim, WarmPools, WarmSpec};

/// A place that runs sandboxes.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// `embedded`, `docker` or `kubernetes`, for logs and diagnostics.
    fn name(&self) -> &'static str;

    /// What this backend can do on this machine, so that a request it could not honour is
    /// refused before anything is made.
    fn capabilities(&self) -> Capabilities;

    /// How many calls of `create` it can work on at once to advantage. The service never makes
    /// more at a time: the others wait before the call, and their time has not begun.
    fn creations_max(&self) -> usize;

    /// Answers `Ok` only when a sandbox could be made now.
    async fn health(&self) -> Result<(), Error>;

    /// Whether `create` from this source needs no download. Decides if the HTTP answer waits for
    /// the sandbox or says `Pending`.
    async fn is_local(&self, source: &Source, platform: Option<&Platform>) -> bool;

    /// Brings the image here. Many callers for one image share one download. Each caller's
    /// `progress` gets what happens from the moment it joined; a full channel drops reports, it
    /// never slows the download.
    async fn pull(
        &self,
        source: &Source,
        platform: Option<&Platform>,
        progress: mpsc::Sender<PullProgress>,
    ) -> Result<(), Error>;

    /// Makes and starts a sandbox and returns once its control socket accepts connections.
    /// On error nothing of it is left behind. Pulls the image first if it is not local.
    ///
    /// The service drives it to its end in a task of its own, also when its client has gone away, and
    /// deletes what nobody wants any more: a backend needs no task or guard for that. A future that is dropped
    /// half-way (the process ends) leaves what a killed server leaves.
    async fn create(&self, spec: Spec) -> Result<Created, Error>;

    /// Ends a sandbox and removes everything it consisted of. With a grace period its PID 1
    /// first gets a TERM and that long to end. Also removes volumes marked
    /// `delete_with_sandbox` that this sandbox caused to be made.
    async fn delete(&self, id: &SandboxId, grace: Duration) -> Result<(), Error>;

    /// Freezes every process of the sandbox.
    async fn pause(&self, id: &SandboxId) -> Result<(), Error>;

    /// Lets a paused sandbox run on.
    async fn resume(&self, id: &SandboxId) -> Result<(), Error>;

    /// Keeps the sandbox's filesystem under `snapshot`, from which new sandboxes can be made.
    /// The sandbox goes on; it is frozen for the shortest time that makes the copy consistent.
    /// Neither its environment, its labels nor its token become part of the snapshot.
    async fn snapshot(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<SnapshotDetails, Error>;

    /// Removes a snapshot. Fails with [`Error::InUse`] while a sandbox stands on it.
    async fn delete_snapshot(&self, snapshot: &SnapshotId) -> Result<(), Error>;

    /// Snapshots that exist here, whoever made them.
    async fn list_snapshots(&self) -> Result<Vec<SnapshotDetails>, Error>;

    /// Everything this backend has, whoever made it: the truth that reconciliation compares with
    /// the store.
    async fn list(&self) -> Result<Vec<SandboxDetails>, Error>;

    /// One sandbox as it is now.
    async fn inspect(&self, id: &SandboxId) -> Result<SandboxDetails, Error>;

    /// What a sandbox may reach now.
    async fn network_policy(&self, id: &SandboxId) -> Result<EgressPolicy, Error> {
        let _ = id;
        Err(no_network_rules(self.name()))
    }

    /// Replaces what a sandbox may reach, as a whole and at once: until the new policy holds the old one
    /// does, also when this fails. The policy stays with the sandbox when the server is restarted.
    async fn set_network_policy(&self, id: &SandboxId, policy: &EgressPolicy) -> Result<(), Error> {
        let _ = (id, policy);
        Err(no_network_rules(self.name()))
    }

    /// Opens a byte stream to the sandbox's daemon or to a port of it. No lookup outside memory.
    async fn connect(
        &self,
        id: &SandboxId,
        target: Target,
    ) -> Result<Box<dyn Stream>, ConnectError>;

    /// Output of PID 1 and of the entrypoint, oldest first, within the limits asked for.
    async fn logs(&self, id: &SandboxId, query: LogQuery) -> Result<Logs, Error>;

    /// The same as it is written: first the newest lines within the limits asked for, then what
    /// comes, until the sandbox has ended and its last words were given. Nobody need read to the
    /// end.
    async fn follow_logs(
        &self,
        id: &SandboxId,
        query: LogQuery,
    ) -> Result<mpsc::Receiver<String>, Error>;

    /// A human-readable description of the sandbox for diagnostics. Carries no secret.
    async fn describe(&self, id: &SandboxId) -> Result<String, Error>;

    /// State changes that nobody asked for (exits, out-of-memory kills, removals behind our
    /// back). Delivery is best effort: a receiver that lags must call [`Backend::list`].
    fn events(&self) -> broadcast::Receiver<Event>;

    /// The images and volumes it keeps, where it lets operators look after them.
    fn inventory(&self) -> Option<&dyn Inventory> {
        None
    }

    /// The sandboxes that it keeps ready to be claimed, where it can keep any.
    fn warm_pools(&self) -> Option<&dyn WarmPools> {
        None
    }
}

/// The answer of a backend that enforces no rules of a network policy.
fn no_network_rules(backend: &'static str) -> Error {
    Error::Invalid {
        field: "networkPolicy",
        message: format!("the {backend} backend does not enforce rules; allow or deny everything"),
    }
}

/// For a backend that can let a sandbox reach everything outside or nothing, but enforces no rules:
/// whether the policy lets it reach everything. Refuses a policy with rules, which would be worse than
/// none.
pub fn all_or_nothing(backend: &'static str, policy: &EgressPolicy) -> Result<bool, Error> {
    match policy.mode() {
        PolicyMode::AllowAll => Ok(true),
        PolicyMode::DenyAll => Ok(false),
        PolicyMode::Enforcing => Err(no_network_rules(backend)),
    }
}

/// A byte stream to something inside a sandbox.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What a backend can do on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// `pause` and `resume` work.
    pub pause: bool,
    /// Filesystem snapshots work.
    pub snapshot: bool,
    /// A sandbox can be denied everything outside.
    pub network_none: bool,
    /// Rules of a policy about names and addresses are enforced, and a policy can be changed.
    pub network_rules: bool,
    /// `limits.disk_bytes` is enforced.
    pub disk_limit: bool,
    /// `limits.gpus` is honoured.
    pub gpu: bool,
    /// Platforms other than this machine's can be asked for.
    pub foreign_platform: bool,
}

/// What `create` answers.
#[derive(Debug, Clone)]
pub struct Created {
    /// When PID 1 started.
    pub started_at: Timestamp,
    /// The command that PID 1 supervises, resolved from the image where none was given.
    pub entrypoint: Vec<String>,
    /// The image's platform.
    pub platform: Platform,
    /// The digest of the configuration of the image that it stands on, where that has one.
    pub image_digest: Option<String>,
}

/// A sandbox as the backend sees it.
#[derive(Debug, Clone)]
pub struct SandboxDetails {
    /// The id of its [`Spec`].
    pub id: SandboxId,
    /// What PID 1 is doing.
    pub state: ObservedState,
    /// The labels of its [`Spec`].
    pub labels: BTreeMap<String, String>,
    /// When PID 1 started, where known.
    pub started_at: Option<Timestamp>,
}

/// What a sandbox is doing, as the backend sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedState {
    /// Half made: a crash interrupted `create`. Reconciliation deletes it.
    Incomplete,
    /// PID 1 runs.
    Running,
    /// Frozen.
    Paused,
    /// PID 1 has ended.
    Exited(Exit),
}

/// How PID 1 ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The kernel killed it, or a process of it, for memory.
    pub oom_killed: bool,
    /// When it ended, where known.
    pub at: Option<Timestamp>,
}

/// What to connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The daemon's control socket.
    Control,
    /// A TCP port on the sandbox's loopback.
    Port(u16),
}

/// How much of the logs to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogQuery {
    /// At most this many of the last lines.
    pub tail_lines: usize,
    /// Only what was written after this instant, where the backend knows.
    pub since: Option<Timestamp>,
    /// At most this many bytes, cut at the front.
    pub max_bytes: usize,
}

/// Pieces of a log that wait for a reader who follows it and is slow. The sandbox never waits for one: its
/// log is written to a file or by the engine, whoever reads it.
pub const LOG_PIECES: usize = 16;

/// Log text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Logs {
    /// The text; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Something older was left out.
    pub truncated: bool,
}

/// A snapshot as the backend sees it.
#[derive(Debug, Clone)]
pub struct SnapshotDetails {
    /// The id that it was taken under.
    pub id: SnapshotId,
    /// Bytes it adds to what it stands on.
    pub size_bytes: u64,
    /// When it was made.
    pub created_at: Timestamp,
}

/// How a download goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullProgress {
    /// The manifest is known.
    Resolved {
        /// Number of layers.
        layers: usize,
        /// Bytes to download in all.
        total_bytes: u64,
    },
    /// Bytes received so far, over all layers.
    Downloaded {
        /// Of `total_bytes`.
        bytes: u64,
    },
    /// A layer is unpacked.
    Unpacked {
        /// The layer's digest.
        digest: String,
    },
}

/// A change that nobody asked for.
#[derive(Debug, Clone)]
pub enum Event {
    /// PID 1 ended.
    Exited {
        /// The sandbox whose PID 1 it was.
        id: SandboxId,
        /// How PID 1 ended.
        exit: Exit,
    },
    /// A process was killed for memory; the sandbox goes on.
    OutOfMemory {
        /// The sandbox whose limit was reached.
        id: SandboxId,
    },
    /// The sandbox is gone and we did not remove it.
    Vanished {
        /// The sandbox that the backend had before.
        id: SandboxId,
    },
    /// The backend lost its view (engine restarted, events missed): call [`Backend::list`].
    Resync,
}

impl Event {
    /// The sandbox that it is about; `None` where it is about all.
    pub fn sandbox(&self) -> Option<&SandboxId> {
        match self {
            Event::Exited { id, .. } | Event::OutOfMemory { id } | Event::Vanished { id } => {
                Some(id)
            }
            Event::Resync => None,
        }
    }
}
