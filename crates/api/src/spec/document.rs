//! Puts a table of operations and the schemas of its types together as OpenAPI 3.1.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use super::operation::{Content, In, Operation, Response, Shape};
use super::{Contract, PROTOCOL_VERSION};

/// Schemas by name.
#[derive(Default)]
pub(super) struct Schemas(BTreeMap<String, RefOr<Schema>>);

impl Schemas {
    /// Adds a type and every type it mentions.
    pub(super) fn with<T: ToSchema>(mut self) -> Self {
        let mut mentioned = Vec::new();
        T::schemas(&mut mentioned);
        self.0.extend(mentioned);
        self.0.insert(T::name().into_owned(), T::schema());
        self
    }
}

/// What is said once for a whole contract.
pub(super) struct Frame {
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) servers: &'static [&'static str],
    /// The name of the scheme, the header and what it carries.
    pub(super) credential: (&'static str, &'static str, &'static str),
    pub(super) schemas: Schemas,
}

pub(super) fn build(contract: Contract) -> Value {
    let frame = match contract {
        Contract::Lifecycle => super::lifecycle::frame(),
        Contract::Execution => super::execution::frame(),
        Contract::Egress => super::egress::frame(),
        Contract::Diagnostics => super::diagnostics::frame(),
    };
    let (scheme, header, carries) = frame.credential;
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    let mut errors = Errors::default();
    for operation in contract.operations() {
        let methods = paths.entry(operation.path.to_string()).or_default();
        let method = operation.method.to_ascii_lowercase();
        let previous = methods.insert(method, write_operation(&operation, &mut errors));
        assert!(
            previous.is_none(),
            "{} {} is declared once",
            operation.method,
            operation.path
        );
    }
    let servers: Vec<Value> = frame
        .servers
        .iter()
        .map(|url| json!({"url": url}))
        .collect();
    sorted(json!({
        "openapi": "3.1.0",
        "info": {
            "title": frame.title,
            "description": frame.description,
            "version": PROTOCOL_VERSION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": servers,
        "security": [{(scheme): []}],
        "paths": paths,
        "components": {
            "schemas": frame.schemas.0,
            "responses": errors.0,
            "securitySchemes": {
                (scheme): {"type": "apiKey", "in": "header", "name": header, "description": carries},
            },
        },
    }))
}

/// Error answers, by status: each is written once and referred to, unless an operation has its
/// own.
#[derive(Default)]
struct Errors(BTreeMap<String, Value>);

impl Errors {
    fn refer(&mut self, response: &Response) -> Value {
        let written = write_response(response);
        if !response.is_common {
            return written;
        }
        let name = format!("Error{}", response.status);
        let shared = self
            .0
            .entry(name.clone())
            .or_insert_with(|| written.clone());
        if *shared != written {
            return written;
        }
        json!({"$ref": format!("#/components/responses/{name}")})
    }
}

fn write_operation(operation: &Operation, errors: &mut Errors) -> Value {
    let mut written = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": write_parameters(operation),
        "responses": {},
    });
    let members = written
        .as_object_mut()
        .expect("it was just made as an object");
    if operation.is_extension {
        members.insert("x-extension".to_owned(), true.into());
    }
    if operation.is_open {
        members.insert("security".to_owned(), json!([]));
    }
    if let Some((content, is_required)) = &operation.request {
        let body = json!({"required": is_required, "content": write_content(content)});
        members.insert("requestBody".to_owned(), body);
    }
    let responses: BTreeMap<String, Value> = operation
        .responses
        .iter()
        .map(|response| match response.status {
            0 => ("default".to_owned(), write_response(response)),
            status => (status.to_string(), errors.refer(response)),
        })
        .collect();
    members.insert("responses".to_owned(), json!(responses));
    written
}

/// Parameters in the path come first, and those that are not declared are text.
fn write_parameters(operation: &Operation) -> Vec<Value> {
    let mut written = Vec::new();
    for name in path_names(&operation.path) {
        let declared = operation.parameters.iter().find(|it| it.name == name);
        let shape = declared.map_or(Shape::Text, |parameter| parameter.shape);
        written.push(json!({
            "name": name, "in": "path", "required": true, "schema": write_shape(shape),
        }));
    }
    for parameter in operation
        .parameters
        .iter()
        .filter(|it| it.location != In::Path)
    {
        let location = if parameter.location == In::Query {
            "query"
        } else {
            "header"
        };
        written.push(json!({
            "name": parameter.name,
            "in": location,
            "required": parameter.is_required,
            "description": parameter.description,
            "schema": write_shape(parameter.shape),
        }));
    }
    written
}

fn path_names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn write_response(response: &Response) -> Value {
    let mut written = json!({"description": response.description});
    let members = written
        .as_object_mut()
        .expect("it was just made as an object");
    if !response.content.is_empty() {
        members.insert("content".to_owned(), write_content(&response.content));
    }
    if !response.headers.is_empty() {
        let headers: BTreeMap<&str, Value> = response
            .headers
            .iter()
            .map(|(name, shape)| (*name, json!({"schema": write_shape(*shape)})))
            .collect();
        members.insert("headers".to_owned(), json!(headers));
    }
    written
}

fn write_content(content: &[Content]) -> Value {
    let by_media: BTreeMap<&str, Value> = content
        .iter()
        .map(|content| (content.media, json!({"schema": write_shape(content.shape)})))
        .collect();
    json!(by_media)
}

fn write_shape(shape: Shape) -> Value {
    match shape {
        Shape::Named(name) => json!({"$ref": format!("#/components/schemas/{name}")}),
        Shape::ListOf(item) => json!({"type": "array", "items": write_shape(*item)}),
        Shape::MapOf(value) => {
            json!({"type": "object", "additionalProperties": write_shape(*value)})
        }
        Shape::Text => json!({"type": "string"}),
        Shape::NullableText => json!({"type": ["string", "null"]}),
        Shape::Binary => json!({"type": "string", "format": "binary"}),
        Shape::Upload => json!({
            "type": "object",
            "properties": {
                "metadata": {
                    "type": "string",
                    "description": "Where the file goes, as JSON of FileMetadata. One before each file.",
                },
                "file": {"type": "string", "format": "binary", "description": "The file."},
            },
        }),
        Shape::Integer {
            minimum,
            maximum: Some(maximum),
        } => {
            json!({"type": "integer", "minimum": minimum, "maximum": maximum})
        }
        Shape::Integer {
            minimum,
            maximum: None,
        } => json!({"type": "integer", "minimum": minimum}),
        Shape::Flag => json!({"type": "boolean"}),
        Shape::Any => json!({}),
    }
}

/// The same value with every object's members in order, whatever map the JSON library was built
/// with: the documents must not depend on which other crates are built along.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<String, Value> = members
                .into_iter()
                .map(|(name, value)| (name, sorted(value)))
                .collect();
            Value::Object(members.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}
