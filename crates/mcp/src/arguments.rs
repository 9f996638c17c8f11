//! Arguments that several tools share.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::tool::ToolError;

/// A sandbox that is known here, or is to be connected to.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct InSandbox {
    /// The sandbox's id, as sandbox_create answered it.
    pub(crate) sandbox_id: String,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    pub(crate) connect_if_missing: bool,
}

/// A sandbox by its id.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct OfSandbox {
    /// The sandbox's id.
    pub(crate) sandbox_id: String,
}

/// Paths in a sandbox.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Paths {
    /// The sandbox's id.
    pub(crate) sandbox_id: String,
    /// Absolute paths.
    pub(crate) paths: Vec<String>,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    pub(crate) connect_if_missing: bool,
}

/// A number of seconds that makes sense.
pub(crate) fn seconds(name: &str, seconds: f64) -> Result<Duration, ToolError> {
    let duration = Duration::try_from_secs_f64(seconds).ok();
    let duration = duration.filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| ToolError::new(format!("{name} must be a positive number of seconds")))
}
