//! Error answers: a status, a stable code and a sentence, as `{"code","message"}`.
//!
//! The only file of execd that gives an error its status. Handlers return typed errors, or name
//! here what went wrong; the statuses of success are the handlers' own.

use api::error::ErrorCode as Code;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, Uri};
use rustix::io::Errno;

use crate::files;
use crate::limits::Reached;

/// Without the token, or with another one.
pub(super) const UNAUTHORIZED: StatusCode = StatusCode::UNAUTHORIZED;

/// The file is not the one that the client's `If-Match` or `If-Unmodified-Since` names.
pub(crate) const PRECONDITION_FAILED: StatusCode = StatusCode::PRECONDITION_FAILED;

/// An answer that says what went wrong and what to do about it.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: Code,
    message: String,
}

impl Problem {
    fn new(status: StatusCode, code: Code, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }

    /// The request itself is wrong: 400.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Code::InvalidRequestBody, message)
    }

    /// A query parameter is missing or wrong: 400.
    pub(crate) fn missing_query(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Code::MissingQuery, message)
    }

    /// There is nothing with that id: 404.
    pub(crate) fn no_such(what: &str, id: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            Code::ContextNotFound,
            format!("there is no {what} {id}"),
        )
    }

    /// The daemon or the kernel could not do it: 500.
    pub(crate) fn runtime(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Code::RuntimeError,
            message,
        )
    }

    /// No route has this path: 404.
    pub(super) fn route_not_found(method: &Method, uri: &Uri) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            Code::RouteNotFound,
            format!("there is no route {method} {}", uri.path()),
        )
    }

    /// The path has a route, but not for this method: 405.
    pub(super) fn method_not_allowed(method: &Method, uri: &Uri) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            Code::MethodNotAllowed,
            format!(
                "{} does not answer {method}; the Allow header lists what it answers",
                uri.path()
            ),
        )
    }

    /// The request body is over a limit: 413.
    pub(super) fn body_too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, Code::LimitReached, message)
    }

    /// It cannot be done to the thing in its present state: 409.
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, Code::RuntimeError, message)
    }

    /// A command does not take input: 409.
    pub(crate) fn stdin_failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, Code::StdinWriteFailed, message)
    }

    /// Another client holds the terminal: 409.
    pub(crate) fn already_connected(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, Code::AlreadyConnected, message)
    }

    /// Output that is not kept any more: 410.
    pub(crate) fn gone(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, Code::EventGone, message)
    }

    /// A service inside the sandbox does not answer as it should: 502.
    pub(crate) fn bad_gateway(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, Code::RuntimeError, message)
    }

    /// A service inside the sandbox does not accept a connection in time: 504.
    pub(crate) fn gateway_timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, Code::RuntimeError, message)
    }

    /// Never built here and deliberately refused: 501.
    pub(crate) fn not_supported(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, Code::NotSupported, message)
    }
}

impl From<Reached> for Problem {
    fn from(limit: Reached) -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            Code::LimitReached,
            limit.to_string(),
        )
    }
}

impl From<&files::Error> for Problem {
    fn from(error: &files::Error) -> Self {
        Self::new(file_status(error), file_code(error), error.to_string())
    }
}

/// Says whose fault it was: the caller's (4xx) or the machine's (5xx).
fn file_status(error: &files::Error) -> StatusCode {
    use files::Error as E;
    match error {
        E::MissingQuery(_)
        | E::BadQuery { .. }
        | E::BadBody(_)
        | E::BadPath { .. }
        | E::BadForm(_)
        | E::BadMetadata(_)
        | E::BadContent(_)
        | E::WrongKind { .. }
        | E::UnknownAccount(_)
        | E::Interrupted(_) => StatusCode::BAD_REQUEST,
        E::NotFound(_) => StatusCode::NOT_FOUND,
        E::Range { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
        E::Identity { .. } => StatusCode::FORBIDDEN,
        // Asking again would not help, so it is not the status that clients repeat on.
        E::Limit { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        E::Busy { .. } => StatusCode::TOO_MANY_REQUESTS,
        E::Io { .. } => match error.errno() {
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => StatusCode::FORBIDDEN,
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        },
        E::Exists(_) | E::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The codes are those that the published clients know.
fn file_code(error: &files::Error) -> Code {
    use files::Error as E;
    match error {
        E::MissingQuery(_) => Code::MissingQuery,
        E::BadQuery { .. } | E::BadBody(_) | E::UnknownAccount(_) => Code::InvalidRequestBody,
        E::BadPath { .. } | E::BadForm(_) | E::WrongKind { .. } | E::Interrupted(_) => {
            Code::InvalidFile
        }
        E::BadMetadata(_) => Code::InvalidFileMetadata,
        E::BadContent(_) => Code::InvalidFileContent,
        E::NotFound(_) => Code::FileNotFound,
        E::Range { .. } => Code::Unknown,
        E::Identity { .. } => Code::NotSupported,
        E::Limit { .. } | E::Busy { .. } => Code::LimitReached,
        E::Exists(_) | E::Io { .. } | E::Internal(_) => Code::RuntimeError,
    }
}

#[derive(serde::Serialize)]
struct Body<'a> {
    code: Code,
    message: &'a str,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body {
            code: self.code,
            message: &self.message,
        };
        (self.status, axum::Json(body)).into_response()
    }
}
