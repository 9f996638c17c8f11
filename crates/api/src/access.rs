//! Extensions of the lifecycle contract: API keys, tokens made from them, and tenants (`/keys`, `/tokens`,
//! `/tenants`). For administrators, but for tokens, which whoever has a key makes from it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::SandboxId;
use crate::secret::Secret;

/// What holders of a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyRole {
    /// Everything within its tenant, its keys included; in the built-in tenant also tenants.
    Admin,
    /// Everything within its tenant but keys.
    Operator,
    /// Makes, uses and removes sandboxes, snapshots and volumes.
    User,
    /// Looks, and changes nothing.
    Viewer,
}

/// One kind of thing that holders of a key do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyAction {
    /// Looks at sandboxes, snapshots, volumes, their events and logs.
    Read,
    /// Goes into sandboxes, and learns how.
    Connect,
    /// Makes sandboxes.
    Create,
    /// Changes and removes sandboxes; makes and removes snapshots and volumes.
    Change,
    /// Looks after the images of the machine.
    Images,
    /// Reads the audit trail.
    Audit,
    /// Reads what the server counts.
    Metrics,
    /// Makes and revokes keys.
    Keys,
}

/// `POST /keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateKeyRequest {
    /// For the audit trail; no two keys of a tenant share one.
    pub name: String,
    /// What it may do.
    pub role: KeyRole,
    /// Whose sandboxes it is for; nothing is the tenant of who asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Of what its role may do, only this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<KeyAction>>,
    /// Sandboxes of these images only are made with it: references as requests have them, or the
    /// beginning of some with `*` behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// Sandboxes with these labels only exist for it, and those that it makes get them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// When it ends; nothing is when it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// A key, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    /// By which it is revoked and rotated.
    pub id: String,
    /// For the audit trail.
    pub name: String,
    /// Whose sandboxes it is for.
    pub tenant: String,
    /// What it may do.
    pub role: KeyRole,
    /// Of what its role may do, only this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<KeyAction>>,
    /// Sandboxes of these images only are made with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// Sandboxes with these labels only exist for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// This sandbox only exists for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub sandbox_id: Option<SandboxId>,
    /// The id of the key from which it was made as a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Whether it stands in the server's configuration, where alone it can be changed.
    pub is_configured: bool,
    /// When it was made, or the configuration was read.
    pub created_at: Timestamp,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was last used; after a restart of the server, up to ten minutes before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
}

/// A key with its value, which is shown this once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewApiKey {
    /// What clients send as `OPEN-SANDBOX-API-KEY`.
    #[schema(value_type = String)]
    pub value: Secret,
    /// The rest of it.
    pub key: ApiKey,
}

/// Answer of `GET /keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListKeysResponse {
    /// By tenant and name, then tokens.
    pub items: Vec<ApiKey>,
}

/// `POST /keys/{keyId}/rotate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateKeyRequest {
    /// How long the old value is good; nothing is not at all. What is open with it ends either way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u64>,
}

/// `POST /tokens`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTokenRequest {
    /// For this sandbox only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub sandbox_id: Option<SandboxId>,
    /// For this only, of what the key may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<KeyAction>>,
    /// How long it is good: an hour where nothing is said, a day at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
}

/// `POST /tenants`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTenantRequest {
    /// 1 to 40 characters of a-z, 0-9 and '-'.
    pub name: String,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Whether it stands in the server's configuration, where alone it can be changed.
    pub is_configured: bool,
    /// When it was made, or the configuration was read.
    pub created_at: Timestamp,
}

/// Answer of `GET /tenants`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListTenantsResponse {
    /// By name, without the built-in one.
    pub items: Vec<Tenant>,
}
