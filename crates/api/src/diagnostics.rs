//! Diagnostics: logs and events of a sandbox, for whoever looks for what went wrong.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::SandboxId;

/// The media type of inline diagnostics.
pub const CONTENT_TYPE: &str = "text/plain; charset=utf-8";

/// Answer of `GET /sandboxes/{id}/diagnostics/logs` and `/events` with a `scope`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DiagnosticContentResponse)]
pub struct DiagnosticContent {
    /// The sandbox's id.
    #[schema(value_type = String)]
    pub sandbox_id: SandboxId,
    /// Logs or events.
    pub kind: DiagnosticKind,
    /// What was asked for.
    pub scope: String,
    /// Whether the content is here or elsewhere.
    pub delivery: DiagnosticDelivery,
    /// The content's media type.
    pub content_type: String,
    /// The content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Where the content is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "uri")]
    pub content_url: Option<String>,
    /// The content's length in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_length: Option<u64>,
    /// Until when it can be fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Something was left out.
    pub truncated: bool,
    /// What could not be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnings: Option<Vec<String>>,
}

/// Logs or events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiagnosticKind {
    /// Output of the sandbox.
    Logs,
    /// What happened to the sandbox.
    Events,
}

/// Whether content is in the answer or elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiagnosticDelivery {
    /// In the answer.
    Inline,
    /// At a URL.
    Url,
}

/// One event of the answer of `GET /sandboxes/{id}/logs`. A stream that ends without `end` was cut
/// off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum LogEvent {
    /// Something was written.
    Text {
        /// What; bytes that are not UTF-8 are replaced.
        text: String,
    },
    /// The sandbox has ended, and nothing more comes.
    End,
}

impl LogEvent {
    /// The event's name on the wire.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Text { .. } => "text",
            Self::End => "end",
        }
    }
}

/// Query of `GET /sandboxes/{id}/diagnostics/logs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogsQuery {
    /// What to look at; nothing asks for the older plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Older form: at most this many of the last lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u64>,
    /// Older form: no older than this, as `10m`, `2h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Older form: of this container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

/// Query of `GET /sandboxes/{id}/diagnostics/events`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsQuery {
    /// What to look at; nothing asks for the older plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Older form: at most this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Query of `GET /sandboxes/{id}/diagnostics/summary`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryQuery {
    /// At most this many of the last lines of logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u64>,
    /// At most this many events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_limit: Option<u64>,
}
