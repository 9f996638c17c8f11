//! Snapshots: copies of a sandbox's filesystem.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::deserialize::open_enum;
use crate::id::{SandboxId, SnapshotId};
use crate::sandbox::PaginationInfo;

/// `POST /sandboxes/{id}/snapshots`. The body may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateSnapshotRequest {
    /// A name to find it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1)]
    pub name: Option<String>,
}

open_enum!(
    /// What a snapshot is doing.
    SnapshotState {
        /// Being made.
        Creating = "Creating",
        /// Being deleted.
        Deleting = "Deleting",
        /// Sandboxes can be made from it.
        Ready = "Ready",
        /// It could not be made.
        Failed = "Failed",
    } unknown as "Unknown"
);

/// A snapshot's state, with why and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// What it is doing.
    pub state: SnapshotState,
    /// Why, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_at: Option<Timestamp>,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The snapshot's id.
    #[schema(value_type = String)]
    pub id: SnapshotId,
    /// The sandbox it was made of.
    #[schema(value_type = String)]
    pub sandbox_id: SandboxId,
    /// The name to find it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is doing.
    pub status: SnapshotStatus,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Answer of `GET /snapshots`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListSnapshotsResponse {
    /// The page, newest first.
    pub items: Vec<Snapshot>,
    /// Where the page stands.
    pub pagination: PaginationInfo,
}
