//! How handlers read a request: ids of the path, the raw query, a body of JSON.

use std::time::Duration;

use api::error::ErrorCode;
use api::id::{SandboxId, SnapshotId};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use bytes::Bytes;
use http::request::Parts;

use super::{Error, body};

/// No body of the contract comes near this; image credentials and volumes fit many times over.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// A client that needs longer for such a body is not sending it.
pub(super) const BODY_PATIENCE: Duration = Duration::from_secs(30);

/// The whole body.
pub(super) struct Whole(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for Whole {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        let read = body::read(request.into_body(), BODY_BYTES_MAX, BODY_PATIENCE);
        Ok(Self(read.await?))
    }
}

/// The query as it stands in the request; empty where there is none.
pub(super) struct RawQuery(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for RawQuery {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(parts.uri.query().unwrap_or_default().to_owned()))
    }
}

/// The sandbox that the path names.
pub(super) struct OfSandbox(pub(super) SandboxId);

impl<S: Send + Sync> FromRequestParts<S> for OfSandbox {
    type Rejection = Error;

    /// What cannot be an id is the id of nothing.
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let text = first_parameter(parts, state).await;
        text.parse()
            .map(Self)
            .map_err(|_| no_such("sandbox", ErrorCode::DockerSandboxNotFound))
    }
}

/// The snapshot that the path names.
pub(super) struct OfSnapshot(pub(super) SnapshotId);

impl<S: Send + Sync> FromRequestParts<S> for OfSnapshot {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let text = first_parameter(parts, state).await;
        text.parse()
            .map(Self)
            .map_err(|_| no_such("snapshot", ErrorCode::SnapshotNotFound))
    }
}

async fn first_parameter<S: Send + Sync>(parts: &mut Parts, state: &S) -> String {
    let all = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
    let first = all.ok().and_then(|Path(all)| all.into_iter().next());
    first.map(|(_, value)| value).unwrap_or_default()
}

fn no_such(what: &str, code: ErrorCode) -> Error {
    let message = format!("there is no such {what}: what the path names is not an id");
    Error::NoSuch { code, message }
}
