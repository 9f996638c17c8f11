//! What clients report about how long things took them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/metrics/events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricsEvent {
    /// What is reported.
    #[serde(alias = "event_type")]
    pub event_type: MetricsEventType,
    /// Which sandbox.
    #[serde(default, alias = "sandbox_id", skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// Which image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How long it took.
    #[serde(alias = "create_duration_ms")]
    pub create_duration_ms: u64,
    /// Whether it worked.
    pub success: bool,
}

/// What is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum MetricsEventType {
    /// Making a sandbox.
    #[serde(rename = "sandbox.create")]
    SandboxCreate,
}
