//! Commands: running one, asking how it went, reading its output, writing to its stdin.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::deserialize::null_as_default;
use crate::id::CommandId;

/// Answers the byte offset to read logs from next.
pub const LOGS_CURSOR_HEADER: &str = "EXECD-COMMANDS-TAIL-CURSOR";

/// The error name of a command that ended with another code than 0, or by a signal.
pub const COMMAND_ERROR_NAME: &str = "CommandExecError";

/// `POST /command`: run a shell command, or a program with its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunCommandRequest {
    /// A shell command. Exactly one of `command` and `argv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A program and its arguments, run without a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Working directory; `~` and variables are expanded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Answer at once and let it run.
    #[serde(default, deserialize_with = "null_as_default")]
    pub background: bool,
    /// Kill it after this many milliseconds; 0 or nothing is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub timeout: Option<i64>,
    /// Run as this user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Run as this group; needs `uid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// Environment, over everything else.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub envs: BTreeMap<String, String>,
    /// Extension: text to write to its stdin, which is then closed unless `stdin_open`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Extension: keep stdin open for `POST /command/{id}/stdin`.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "is_false"
    )]
    pub stdin_open: bool,
}

/// `GET /command/status/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CommandStatusResponse)]
pub struct CommandStatus {
    /// The command's id.
    #[schema(value_type = String)]
    pub id: CommandId,
    /// What was asked to run.
    #[serde(default)]
    pub content: String,
    /// Whether it still runs.
    pub running: bool,
    /// How it ended; -1 for a signal, 255 when it did not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it failed, where there is more to say than the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// Query of `DELETE /command` and `DELETE /code`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptQuery {
    /// A command, session or context.
    pub id: String,
}

/// Query of `GET /command/{id}/logs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogsQuery {
    /// Byte offset to read from, as answered in [`LOGS_CURSOR_HEADER`]. Text, because clients of
    /// the published daemon may send anything and mean 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl LogsQuery {
    /// The offset; what is not a number is 0.
    pub fn offset(&self) -> u64 {
        self.cursor
            .as_deref()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }
}

/// Extension, query of `GET /command/{id}/events`: go on with a stream that broke off.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeQuery {
    /// The `seq` of the last event that arrived; nothing is from the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

/// Extension, query of `POST /command/{id}/stdin`, whose body is the bytes to write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StdinQuery {
    /// Close stdin after these bytes.
    #[serde(default)]
    pub close: bool,
}

/// Extension, answer of `POST /command/{id}/stdin`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StdinResponse {
    /// Bytes the process's pipe took.
    pub written: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}
