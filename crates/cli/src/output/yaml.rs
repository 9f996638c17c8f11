//! YAML that every reader takes for the same: what an older one would take for a date, a number or
//! a truth value is quoted, and fields are in order of name, as the published command line has it.

use super::record::{Record, Value};

/// A document.
pub(crate) fn document(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

fn block(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Record(record) if !is_empty(record) => fields(record, depth, out),
        Value::List(items) if !items.is_empty() => {
            for item in items {
                out.push_str(&"  ".repeat(depth));
                out.push('-');
                inline_or_below(item, depth, true, out);
            }
        }
        _ => {
            out.push_str(&scalar(value));
            out.push('\n');
        }
    }
}

fn fields(record: &Record, depth: usize, out: &mut String) {
    for (name, value) in record.fields() {
        out.push_str(&"  ".repeat(depth));
        out.push_str(&text(name));
        out.push(':');
        inline_or_below(value, depth, false, out);
    }
}

/// What follows a dash or a colon.
fn inline_or_below(value: &Value, depth: usize, is_item: bool, out: &mut String) {
    let has_parts = match value {
        Value::Record(record) => !is_empty(record),
        Value::List(items) => !items.is_empty(),
        _ => false,
    };
    if !has_parts {
        out.push(' ');
        out.push_str(&scalar(value));
        out.push('\n');
        return;
    }
    if is_item {
        // The first field of an item stands behind its dash.
        let mut inner = String::new();
        block(value, depth + 1, &mut inner);
        out.push(' ');
        out.push_str(inner.trim_start_matches(' '));
        return;
    }
    out.push('\n');
    block(value, depth + 1, out);
}

fn is_empty(record: &Record) -> bool {
    record.fields().next().is_none()
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned()),
        Value::Text(value) => text(value),
        Value::List(_) => "[]".to_owned(),
        Value::Record(_) => "{}".to_owned(),
    }
}

/// Text, plain where nobody can take it for anything else.
fn text(value: &str) -> String {
    const WORDS: [&str; 10] = [
        "y", "n", "yes", "no", "true", "false", "on", "off", "null", "nan",
    ];
    let is_plain = value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '_')
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b))
        && !WORDS.contains(&value.to_ascii_lowercase().as_str());
    if is_plain {
        return value.to_owned();
    }
    if value.chars().any(char::is_control) {
        return serde_json::to_string(value).expect("text is plain data");
    }
    format!("'{}'", value.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let inner = Record::new()
            .with("a", vec!["x", "-f", "yes", "12", ""])
            .with("b", Record::new());
        let all = Record::new()
            .with("at", "2026-11-16T00:00:00Z")
            .with(
                "items",
                Value::List(vec![Value::Record(inner.clone()), Value::Record(inner)]),
            )
            .with("none", Value::Null)
            .with(
                "nested",
                Value::List(vec![Value::from(vec![1, 2]), Value::Null]),
            )
            .with("number", 1.5)
            .with("text", "it's: a\nline #1")
            .with("true", true);
        let value = Value::Record(all);
        let yaml = document(&value);
        let back: serde_json::Value = serde_yaml_ng::from_str(&yaml).unwrap();
        assert_eq!(back, serde_json::to_value(&value).unwrap(), "{yaml}");
        assert!(
            yaml.starts_with("at: '2026-11-16T00:00:00Z'\nitems:\n  - a:\n"),
            "{yaml}"
        );
    }
}
