//! Templates: images prepared so that sandboxes start from them at once.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sandbox::PaginationInfo;

/// `POST /templates`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = CreateFsbTemplateRequest)]
pub struct CreateTemplateRequest {
    /// The image to prepare.
    #[schema(min_length = 1)]
    pub image: String,
    /// Where to publish the prepared image.
    #[schema(min_length = 1)]
    pub publish: String,
    /// How to store it.
    #[serde(default)]
    pub format: TemplateFormat,
    /// What its sandboxes may use.
    #[serde(
        default,
        alias = "resource_limits",
        skip_serializing_if = "Option::is_none"
    )]
    pub resource_limits: Option<BTreeMap<String, String>>,
    /// The command its sandboxes supervise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Environment of its sandboxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// Labels of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// When a sandbox made from it counts as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<TemplateReadiness>,
}

/// How a prepared image is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TemplateFormat {
    /// As files.
    Native,
    /// As a block device that loads on demand.
    #[default]
    Overlaybd,
}

/// When a sandbox made from a template counts as ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FsbTemplateReadiness)]
pub struct TemplateReadiness {
    /// A command that succeeds when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
    /// Seconds to wait after that.
    #[serde(
        default,
        alias = "warmup_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub warmup_seconds: Option<u64>,
}

/// How far a template is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum TemplatePhase {
    /// Waits.
    Pending,
    /// Is being prepared.
    Building,
    /// Sandboxes can be made from it.
    Succeeded,
    /// It could not be prepared.
    Failed,
}

/// How a template stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FsbTemplateStatus)]
pub struct TemplateStatus {
    /// How far it is.
    pub phase: TemplatePhase,
    /// Where its manifest is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_ref: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FsbTemplate)]
pub struct Template {
    /// The template's id.
    pub template_id: String,
    /// The image it was prepared from.
    pub image: String,
    /// Where the prepared image is published.
    pub publish: String,
    /// How it is stored.
    pub format: TemplateFormat,
    /// What its sandboxes may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_limits: Option<BTreeMap<String, String>>,
    /// The command its sandboxes supervise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Environment of its sandboxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// Labels of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// When a sandbox made from it counts as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<TemplateReadiness>,
    /// How it stands.
    pub status: TemplateStatus,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// Answer of `GET /templates`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ListFsbTemplatesResponse)]
pub struct ListTemplatesResponse {
    /// The page, newest first.
    pub items: Vec<Template>,
    /// Where the page stands.
    pub pagination: PaginationInfo,
}
