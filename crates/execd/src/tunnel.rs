//! `/tunnel/{port}`: a connection to the daemon becomes a plain byte stream to a port of the
//! sandbox, whatever is spoken there.
//!
//! For a backend that has no other way into the sandbox's network. HTTP goes through `/proxy`,
//! which keeps connections; here every stream is a connection of its own.

use axum::extract::{Path, Request};
use axum::response::{IntoResponse as _, Response};
use axum::{Router, body::Body, routing::get};
use http::StatusCode;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::http::Problem;
use crate::proxy::{DialError, dial};

/// Each direction of a tunnel holds one buffer of this size: large enough that a transfer is not
/// bound by system calls, small enough for hundreds of idle streams.
const BUFFER: usize = 16 * 1024;

/// What the client must ask to upgrade to.
const PROTOCOL: &str = "tcp";

pub(crate) fn router() -> Router {
    Router::new().route("/tunnel/{port}", get(open))
}

async fn open(Path(port): Path<u16>, mut request: Request) -> Response {
    let asked = request.headers().get(UPGRADE);
    if asked.is_none_or(|protocol| protocol != PROTOCOL) {
        let message = "a tunnel needs the headers Connection: Upgrade and Upgrade: tcp";
        return Problem::bad_request(message).into_response();
    }
    let service = match dial(port).await {
        Ok(service) => service,
        Err(DialError::Refused(error)) => {
            let message = format!("nothing answers on port {port} inside the sandbox ({error})");
            return Problem::bad_gateway(message).into_response();
        }
        Err(_) => {
            let message = format!("port {port} inside the sandbox does not accept connections");
            return Problem::gateway_timeout(message).into_response();
        }
    };
    let client = hyper::upgrade::on(&mut request);
    tokio::spawn(carry(client, service));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
    response
}

/// Carries bytes both ways until both ends have closed or one has failed.
async fn carry(client: hyper::upgrade::OnUpgrade, mut service: TcpStream) {
    let Ok(client) = client.await else { return };
    let mut client = TokioIo::new(client);
    // An end that breaks off is the affair of the two; dropping both tells the other.
    let _ =
        tokio::io::copy_bidirectional_with_sizes(&mut client, &mut service, BUFFER, BUFFER).await;
}
