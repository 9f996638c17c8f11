//! One tool: its name, what it takes and returns as JSON schemas made from Rust types, what it
//! promises to do, and the function that does it.

use std::pin::Pin;
use std::sync::Arc;

use opensandbox::error_chain;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::progress::Progress;
use crate::registry::Registry;

/// What a tool works with.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) registry: Arc<Registry>,
    pub(crate) progress: Progress,
    /// The client does not want the answer any more.
    pub(crate) cancelled: CancellationToken,
}

/// Why a tool failed, for the model to read.
#[derive(Debug)]
pub(crate) struct ToolError(String);

impl ToolError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    pub(crate) fn into_result(self) -> CallToolResult {
        CallToolResult::error(vec![ContentBlock::text(self.0)])
    }

    pub(crate) fn message(&self) -> &str {
        &self.0
    }
}

impl From<opensandbox::Error> for ToolError {
    fn from(error: opensandbox::Error) -> Self {
        let mut text = error_chain(&error).to_string();
        for detail in error.api().map_or(&[][..], |api| &api.details) {
            text.push_str(&format!("\n- {detail}"));
        }
        Self(text)
    }
}

impl From<String> for ToolError {
    fn from(message: String) -> Self {
        Self(message)
    }
}

/// What a tool returns: a value of its schema, and pictures beside it.
pub(crate) struct Answer {
    value: Value,
    text: Option<String>,
    pictures: Vec<ContentBlock>,
}

impl Answer {
    pub(crate) fn new<T: Serialize>(value: &T) -> Self {
        Self {
            value: serde_json::to_value(value).expect("answers have text keys only"),
            text: None,
            pictures: Vec::new(),
        }
    }

    /// What the model reads instead of the value as JSON: the same, in as few words as it takes.
    pub(crate) fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    pub(crate) fn with_pictures(mut self, pictures: Vec<ContentBlock>) -> Self {
        self.pictures = pictures;
        self
    }

    pub(crate) fn into_result(self) -> CallToolResult {
        // On one line: indentation costs a model's context and says nothing.
        let text = self.text.unwrap_or_else(|| self.value.to_string());
        let mut content = vec![ContentBlock::text(text)];
        content.extend(self.pictures);
        let mut result = CallToolResult::success(content);
        result.structured_content = Some(self.value);
        result
    }
}

pub(crate) type Outcome = Result<Answer, ToolError>;
type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// What a tool does to the world, as hints for clients that ask before they call.
#[derive(Clone, Copy)]
pub(crate) enum Effect {
    /// It only looks.
    Reads,
    /// It adds or changes something in a sandbox.
    Changes,
    /// It ends or removes something.
    Destroys,
}

/// A tool and what does it.
pub(crate) struct Entry {
    pub(crate) tool: Tool,
    work: Box<dyn Fn(Call, Value) -> Result<Work, serde_json::Error> + Send + Sync>,
}

impl Entry {
    /// Begins the work, or says what is wrong with the arguments.
    pub(crate) fn begin(
        &self,
        call: Call,
        arguments: Option<JsonObject>,
    ) -> Result<Work, ToolError> {
        let arguments = Value::Object(arguments.unwrap_or_default());
        (self.work)(call, arguments).map_err(|error| {
            ToolError::new(format!(
                "the arguments of {} are not right: {error}",
                self.tool.name
            ))
        })
    }
}

/// A tool that takes `A`, returns `O` and does `work`.
pub(crate) fn tool<A, O, F, W>(
    name: &'static str,
    effect: Effect,
    description: &'static str,
    work: F,
) -> Entry
where
    A: DeserializeOwned + JsonSchema,
    O: JsonSchema,
    F: Fn(Call, A) -> W + Send + Sync + 'static,
    W: Future<Output = Outcome> + Send + 'static,
{
    let hints = ToolAnnotations::new()
        .read_only(matches!(effect, Effect::Reads))
        .destructive(matches!(effect, Effect::Destroys));
    let tool = Tool::new(name, description, schema::<A>())
        .with_raw_output_schema(schema::<O>())
        .with_annotations(hints);
    Entry {
        tool,
        work: Box::new(move |call, arguments| {
            let arguments: A = serde_json::from_value(arguments)?;
            Ok(Box::pin(work(call, arguments)) as Work)
        }),
    }
}

fn schema<T: JsonSchema>() -> Arc<JsonObject> {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let schema = generator.into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    drop_number_formats(&mut schema);
    let Value::Object(mut object) = schema else {
        unreachable!("the schema of a struct is an object");
    };
    // Every client knows the dialect; saying it costs a model's context in each tool.
    object.remove("$schema");
    Arc::new(object)
}

/// Takes away formats of numbers such as `uint64`: JSON Schema has none, and clients that check
/// schemas complain about each.
fn drop_number_formats(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let is_number = |format: &str| {
                let bits = format.trim_start_matches("uint").trim_start_matches("int");
                matches!(format, "double" | "float" | "uint" | "int") || bits.parse::<u8>().is_ok()
            };
            if object
                .get("format")
                .and_then(Value::as_str)
                .is_some_and(is_number)
            {
                object.remove("format");
            }
            object.values_mut().for_each(drop_number_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_number_formats),
        _ => {}
    }
}
