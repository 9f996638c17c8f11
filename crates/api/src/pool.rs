//! Pools of prepared sandboxes.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /pools`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatePoolRequest {
    /// The pool's name.
    #[schema(max_length = 253, pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    pub name: String,
    /// What its sandboxes are made from, as a Kubernetes pod template.
    pub template: serde_json::Map<String, serde_json::Value>,
    /// How many it holds.
    #[serde(alias = "capacity_spec")]
    pub capacity_spec: PoolCapacitySpec,
}

/// `PUT /pools/{name}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdatePoolRequest {
    /// How many it holds.
    #[serde(alias = "capacity_spec")]
    pub capacity_spec: PoolCapacitySpec,
}

/// How many sandboxes a pool holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolCapacitySpec {
    /// At most this many that nobody uses.
    #[serde(alias = "buffer_max")]
    pub buffer_max: u64,
    /// At least this many that nobody uses.
    #[serde(alias = "buffer_min")]
    pub buffer_min: u64,
    /// At most this many in all.
    #[serde(alias = "pool_max")]
    pub pool_max: u64,
    /// At least this many in all.
    #[serde(alias = "pool_min")]
    pub pool_min: u64,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PoolResponse)]
pub struct Pool {
    /// The pool's name.
    pub name: String,
    /// How many it holds.
    pub capacity_spec: PoolCapacitySpec,
    /// How it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<PoolStatus>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
}

/// How a pool stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// Sandboxes in all.
    pub total: u64,
    /// In use.
    pub allocated: u64,
    /// Free.
    pub available: u64,
    /// The revision of its template.
    pub revision: String,
}

/// Answer of `GET /pools`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListPoolsResponse {
    /// The pools.
    pub items: Vec<Pool>,
}
