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

mod inventory;

use std::collections::BTreeMap;
use std::time::Duration;

use api::id::{SandboxId, SnapshotId};
use async_trait::async_trait;
use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{broadcast, mpsc};

pub use inventory::{Archive, Image, ImageUsage, Inventory, NamedVolume, Pruned};

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
    async fn list(&self) -> Result<Vec<Observed>, Error>;

    /// One sandbox as it is now.
    async fn inspect(&self, id: &SandboxId) -> Result<Observed, Error>;

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
    /// [`Network::None`] works.
    pub network_none: bool,
    /// `limits.disk_bytes` is enforced.
    pub disk_limit: bool,
    /// `limits.gpus` is honoured.
    pub gpu: bool,
    /// Platforms other than this machine's can be asked for.
    pub foreign_platform: bool,
}

/// Everything needed to make one sandbox.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The sandbox's id, minted by the service.
    pub id: SandboxId,
    /// What its filesystem starts as.
    pub source: Source,
    /// The platform asked for; `None` is this machine's.
    pub platform: Option<Platform>,
    /// The command that PID 1 supervises; `None` is the image's own, or a wait for ever where
    /// the image has none.
    pub entrypoint: Option<Vec<String>>,
    /// Environment of the entrypoint and of every command, over the image's own.
    pub env: BTreeMap<String, String>,
    /// What it may use.
    pub limits: Limits,
    /// What is mounted into it.
    pub volumes: Vec<Volume>,
    /// What it may reach.
    pub network: Network,
    /// The token its daemon asks for in `X-EXECD-ACCESS-TOKEN`.
    pub access_token: SecretString,
    /// Opaque to the backend, kept with the sandbox and returned in [`Observed::labels`], so
    /// that a server that lost its store can adopt the sandbox.
    pub labels: BTreeMap<String, String>,
}

/// What a sandbox's filesystem starts as.
#[derive(Debug, Clone)]
pub enum Source {
    /// An image by reference, or the name `host`.
    Image {
        /// As the user wrote it, for example `python:3.11`.
        reference: String,
        /// For a private registry.
        auth: Option<RegistryAuth>,
    },
    /// A snapshot made by this backend.
    Snapshot(SnapshotId),
}

/// Credentials for a private registry.
#[derive(Debug, Clone)]
pub struct RegistryAuth {
    /// User name.
    pub username: String,
    /// Password or token.
    pub password: SecretString,
}

/// Operating system and processor, in Go's names (`linux`, `amd64`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// Operating system.
    pub os: String,
    /// Processor architecture.
    pub arch: String,
}

/// What a sandbox may use; `None` is the backend's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Thousandths of a processor.
    pub cpu_millis: Option<u64>,
    /// Memory, swap included.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Open files per process.
    pub open_files: Option<u64>,
    /// Size of the writable layer.
    pub disk_bytes: Option<u64>,
    /// Number of GPUs; `u64::MAX` is all of them.
    pub gpus: Option<u64>,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Unique within the sandbox.
    pub name: String,
    /// What is mounted.
    pub source: VolumeSource,
    /// Absolute path inside the sandbox.
    pub mount_path: String,
    /// Mount read-only.
    pub read_only: bool,
    /// Relative path inside the volume to mount instead of its root. Must never lead outside it.
    pub sub_path: Option<String>,
}

/// What a volume is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeSource {
    /// A path on the host. The service has checked it against the allow-list; the backend must
    /// resolve it without being led elsewhere by links.
    HostPath {
        /// Absolute path.
        path: String,
        /// The allow-list entry that admits it: resolution must not leave this directory.
        allowed_root: String,
    },
    /// A named volume of the backend.
    Named {
        /// Its name.
        claim: String,
        /// Make it when it does not exist.
        create: bool,
        /// Remove it with the sandbox, if this request made it.
        delete_with_sandbox: bool,
        /// Size asked for on creation, where the backend can enforce one.
        size_bytes: Option<u64>,
    },
}

/// What a sandbox may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// The outside through NAT; not other sandboxes, the host's services or link-local addresses.
    Outside,
    /// Nothing but its own loopback.
    None,
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
}

/// A sandbox as the backend sees it.
#[derive(Debug, Clone)]
pub struct Observed {
    /// Its id.
    pub id: SandboxId,
    /// What it is doing.
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
    /// When, where known.
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

/// Pieces of a log that wait for whoever follows it; a sandbox never waits for a reader, since its
/// log is kept beside.
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
    /// Its id.
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
        /// Bytes so far.
        bytes: u64,
    },
    /// A layer is unpacked.
    Unpacked {
        /// Its digest.
        digest: String,
    },
}

/// A change that nobody asked for.
#[derive(Debug, Clone)]
pub enum Event {
    /// PID 1 ended.
    Exited {
        /// Whose.
        id: SandboxId,
        /// How.
        exit: Exit,
    },
    /// A process was killed for memory; the sandbox goes on.
    OutOfMemory {
        /// Where.
        id: SandboxId,
    },
    /// The sandbox is gone and we did not remove it.
    Vanished {
        /// Which.
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

/// Why a connection could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No such sandbox here.
    #[error("there is no sandbox {0}")]
    NotFound(SandboxId),
    /// It is paused; resume it first.
    #[error("the sandbox is paused")]
    Paused,
    /// It has ended.
    #[error("the sandbox has ended")]
    Ended,
    /// Nothing listens on that port.
    #[error("nothing listens on port {0} inside the sandbox")]
    NotListening(u16),
    /// The connection failed for another reason.
    #[error("could not connect into the sandbox: {0}")]
    Failed(String),
}

/// Why a backend call failed. The service maps each variant to a wire code in one place.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such sandbox.
    #[error("there is no sandbox {0}")]
    NotFound(SandboxId),
    /// No such snapshot.
    #[error("there is no snapshot {0}")]
    SnapshotNotFound(SnapshotId),
    /// The sandbox is in a state that does not allow this.
    #[error("the sandbox is {state}; it must be {wanted}")]
    WrongState {
        /// What it is.
        state: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// Something still stands on it.
    #[error("{what} is in use by {by}")]
    InUse {
        /// What.
        what: String,
        /// By whom.
        by: String,
    },
    /// The request names something this backend cannot do or the kernel refuses.
    #[error("{field}: {message}")]
    Invalid {
        /// The request's field.
        field: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
    /// No such named volume.
    #[error("there is no volume {0}")]
    VolumeNotFound(String),
    /// What was given as an image is none, or a damaged one.
    #[error("the archive is not a usable image: {0}")]
    ImageInvalid(String),
    /// The image does not exist.
    #[error("image {reference} was not found: {message}")]
    ImageNotFound {
        /// As the user wrote it.
        reference: String,
        /// Where was looked.
        message: String,
    },
    /// The registry refused the credentials, or wants some.
    #[error("the registry refused access to image {reference}: {message}")]
    ImageUnauthorized {
        /// As the user wrote it.
        reference: String,
        /// What the registry said.
        message: String,
    },
    /// The image could not be fetched or unpacked.
    #[error("image {reference} could not be pulled: {message}")]
    ImagePull {
        /// As the user wrote it.
        reference: String,
        /// What failed.
        message: String,
        /// Trying again may help.
        is_transient: bool,
    },
    /// PID 1 or the entrypoint did not start.
    #[error("the sandbox did not start: {message}")]
    Start {
        /// What failed and what to do.
        message: String,
    },
    /// The machine has run out of something.
    #[error("out of {what}: {message}")]
    Exhausted {
        /// Of what: disk, memory, pids, network slots.
        what: &'static str,
        /// What to do.
        message: String,
    },
    /// The backend itself does not work now.
    #[error("the {backend} backend is not available: {message}")]
    Unavailable {
        /// Which.
        backend: &'static str,
        /// Why and what to do.
        message: String,
    },
    /// A call of the operating system or engine failed where none should.
    #[error("{action} failed")]
    Io {
        /// What was being done, with the path or id.
        action: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A bug or a damaged state directory.
    #[error("{0}")]
    Internal(String),
}
