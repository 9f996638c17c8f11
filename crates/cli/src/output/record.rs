//! What commands print, before it is decided how: records whose fields keep their order.
//!
//! A map of `serde_json` sorts its keys, and the order of fields is part of what people read.

use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};

/// A value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Text.
    Text(String),
    /// Several.
    List(Vec<Value>),
    /// Fields again.
    Record(Record),
}

/// Named fields, in the order they are shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record(Vec<(String, Value)>);

impl Record {
    /// A record without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// The record with one more field.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.set(name, value);
        self
    }

    /// Adds a field, or changes it where it is.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    /// A field's value.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let field = self.0.iter().find(|(known, _)| known == name);
        field.map(|(_, value)| value)
    }

    /// The fields.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl Value {
    /// As it stands in a cell of a table: nothing is a dash, what has parts is compact JSON.
    pub fn cell(&self) -> String {
        match self {
            Self::Null => "-".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Text(value) => value.clone(),
            Self::List(_) | Self::Record(_) => {
                serde_json::to_string(self).expect("values are plain data")
            }
        }
    }

    /// With every record's fields in order of name, as YAML has always been printed.
    #[must_use]
    pub fn sorted(self) -> Self {
        match self {
            Self::List(items) => Self::List(items.into_iter().map(Self::sorted).collect()),
            Self::Record(Record(fields)) => {
                let mut fields: Vec<_> = fields
                    .into_iter()
                    .map(|(name, value)| (name, value.sorted()))
                    .collect();
                fields.sort_by(|(a, _), (b, _)| a.cmp(b));
                Self::Record(Record(fields))
            }
            other => other,
        }
    }
}

impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match value {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(value),
            Json::Number(number) => match number.as_i64() {
                Some(whole) => Self::Int(whole),
                None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::Text(text),
            Json::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Json::Object(fields) => Self::Record(Record(
                fields
                    .into_iter()
                    .map(|(name, value)| (name, value.into()))
                    .collect(),
            )),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Float(value as f64), Self::Int)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<Record> for Value {
    fn from(record: Record) -> Self {
        Self::Record(record)
    }
}

impl From<jiff::Timestamp> for Value {
    fn from(at: jiff::Timestamp) -> Self {
        Self::Text(at.to_string())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Self::Record(record) => record.serialize(serializer),
        }
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order_and_yaml_sorts_them() {
        let record = Record::new()
            .with("id", "a")
            .with("b", Record::new().with("z", 1).with("a", Value::Null))
            .with("size", 2.5);
        let json = serde_json::to_string(&record).unwrap();
        assert_eq!(json, r#"{"id":"a","b":{"z":1,"a":null},"size":2.5}"#);
        let sorted = serde_json::to_string(&Value::Record(record).sorted()).unwrap();
        assert_eq!(sorted, r#"{"b":{"a":null,"z":1},"id":"a","size":2.5}"#);
    }

    #[test]
    fn cells_are_one_line_of_text() {
        assert_eq!(Value::Null.cell(), "-");
        assert_eq!(Value::from(vec!["a", "b"]).cell(), r#"["a","b"]"#);
        assert_eq!(Value::from(1.5).cell(), "1.5");
    }
}
