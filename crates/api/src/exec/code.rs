//! Code: contexts that keep their state, and cells that run in them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::deserialize::null_as_default;
use crate::id::ContextId;

/// The language of code that names none.
pub const DEFAULT_LANGUAGE: &str = "python";

/// `POST /code/context`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CodeContextRequest)]
pub struct CreateContextRequest {
    /// `python`, `bash`, `javascript` and so on; nothing is [`DEFAULT_LANGUAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Extension: environment of its interpreter, over everything else.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub envs: BTreeMap<String, String>,
}

/// A code context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CodeContext)]
pub struct Context {
    /// The context's id.
    #[schema(value_type = String)]
    pub id: ContextId,
    /// Its language.
    pub language: String,
    /// Its working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// `POST /code`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunCodeRequest {
    /// Where to run it; nothing is the default context of the default language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextRef>,
    /// The code.
    pub code: String,
    /// Extension: end this run after this many milliseconds; 0 or nothing is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub timeout: Option<i64>,
}

/// Names a context: by id, or the default one of a language.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContextRef {
    /// The context's id. Blank is as good as missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The language, when there is no id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Working directory of a default context that is made by this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// Query of `GET` and `DELETE /code/contexts`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextsQuery {
    /// Only contexts of this language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
}
