//! Error answers: a status, a stable code and a sentence, as `{"code","message"}`.

use api::error::ErrorCode as Code;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::limits::Reached;

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
