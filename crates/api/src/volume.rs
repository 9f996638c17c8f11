//! Volumes: what is mounted into a sandbox.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::secret::Secret;

/// One mount. Exactly one of `host`, `pvc` and `ossfs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Unique in the sandbox; lower case letters, digits and dashes.
    #[schema(max_length = 63, pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    pub name: String,
    /// A path on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// A named volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<Pvc>,
    /// A bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ossfs: Option<Ossfs>,
    /// Absolute path inside the sandbox.
    #[serde(alias = "mount_path")]
    #[schema(pattern = "^/.*")]
    pub mount_path: String,
    /// No writes.
    #[serde(default, alias = "read_only")]
    pub read_only: bool,
    /// Relative path inside the volume to mount instead of its root.
    #[serde(default, alias = "sub_path", skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<String>,
}

/// A path on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Host {
    /// Absolute path.
    #[schema(pattern = r"^(/|[A-Za-z]:[\\/])")]
    pub path: String,
}

/// A named volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PVC)]
pub struct Pvc {
    /// Its name.
    #[serde(alias = "claim_name")]
    #[schema(max_length = 253, pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    pub claim_name: String,
    /// Make it when it does not exist.
    #[serde(default = "yes", alias = "create_if_not_exists")]
    pub create_if_not_exists: bool,
    /// Remove it with the sandbox, if this request made it.
    #[serde(default, alias = "delete_on_sandbox_termination")]
    pub delete_on_sandbox_termination: bool,
    /// The class of storage to make it from.
    #[serde(
        default,
        alias = "storage_class",
        skip_serializing_if = "Option::is_none"
    )]
    pub storage_class: Option<String>,
    /// Its size when it is made, as a quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"^\d+(\.\d+)?(Ki|Mi|Gi|Ti|Pi|Ei)?$")]
    pub storage: Option<String>,
    /// Who may mount it, in Kubernetes' words.
    #[serde(
        default,
        alias = "access_modes",
        skip_serializing_if = "Option::is_none"
    )]
    pub access_modes: Option<Vec<String>>,
}

/// A bucket mounted with OSSFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OSSFS)]
pub struct Ossfs {
    /// The bucket's name.
    #[schema(min_length = 3, max_length = 63)]
    pub bucket: String,
    /// Where the bucket is.
    #[schema(min_length = 1)]
    pub endpoint: String,
    /// `1.0` or `2.0`.
    #[serde(default = "ossfs_version_2")]
    pub version: String,
    /// Mount options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<String>>,
    /// The key's id.
    #[serde(
        default,
        alias = "access_key_id",
        skip_serializing_if = "Option::is_none"
    )]
    pub access_key_id: Option<String>,
    /// The key.
    #[serde(
        default,
        alias = "access_key_secret",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub access_key_secret: Option<Secret>,
}

fn yes() -> bool {
    true
}

fn ossfs_version_2() -> String {
    "2.0".to_owned()
}
