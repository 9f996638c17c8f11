//! What a sandbox uses, from its own control group.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Answer of `GET /metrics` and event of `GET /metrics/watch`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Metrics {
    /// Processors the sandbox may use.
    pub cpu_count: f64,
    /// How much of them it used since the last sample, from 0 to 100.
    pub cpu_used_pct: f64,
    /// Memory the sandbox may use, in MiB.
    pub mem_total_mib: f64,
    /// How much of it is in use.
    pub mem_used_mib: f64,
    /// When, in Unix milliseconds.
    pub timestamp: i64,
}
