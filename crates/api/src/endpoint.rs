//! Endpoints: where a port of a sandbox can be reached from outside.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The header in which a client of a secured sandbox sends its token.
pub const SECURE_ACCESS_HEADER: &str = "OpenSandbox-Secure-Access";

/// The header that names a route where it is neither in the host nor in the path.
pub const INGRESS_TO_HEADER: &str = "OpenSandbox-Ingress-To";

/// The older name of [`INGRESS_TO_HEADER`].
pub const INGRESS_TO_HEADER_OLD: &str = "OPEN-SANDBOX-INGRESS";

/// The header that carries the token of the egress API.
pub const EGRESS_AUTH_HEADER: &str = "OPENSANDBOX-EGRESS-AUTH";

/// The port at which the egress API of a sandbox is asked for.
pub const EGRESS_PORT: u16 = 18080;

/// Answer of `GET /sandboxes/{id}/endpoints/{port}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Endpoint {
    /// `host[:port][/path]`, without a scheme.
    pub endpoint: String,
    /// Headers that every request to it must carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// A link that lets a browser in, where one was asked for. Good for once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// Query of `GET /sandboxes/{id}/endpoints/{port}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointQuery {
    /// Answer the path through the server's own proxy.
    #[serde(default)]
    pub use_server_proxy: bool,
    /// Sign the route until then, in Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}
