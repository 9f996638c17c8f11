//! `GET /version`: which contract a server speaks, and what it can do.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Answer of `GET /version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = VersionResponse)]
pub struct Version {
    /// The version of the contract that this server speaks.
    pub version: String,
    /// Extension: what new sandboxes may ask for here; what is refused need not be offered to anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<ServerCapabilities>,
}

/// What a server can do with its backend on its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerCapabilities {
    /// Sandboxes can be paused and resumed.
    pub pause: bool,
    /// Snapshots can be made, and sandboxes from them.
    pub snapshots: bool,
    /// A sandbox can be denied everything outside.
    pub no_network: bool,
    /// The rules of a network policy are enforced.
    pub network_rules: bool,
    /// The size of a sandbox's disk can be limited.
    pub disk_limit: bool,
    /// Sandboxes can have GPUs.
    pub gpus: bool,
    /// Platforms other than the server's own can be asked for.
    pub platforms: bool,
    /// Directories of the server's machine can be mounted: its operator allows some.
    pub host_paths: bool,
}
