//! The nouns of the control plane: a sandbox and a snapshot as clients see them, and what it
//! takes to ask for one.
//!
//! Plain data. How a sandbox changes is in `machine`; how it is kept is in `store`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use api::egress::policy::EgressPolicy;
use api::id::{SandboxId, SnapshotId};
use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::backend::{Exit, Limits, Platform, Source};
use crate::caller::Tenant;

/// What a client asks for. Already checked against the contract (`api`); the service checks it
/// against the rules and what the backend can do (`admission`).
#[derive(Debug, Clone)]
pub struct CreateRequest {
    /// What the filesystem starts as.
    pub source: Source,
    /// The platform asked for; `None` is the machine's own.
    pub platform: Option<Platform>,
    /// How long it lives from the moment it is ready; `None` is until somebody deletes it.
    pub timeout: Option<Duration>,
    /// The command PID 1 supervises; `None` is the image's own.
    pub entrypoint: Option<Vec<String>>,
    /// Environment of the entrypoint and of every command.
    pub env: BTreeMap<String, String>,
    /// The client's own labels, for filters.
    pub metadata: BTreeMap<String, String>,
    /// Extension values that are echoed back to the client.
    pub extensions: BTreeMap<String, String>,
    /// How much processor, memory, disk and so on it may use.
    pub limits: Limits,
    /// The mounts asked for.
    pub volumes: Vec<VolumeRequest>,
    /// What it may reach.
    pub network: EgressPolicy,
    /// Its idle timeout: each access through the proxy keeps it alive at least this long.
    pub renew_on_access: Option<Duration>,
    /// Whether access to its ports always needs a token or a signature, also where the operator lets
    /// others be reached without. Its endpoints name the header of secure access as well.
    pub secure_access: bool,
}

impl CreateRequest {
    /// A request for an image with every other choice left to the defaults.
    pub fn from_image(reference: impl Into<String>) -> CreateRequest {
        CreateRequest {
            source: Source::Image {
                reference: reference.into(),
                auth: None,
            },
            platform: None,
            timeout: None,
            entrypoint: None,
            env: BTreeMap::new(),
            metadata: BTreeMap::new(),
            extensions: BTreeMap::new(),
            limits: Limits::default(),
            volumes: Vec::new(),
            network: EgressPolicy::ALLOW_ALL,
            renew_on_access: None,
            secure_access: false,
        }
    }
}

/// A mount that a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRequest {
    /// Unique within the sandbox.
    pub name: String,
    /// The directory or volume that is mounted.
    pub source: VolumeRequestSource,
    /// Absolute path inside the sandbox.
    pub mount_path: String,
    /// Mount read-only.
    pub read_only: bool,
    /// Relative path inside the volume to mount instead of its root.
    pub sub_path: Option<String>,
}

/// What a client asks to have mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeRequestSource {
    /// An absolute path on the host.
    HostPath(String),
    /// A named volume of the backend.
    Named {
        /// The volume's name.
        claim: String,
        /// Make it when it does not exist.
        create: bool,
        /// Remove it with the sandbox, if this request made it.
        delete_with_sandbox: bool,
        /// Size asked for on creation; `None` is the operator's default.
        size_bytes: Option<u64>,
        /// The class of storage to make it from.
        storage_class: Option<String>,
    },
    /// A bucket of an object store.
    ObjectStore,
}

/// A sandbox as it is now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sandbox {
    /// Minted by the service.
    pub id: SandboxId,
    /// The tenant whose callers see it.
    #[serde(default)]
    pub tenant: Tenant,
    /// What its filesystem started as.
    pub origin: Origin,
    /// The digest of the image's configuration, once it is known: what a tag or an alias meant then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<String>,
    /// The platform asked for, or the image's once it is known.
    pub platform: Option<Platform>,
    /// The command PID 1 supervises, once it is known.
    pub entrypoint: Option<Vec<String>>,
    /// The client's own labels.
    pub metadata: BTreeMap<String, String>,
    /// Extension values echoed back.
    pub extensions: BTreeMap<String, String>,
    /// What it is doing, and why.
    pub status: Status,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When PID 1 started, once it has.
    pub started_at: Option<Timestamp>,
    /// The lifetime asked for; `None` is manual clean-up.
    pub timeout: Option<Duration>,
    /// When it will be deleted; `None` is manual clean-up. Until it is ready this is the
    /// promise `created_at + timeout`, which can only move later.
    pub expires_at: Option<Timestamp>,
    /// Its idle timeout: each access through the proxy keeps it alive at least this long.
    pub renew_on_access: Option<Duration>,
    /// Whether access to its ports always needs a token or a signature. Its endpoints name the header of secure
    /// access as well.
    #[serde(default)]
    pub secure_access: bool,
    /// How PID 1 ended, once it has.
    pub exit: Option<Exit>,
    /// What its daemon and the proxy ask for in `X-EXECD-ACCESS-TOKEN`.
    #[serde(with = "secret_text")]
    pub access_token: SecretString,
    /// What lets its holder read and change what the sandbox may reach. Nothing in the sandbox knows it. Records
    /// of earlier servers have none, and get one for as long as the server runs.
    #[serde(with = "secret_text", default = "new_token")]
    pub egress_token: SecretString,
}

/// 256 bits that nobody can guess.
pub(crate) fn new_token() -> SecretString {
    SecretString::from(hex::encode(rand::random::<[u8; 32]>()))
}

/// What a sandbox's filesystem started as, without credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// An image, as the client wrote it.
    Image(String),
    /// A snapshot.
    Snapshot(SnapshotId),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Image(reference) => f.write_str(reference),
            Origin::Snapshot(id) => write!(f, "snapshot {id}"),
        }
    }
}

/// What a sandbox is doing, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The state clients see.
    pub state: State,
    /// A short code for programs.
    pub reason: Reason,
    /// A sentence for people.
    pub message: String,
    /// When `state` last changed.
    pub last_transition_at: Timestamp,
}

impl Status {
    /// The sentence that says why a sandbox has ended, where it has.
    pub(crate) fn why_ended(&self) -> Option<String> {
        self.state.has_ended().then(|| self.message.clone())
    }
}

/// The states of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    /// Asked for, not yet ready: its image is being pulled or it is starting.
    Pending,
    /// Ready.
    Running,
    /// Being frozen.
    Pausing,
    /// Frozen.
    Paused,
    /// Being thawed.
    Resuming,
    /// Being deleted.
    Stopping,
    /// Its entrypoint ended well. Kept until it expires or is deleted.
    Terminated,
    /// It could not be made, ended badly, or is gone. Kept until it expires or is deleted.
    Failed,
}

impl State {
    /// Every state, in the order of the contract.
    pub const ALL: [State; 8] = [
        State::Pending,
        State::Running,
        State::Pausing,
        State::Paused,
        State::Resuming,
        State::Stopping,
        State::Terminated,
        State::Failed,
    ];

    /// As it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Pending => "Pending",
            State::Running => "Running",
            State::Pausing => "Pausing",
            State::Paused => "Paused",
            State::Resuming => "Resuming",
            State::Stopping => "Stopping",
            State::Terminated => "Terminated",
            State::Failed => "Failed",
        }
    }

    /// It has ended by itself; only deletion is left.
    pub fn has_ended(self) -> bool {
        matches!(self, State::Terminated | State::Failed)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a sandbox state")]
pub struct ParseStateError(String);

impl FromStr for State {
    type Err = ParseStateError;

    /// Upper and lower case are alike, as in the reference's filters.
    fn from_str(text: &str) -> Result<State, ParseStateError> {
        State::ALL
            .into_iter()
            .find(|state| state.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| ParseStateError(text.to_owned()))
    }
}

/// Why a sandbox is in its state: the codes clients and scripts compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    /// The image is being pulled.
    ImagePulling,
    /// It is being made.
    ContainerStarting,
    /// It runs.
    ContainerRunning,
    /// It is being frozen.
    ContainerPausing,
    /// It is frozen.
    ContainerPaused,
    /// It is being thawed.
    ContainerResuming,
    /// Somebody deleted it.
    ContainerDeleting,
    /// Its lifetime is over and it is being deleted.
    SandboxExpired,
    /// The entrypoint ended with code 0.
    ContainerExited,
    /// The entrypoint ended with another code or by a signal.
    ContainerExitedError,
    /// The kernel killed the entrypoint for memory.
    ContainerOomKilled,
    /// It disappeared from the backend behind our back.
    ContainerVanished,
    /// The image could not be pulled.
    ImagePullFailed,
    /// The sandbox could not be made.
    ContainerStartFailed,
}

impl Reason {
    /// As it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::ImagePulling => "IMAGE_PULLING",
            Reason::ContainerStarting => "CONTAINER_STARTING",
            Reason::ContainerRunning => "CONTAINER_RUNNING",
            Reason::ContainerPausing => "CONTAINER_PAUSING",
            Reason::ContainerPaused => "CONTAINER_PAUSED",
            Reason::ContainerResuming => "CONTAINER_RESUMING",
            Reason::ContainerDeleting => "CONTAINER_DELETING",
            Reason::SandboxExpired => "SANDBOX_EXPIRED",
            Reason::ContainerExited => "CONTAINER_EXITED",
            Reason::ContainerExitedError => "CONTAINER_EXITED_ERROR",
            Reason::ContainerOomKilled => "CONTAINER_OOM_KILLED",
            Reason::ContainerVanished => "CONTAINER_VANISHED",
            Reason::ImagePullFailed => "IMAGE_PULL_FAILED",
            Reason::ContainerStartFailed => "CONTAINER_START_FAILED",
        }
    }
}

/// A snapshot of a sandbox's filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Minted by the service.
    pub id: SnapshotId,
    /// The tenant whose callers see it.
    #[serde(default)]
    pub tenant: Tenant,
    /// The sandbox it was taken of, which may be gone by now.
    pub sandbox_id: SandboxId,
    /// The client's name for it.
    pub name: Option<String>,
    /// Whether it can be used.
    pub state: SnapshotState,
    /// A short code for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// When `state` last changed.
    pub last_transition_at: Timestamp,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// Bytes it adds, once it is ready.
    pub size_bytes: Option<u64>,
}

/// The states of a snapshot, as the contract spells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SnapshotState {
    /// Being made.
    Creating,
    /// Sandboxes can be made from it.
    Ready,
    /// It could not be made.
    Failed,
    /// Being removed.
    Deleting,
}

impl SnapshotState {
    /// As it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            SnapshotState::Creating => "Creating",
            SnapshotState::Ready => "Ready",
            SnapshotState::Failed => "Failed",
            SnapshotState::Deleting => "Deleting",
        }
    }
}

/// Which sandboxes a listing holds: all conditions must hold, any of `states` will do.
#[derive(Debug, Clone, Default)]
pub struct SandboxFilter {
    /// Any of these; empty is any at all.
    pub states: Vec<State>,
    /// Each of these pairs exactly.
    pub metadata: BTreeMap<String, String>,
}

/// Which snapshots a listing holds.
#[derive(Debug, Clone, Default)]
pub struct SnapshotFilter {
    /// Taken of this sandbox.
    pub sandbox_id: Option<SandboxId>,
    /// With exactly this name.
    pub name: Option<String>,
    /// Any of these; empty is any at all.
    pub states: Vec<SnapshotState>,
}

/// One page of a listing, newest first.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// What is on the page.
    pub items: Vec<T>,
    /// The page's number, from 1.
    pub page: u32,
    /// How many a page holds.
    pub page_size: u32,
    /// How many there are on all pages.
    pub total_items: u64,
}

impl<T> Page<T> {
    /// How many pages there are; none when there is nothing.
    pub fn total_pages(&self) -> u64 {
        self.total_items.div_ceil(u64::from(self.page_size.max(1)))
    }

    /// Whether there is one after this.
    pub fn has_next_page(&self) -> bool {
        u64::from(self.page) < self.total_pages()
    }

    /// Cuts a page out of everything that matches, already in order.
    pub(crate) fn cut(all: Vec<T>, page: u32, page_size: u32) -> Page<T> {
        let (page, page_size) = (page.max(1), page_size.max(1));
        let total_items = all.len() as u64;
        let skip = u64::from(page - 1) * u64::from(page_size);
        let items = all
            .into_iter()
            .skip(usize::try_from(skip).unwrap_or(usize::MAX))
            .take(page_size as usize)
            .collect();
        Page {
            items,
            page,
            page_size,
            total_items,
        }
    }
}

/// Writes a secret where it must be kept: in the store, which only the server can read.
pub(crate) mod secret_text {
    use secrecy::{ExposeSecret, SecretString};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        secret: &SecretString,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(secret.expose_secret())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<SecretString, D::Error> {
        Ok(SecretString::from(String::deserialize(from)?))
    }
}
