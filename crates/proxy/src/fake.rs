//! A sandbox and an API for tests of this crate: targets under `/carried` go into the sandbox.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::ServiceExt as _;

use crate::message::Head;
use crate::{
    Api, Error, Forward, PageOrigin, Peer, RequestBody, RequestId, RequestRecord, Route, Routed,
    Sandboxes,
};

/// Answers `/carried` itself, panics for `/carried/panic`, and forwards `/carried/late` to a service
/// that panics in the middle of its response.
pub(crate) struct FakeSandboxes;

#[derive(Debug, thiserror::Error)]
#[error("never")]
pub(crate) struct Never;

impl Sandboxes for FakeSandboxes {
    type Sandbox = ();
    type Stream = HalfResponse;
    type Error = Never;

    fn is_proxied(&self, target: &str) -> bool {
        target.starts_with("/carried")
    }

    fn route(&self, request: Head<'_>, _: Peer) -> Result<Routed<()>, Never> {
        match request.target() {
            "/carried" => Ok(Routed::Respond(Response::new("carried".into()))),
            "/carried/late" => Ok(Routed::Forward(Forward {
                sandbox: (),
                route: Route::parse("/sandboxes/a/proxy/80/").unwrap(),
                token: None,
                origin: PageOrigin::Isolated,
                until: None,
                stream_end: None,
                revoked: None,
            })),
            _ => panic!("on purpose"),
        }
    }

    fn is_secret(&self, (): &(), _: &[u8]) -> bool {
        false
    }

    async fn ready(&self, (): &()) -> Result<(), Never> {
        Ok(())
    }

    async fn connect(&self, (): &(), _: &Route) -> Result<HalfResponse, Never> {
        Ok(HalfResponse { is_sent: false })
    }

    fn tunnel_closed(&self, (): &()) {}

    fn refuse(&self, error: Error<Never>, id: &RequestId) -> Response<Bytes> {
        let mut response = Response::new(format!("{error}, {id}").into());
        *response.status_mut() = match error {
            Error::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        response
    }

    fn observe(&self, _: &RequestRecord) {}
}

/// Sends the first half of a response, then panics.
pub(crate) struct HalfResponse {
    is_sent: bool,
}

impl AsyncRead for HalfResponse {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        assert!(!self.is_sent, "on purpose");
        self.is_sent = true;
        room.put_slice(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nbegun");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HalfResponse {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// An API that is a router.
pub(crate) struct RouterApi(pub(crate) Router);

impl Api for RouterApi {
    type Body = Body;

    async fn respond(&self, request: Request<RequestBody>) -> Response<Body> {
        match self.0.clone().oneshot(request.map(Body::new)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
