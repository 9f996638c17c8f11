//! Error answers: a status, a stable code and a sentence, as `{"code","message"}`.

use axum::response::{IntoResponse, Response};
use http::StatusCode;

/// The codes clients may match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Code {
    AlreadyConnected,
    CommandNotFound,
    ContextNotFound,
    FileNotFound,
    InvalidFile,
    InvalidFileContent,
    InvalidFileMetadata,
    InvalidRequestBody,
    LimitReached,
    MissingQuery,
    NotFound,
    NotSupported,
    RuntimeError,
    Unknown,
}

/// An answer that says what went wrong and what to do about it.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: Code,
    message: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: Code, message: impl Into<String>) -> Self {
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

    /// The daemon or the kernel could not do it: 500.
    pub(crate) fn runtime(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Code::RuntimeError,
            message,
        )
    }

    /// Never built here and deliberately refused: 501.
    pub(crate) fn not_supported(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, Code::NotSupported, message)
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
