//! Every way a request can fail, and the one place that decides status, code and message of it.
//!
//! Statuses and codes are the published server's wherever it has one for the case. A message is
//! for the client; where the cause may name paths or other insides of the host it goes to the log
//! only, under the request id.

pub(super) mod egress;
pub(super) mod gateway;
pub(super) mod readable;
mod violation;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use api::error::{ErrorBody, ErrorCode};
use api::problem::Problem;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use lifecycle::backend::{self, ConnectError};
use lifecycle::{Feature, State, store};
use proxy::RequestId;

use super::body;
use crate::access::Denied;
use crate::gateway::NotTold;
use crate::ingress;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The control plane refused or failed.
    #[error(transparent)]
    Lifecycle(lifecycle::Error),
    /// A request about images was refused or failed.
    #[error(transparent)]
    Image(lifecycle::Error),
    /// A request about volumes was refused or failed.
    #[error(transparent)]
    Volume(lifecycle::Error),
    /// The proxy refused or failed.
    #[error(transparent)]
    Proxy(#[from] proxy::Error<ingress::Error>),
    /// No valid API key.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The request does not fit the contract.
    #[error("the request is not valid")]
    Invalid {
        /// `body`, `query`, `path` or `header`.
        part: &'static str,
        /// What is wrong with it.
        problems: Vec<Problem>,
    },
    /// The body could not be read.
    #[error(transparent)]
    Body(#[from] body::Error),
    /// The request asks for what this server does not take, in a way that has a code of its own.
    #[error("{message}")]
    BadRequest {
        /// The code of that.
        code: ErrorCode,
        /// Why, and what to do.
        message: String,
    },
    /// The gateway cannot be told of as asked.
    #[error(transparent)]
    NotTold(#[from] NotTold),
    /// What the path or body names does not exist.
    #[error("{message}")]
    NoSuch {
        /// The code of what is missing.
        code: ErrorCode,
        /// What there is none of.
        message: String,
    },
    /// A part of the contract that this server does not have.
    #[error("{message}")]
    NotSupported {
        /// The published server's code for it.
        code: ErrorCode,
        /// What is missing.
        message: String,
    },
    /// A handler, or the proxy, panicked. The panic's own text is in the log only.
    #[error(
        "The server met a bug while it handled this request. Its log tells more under request id {0}."
    )]
    Panicked(RequestId),
    /// A web page that nobody allowed, on a server without keys.
    #[error(
        "a web page may call a server without API keys only if server.cors_origins names its origin; programs must ask for localhost or a loopback address"
    )]
    StrangePage,
    /// Too many requests in flight.
    #[error("the server has no room for another request now; try again")]
    Full,
    /// No such route.
    #[error("there is no such route; GET /docs lists them")]
    NotFound,
    /// The route has no such method.
    #[error("this route does not take this method; GET /docs lists them")]
    MethodNotAllowed,
}

/// What a client without a key, and one without a sandbox's token, is asked for (RFC 9110 11.6.1).
const KEY_CHALLENGE: &str = "ApiKey header=\"OPEN-SANDBOX-API-KEY\"";
const TOKEN_CHALLENGE: &str = "ApiKey header=\"X-EXECD-ACCESS-TOKEN\"";

/// The code and the message that an answer carries, for the audit trail: an extension of the response.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    pub(super) code: ErrorCode,
    pub(super) message: Cow<'static, str>,
}

/// What a client is told.
struct Answer {
    status: StatusCode,
    code: ErrorCode,
    message: Cow<'static, str>,
    retry_after: Option<Duration>,
}

impl From<lifecycle::Error> for Error {
    fn from(error: lifecycle::Error) -> Self {
        match error {
            lifecycle::Error::NotAdmitted(violations) => {
                Self::body(violations.iter().map(violation::problem).collect())
            }
            error => Self::Lifecycle(error),
        }
    }
}

impl Error {
    /// Problems with the body.
    pub(super) fn body(problems: Vec<Problem>) -> Self {
        Self::Invalid {
            part: "body",
            problems,
        }
    }

    /// Problems with the query.
    pub(super) fn query(problems: Vec<Problem>) -> Self {
        Self::Invalid {
            part: "query",
            problems,
        }
    }

    /// The code that an answer with this carries.
    pub(super) fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid { problems, .. } => problems
                .first()
                .map_or(ErrorCode::ValidationFailed, |problem| problem.code),
            error => error.answer().code,
        }
    }

    /// The body that an answer with this has.
    pub(super) fn envelope(&self) -> ErrorBody {
        match self {
            Self::Invalid { part, problems } => ErrorBody::from_problems(part, problems),
            error => {
                let answer = error.answer();
                ErrorBody::new(answer.code, answer.message)
            }
        }
    }

    fn answer(&self) -> Answer {
        use ErrorCode as Code;
        let message = self.to_string();
        match self {
            Self::Lifecycle(error) => of_lifecycle(error),
            Self::Image(error) => of_image(error),
            Self::Volume(error) => of_volume(error),
            Self::Proxy(error) => of_proxy(error),
            Self::Denied(Denied::Missing) => Answer::new(401, Code::MissingApiKey, message),
            Self::Denied(Denied::Invalid) => Answer::new(401, Code::InvalidApiKey, message),
            Self::Denied(Denied::Throttled { retry_after }) => {
                Answer::new(429, Code::RateLimited, message).retry(*retry_after)
            }
            Self::Invalid { problems, .. } => {
                let status = problems.first().map_or(422, Problem::status);
                Answer::new(status, Code::ValidationFailed, message)
            }
            Self::Body(body::Error::TooLarge { .. }) => {
                Answer::new(413, Code::BodyTooLarge, message)
            }
            Self::Body(body::Error::TooSlow { .. }) => {
                Answer::new(408, Code::RequestTimeout, message)
            }
            Self::Body(body::Error::Broken(_)) => Answer::new(400, Code::ValidationFailed, message),
            Self::BadRequest { code, .. } => Answer::new(400, *code, message),
            Self::NotTold(_) => Answer::new(400, Code::SandboxInvalidParameter, message),
            Self::NoSuch { code, .. } => Answer::new(404, *code, message),
            Self::NotSupported { code, .. } => Answer::new(501, *code, message),
            Self::Panicked(_) => Answer::new(500, Code::SandboxInternalError, message),
            Self::StrangePage => Answer::new(403, Code::Forbidden, message),
            Self::Full => {
                Answer::new(503, Code::Unavailable, message).retry(Duration::from_secs(1))
            }
            Self::NotFound => Answer::new(404, Code::RouteNotFound, message),
            Self::MethodNotAllowed => Answer::new(405, Code::MethodNotAllowed, message),
        }
    }
}

fn of_lifecycle(error: &lifecycle::Error) -> Answer {
    use ErrorCode as Code;
    use lifecycle::Error as E;
    let message = error.to_string();
    match error {
        E::NotFound(_) => Answer::new(404, Code::DockerSandboxNotFound, message),
        E::SnapshotNotFound(_) => Answer::new(404, Code::SnapshotNotFound, message),
        E::WrongState { action, state, .. } => {
            Answer::new(409, wrong_state(action, *state), message)
        }
        E::SnapshotWrongState {
            action: "delete", ..
        } => Answer::new(409, Code::SnapshotDeleteConflict, message),
        E::SnapshotWrongState { .. } => Answer::new(409, Code::SnapshotNotReady, message),
        E::NotReady { .. } | E::Timeout { .. } => Answer::new(504, Code::BackendTimeout, message),
        E::KeyConflict | E::KeySpent(_) => Answer::new(409, Code::IdempotencyKeyReused, message),
        E::NameTaken { .. } => Answer::new(409, Code::SandboxNameTaken, message),
        E::ExpirationInPast => Answer::new(400, Code::DockerInvalidExpiration, message),
        E::NoExpiration(_) => Answer::new(409, Code::DockerInvalidExpiration, message),
        E::Unsupported { feature, .. } => {
            let (status, code) = unsupported(*feature);
            Answer::new(status, code, message)
        }
        E::TooManyRules { .. } => Answer::new(413, Code::BodyTooLarge, message),
        E::NotAdmitted(_) => Answer::new(400, Code::SandboxInvalidParameter, message),
        E::Forbidden(_) => Answer::new(403, Code::Forbidden, message),
        E::ApiKeyNotFound(_) => Answer::new(404, Code::KeyNotFound, message),
        E::ApiKeyConflict(_) => Answer::new(409, Code::KeyConflict, message),
        E::TenantNotFound(_) => Answer::new(404, Code::TenantNotFound, message),
        E::TenantConflict(_) => Answer::new(409, Code::TenantConflict, message),
        E::AccessInvalid { .. } => Answer::new(400, Code::SandboxInvalidParameter, message),
        E::Connect(error) => of_connect(error),
        E::Busy(_) => Answer::new(429, Code::RateLimited, message).retry(Duration::from_secs(1)),
        E::Backend(error) => of_backend(error),
        E::Store(error) => of_store(error),
        E::ShuttingDown => {
            Answer::new(503, Code::Unavailable, message).retry(Duration::from_secs(1))
        }
    }
}

fn unsupported(feature: Feature) -> (u16, ErrorCode) {
    match feature {
        Feature::Snapshot => (501, ErrorCode::SnapshotNotImplemented),
        Feature::Inventory | Feature::PolicyChange => (501, ErrorCode::SandboxApiNotSupported),
        Feature::NetworkRules | Feature::RenewOnAccess => (400, ErrorCode::SandboxApiNotSupported),
        Feature::Gpu
        | Feature::DiskLimit
        | Feature::NoNetwork
        | Feature::Platform
        | Feature::FromSnapshot
        | Feature::DamagedRecord => (400, ErrorCode::SandboxInvalidParameter),
    }
}

fn wrong_state(action: &str, state: State) -> ErrorCode {
    match (action, state) {
        ("resume", _) => ErrorCode::DockerSandboxNotPaused,
        ("snapshot", _) => ErrorCode::SnapshotInvalidSourceState,
        ("connect to", State::Pausing | State::Paused) => ErrorCode::SandboxPaused,
        _ => ErrorCode::DockerSandboxNotRunning,
    }
}

fn of_connect(error: &ConnectError) -> Answer {
    use ErrorCode as Code;
    let message = error.to_string();
    match error {
        ConnectError::NotFound(_) => Answer::new(404, Code::DockerSandboxNotFound, message),
        ConnectError::Paused => Answer::new(
            409,
            Code::SandboxPaused,
            "the sandbox is paused; resume it first",
        ),
        ConnectError::Ended => Answer::new(409, Code::DockerSandboxNotRunning, message),
        ConnectError::NotListening(_) => Answer::new(502, Code::PortNotListening, message),
        ConnectError::Failed(_) => Answer::new(502, Code::BackendConnectionFailed, message),
    }
}

fn of_backend(error: &Arc<backend::Error>) -> Answer {
    use ErrorCode as Code;
    use backend::Error as E;
    let message = error.to_string();
    match &**error {
        E::NotFound(_) => Answer::new(404, Code::DockerSandboxNotFound, message),
        E::SnapshotNotFound(_) => Answer::new(404, Code::SnapshotNotFound, message),
        E::WrongState { .. } => Answer::new(409, Code::DockerSandboxNotRunning, message),
        E::InUse { .. } => Answer::new(409, Code::SnapshotDeleteConflict, message),
        E::Invalid { field, .. } => Answer::new(400, invalid_field(field), message),
        E::VolumeNotFound(_) => Answer::new(404, Code::VolumeNotFound, message),
        E::ImageInvalid(_) => Answer::new(400, Code::ImageInvalid, message),
        // The client named an image that it cannot have: no fault of ours.
        E::ImageNotFound { .. } | E::ImageUnauthorized { .. } => {
            Answer::new(400, Code::DockerSandboxImagePullFailed, message)
        }
        E::ImagePull { .. } => Answer::new(500, Code::DockerSandboxImagePullFailed, message),
        E::Start { .. } => Answer::new(500, Code::DockerSandboxStartFailed, message),
        E::Exhausted { .. } | E::Unavailable { .. } => Answer::new(503, Code::Unavailable, message),
        E::Io { .. } | E::Internal(_) => Answer::internal(),
    }
}

/// Here the image itself was asked for, not a sandbox of it.
fn of_image(error: &lifecycle::Error) -> Answer {
    use ErrorCode as Code;
    use backend::Error as E;
    let message = error.to_string();
    match error {
        lifecycle::Error::Backend(cause) => match &**cause {
            E::ImageNotFound { .. } => Answer::new(404, Code::ImageNotFound, message),
            E::ImageUnauthorized { .. } => Answer::new(403, Code::ImageUnauthorized, message),
            E::InUse { .. } => Answer::new(409, Code::ImageInUse, message),
            _ => of_backend(cause),
        },
        error => of_lifecycle(error),
    }
}

fn of_volume(error: &lifecycle::Error) -> Answer {
    match error {
        lifecycle::Error::Backend(cause) => match &**cause {
            backend::Error::InUse { .. } => {
                Answer::new(409, ErrorCode::VolumeInUse, error.to_string())
            }
            _ => of_backend(cause),
        },
        error => of_lifecycle(error),
    }
}

fn invalid_field(field: &str) -> ErrorCode {
    match field {
        "entrypoint" => ErrorCode::DockerInvalidEntrypoint,
        "volumes" => ErrorCode::VolumeUnsupportedBackend,
        _ => ErrorCode::SandboxInvalidParameter,
    }
}

fn of_store(error: &store::Error) -> Answer {
    let told = match error {
        store::Error::Full { .. } => {
            "the server's disk is full; nothing was done, try again when there is space"
        }
        store::Error::Unavailable { .. }
        | store::Error::Locked { .. }
        | store::Error::Busy { .. }
        | store::Error::Corrupt { .. }
        | store::Error::TooNew { .. }
        | store::Error::Failed { .. }
        | store::Error::Timeout { .. } => {
            "the server cannot keep what was asked now; the operator finds more in its log"
        }
    };
    Answer::new(503, ErrorCode::Unavailable, told)
}

fn of_proxy(error: &proxy::Error<ingress::Error>) -> Answer {
    use ErrorCode as Code;
    use proxy::Error as Proxied;
    let message = error.to_string();
    match error {
        Proxied::Sandbox(error) => match error {
            ingress::Error::Route(_) => Answer::new(400, Code::DockerInvalidPort, message),
            ingress::Error::Unauthorized(_) => {
                Answer::new(401, Code::MissingOrInvalidSecureAccess, message)
            }
            ingress::Error::EgressApi(_) => Answer::new(404, Code::RouteNotFound, message),
            ingress::Error::Lifecycle(error) => of_lifecycle(error),
        },
        Proxied::Malformed(_) => Answer::new(400, Code::ValidationFailed, message),
        Proxied::NotTls => Answer::new(400, Code::ValidationFailed, message),
        Proxied::Connect => Answer::new(405, Code::MethodNotAllowed, message),
        Proxied::ServiceWorker => Answer::new(403, Code::Forbidden, message),
        Proxied::Panicked => Answer::internal(),
        Proxied::UpstreamClosed { .. } => Answer::new(502, Code::BackendResponseFailed, message),
    }
}

impl Answer {
    fn new(status: u16, code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        let status = StatusCode::from_u16(status).expect("statuses here are literals");
        Self {
            status,
            code,
            message: message.into(),
            retry_after: None,
        }
    }

    fn internal() -> Self {
        let message = "the server met a fault of its own; its log tells more under the request id";
        Self::new(500, ErrorCode::SandboxInternalError, message)
    }

    fn retry(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }
}

/// The body of the response to a request whose handler panicked. Its code is none of the contract's.
#[derive(serde::Serialize)]
struct PanicBody<'a> {
    code: &'a str,
    message: &'a str,
}

impl Error {
    /// The response, with its body in memory. Logs a failure that is the server's own.
    pub(crate) fn into_bytes(self) -> http::Response<Bytes> {
        let answer = self.answer();
        let is_panic = matches!(self, Self::Panicked(_));
        let is_failure =
            answer.status.is_server_error() && answer.status != StatusCode::NOT_IMPLEMENTED;
        if is_failure && !is_panic {
            let error = api::error_chain(&self).to_string();
            tracing::warn!(code = %answer.code, status = answer.status.as_u16(), error, "a request failed");
        }
        let body = match is_panic {
            true => serde_json::to_vec(&PanicBody {
                code: "INTERNAL_ERROR",
                message: &answer.message,
            }),
            false => serde_json::to_vec(&self.envelope()),
        };
        let body = body.expect("an envelope has string keys only");
        let mut response = http::Response::new(Bytes::from(body));
        *response.status_mut() = answer.status;
        let answered = Answered {
            code: self.code(),
            message: answer.message.clone(),
        };
        response.extensions_mut().insert(answered);
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        if let Some(after) = answer.retry_after {
            let seconds = HeaderValue::from(after.as_secs().max(1));
            headers.insert(header::RETRY_AFTER, seconds);
        }
        if answer.status == StatusCode::UNAUTHORIZED {
            // What the client is asked for depends on where it wanted to go.
            let scheme = match answer.code {
                ErrorCode::MissingOrInvalidSecureAccess => TOKEN_CHALLENGE,
                _ => KEY_CHALLENGE,
            };
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
        }
        response
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        self.into_bytes().map(Body::from)
    }
}
