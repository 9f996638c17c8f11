//! Sandboxes: making them, what they look like, renewing and listing them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::deserialize::{lenient_timestamp, null_as_default, open_enum};
use crate::id::{SandboxId, SnapshotId};
use crate::network_policy::NetworkPolicy;
use crate::secret::Secret;
use crate::volume::Volume;

/// The header that carries the API key.
pub const API_KEY_HEADER: &str = "OPEN-SANDBOX-API-KEY";

/// The header that names a request, in both directions.
pub const REQUEST_ID_HEADER: &str = "X-Request-ID";

/// Extension: the header that makes a create safe to repeat.
pub const IDEMPOTENCY_KEY_HEADER: &str = "Idempotency-Key";

/// Tells the proxy not to renew the sandbox for this request, when its value is `skip`.
pub const ACCESS_RENEW_HEADER: &str = "OpenSandbox-Access-Renew";

/// Says whether a sandbox came from a template.
pub const ORIGIN_HEADER: &str = "OPEN-SANDBOX-ORIGIN";

/// Metadata keys with this prefix belong to the server.
pub const RESERVED_METADATA_PREFIX: &str = "opensandbox.io/";

/// Extension: the metadata key under which a sandbox has a name of its own, which no other living
/// sandbox has.
pub const NAME_METADATA_KEY: &str = "osb/name";

/// Extension keys with this prefix come back in answers.
pub const ECHOED_EXTENSION_PREFIX: &str = "opensandbox.extensions.";

/// Renews a sandbox by this many seconds on each access through the proxy.
pub const EXTENSION_RENEW_SECONDS: &str = "access.renew.extend.seconds";

/// In which origin pages of the sandbox run in a browser while all sandboxes are reached under one: each in
/// one of its own, which has no storage, no cookies and no credentials for what it loads, or with
/// [`PAGE_ORIGIN_SHARED`] in the origin that all sandboxes and the API share.
pub const EXTENSION_PAGE_ORIGIN: &str = "opensandbox.extensions.page-origin";

/// Pages of the sandbox can reach those of every other sandbox that the same browser has opened.
pub const PAGE_ORIGIN_SHARED: &str = "shared";

/// The value that [`EXTENSION_PAGE_ORIGIN`] has where it is not given.
pub const PAGE_ORIGIN_ISOLATED: &str = "isolated";

/// Takes the sandbox from this pool.
pub const EXTENSION_POOL_REF: &str = "poolRef";

/// `POST /sandboxes`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateSandboxRequest {
    /// The image to start from. Exactly one of `image` and `snapshotId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSpec>,
    /// The snapshot to start from.
    #[serde(
        default,
        alias = "snapshot_id",
        skip_serializing_if = "Option::is_none"
    )]
    pub snapshot_id: Option<String>,
    /// The template to start from.
    #[serde(
        default,
        alias = "template_id",
        skip_serializing_if = "Option::is_none"
    )]
    pub template_id: Option<String>,
    /// The platform; nothing is the server's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformSpec>,
    /// Seconds until it is deleted; nothing is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 60)]
    pub timeout: Option<i64>,
    /// What it may use: `cpu`, `memory`, `gpu`, `disk`, as quantities.
    #[serde(
        default,
        alias = "resource_limits",
        skip_serializing_if = "Option::is_none"
    )]
    pub resource_limits: Option<BTreeMap<String, String>>,
    /// What it is sure to get, as quantities.
    #[serde(
        default,
        alias = "resource_requests",
        skip_serializing_if = "Option::is_none"
    )]
    pub resource_requests: Option<BTreeMap<String, String>>,
    /// Environment of the entrypoint and of every command. An entry without a value is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, Option<String>>>,
    /// Labels of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Hooks that run in the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<SandboxLifecycle>,
    /// The command to supervise; required with an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// What it may reach; nothing is no restriction.
    #[serde(
        default,
        alias = "network_policy",
        skip_serializing_if = "Option::is_none"
    )]
    pub network_policy: Option<NetworkPolicy>,
    /// Whether credentials are put into its requests on the way out.
    #[serde(
        default,
        alias = "credential_proxy",
        skip_serializing_if = "Option::is_none"
    )]
    pub credential_proxy: Option<CredentialProxyConfig>,
    /// Whether its endpoints need a token of their own.
    #[serde(default, alias = "secure_access", deserialize_with = "null_as_default")]
    pub secure_access: bool,
    /// What is mounted into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<Volume>>,
    /// Further settings by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<BTreeMap<String, String>>,
}

impl CreateSandboxRequest {
    /// The environment without the entries that have no value.
    pub fn env_given(&self) -> BTreeMap<String, String> {
        let entries = self.env.iter().flatten();
        entries
            .filter_map(|(key, value)| Some((key.clone(), value.clone()?)))
            .collect()
    }

    /// The program and its arguments. One string alone is a command line, which is split as a shell
    /// would: the published server does so (`["tail -f /dev/null"]`), and clients rely on it.
    /// `None` where there is no entrypoint, or a quotation in it does not end.
    pub fn entrypoint_words(&self) -> Option<Vec<String>> {
        match self.entrypoint.as_deref()? {
            [line] => shlex::split(line),
            words => Some(words.to_vec()),
        }
    }

    /// The extension with this name.
    pub fn extension(&self, name: &str) -> Option<&str> {
        self.extensions.as_ref()?.get(name).map(String::as_str)
    }
}

/// An image, and how to get it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageSpec {
    /// The image's reference, for example `python:3.11`.
    pub uri: String,
    /// Credentials for a private registry. Never in an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<ImageAuth>,
}

/// Credentials for a private registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageAuth {
    /// User name.
    pub username: String,
    /// Password or token.
    #[schema(value_type = String)]
    pub password: Secret,
}

/// Operating system and processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlatformSpec {
    /// `linux` or `windows`.
    pub os: String,
    /// `amd64` or `arm64`.
    pub arch: String,
}

/// Whether credentials are put into a sandbox's requests on the way out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CredentialProxyConfig {
    /// On or off.
    #[serde(default)]
    pub enabled: bool,
}

/// Hooks that run in a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxLifecycle {
    /// Runs before the entrypoint.
    #[serde(default, alias = "pre_start", skip_serializing_if = "Option::is_none")]
    pub pre_start: Option<LifecycleHook>,
    /// Run on a schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub periodic: Option<Vec<PeriodicLifecycleHook>>,
}

/// A hook that runs once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LifecycleHook {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How long it may take.
    #[serde(
        default,
        alias = "timeout_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(minimum = 1, maximum = 10800)]
    pub timeout_seconds: Option<i64>,
}

/// A hook that runs on a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PeriodicLifecycleHook {
    /// Its name.
    #[schema(min_length = 1)]
    pub name: String,
    /// When, as a cron expression.
    #[schema(min_length = 1)]
    pub schedule: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How long it may take.
    #[serde(
        default,
        alias = "timeout_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(minimum = 1, maximum = 300)]
    pub timeout_seconds: Option<i64>,
}

open_enum!(
    /// What a sandbox is doing.
    SandboxState {
        /// Being made.
        Pending = "Pending",
        /// Takes requests.
        Running = "Running",
        /// Being paused.
        Pausing = "Pausing",
        /// Frozen.
        Paused = "Paused",
        /// Being resumed.
        Resuming = "Resuming",
        /// Being deleted.
        Stopping = "Stopping",
        /// Its entrypoint has ended, or it was deleted.
        Terminated = "Terminated",
        /// It failed.
        Failed = "Failed",
    } unknown as "Unknown"
);

/// A sandbox's state, with why and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxStatus {
    /// What it is doing.
    pub state: SandboxState,
    /// Why, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_at: Option<Timestamp>,
}

/// Answer of `POST /sandboxes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateSandboxResponse {
    /// The sandbox's id.
    #[schema(value_type = String)]
    pub id: SandboxId,
    /// What it is doing.
    pub status: SandboxStatus,
    /// Labels of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Settings that come back: those that begin with [`ECHOED_EXTENSION_PREFIX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<BTreeMap<String, String>>,
    /// Extension: the digest of the configuration of the image that it stands on, once it is known: which
    /// image a tag, or an alias of the server, meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<String>,
    /// Its platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformSpec>,
    /// When it is deleted; nothing is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
    /// The command it supervises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
}

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    /// The sandbox's id.
    #[schema(value_type = String)]
    pub id: SandboxId,
    /// The image it started from, unless from a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSpec>,
    /// The snapshot it started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub snapshot_id: Option<SnapshotId>,
    /// Extension: the digest of the configuration of the image that it stands on, once it is known: which
    /// image a tag, or an alias of the server, meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<String>,
    /// Its platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformSpec>,
    /// What it is doing.
    pub status: SandboxStatus,
    /// Labels of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Settings that come back: those that begin with [`ECHOED_EXTENSION_PREFIX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<BTreeMap<String, String>>,
    /// The pool it was taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationSummary>,
    /// The command it supervises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// When it is deleted; nothing is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// The pool a sandbox was taken from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllocationSummary {
    /// How it was had.
    #[serde(default)]
    pub mode: AllocationMode,
    /// The pool's name.
    #[serde(alias = "pool_ref")]
    pub pool_ref: String,
    /// Whether it has it.
    #[serde(default)]
    pub state: AllocationState,
}

/// How a sandbox was had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllocationMode {
    /// From a pool.
    #[default]
    Pool,
}

/// Whether a sandbox was had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllocationState {
    /// It was.
    #[default]
    Allocated,
}

impl AllocationSummary {
    /// A sandbox taken from this pool.
    pub fn from_pool(pool_ref: impl Into<String>) -> Self {
        Self {
            mode: AllocationMode::Pool,
            pool_ref: pool_ref.into(),
            state: AllocationState::Allocated,
        }
    }
}

/// Answer of `GET /sandboxes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListSandboxesResponse {
    /// The page, newest first.
    pub items: Vec<Sandbox>,
    /// Where the page stands.
    pub pagination: PaginationInfo,
}

/// Where a page stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PaginationInfo {
    /// Which page, from 1.
    #[schema(minimum = 1)]
    pub page: u64,
    /// Items per page.
    #[schema(minimum = 1)]
    pub page_size: u64,
    /// Items in all.
    pub total_items: u64,
    /// Pages in all; 0 when there are no items.
    pub total_pages: u64,
    /// Whether another page follows.
    pub has_next_page: bool,
}

impl PaginationInfo {
    /// Where page `page` of `page_size` items stands among `total_items`.
    pub const fn of(page: u64, page_size: u64, total_items: u64) -> Self {
        let total_pages = if page_size == 0 {
            0
        } else {
            total_items.div_ceil(page_size)
        };
        Self {
            page,
            page_size,
            total_items,
            total_pages,
            has_next_page: page < total_pages,
        }
    }
}

/// Body of `PATCH /sandboxes/{id}/metadata`: a value sets a label, `null` removes it.
pub type MetadataPatch = BTreeMap<String, Option<String>>;

/// `POST /sandboxes/{id}/renew-expiration`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenewSandboxExpirationRequest {
    /// When it is to be deleted. An instant without an offset is taken as UTC.
    #[serde(alias = "expires_at", deserialize_with = "lenient_timestamp")]
    pub expires_at: Timestamp,
}

/// Answer of `POST /sandboxes/{id}/renew-expiration`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenewSandboxExpirationResponse {
    /// When it is deleted.
    pub expires_at: Timestamp,
}

/// Answer of `GET /health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = HealthResponse)]
pub struct Health {
    /// `healthy` or `unhealthy`.
    pub status: String,
    /// Extension: what is wrong, by part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problems: Option<BTreeMap<String, String>>,
}
