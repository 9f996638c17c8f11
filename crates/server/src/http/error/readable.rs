//! Errors with another status than they have, for published SDKs that show nothing of the one they have.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};

use super::Error;
use crate::published;

/// Why there is no endpoint.
pub(in crate::http) struct Refusal(Response);

impl Refusal {
    /// With a status whose body the client reads. The published Python SDK reads five here, and until 1.0 shows
    /// nothing but the number of any other, such as the 409 of a sandbox that is paused or has failed.
    pub(in crate::http) fn readable(error: Error, headers: &HeaderMap) -> Self {
        let mut response = error.into_response();
        let is_conflict = response.status() == StatusCode::CONFLICT;
        if is_conflict && published::sdk_version(headers, "python").is_some_and(|it| it < (1, 0)) {
            *response.status_mut() = StatusCode::BAD_REQUEST;
        }
        Self(response)
    }
}

impl<E> From<E> for Refusal
where
    Error: From<E>,
{
    fn from(error: E) -> Self {
        Self(Error::from(error).into_response())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        self.0
    }
}
