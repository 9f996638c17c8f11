//! The error envelope of every contract and every error code in use.
//!
//! A code is a promise to clients: its text never changes. Which HTTP status goes with a code is
//! decided where the error arises, because the published protocol uses several for some codes.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::RequestId;

/// The body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ErrorResponse)]
pub struct ErrorBody {
    /// What went wrong, for programs. One of [`ErrorCode`] when it comes from us.
    pub code: String,
    /// What happened, why, and what to do next, for people.
    pub message: String,
    /// The request this answers, as in the `X-Request-ID` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub request_id: Option<RequestId>,
    /// Every problem of a request that failed validation, one entry each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Vec<ErrorDetail>>,
}

/// One problem of a request, in the shape that clients of the published server know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ValidationError)]
pub struct ErrorDetail {
    /// Where: `body`, `query` or `path`, then the names and indexes that lead to the field.
    #[schema(inline)]
    pub loc: Vec<Loc>,
    /// What is wrong and what would be right.
    pub msg: String,
    /// The class of the problem; `value_error` unless we know better.
    #[serde(rename = "type")]
    pub kind: String,
}

/// One step of the way to a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Loc {
    /// An index into a list.
    Index(u64),
    /// The name of a field.
    Name(String),
}

impl ErrorBody {
    /// An envelope with a code and a message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: code.as_str().to_owned(),
            message: message.into(),
            request_id: None,
            detail: None,
        }
    }

    /// The same envelope, with the request it answers.
    #[must_use]
    pub fn with_request_id(mut self, request_id: RequestId) -> Self {
        self.request_id = Some(request_id);
        self
    }

    /// The code, when it is one we know.
    pub fn known_code(&self) -> Option<ErrorCode> {
        ErrorCode::from_wire(&self.code)
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// Every error code in use.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$doc])* $variant,)*
        }

        impl ErrorCode {
            /// All codes, in the order of their declaration.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)*];

            /// The code as it stands on the wire.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $text,)*
                }
            }

            /// The code with this text, if there is one.
            pub fn from_wire(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(ErrorCode::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    // Execution.
    /// The body is not what the route takes.
    InvalidRequestBody = "INVALID_REQUEST_BODY",
    /// A query parameter is missing.
    MissingQuery = "MISSING_QUERY",
    /// The operation failed while it ran.
    RuntimeError = "RUNTIME_ERROR",
    /// The uploaded form is not usable.
    InvalidFile = "INVALID_FILE",
    /// The uploaded form has no file part, or a bad one.
    InvalidFileContent = "INVALID_FILE_CONTENT",
    /// The uploaded form has no metadata part, or a bad one.
    InvalidFileMetadata = "INVALID_FILE_METADATA",
    /// No such file or directory.
    FileNotFound = "FILE_NOT_FOUND",
    /// Nothing more is known.
    Unknown = "UNKNOWN",
    /// No such session, context or command.
    ContextNotFound = "CONTEXT_NOT_FOUND",
    /// This daemon or this image cannot do that.
    NotSupported = "NOT_SUPPORTED",
    /// Another client holds the terminal.
    AlreadyConnected = "ALREADY_CONNECTED",
    /// The shell of a terminal did not start.
    StartFailed = "START_FAILED",
    /// Input could not be written to the process.
    StdinWriteFailed = "STDIN_WRITE_FAILED",
    /// A terminal frame that means nothing.
    InvalidFrame = "INVALID_FRAME",
    /// Another client took the terminal over.
    TakenOver = "TAKEN_OVER",
    /// The terminal's session has ended.
    SessionGone = "SESSION_GONE",
    /// A named limit of the daemon is reached; the message says which.
    LimitReached = "LIMIT_REACHED",
    /// The event asked for is no longer kept.
    EventGone = "EVENT_GONE",

    // Lifecycle, on any backend. The prefix names where the published server first used them.
    /// The backend did not come up.
    DockerInitializationError = "DOCKER::INITIALIZATION_ERROR",
    /// The sandbox could not be looked up.
    DockerSandboxQueryFailed = "DOCKER::SANDBOX_QUERY_FAILED",
    /// No such sandbox.
    DockerSandboxNotFound = "DOCKER::SANDBOX_NOT_FOUND",
    /// The image could not be pulled.
    DockerSandboxImagePullFailed = "DOCKER::SANDBOX_IMAGE_PULL_FAILED",
    /// The image of a snapshot could not be removed.
    DockerSnapshotImageRemoveFailed = "DOCKER::SNAPSHOT_IMAGE_REMOVE_FAILED",
    /// The sandbox did not start.
    DockerSandboxStartFailed = "DOCKER::SANDBOX_START_FAILED",
    /// The sandbox could not be deleted.
    DockerSandboxDeleteFailed = "DOCKER::SANDBOX_DELETE_FAILED",
    /// The sandbox does not run.
    DockerSandboxNotRunning = "DOCKER::SANDBOX_NOT_RUNNING",
    /// The sandbox could not be paused.
    DockerSandboxPauseFailed = "DOCKER::SANDBOX_PAUSE_FAILED",
    /// The sandbox is not paused.
    DockerSandboxNotPaused = "DOCKER::SANDBOX_NOT_PAUSED",
    /// The sandbox could not be resumed.
    DockerSandboxResumeFailed = "DOCKER::SANDBOX_RESUME_FAILED",
    /// The expiry asked for is in the past, or the sandbox has none.
    DockerInvalidExpiration = "DOCKER::INVALID_EXPIRATION",
    /// The expiry asked for is not later than the present one.
    DockerExpirationNotExtended = "DOCKER::EXPIRATION_NOT_EXTENDED",
    /// The daemon in the sandbox did not start.
    DockerSandboxExecdStartFailed = "DOCKER::SANDBOX_EXECD_START_FAILED",
    /// The daemon could not be put into the sandbox.
    DockerSandboxExecdDistributionFailed = "DOCKER::SANDBOX_EXECD_DISTRIBUTION_FAILED",
    /// The start-up files could not be put into the sandbox.
    DockerSandboxBootstrapInstallFailed = "DOCKER::SANDBOX_BOOTSTRAP_INSTALL_FAILED",
    /// The entrypoint is empty or unusable.
    DockerInvalidEntrypoint = "DOCKER::INVALID_ENTRYPOINT",
    /// Not a port.
    DockerInvalidPort = "DOCKER::INVALID_PORT",
    /// The network mode gives this port no address.
    DockerNetworkModeEndpointUnavailable = "DOCKER::NETWORK_MODE_ENDPOINT_UNAVAILABLE",

    // Kubernetes.
    /// The cluster could not be reached at start.
    KubernetesInitializationError = "KUBERNETES::INITIALIZATION_ERROR",
    /// No such sandbox.
    KubernetesSandboxNotFound = "KUBERNETES::SANDBOX_NOT_FOUND",
    /// The pod failed.
    KubernetesPodFailed = "KUBERNETES::POD_FAILED",
    /// The pod was not ready in time.
    KubernetesPodReadyTimeout = "KUBERNETES::POD_READY_TIMEOUT",
    /// The cluster refused or failed a call.
    KubernetesApiError = "KUBERNETES::API_ERROR",
    /// The pod has no address yet.
    KubernetesPodIpNotAvailable = "KUBERNETES::POD_IP_NOT_AVAILABLE",
    /// A quota is used up.
    KubernetesQuotaExceeded = "KUBERNETES::QUOTA_EXCEEDED",
    /// The sandbox's state does not allow this.
    KubernetesInvalidState = "KUBERNETES::INVALID_STATE",
    /// No such pool.
    KubernetesPoolNotFound = "KUBERNETES::POOL_NOT_FOUND",
    /// A pool with this name exists.
    KubernetesPoolAlreadyExists = "KUBERNETES::POOL_ALREADY_EXISTS",
    /// The cluster refused or failed a call about pools.
    KubernetesPoolApiError = "KUBERNETES::POOL_API_ERROR",
    /// This backend has no pools.
    KubernetesPoolNotSupported = "KUBERNETES::POOL_NOT_SUPPORTED",
    /// The pool is used up; try again after `Retry-After`.
    KubernetesPoolCapacityExhausted = "KUBERNETES::POOL_CAPACITY_EXHAUSTED",

    // Templates.
    /// No such sandbox made from a template.
    FsbSandboxNotFound = "FSB::SANDBOX_NOT_FOUND",
    /// No such pool of prepared sandboxes.
    FsbPoolNotFound = "FSB::POOL_NOT_FOUND",
    /// No such template.
    FsbTemplateNotFound = "FSB::TEMPLATE_NOT_FOUND",
    /// The template conflicts with another.
    FsbTemplateConflict = "FSB::TEMPLATE_CONFLICT",
    /// The template service refused or failed a call.
    FsbApiError = "FSB::API_ERROR",
    /// This backend has no templates.
    FsbApiNotSupported = "FSB::API_NOT_SUPPORTED",

    // Sandboxes.
    /// Nothing more is known.
    SandboxUnknownError = "SANDBOX::UNKNOWN_ERROR",
    /// This backend cannot do that.
    SandboxApiNotSupported = "SANDBOX::API_NOT_SUPPORTED",
    /// Metadata breaks the label rules.
    SandboxInvalidMetadataLabel = "SANDBOX::INVALID_METADATA_LABEL",
    /// A field has a value that is not allowed.
    SandboxInvalidParameter = "SANDBOX::INVALID_PARAMETER",
    /// A fault of the server.
    SandboxInternalError = "SANDBOX::INTERNAL_ERROR",
    /// This backend has no pools to take a sandbox from.
    SandboxUnsupportedPoolRef = "SANDBOX::UNSUPPORTED_POOL_REF",

    // Volumes.
    /// The volume's name breaks the rules.
    VolumeInvalidName = "VOLUME::INVALID_NAME",
    /// Two volumes have one name.
    VolumeDuplicateName = "VOLUME::DUPLICATE_NAME",
    /// Not exactly one of `host`, `pvc` and `ossfs`.
    VolumeInvalidBackend = "VOLUME::INVALID_BACKEND",
    /// The mount path is not absolute or not clean.
    VolumeInvalidMountPath = "VOLUME::INVALID_MOUNT_PATH",
    /// The path inside the volume leads outside it.
    VolumeInvalidSubPath = "VOLUME::INVALID_SUB_PATH",
    /// The host path is not absolute or not clean.
    VolumeInvalidHostPath = "VOLUME::INVALID_HOST_PATH",
    /// The operator does not allow this host path.
    VolumeHostPathNotAllowed = "VOLUME::HOST_PATH_NOT_ALLOWED",
    /// The claim's name breaks the rules.
    VolumeInvalidPvcName = "VOLUME::INVALID_PVC_NAME",
    /// This backend has no such volumes.
    VolumeUnsupportedBackend = "VOLUME::UNSUPPORTED_BACKEND",
    /// The host path does not exist.
    VolumeHostPathNotFound = "VOLUME::HOST_PATH_NOT_FOUND",
    /// The host path could not be made.
    VolumeHostPathCreateFailed = "VOLUME::HOST_PATH_CREATE_FAILED",
    /// The claim does not exist.
    VolumePvcNotFound = "VOLUME::PVC_NOT_FOUND",
    /// The claim could not be looked up.
    VolumePvcInspectFailed = "VOLUME::PVC_INSPECT_FAILED",
    /// The claim's driver has no paths inside volumes.
    VolumePvcSubpathUnsupportedDriver = "VOLUME::PVC_SUBPATH_UNSUPPORTED_DRIVER",
    /// Not a version of OSSFS.
    VolumeInvalidOssfsVersion = "VOLUME::INVALID_OSSFS_VERSION",
    /// The OSSFS endpoint is not usable.
    VolumeInvalidOssfsEndpoint = "VOLUME::INVALID_OSSFS_ENDPOINT",
    /// The OSSFS bucket is not usable.
    VolumeInvalidOssfsBucket = "VOLUME::INVALID_OSSFS_BUCKET",
    /// An OSSFS option is not allowed.
    VolumeInvalidOssfsOption = "VOLUME::INVALID_OSSFS_OPTION",
    /// OSSFS credentials are missing.
    VolumeInvalidOssfsCredentials = "VOLUME::INVALID_OSSFS_CREDENTIALS",
    /// The OSSFS mount root is not usable.
    VolumeInvalidOssfsMountRoot = "VOLUME::INVALID_OSSFS_MOUNT_ROOT",
    /// The path does not exist in the bucket.
    VolumeOssfsPathNotFound = "VOLUME::OSSFS_PATH_NOT_FOUND",
    /// The bucket could not be mounted.
    VolumeOssfsMountFailed = "VOLUME::OSSFS_MOUNT_FAILED",
    /// The bucket could not be unmounted.
    VolumeOssfsUnmountFailed = "VOLUME::OSSFS_UNMOUNT_FAILED",

    // Snapshots.
    /// No such snapshot.
    SnapshotNotFound = "SNAPSHOT::NOT_FOUND",
    /// The snapshot is not ready yet.
    SnapshotNotReady = "SNAPSHOT::NOT_READY",
    /// The snapshot cannot be restored from.
    SnapshotInvalidRestoreConfig = "SNAPSHOT::INVALID_RESTORE_CONFIG",
    /// The snapshot's state does not allow this.
    SnapshotInvalidState = "SNAPSHOT::INVALID_STATE",
    /// The sandbox's state does not allow a snapshot.
    SnapshotInvalidSourceState = "SNAPSHOT::INVALID_SOURCE_STATE",
    /// The snapshot is in use or being made.
    SnapshotDeleteConflict = "SNAPSHOT::DELETE_CONFLICT",
    /// This backend has no snapshots.
    SnapshotNotImplemented = "SNAPSHOT::NOT_IMPLEMENTED",
    /// The backend could not make the snapshot.
    SnapshotRuntimeCreateFailed = "SNAPSHOT::RUNTIME_CREATE_FAILED",
    /// The backend is making another snapshot of this sandbox.
    SnapshotRuntimeCreateConflict = "SNAPSHOT::RUNTIME_CREATE_CONFLICT",
    /// The backend cannot make this snapshot.
    SnapshotRuntimePreflightFailed = "SNAPSHOT::RUNTIME_PREFLIGHT_FAILED",
    /// The snapshot belongs to another kind of backend.
    SnapshotUnsupportedRuntime = "SNAPSHOT::UNSUPPORTED_RUNTIME",

    // The HTTP edge.
    /// The API key header is missing.
    MissingApiKey = "MISSING_API_KEY",
    /// The API key is not known.
    InvalidApiKey = "INVALID_API_KEY",
    /// Tenants cannot be looked up now.
    TenantProviderUnavailable = "TENANT_PROVIDER_UNAVAILABLE",
    /// The metadata filter is not `key=value` pairs.
    InvalidMetadataFormat = "INVALID_METADATA_FORMAT",
    /// A metadata patch touches a reserved key or breaks the label rules.
    InvalidMetadataLabel = "INVALID_METADATA_LABEL",
    /// Sandboxes cannot be listed now.
    SandboxListUnavailable = "SANDBOX_LIST_UNAVAILABLE",
    /// Not a scope of diagnostics.
    DiagnosticsScopeUnsupported = "DIAGNOSTICS_SCOPE_UNSUPPORTED",
    /// The sandbox's access token is missing or wrong.
    MissingOrInvalidSecureAccess = "MISSING_OR_INVALID_SECURE_ACCESS",
    /// Nothing answers inside the sandbox.
    BackendConnectionFailed = "BACKEND_CONNECTION_FAILED",
    /// The service in the sandbox did not answer in time.
    BackendTimeout = "BACKEND_TIMEOUT",
    /// The service in the sandbox broke off its answer.
    BackendResponseFailed = "BACKEND_RESPONSE_FAILED",
    /// Nothing more is known.
    GeneralUnknownError = "GENERAL::UNKNOWN_ERROR",

    // Ours: cases in which the published server answers without a code.
    /// No such route.
    RouteNotFound = "ROUTE_NOT_FOUND",
    /// The route has no such method.
    MethodNotAllowed = "METHOD_NOT_ALLOWED",
    /// The request does not fit its schema; `detail` lists every problem.
    ValidationFailed = "VALIDATION_FAILED",
    /// The body is larger than the route takes.
    BodyTooLarge = "BODY_TOO_LARGE",
    /// The headers are larger than we take.
    HeadersTooLarge = "HEADERS_TOO_LARGE",
    /// The request did not arrive, or was not answered, in time.
    RequestTimeout = "REQUEST_TIMEOUT",
    /// Too many failed attempts or requests; try again after `Retry-After`.
    RateLimited = "RATE_LIMITED",
    /// The server is stopping or has no room now.
    Unavailable = "UNAVAILABLE",
    /// The `Idempotency-Key` was used for another request.
    IdempotencyKeyReused = "IDEMPOTENCY_KEY_REUSED",
    /// Another sandbox has the name that `metadata` gives.
    SandboxNameTaken = "SANDBOX::NAME_TAKEN",
    /// The range asked for is outside the file.
    RangeNotSatisfiable = "RANGE_NOT_SATISFIABLE",
    /// The caller may not do that.
    Forbidden = "FORBIDDEN",
    /// The daemon's access token is missing or wrong.
    Unauthorized = "UNAUTHORIZED",
    /// The sandbox is paused; resume it first.
    SandboxPaused = "SANDBOX_PAUSED",
    /// Nothing listens on that port inside the sandbox.
    PortNotListening = "PORT_NOT_LISTENING",
    /// No image of that name is here or in its registry.
    ImageNotFound = "IMAGE::NOT_FOUND",
    /// The registry wants credentials, or other ones.
    ImageUnauthorized = "IMAGE::UNAUTHORIZED",
    /// What was uploaded is not an image, or a damaged one.
    ImageInvalid = "IMAGE::INVALID",
    /// Something stands on the image.
    ImageInUse = "IMAGE::IN_USE",
    /// No such volume.
    VolumeNotFound = "VOLUME::NOT_FOUND",
    /// A sandbox has the volume mounted.
    VolumeInUse = "VOLUME::IN_USE",
    /// No such API key.
    KeyNotFound = "KEY::NOT_FOUND",
    /// The keys that there are do not allow this.
    KeyConflict = "KEY::CONFLICT",
    /// No such tenant.
    TenantNotFound = "TENANT::NOT_FOUND",
    /// The tenants that there are, or what one has, do not allow this.
    TenantConflict = "TENANT::CONFLICT",
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reads_back_as_itself() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_wire(code.as_str()), Some(*code), "{code}");
        }
    }

    #[test]
    fn an_envelope_omits_what_it_does_not_have() {
        let body = ErrorBody::new(ErrorCode::FileNotFound, "no such file");
        assert_eq!(
            serde_json::to_string(&body).unwrap(),
            r#"{"code":"FILE_NOT_FOUND","message":"no such file"}"#
        );
    }
}
