//! What happened: the events of a sandbox's life, the live stream of them, and the audit trail.
//!
//! Events are numbered by the store in the order in which they became durable, so that a reader
//! that lost its connection goes on after the last number it saw.

use api::id::{SandboxId, SnapshotId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::caller::Tenant;
use crate::sandbox::State;

/// An event's place in the stream. Grows by at least one from event to event.
pub type EventId = i64;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Its place in the stream; 0 until the store has numbered it.
    pub id: EventId,
    /// When it happened, by the wall clock.
    pub at: Timestamp,
    /// Whose it is; of what concerns the whole server, the built-in tenant's.
    #[serde(skip_serializing_if = "Tenant::is_built_in", default)]
    pub tenant: Tenant,
    /// Decides which of the other fields say something.
    pub kind: EventKind,
    /// The sandbox that it happened to; `None` where it happened to none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sandbox_id: Option<SandboxId>,
    /// The snapshot that it happened to; `None` where it happened to none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub snapshot_id: Option<SnapshotId>,
    /// The sandbox's state from now on, where the event changed or confirmed it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub state: Option<State>,
    /// A short code for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// When the sandbox will be deleted, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<Timestamp>,
}

/// What kind of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventKind {
    /// A sandbox was asked for.
    Created,
    /// A sandbox changed its state.
    StateChanged,
    /// A sandbox is gone.
    Deleted,
    /// A sandbox's expiration changed.
    Renewed,
    /// A sandbox's metadata changed.
    MetadataChanged,
    /// A process of a sandbox was killed for memory; the sandbox goes on.
    OutOfMemory,
    /// How an image download goes.
    PullProgress,
    /// A snapshot changed its state.
    SnapshotChanged,
    /// A snapshot is gone.
    SnapshotDeleted,
    /// Reconciliation found a difference and repaired it.
    Repaired,
    /// The wall clock jumped and the expirations moved with it.
    ClockJumped,
}

impl EventKind {
    /// As it stands on the wire and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::Created => "created",
            EventKind::StateChanged => "stateChanged",
            EventKind::Deleted => "deleted",
            EventKind::Renewed => "renewed",
            EventKind::MetadataChanged => "metadataChanged",
            EventKind::OutOfMemory => "outOfMemory",
            EventKind::PullProgress => "pullProgress",
            EventKind::SnapshotChanged => "snapshotChanged",
            EventKind::SnapshotDeleted => "snapshotDeleted",
            EventKind::Repaired => "repaired",
            EventKind::ClockJumped => "clockJumped",
        }
    }
}

/// One line of the audit trail: who asked for what, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Its place in the trail; 0 until the store has numbered it.
    pub id: i64,
    /// The tenant of who asked, or of the sandbox that it happened to.
    #[serde(skip_serializing_if = "Tenant::is_built_in", default)]
    pub tenant: Tenant,
    /// When it was asked for, by the wall clock.
    pub at: Timestamp,
    /// The name of the API key, or of the part of the server that acted by itself.
    pub actor: String,
    /// The address of the client, where it is known.
    pub remote: Option<String>,
    /// The operation: `sandbox.create`, `sandbox.delete`, …
    pub action: String,
    /// The id of a sandbox or snapshot, where there is one.
    pub target: Option<String>,
    /// `ok`, or the error code that was answered.
    pub outcome: String,
    /// The request it belongs to.
    pub request_id: Option<String>,
    /// More, for people. Never a secret.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
}

impl AuditEntry {
    /// The outcome of what went well.
    pub const OK: &str = "ok";
    /// Who did what nobody asked for.
    pub const SERVER: &str = "system";
}

/// Which audit entries to read, newest first.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Only entries of this tenant.
    pub tenant: Tenant,
    /// Only entries about this sandbox or snapshot.
    pub target: Option<String>,
    /// Only what this actor asked for.
    pub actor: Option<String>,
    /// Only entries older than this number: the way to the next page.
    pub before: Option<i64>,
    /// At most this many entries are read.
    pub limit: u32,
}
