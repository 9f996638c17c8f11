//! Request bodies: JSON whatever the Content-Type says, as the reference daemon reads
//! them; unknown fields are ignored.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::response::IntoResponse as _;
use http::StatusCode;
use serde::de::DeserializeOwned;

use super::{Code, Problem};
use crate::limits;

/// A body parsed as JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = body(request, state).await?;
        read(&bytes).map(Json)
    }
}

/// A body parsed as JSON, or the default when there is none.
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = body(request, state).await?;
        if bytes.trim_ascii().is_empty() {
            return Ok(Self(T::default()));
        }
        read(&bytes).map(OptionalJson)
    }
}

/// The contract's own reader, which names the field and never takes a list for an object.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    api::json::from_slice(bytes).map_err(|problem| {
        let place = match problem.field.as_str() {
            "" => String::new(),
            field => format!("{field}: "),
        };
        let reason = &problem.message;
        Problem::bad_request(format!(
            "the request body is not the JSON expected: {place}{reason}"
        ))
    })
}

async fn body<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    Bytes::from_request(request, state)
        .await
        .map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                return Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    Code::LimitReached,
                    format!(
                        "the request body is over JSON_BODY_BYTES = {}",
                        limits::JSON_BODY_BYTES
                    ),
                );
            }
            let _ = rejection.into_response();
            Problem::bad_request("the request body ended before it was complete")
        })
}
