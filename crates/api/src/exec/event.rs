//! The events of an execution stream. Their framing is in [`crate::frame`].

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::deserialize::open_enum;

/// What a stream carries: `init` first, then output, at last `execution_complete` or `error`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ServerStreamEvent)]
pub struct Event {
    /// What kind of event this is.
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// The id in `init`, the output in `stdout` and `stderr`, `pong` in `ping`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// How many cells the context has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_count: Option<u64>,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_time: Option<u64>,
    /// When, in Unix milliseconds. Clients drop an event that has none.
    #[serde(default)]
    pub timestamp: i64,
    /// The value of a cell by media type. Values are text because some clients read nothing else;
    /// what arrives as another JSON value is kept as its text.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "values_as_text"
    )]
    pub results: Option<BTreeMap<String, String>>,
    /// How it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ExecutionError>,
    /// Extension: the event's place in its stream, from 1, for going on after a broken
    /// connection. Pings have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

impl Event {
    /// An event with nothing but its kind and time.
    pub const fn new(kind: EventKind, timestamp: i64) -> Self {
        Self {
            kind,
            text: None,
            execution_count: None,
            execution_time: None,
            timestamp,
            results: None,
            error: None,
            seq: None,
        }
    }

    /// An event that carries text.
    pub fn with_text(kind: EventKind, timestamp: i64, text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            ..Self::new(kind, timestamp)
        }
    }

    /// The `error` event of an execution.
    pub fn failed(timestamp: i64, error: ExecutionError) -> Self {
        Self {
            error: Some(error),
            ..Self::new(EventKind::Error, timestamp)
        }
    }
}

open_enum!(
    /// The kind of an event.
    EventKind {
        /// The stream has begun; `text` is the id to ask by.
        Init = "init",
        /// Never sent by us: one published client prints it as output.
        Status = "status",
        /// The execution failed.
        Error = "error",
        /// Output.
        Stdout = "stdout",
        /// Error output.
        Stderr = "stderr",
        /// The value of a cell.
        Result = "result",
        /// The execution is over.
        ExecutionComplete = "execution_complete",
        /// How many cells the context has run.
        ExecutionCount = "execution_count",
        /// Nothing happened, the stream lives.
        Ping = "ping",
    } unknown as "unknown", but sends only these
);

/// How an execution failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecutionError {
    /// The error's name: `CommandExecError`, `NameError`.
    #[serde(default)]
    pub ename: String,
    /// Its value: the exit code of a command, the message of an exception.
    #[serde(default)]
    pub evalue: String,
    /// Where it happened, one entry per line.
    #[serde(default)]
    pub traceback: Vec<String>,
}

impl ExecutionError {
    /// A command that ended with another code than 0.
    pub fn exit_code(code: i32) -> Self {
        Self {
            ename: super::command::COMMAND_ERROR_NAME.to_owned(),
            evalue: code.to_string(),
            traceback: vec![format!("exit status {code}")],
        }
    }

    /// A command that a signal ended, named as `killed`, `terminated` and so on.
    pub fn signal(name: &str) -> Self {
        Self {
            ename: super::command::COMMAND_ERROR_NAME.to_owned(),
            evalue: "-1".to_owned(),
            traceback: vec![format!("signal: {name}")],
        }
    }

    /// A command that did not start.
    pub fn not_started(message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            ename: super::command::COMMAND_ERROR_NAME.to_owned(),
            evalue: message.clone(),
            traceback: vec![message],
        }
    }
}

fn values_as_text<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    let values = Option::<BTreeMap<String, Value>>::deserialize(deserializer)?;
    let text = |value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(values.map(|map| {
        map.into_iter()
            .map(|(mime, value)| (mime, text(value)))
            .collect()
    }))
}
