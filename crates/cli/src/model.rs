//! Wire types as records, with the fields that the published command line prints: its names are
//! those of the Python SDK, and what is missing is printed as nothing rather than left out.

use std::collections::BTreeMap;

use api::exec::command::CommandStatus;
use api::exec::file::FileInfo;
use api::exec::metrics::Metrics;
use api::network_policy::NetworkPolicy;
use api::sandbox::{PaginationInfo, Sandbox};
use api::snapshot::Snapshot;
use api::template::Template;
use serde::Serialize;

use crate::output::{Record, Value};

/// A sandbox.
pub(crate) fn sandbox(info: &Sandbox) -> Record {
    let status = Record::new()
        .with("state", info.status.state.as_str())
        .with("reason", info.status.reason.clone())
        .with("message", info.status.message.clone())
        .with("last_transition_at", info.status.last_transition_at);
    let image = info.image.as_ref().map(|image| {
        Record::new()
            .with("image", &image.uri)
            .with("auth", Value::Null)
    });
    Record::new()
        .with("id", info.id.as_str())
        .with("status", status)
        .with("entrypoint", info.entrypoint.clone())
        .with("expires_at", info.expires_at)
        .with("created_at", info.created_at)
        .with("image", image)
        .with(
            "snapshot_id",
            info.snapshot_id.as_ref().map(ToString::to_string),
        )
        .with("platform", info.platform.as_ref().map(snake))
        .with("allocation", info.allocation.as_ref().map(snake))
        .with("metadata", info.metadata.as_ref().map(map))
        .with("extensions", info.extensions.as_ref().map(map))
}

/// A snapshot.
pub(crate) fn snapshot(info: &Snapshot) -> Record {
    let status = Record::new()
        .with("state", info.status.state.as_str())
        .with("reason", info.status.reason.clone())
        .with("message", info.status.message.clone())
        .with("last_transition_at", info.status.last_transition_at);
    Record::new()
        .with("id", info.id.as_str())
        .with("sandbox_id", info.sandbox_id.as_str())
        .with("name", info.name.clone())
        .with("status", status)
        .with("created_at", info.created_at)
}

/// A template.
pub(crate) fn template(info: &Template) -> Record {
    match snake(info) {
        Value::Record(record) => record,
        _ => Record::new(),
    }
}

/// Where a page stands.
pub(crate) fn pagination(info: &PaginationInfo) -> Record {
    match snake(info) {
        Value::Record(record) => record,
        _ => Record::new(),
    }
}

/// Diagnostics, with every field that there may be.
pub(crate) fn diagnostics(content: &impl Serialize) -> Record {
    const FIELDS: [&str; 11] = [
        "sandbox_id",
        "kind",
        "scope",
        "delivery",
        "content_type",
        "truncated",
        "content",
        "content_url",
        "content_length",
        "expires_at",
        "warnings",
    ];
    let found = match snake(content) {
        Value::Record(record) => record,
        _ => Record::new(),
    };
    FIELDS.into_iter().fold(Record::new(), |record, name| {
        record.with(name, found.get(name).cloned().unwrap_or(Value::Null))
    })
}

/// A record with its status, image and the like as one word each, for a table.
pub(crate) fn flat(mut record: Record) -> Record {
    let word = |record: &Record, field: &str, inner: &[&str]| match record.get(field) {
        Some(Value::Record(parts)) => inner.iter().find_map(|name| parts.get(name)).cloned(),
        _ => None,
    };
    let reason = word(&record, "status", &["reason"]);
    let message = word(&record, "status", &["message"]);
    if let Some(state) = word(&record, "status", &["state", "phase"]) {
        record.set("status", state);
    }
    if let Some(image) = word(&record, "image", &["image"]) {
        record.set("image", image);
    }
    for (name, value) in [("status_reason", reason), ("status_message", message)] {
        if let Some(value) = value.filter(|value| *value != Value::Null) {
            record.set(name, value);
        }
    }
    record
}

/// What a sandbox uses.
pub(crate) fn metrics(metrics: &Metrics) -> Record {
    Record::new()
        .with("cpu_count", metrics.cpu_count)
        .with("cpu_used_percentage", metrics.cpu_used_pct)
        .with("memory_total_in_mib", metrics.mem_total_mib)
        .with("memory_used_in_mib", metrics.mem_used_mib)
        .with("timestamp", metrics.timestamp)
}

/// How a command stands.
pub(crate) fn command_status(status: &CommandStatus) -> Record {
    Record::new()
        .with("id", status.id.as_str())
        .with("content", status.content.clone())
        .with("running", status.running)
        .with("exit_code", status.exit_code)
        .with("error", status.error.clone())
        .with("started_at", status.started_at)
        .with("finished_at", status.finished_at)
}

/// A file.
pub(crate) fn file(info: &FileInfo) -> Record {
    let mode = serde_json::to_value(info.mode).map_or(Value::Null, Value::from);
    Record::new()
        .with("path", &info.path)
        .with("entry_type", info.kind.map(|kind| snake(&kind)))
        .with("mode", mode)
        .with("owner", &info.owner)
        .with("group", &info.group)
        .with("size", info.size)
        .with("modified_at", info.modified_at)
        .with("created_at", info.created_at)
}

/// What a sandbox may reach.
pub(crate) fn policy(policy: &NetworkPolicy) -> Record {
    match snake(policy) {
        Value::Record(record) => record,
        _ => Record::new(),
    }
}

fn map(map: &BTreeMap<String, String>) -> Value {
    let record = map.iter().fold(Record::new(), |record, (key, value)| {
        record.with(key, value)
    });
    Value::Record(record)
}

/// Any wire type, its field names as Python writes them.
pub(crate) fn snake(value: &impl Serialize) -> Value {
    let json = serde_json::to_value(value).unwrap_or(serde_json::Value::Null);
    renamed(json)
}

fn renamed(value: serde_json::Value) -> Value {
    match value {
        serde_json::Value::Object(fields) => {
            let record = fields
                .into_iter()
                .fold(Record::new(), |record, (name, value)| {
                    record.with(snake_case(&name), renamed(value))
                });
            Value::Record(record)
        }
        serde_json::Value::Array(items) => Value::List(items.into_iter().map(renamed).collect()),
        other => other.into(),
    }
}

fn snake_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_published_command_line() {
        assert_eq!(snake_case("lastTransitionAt"), "last_transition_at");
        let nested = renamed(serde_json::json!({"defaultAction": [{"aB": 1}]}));
        assert_eq!(
            serde_json::to_string(&nested).unwrap(),
            r#"{"default_action":[{"a_b":1}]}"#
        );
    }
}
