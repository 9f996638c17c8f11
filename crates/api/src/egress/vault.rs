//! The credential vault: secrets that are put into a sandbox's requests on the way out, so that
//! the sandbox never holds them. Unknown fields are refused.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::deserialize::null_as_default;
use crate::secret::Secret;

/// `POST /credential-vault`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = CredentialVaultCreateRequest)]
pub struct CreateVaultRequest {
    /// The secrets.
    pub credentials: Vec<Credential>,
    /// Where they go.
    pub bindings: Vec<CredentialBinding>,
}

/// `PATCH /credential-vault`: deletions first, then replacements, then additions, all or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = CredentialVaultMutationRequest)]
pub struct MutateVaultRequest {
    /// Refuse unless the vault is at this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_revision: Option<i64>,
    /// Changes of secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<CredentialMutationSet>,
    /// Changes of where they go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bindings: Option<CredentialBindingMutationSet>,
}

/// Changes of secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialMutationSet {
    /// New ones.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub add: Vec<Credential>,
    /// New values for known names.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub replace: Vec<Credential>,
    /// Names that go.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub delete: Vec<String>,
}

/// Changes of bindings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialBindingMutationSet {
    /// New ones.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub add: Vec<CredentialBinding>,
    /// New contents for known names.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub replace: Vec<CredentialBinding>,
    /// Names that go.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub delete: Vec<String>,
}

/// A secret with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// Its name.
    pub name: String,
    /// Where its value comes from.
    pub source: CredentialSource,
}

/// Where a secret's value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = InlineCredentialSource)]
pub struct CredentialSource {
    /// The kind of source; nothing is `inline`.
    #[serde(rename = "type", default)]
    #[schema(required = true)]
    pub kind: CredentialSourceKind,
    /// The value.
    #[schema(value_type = String)]
    pub value: Secret,
}

/// Kinds of sources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CredentialSourceKind {
    /// The value is in the request.
    #[default]
    #[serde(alias = "")]
    Inline,
}

/// Where a secret goes, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialBinding {
    /// Its name.
    pub name: String,
    /// Which requests get it.
    #[serde(rename = "match")]
    pub matches: CredentialMatch,
    /// How it is put in.
    pub auth: CredentialAuth,
}

/// Which requests get a secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialMatch {
    /// `https`, `http`; nothing is `https`.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub schemes: Vec<CredentialScheme>,
    /// Ports; nothing is 443.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ports: Vec<u16>,
    /// Names, or `*.` and a name.
    pub hosts: Vec<String>,
    /// Methods; nothing is GET, POST, PUT, PATCH and DELETE.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub methods: Vec<String>,
    /// Paths, with `*` at the end for everything below; nothing is `/*`.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub paths: Vec<String>,
}

/// Schemes that can carry a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CredentialScheme {
    /// With TLS.
    Https,
    /// Without.
    Http,
}

/// How a secret is put into a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub enum CredentialAuth {
    /// `Authorization: Bearer value`.
    Bearer {
        /// Which secret.
        credential: String,
    },
    /// `Authorization: Basic value`; the value is encoded already.
    Basic {
        /// Which secret.
        credential: String,
    },
    /// A header of its own.
    ApiKey {
        /// The header's name.
        #[schema(pattern = r"^[A-Za-z0-9!#$%&'*+\-.^_`|~]+$")]
        name: String,
        /// Which secret.
        credential: String,
    },
    /// Several headers.
    CustomHeaders {
        /// The headers.
        headers: Vec<CustomHeaderEntry>,
    },
}

/// One header that carries a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CustomHeaderEntry {
    /// The header's name.
    #[schema(pattern = r"^[A-Za-z0-9!#$%&'*+\-.^_`|~]+$")]
    pub name: String,
    /// Which secret.
    pub credential: String,
}

/// Answer of every route that changes or shows the vault. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CredentialVaultState)]
pub struct VaultState {
    /// Goes up with every change.
    pub revision: i64,
    /// The secrets' names, sorted.
    pub credentials: Vec<CredentialMetadata>,
    /// Where they go, sorted by name.
    pub bindings: Vec<CredentialBindingMetadata>,
}

/// Answer of `GET /credential-vault/credentials`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CredentialListResponse {
    /// The vault's revision.
    pub revision: i64,
    /// The secrets' names, sorted.
    pub credentials: Vec<CredentialMetadata>,
}

/// Answer of `GET /credential-vault/bindings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CredentialBindingListResponse {
    /// The vault's revision.
    pub revision: i64,
    /// Where secrets go, sorted by name.
    pub bindings: Vec<CredentialBindingMetadata>,
}

/// What may be told of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialMetadata {
    /// Its name.
    pub name: String,
    /// The kind of its source.
    pub source_type: String,
    /// The vault's revision when it was last written.
    pub revision: i64,
}

/// What may be told of a binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CredentialBindingMetadata {
    /// Its name.
    pub name: String,
    /// The vault's revision.
    pub revision: i64,
    /// Which requests get it.
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<CredentialMatch>,
    /// How it is put in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<CredentialAuthMetadata>,
}

/// What may be told of how a secret is put in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CredentialAuthMetadata {
    /// The kind.
    #[serde(rename = "type")]
    pub kind: String,
    /// The header's name, for `apiKey`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
