//! A connection that has switched protocols: bytes both ways until both sides are done.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use lifecycle::backend::Stream;
use tokio_util::sync::CancellationToken;

/// Bytes held per direction. Terminals and browsers send less at once, and there may be thousands
/// of tunnels that carry nothing for hours.
const BUFFER_BYTES: usize = 16 * 1024;

/// The protocol of a plain byte stream, as a request's `Upgrade` names it. An extension: it ends
/// in front of the service in the sandbox, which sees an ordinary connection.
const RAW: &str = "tcp";

/// Whether a plain byte stream is asked for.
pub(super) fn is_raw(protocol: &HeaderValue) -> bool {
    protocol.as_bytes().eq_ignore_ascii_case(RAW.as_bytes())
}

/// What a client is told whose connection becomes a plain byte stream.
pub(super) fn raw_answer() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(RAW));
    response
}

/// Carries bytes between a client and a stream that is open already.
pub(super) async fn run_raw(
    client: OnUpgrade,
    mut upstream: Box<dyn Stream>,
    stopping: CancellationToken,
) {
    let carry = async {
        let mut client = TokioIo::new(client.await.map_err(std::io::Error::other)?);
        let size = BUFFER_BYTES;
        tokio::io::copy_bidirectional_with_sizes(&mut client, &mut upstream, size, size).await
    };
    tokio::select! {
        () = stopping.cancelled() => {}
        outcome = carry => if let Err(error) = outcome {
            tracing::debug!(%error, "a raw tunnel broke off");
        }
    }
}

/// Carries bytes until both sides have ended, one has failed, or the server stops.
pub(super) async fn run(client: OnUpgrade, upstream: OnUpgrade, stopping: CancellationToken) {
    let carry = async {
        let (client, upstream) =
            tokio::try_join!(client, upstream).map_err(std::io::Error::other)?;
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        let size = BUFFER_BYTES;
        tokio::io::copy_bidirectional_with_sizes(&mut client, &mut upstream, size, size).await
    };
    tokio::select! {
        () = stopping.cancelled() => {}
        outcome = carry => match outcome {
            Ok((sent, received)) => tracing::debug!(sent, received, "a tunnel has ended"),
            Err(error) => tracing::debug!(%error, "a tunnel broke off"),
        }
    }
}
