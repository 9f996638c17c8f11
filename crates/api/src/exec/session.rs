//! Sessions: live shells that keep their state between runs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::SessionId;

/// `POST /session`. An empty body is all defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateSessionRequest {
    /// Working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// Answer of `POST /session`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateSessionResponse {
    /// The session's id.
    #[schema(value_type = String)]
    pub session_id: SessionId,
}

/// `POST /session/{id}/run`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunInSessionRequest {
    /// Shell text, run in the session's own shell.
    pub command: String,
    /// Working directory of this run; the session goes on from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// End this run, not the session, after this many milliseconds; 0 or nothing is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub timeout: Option<i64>,
}
