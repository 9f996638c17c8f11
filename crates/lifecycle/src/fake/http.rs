//! What answers inside a fake sandbox: a small HTTP server on one stream.
//!
//! `GET /ping` answers `pong`; `GET /headers` answers the request's headers as JSON; every other
//! request gets its own body back, streamed, with `x-fake-method`, `x-fake-path` and
//! `x-fake-target`. A request to upgrade becomes an echo of raw bytes. The daemon's side asks
//! for the sandbox's token, as the real one does.

use std::collections::BTreeMap;
use std::convert::Infallible;

use api::exec::ACCESS_TOKEN_HEADER;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;

use crate::backend::Target;

type Body = BoxBody<Bytes, hyper::Error>;

/// Serves one stream until the other side closes it.
pub(super) async fn serve(stream: DuplexStream, target: Target, token: String) {
    let service = service_fn(move |request| {
        let answer = answer(request, target, &token);
        async move { Ok::<_, Infallible>(answer) }
    });
    // A client that hangs up in the middle is its own business.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}

fn answer(mut request: Request<Incoming>, target: Target, token: &str) -> Response<Body> {
    let given = request
        .headers()
        .get(ACCESS_TOKEN_HEADER)
        .map(HeaderValue::as_bytes);
    if target == Target::Control && given != Some(token.as_bytes()) {
        return plain(StatusCode::UNAUTHORIZED, "missing or wrong token");
    }
    if request.headers().contains_key(header::UPGRADE) {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            if let Ok(upgraded) = upgrade.await {
                let (mut from, mut to) = tokio::io::split(TokioIo::new(upgraded));
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = tokio::io::AsyncWriteExt::shutdown(&mut to).await;
            }
        });
        let mut response = plain(StatusCode::SWITCHING_PROTOCOLS, "");
        let protocol = request.headers()[header::UPGRADE].clone();
        response.headers_mut().insert(header::UPGRADE, protocol);
        let upgrade = HeaderValue::from_static("upgrade");
        response.headers_mut().insert(header::CONNECTION, upgrade);
        return response;
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/ping") => plain(StatusCode::OK, "pong"),
        (&Method::GET, "/headers") => {
            let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            let headers = request
                .headers()
                .iter()
                .map(|(k, v)| (k.to_string(), text(v)));
            let headers: BTreeMap<_, _> = headers.collect();
            plain(
                StatusCode::OK,
                serde_json::to_string(&headers).expect("text keys"),
            )
        }
        _ => echo(request, target),
    }
}

fn echo(request: Request<Incoming>, target: Target) -> Response<Body> {
    let target = match target {
        Target::Control => "control".to_owned(),
        Target::Port(port) => port.to_string(),
    };
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .to_owned();
    Response::builder()
        .header("x-fake-method", request.method().as_str())
        .header("x-fake-path", path)
        .header("x-fake-target", target)
        .body(request.into_body().boxed())
        .expect("valid parts")
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(text.into())
        .map_err(|never| match never {})
        .boxed();
    Response::builder()
        .status(status)
        .body(body)
        .expect("valid parts")
}
