//! `/proxy/{port}/…`: whatever listens on that port inside the sandbox, reached through the daemon.
//!
//! HTTP/1.1 both ways: bodies stream as they come, connections to the service are kept and used
//! again, and the path and query behind the port arrive byte for byte. An upgrade (WebSocket or any
//! other) becomes a tunnel of bytes once the service agrees. Headers that concern one connection
//! stay on it, and the daemon's access token is not shown to the service. The Host header is the
//! client's, since services compare it with the Origin of a WebSocket.
//!
//! Deliberately no interpretation: no caching, no rewriting of links or cookies, no forwarding
//! headers beyond those that came.

mod headers;
mod pool;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::any,
};
use http::{StatusCode, Uri, Version};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use self::pool::Pool;
pub(crate) use self::pool::{DialError, dial};
use crate::{http::Problem, state::Shared};

/// Each direction of a tunnel holds one buffer of this size: large enough that a transfer is not
/// bound by system calls, small enough for hundreds of idle WebSockets.
const TUNNEL_BUFFER: usize = 16 * 1024;

pub(crate) fn router(_: Arc<Shared>) -> Router {
    Router::new()
        .route("/proxy", any(no_port))
        .route("/proxy/", any(no_port))
        .route("/proxy/{port}", any(forward))
        .route("/proxy/{port}/", any(forward))
        .route("/proxy/{port}/{*path}", any(forward))
        .with_state(Arc::new(Pool::default()))
}

async fn no_port() -> Problem {
    Problem::bad_request("port is required: /proxy/{port}/{path}")
}

async fn forward(State(pool): State<Arc<Pool>>, mut request: Request) -> Response {
    let Some((port, uri)) = destination(request.uri()) else {
        let path = request.uri().path();
        return Problem::bad_request(format!(
            "'{path}' names no port from 1 to 65535; use /proxy/{{port}}/{{path}}"
        ))
        .into_response();
    };
    let wants_upgrade = headers::upgrade(request.headers()).is_some();
    let client = wants_upgrade.then(|| hyper::upgrade::on(&mut request));
    let (mut head, body) = request.into_parts();
    head.uri = uri;
    head.version = Version::HTTP_11;
    // What the client's connection has in store belongs to it.
    head.extensions.clear();
    headers::for_service(&mut head.headers);
    match pool.send(port, Request::from_parts(head, body)).await {
        Ok(response) => answer(response, client),
        Err(error) => refusal(port, &error),
    }
}

/// The port, and the rest of the path with the query as it came.
fn destination(uri: &Uri) -> Option<(u16, Uri)> {
    let path = uri.path().strip_prefix("/proxy/")?;
    let (port, rest) = path.find('/').map_or((path, "/"), |at| path.split_at(at));
    let digits = port.bytes().all(|b| b.is_ascii_digit());
    let port = port.parse().ok().filter(|port| *port != 0 && digits)?;
    let rest = match uri.query() {
        Some(query) => format!("{rest}?{query}"),
        None => rest.to_string(),
    };
    Some((port, rest.parse().ok()?))
}

fn answer(
    mut response: http::Response<hyper::body::Incoming>,
    client: Option<OnUpgrade>,
) -> Response {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = client else {
            return bad_gateway("the service switched protocols although nobody asked it to");
        };
        let service = hyper::upgrade::on(&mut response);
        tokio::spawn(tunnel(client, service));
    }
    let (mut head, body) = response.into_parts();
    head.version = Version::HTTP_11;
    head.extensions.clear();
    headers::for_client(head.status, &mut head.headers);
    Response::from_parts(head, Body::new(body))
}

/// Carries bytes both ways until both ends have closed or one has failed.
async fn tunnel(client: OnUpgrade, service: OnUpgrade) {
    let Ok((client, service)) = tokio::try_join!(client, service) else {
        return;
    };
    let io = |upgraded: Upgraded| TokioIo::new(upgraded);
    let (mut client, mut service) = (io(client), io(service));
    // An end that breaks off is the affair of the two; dropping both tells the other.
    let _ = tokio::io::copy_bidirectional_with_sizes(
        &mut client,
        &mut service,
        TUNNEL_BUFFER,
        TUNNEL_BUFFER,
    )
    .await;
}

fn refusal(port: u16, error: &DialError) -> Response {
    match error {
        DialError::Refused(error) => bad_gateway(&format!(
            "nothing answers on port {port} inside the sandbox ({error}); start the service first, on 127.0.0.1, ::1 or all addresses"
        )),
        DialError::TimedOut => bad_gateway(&format!(
            "port {port} inside the sandbox does not accept connections"
        )),
        DialError::Broken(error) => bad_gateway(&format!(
            "the service on port {port} broke the connection off before it answered: {error}"
        )),
    }
}

fn bad_gateway(message: &str) -> Response {
    Problem::bad_gateway(message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_behind_the_port_arrives_as_it_came() {
        let check = |given: &str, port: u16, rest: &str| {
            let (got_port, got) = destination(&given.parse().unwrap()).unwrap();
            assert_eq!(
                (got_port, got.to_string().as_str()),
                (port, rest),
                "{given}"
            );
        };
        check("/proxy/8080", 8080, "/");
        check("/proxy/8080?a=1", 8080, "/?a=1");
        check("/proxy/8080/", 8080, "/");
        check(
            "/proxy/1/a%2Fb//c/../%20?q=%26&x",
            1,
            "/a%2Fb//c/../%20?q=%26&x",
        );
        check("/proxy/1/proxy/2/", 1, "/proxy/2/");
        for wrong in [
            "/proxy/0/",
            "/proxy/65536/",
            "/proxy/x/",
            "/proxy/+80/",
            "/proxy/",
            "/proxy//a",
            "/other",
        ] {
            assert!(destination(&wrong.parse().unwrap()).is_none(), "{wrong}");
        }
    }
}
