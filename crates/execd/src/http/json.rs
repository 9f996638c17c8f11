//! Request bodies: JSON whatever the Content-Type says, as the reference daemon reads
//! them; unknown fields are ignored.

use axum::extract::{FromRequest, Request};
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;

use super::Problem;
use crate::limits;

/// How much of a body over the limit is read all the same, and dropped: eight times the limit is
/// more than anybody sends by mistake.
const HEARD_OUT_BYTES: usize = 8 * limits::JSON_BODY_BYTES;

/// A body parsed as JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let bytes = body(request).await?;
        read(&bytes).map(Json)
    }
}

/// A body parsed as JSON, or the default when there is none.
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let bytes = body(request).await?;
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

/// The whole body. One over the limit is heard out before it is refused: a client that is still
/// writing when the connection closes sees a broken pipe and never the answer.
async fn body(request: Request) -> Result<Vec<u8>, Problem> {
    let mut pieces = request.into_body().into_data_stream();
    let (mut kept, mut size) = (Vec::new(), 0);
    while let Some(piece) = pieces.next().await {
        let piece = piece
            .map_err(|_| Problem::bad_request("the request body ended before it was complete"))?;
        size += piece.len();
        if size <= limits::JSON_BODY_BYTES {
            kept.extend_from_slice(&piece);
        } else if size > HEARD_OUT_BYTES {
            break;
        } else {
            kept = Vec::new();
        }
    }
    if size > limits::JSON_BODY_BYTES {
        return Err(Problem::body_too_large(format!(
            "the request body is over JSON_BODY_BYTES = {}",
            limits::JSON_BODY_BYTES
        )));
    }
    Ok(kept)
}
