//! The error envelope: `{"code": "...", "message": "..."}` with a status.

use std::borrow::Cow;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use serde::Serialize;

use super::RequestId;

/// A failed request, as the client sees it.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The status.
    pub status: StatusCode,
    /// Stable and documented, for programs.
    pub code: Cow<'static, str>,
    /// For people: what happened, why, what to do next.
    pub message: String,
    /// Sent with it, such as `Retry-After`.
    pub headers: HeaderMap,
}

#[derive(Serialize)]
struct Envelope<'a> {
    code: &'a str,
    message: &'a str,
}

impl Failure {
    /// A failure without headers of its own.
    pub fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            code: code.into(),
            message: message.into(),
            headers: HeaderMap::new(),
        }
    }

    /// The answer for a handler that panicked.
    pub(super) fn panicked(id: &RequestId) -> Self {
        let message = format!(
            "The server met a bug while it handled this request. Its log tells more under request id {id}."
        );
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", message)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let envelope = Envelope {
            code: &self.code,
            message: &self.message,
        };
        (self.status, self.headers, Json(envelope)).into_response()
    }
}
