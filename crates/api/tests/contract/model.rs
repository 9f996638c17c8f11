//! One picture of a contract, drawn from a table or from an OpenAPI document.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// What a value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    Any,
    /// Text, perhaps one of a choice.
    Text(Option<BTreeSet<String>>),
    Integer,
    Number,
    Boolean,
    List(Box<Type>),
    Map(Box<Type>),
    Named(String),
}

/// A value that may have to be there.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) kind: Type,
    pub(crate) is_required: bool,
}

/// A contract. Operations are `METHOD /path/{}`.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// By operation, location and name.
    pub(crate) parameters: BTreeMap<(String, String, String), Member>,
    /// By operation and media type.
    pub(crate) bodies: BTreeMap<(String, String), Member>,
    /// By operation, status and media type, which is `-` for an empty body.
    pub(crate) answers: BTreeMap<(String, String, String), Type>,
    /// Operation, status and name in lower case.
    pub(crate) headers: BTreeSet<(String, String, String)>,
    /// By schema and name.
    pub(crate) fields: BTreeMap<String, BTreeMap<String, Member>>,
}

impl Model {
    pub(crate) fn operations(&self) -> BTreeSet<&str> {
        self.answers
            .keys()
            .map(|(operation, _, _)| operation.as_str())
            .collect()
    }

    pub(crate) fn from_table(table: &str) -> Self {
        let mut model = Self::default();
        for line in table.lines() {
            let columns: Vec<&str> = line.split('\t').collect();
            let [kind, subject, place, name, written, needed] = columns[..] else {
                panic!("{line:?} has six columns");
            };
            let member = Member {
                kind: Type::parse(written),
                is_required: needed == "required",
            };
            let [subject, place, name] = [subject, place, name].map(str::to_owned);
            match kind {
                "param" => drop(model.parameters.insert((subject, place, name), member)),
                "body" => drop(model.bodies.insert((subject, place), member)),
                "answer" => drop(model.answers.insert((subject, place, name), member.kind)),
                "header" => {
                    model
                        .headers
                        .insert((subject, place, name.to_ascii_lowercase()));
                }
                "field" => drop(
                    model
                        .fields
                        .entry(subject)
                        .or_default()
                        .insert(name, member),
                ),
                _ => panic!("{kind:?} is no kind of row"),
            }
        }
        model
    }

    pub(crate) fn from_document(document: &Value) -> Self {
        let mut model = Self::default();
        for (path, item) in members(&document["paths"]) {
            for (method, operation) in members(item) {
                let subject = format!("{} {}", method.to_ascii_uppercase(), normalized(path));
                model.add_operation(document, path, &subject, operation);
            }
        }
        model
    }

    fn add_operation(&mut self, document: &Value, path: &str, subject: &str, operation: &Value) {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let location = text(&parameter["in"]);
            let name = match location {
                "path" => place_in_path(path, text(&parameter["name"])),
                _ => text(&parameter["name"]).to_owned(),
            };
            let slug = format!("{subject}.{name}");
            let kind = self.type_of(document, &parameter["schema"], &slug);
            let is_required = parameter["required"].as_bool().unwrap_or(false);
            let key = (subject.to_owned(), location.to_owned(), name);
            self.parameters.insert(key, Member { kind, is_required });
        }
        if let Some(body) = operation.get("requestBody") {
            for (media, content) in members(&body["content"]) {
                let slug = format!("{subject}.request");
                let kind = self.type_of(document, &content["schema"], &slug);
                let is_required = body["required"].as_bool().unwrap_or(false);
                let key = (subject.to_owned(), media.clone());
                self.bodies.insert(key, Member { kind, is_required });
            }
        }
        for (status, answer) in members(&operation["responses"]) {
            let answer = resolve(document, answer);
            let key = |media: &str| (subject.to_owned(), status.clone(), media.to_owned());
            if answer.get("content").is_none() {
                self.answers.insert(key("-"), Type::Any);
            }
            for (media, content) in members(&answer["content"]) {
                let slug = format!("{subject}.{status}");
                let kind = self.type_of(document, &content["schema"], &slug);
                self.answers.insert(key(media), kind);
            }
            for (name, _) in members(&answer["headers"]) {
                self.headers.insert(key(&name.to_ascii_lowercase()));
            }
        }
    }

    /// The type of a schema; objects with members are noted under a name.
    fn type_of(&mut self, document: &Value, schema: &Value, name: &str) -> Type {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let name = reference.rsplit('/').next().unwrap_or_default();
            return self.type_of(document, resolve(document, schema), name);
        }
        let choices = ["anyOf", "oneOf", "allOf"]
            .into_iter()
            .find_map(|it| schema[it].as_array());
        if let Some(choices) = choices {
            let choices: Vec<_> = choices.iter().filter(|it| it["type"] != "null").collect();
            if let [only] = choices[..] {
                return self.type_of(document, only, name);
            }
            let parts: Vec<_> = choices.iter().map(|it| resolve(document, it)).collect();
            if parts.iter().all(|part| part.get("properties").is_some()) {
                return self.note(document, name, &parts, schema.get("allOf").is_some());
            }
            return Type::Any;
        }
        if schema.get("properties").is_some() {
            return self.note(document, name, &[schema], false);
        }
        match kind_of(schema) {
            "array" => Type::List(Box::new(self.type_of(
                document,
                &schema["items"],
                &format!("{name}[]"),
            ))),
            "object" => {
                let values = &schema["additionalProperties"];
                let kind = match values.is_object() {
                    true => self.type_of(document, values, &format!("{name}{{}}")),
                    false => Type::Any,
                };
                Type::Map(Box::new(kind))
            }
            "string" => {
                let options = schema["enum"].as_array();
                Type::Text(options.map(|it| it.iter().map(|v| text(v).to_owned()).collect()))
            }
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => Type::Any,
        }
    }

    /// Notes the fields of an object, or of several alternatives, of which a field is required
    /// only when each requires it.
    fn note(&mut self, document: &Value, name: &str, parts: &[&Value], is_sum: bool) -> Type {
        let named = Type::Named(name.to_owned());
        if self.fields.contains_key(name) {
            return named;
        }
        // Noted before its fields are looked at, so that a type may mention itself.
        self.fields.insert(name.to_owned(), BTreeMap::new());
        let requires = |part: &Value, field: &str| {
            part["required"]
                .as_array()
                .is_some_and(|it| it.iter().any(|name| name == field))
        };
        let mut fields: BTreeMap<String, Member> = BTreeMap::new();
        for part in parts {
            for (field, schema) in members(&part["properties"]) {
                let kind = self.type_of(document, schema, &format!("{name}.{field}"));
                let is_required = match is_sum {
                    true => requires(part, field),
                    false => parts.iter().all(|part| requires(part, field)),
                };
                let kind = match fields.remove(field) {
                    Some(known) => known.kind.or(kind),
                    None => kind,
                };
                fields.insert(field.clone(), Member { kind, is_required });
            }
        }
        self.fields.insert(name.to_owned(), fields);
        named
    }
}

impl Type {
    fn parse(written: &str) -> Self {
        let inside = |open, close| written.strip_prefix(open)?.strip_suffix(close);
        if let Some(item) = inside("[", "]") {
            return Self::List(Box::new(Self::parse(item)));
        }
        if let Some(value) = inside("{", "}") {
            return Self::Map(Box::new(Self::parse(value)));
        }
        if let Some(options) = inside("string(", ")") {
            return Self::Text(Some(options.split('|').map(str::to_owned).collect()));
        }
        match written {
            "any" => Self::Any,
            "string" => Self::Text(None),
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            name => Self::Named(name.to_owned()),
        }
    }

    /// A type that takes both.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Text(Some(mut one)), Self::Text(Some(other))) => {
                one.extend(other);
                Self::Text(Some(one))
            }
            (one, other) if one == other => one,
            _ => Self::Any,
        }
    }
}

/// Every `$ref` of a document.
pub(crate) fn references(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(members) => {
            let own = members.get("$ref").and_then(Value::as_str);
            own.into_iter()
                .chain(members.values().flat_map(references))
                .collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn kind_of(schema: &Value) -> &str {
    match &schema["type"] {
        Value::Array(kinds) => kinds
            .iter()
            .filter_map(Value::as_str)
            .find(|kind| *kind != "null")
            .unwrap_or_default(),
        kind => text(kind),
    }
}

fn resolve<'a>(document: &'a Value, node: &'a Value) -> &'a Value {
    match node.get("$ref").and_then(Value::as_str) {
        Some(reference) => document
            .pointer(reference.trim_start_matches('#'))
            .expect("references lead somewhere"),
        None => node,
    }
}

fn normalized(path: &str) -> String {
    let part = |part: &str| {
        if part.starts_with('{') {
            "{}".to_owned()
        } else {
            part.to_owned()
        }
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// Names of path parameters are free, so they are known by their place.
fn place_in_path(path: &str, name: &str) -> String {
    let names = path.split('/').filter(|part| part.starts_with('{'));
    let place = names
        .map(|part| part.trim_matches(['{', '}']))
        .position(|it| it == name);
    (place.expect("the path has its parameter") + 1).to_string()
}
