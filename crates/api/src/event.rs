//! Extensions of the lifecycle contract: the live stream of what happens to sandboxes
//! (`GET /events`) and the record of who changed what (`GET /audit-events`).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::deserialize::open_enum;
use crate::id::{RequestId, SandboxId, SnapshotId};
use crate::sandbox::SandboxStatus;
use crate::snapshot::SnapshotStatus;

/// The header in which a client says which event it saw last, as browsers do.
pub const LAST_EVENT_ID_HEADER: &str = "Last-Event-ID";

open_enum!(
    /// What happened.
    LifecycleEventKind {
        /// A sandbox was accepted.
        SandboxCreated = "sandbox.created",
        /// A sandbox changed its state.
        SandboxState = "sandbox.state",
        /// A sandbox's expiry changed.
        SandboxRenewed = "sandbox.renewed",
        /// A sandbox's metadata changed.
        SandboxMetadata = "sandbox.metadata",
        /// A process in a sandbox was killed for memory.
        SandboxOutOfMemory = "sandbox.oom",
        /// A sandbox is gone.
        SandboxDeleted = "sandbox.deleted",
        /// A snapshot changed its state.
        SnapshotState = "snapshot.state",
        /// A snapshot is gone.
        SnapshotDeleted = "snapshot.deleted",
        /// Events between the last one seen and this one are no longer kept: list again.
        Gap = "gap",
    } unknown as "unknown"
);

/// One event of `GET /events`. Its id is also the `id:` of its frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleEvent {
    /// Its place in the stream; give the last one seen to go on after it.
    pub id: u64,
    /// When.
    pub at: Timestamp,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: LifecycleEventKind,
    /// To which sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub sandbox_id: Option<SandboxId>,
    /// To which snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub snapshot_id: Option<SnapshotId>,
    /// The sandbox's status after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<SandboxStatus>,
    /// The snapshot's status after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_status: Option<SnapshotStatus>,
    /// The sandbox's expiry after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// Query of `GET /events`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleEventsQuery {
    /// Only events after this one; the header [`LAST_EVENT_ID_HEADER`] says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Only events of this sandbox.
    #[serde(default, alias = "sandbox_id", skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
}

/// A change, with who made it and how it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// Its place in the record.
    pub id: u64,
    /// When.
    pub at: Timestamp,
    /// Who: the name of an API key, or `system` for what the server did by itself.
    pub actor: String,
    /// What, for example `sandbox.create`.
    pub action: String,
    /// To what: the id of a sandbox or snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// How it went.
    pub outcome: AuditOutcome,
    /// The error code of what failed or was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// More, for people. Never a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub request_id: Option<RequestId>,
    /// The address it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// How a change went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// It was done.
    Success,
    /// The caller might not, or asked for something impossible.
    Refused,
    /// It was tried and failed.
    Failure,
}

/// Answer of `GET /audit-events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListAuditEventsResponse {
    /// Newest first.
    pub items: Vec<AuditEvent>,
    /// Give this as `before` to go on; nothing when there are no older ones. Pages are not
    /// numbered, because the record grows at the end they would be counted from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Query of `GET /audit-events`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEventsQuery {
    /// Only about this sandbox or snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Only by this actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Only those older than this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// At most this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}
