//! Isolated execution: sessions inside a sandbox that see a narrower world.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::deserialize::null_as_default;

/// Answers the byte offset to read the logs of a run from next.
pub const LOGS_CURSOR_HEADER: &str = "EXECD-ISOLATED-TAIL-CURSOR";

/// A session has at most this many overlays.
pub const OVERLAYS_MAX: usize = 16;

/// How much of the sandbox a session shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// As little as works.
    Strict,
    /// What most programs need.
    Balanced,
}

/// How a directory is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OverlayMode {
    /// Writes go through.
    Rw,
    /// Writes stay in the session.
    Overlay,
    /// No writes.
    Ro,
}

/// A directory of the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Workspace {
    /// Absolute path.
    pub path: String,
    /// How it is seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<OverlayMode>,
}

/// A directory of the session, in the newer form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Overlay {
    /// Absolute path, unique in the session.
    pub path: String,
    /// How it is seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<OverlayMode>,
    /// Keep what was written when the session ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persist: Option<bool>,
}

/// A path shown at another place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bind {
    /// What.
    pub source: String,
    /// Where; nothing is the same path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dest: Option<String>,
    /// No writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
}

/// Which variables a session sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnvPassthrough {
    /// Whether the keys are let in or kept out.
    pub mode: EnvPassthroughMode,
    /// Names or globs.
    #[serde(default, deserialize_with = "null_as_default")]
    pub keys: Vec<String>,
}

/// Whether the keys are let in or kept out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EnvPassthroughMode {
    /// Only these.
    Allow,
    /// All but these.
    Deny,
}

/// How a session changes its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UidMode {
    /// By changing credentials.
    Setpriv,
    /// By a user namespace.
    Userns,
}

/// `POST /v1/isolated/session`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateIsolatedSessionRequest {
    /// How much of the sandbox it shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// One directory, in the older form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
    /// Directories, at most [`OVERLAYS_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlays: Option<Vec<Overlay>>,
    /// Further paths that may be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_writable: Option<Vec<String>>,
    /// Paths shown at other places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binds: Option<Vec<Bind>>,
    /// Share the sandbox's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_net: Option<bool>,
    /// Which variables it sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_passthrough: Option<EnvPassthrough>,
    /// Run as this user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Run as this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// How to change the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid_mode: Option<UidMode>,
    /// End it after this long without a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<u64>,
}

/// Answer of `POST /v1/isolated/session`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateIsolatedSessionResponse {
    /// The session's id.
    pub session_id: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// What a session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum IsolatedSessionStatus {
    /// Takes runs.
    Active,
    /// Its shell has ended.
    Dead,
    /// It was removed.
    Destroyed,
}

/// One session in a listing, or by id with how it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IsolatedSession {
    /// The session's id.
    pub session_id: String,
    /// What it is doing.
    pub status: IsolatedSessionStatus,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// When it last ran something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_at: Option<Timestamp>,
    /// How long it has without a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_remaining_seconds: Option<u64>,
    /// How it was made, when asked for by id.
    #[serde(flatten)]
    pub created_with: CreateIsolatedSessionRequest,
}

/// Answer of `GET /v1/isolated/sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListIsolatedSessionsResponse {
    /// The sessions.
    pub sessions: Vec<IsolatedSession>,
}

/// `POST /v1/isolated/session/{id}/run`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IsolatedRunRequest {
    /// Shell text.
    pub code: String,
    /// Environment of this run.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub envs: BTreeMap<String, String>,
    /// End it after this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Answer at once and let it run.
    #[serde(default, deserialize_with = "null_as_default")]
    pub background: bool,
}

/// Answer to a background run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IsolatedRunStarted {
    /// The session's id.
    pub session_id: String,
    /// The run's id.
    pub run_id: String,
    /// When it started.
    pub started_at: Timestamp,
}

/// Answer of `GET /v1/isolated/session/{id}/runs/{run}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IsolatedRunStatus {
    /// The session's id.
    pub session_id: String,
    /// The run's id.
    pub run_id: String,
    /// Whether it still runs.
    pub running: bool,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// Answer of `GET /v1/isolated/capabilities`: what this sandbox can really do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IsolatedCapabilities {
    /// Whether isolated sessions can be made.
    pub available: bool,
    /// What makes them.
    #[serde(default)]
    pub isolator: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
    /// Why they cannot be made, or what is missing.
    #[serde(default)]
    pub message: String,
    /// The user can be changed by credentials.
    #[serde(default)]
    pub setpriv_available: bool,
    /// The user can be changed by a user namespace.
    #[serde(default)]
    pub userns_available: bool,
    /// Changes can be kept.
    #[serde(default)]
    pub commit_supported: bool,
    /// Changes can be listed.
    #[serde(default)]
    pub diff_supported: bool,
    /// How the daemon protects itself and its sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardening: Option<Hardening>,
}

/// How the daemon protects itself and its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hardening {
    /// How it reaps.
    pub init_mode: InitMode,
    /// It cannot be signalled from inside.
    pub signal_shield: HardeningItem,
    /// Capabilities are dropped.
    pub cap_drop: HardeningItem,
    /// System calls are filtered.
    pub seccomp: HardeningItem,
    /// Paths are restricted by Landlock.
    pub landlock: HardeningItem,
    /// Activity is watched with eBPF.
    pub ebpf: HardeningItem,
}

/// How the daemon reaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InitMode {
    /// It is PID 1.
    Pid1,
    /// It is a subreaper.
    Subreaper,
    /// It does not.
    None,
}

/// One protection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HardeningItem {
    /// Whether it is on.
    pub state: HardeningState,
    /// Why it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Whether a protection is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HardeningState {
    /// On.
    Active,
    /// Off by choice.
    Disabled,
    /// Partly on.
    Degraded,
    /// The kernel has none.
    Unsupported,
}
