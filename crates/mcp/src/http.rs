//! The streamable HTTP transport at `/mcp`, behind a bearer token.
//!
//! Without a token it listens on loopback only, and checks the `Host` header, so that no web page
//! in a browser of this machine can reach it under a name of its own. A page of any origin is refused
//! unless the operator named it, as MCP demands (transports, "Security Warning").

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap, WWW_AUTHENTICATE};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use crate::handler::Handler;
use crate::options::Options;
use crate::registry::Registry;

/// A token that can be guessed protects nothing.
const TOKEN_BYTES_MIN: usize = 16;

/// Why HTTP is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "listening on {0} without --auth-token would let anybody run commands; give a token, or \
         listen on 127.0.0.1"
    )]
    Open(String),
    #[error(
        "--auth-token must have at least {TOKEN_BYTES_MIN} characters; make one with: openssl rand -hex 32"
    )]
    ShortToken,
    #[error("{host} has no address")]
    Resolve {
        host: String,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot listen on {address}")]
    Listen {
        address: String,
        #[source]
        source: std::io::Error,
    },
    #[error("serving HTTP ended")]
    Serve(#[source] std::io::Error),
}

pub(crate) async fn serve(registry: Arc<Registry>, options: &Options) -> Result<(), Error> {
    let address = resolve(&options.host, options.port).await?;
    let token = options.auth_token.clone().filter(|token| !token.is_empty());
    if token
        .as_ref()
        .is_some_and(|token| token.len() < TOKEN_BYTES_MIN)
    {
        return Err(Error::ShortToken);
    }
    if token.is_none() && !is_loopback(address.ip()) {
        return Err(Error::Open(address.to_string()));
    }
    let listener = tokio::net::TcpListener::bind(address).await;
    let listener = listener.map_err(|source| Error::Listen {
        address: address.to_string(),
        source,
    })?;
    let bound = listener.local_addr().map_err(Error::Serve)?;
    // For whoever started it with port 0; nobody may be listening.
    let _ = writeln!(std::io::stderr(), "listening on http://{bound}/mcp");

    let stop = CancellationToken::new();
    let mut config =
        StreamableHttpServerConfig::default().with_cancellation_token(stop.child_token());
    // Also where there is a list: an empty one allows nobody.
    config = config
        .with_allowed_origins(options.allow_origin.iter().cloned())
        .enforce_origin_validation();
    if token.is_some() {
        // Whoever knows the token may come under any name.
        config = config.disable_allowed_hosts();
    }
    let handler = Handler::new(registry);
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions, config);
    let mut router = Router::new().nest_service("/mcp", service);
    if let Some(token) = token {
        let token: Arc<str> = token.into();
        router = router.layer(middleware::from_fn_with_state(token, authorize));
    }
    let ended = axum::serve(listener, router).with_graceful_shutdown(async move {
        signalled().await;
        // Streams of clients that stay would keep the server from ending.
        stop.cancel();
    });
    ended.await.map_err(Error::Serve)
}

async fn resolve(host: &str, port: u16) -> Result<SocketAddr, Error> {
    let failed = |source| Error::Resolve {
        host: host.to_owned(),
        source,
    };
    let mut found = tokio::net::lookup_host((host, port))
        .await
        .map_err(failed)?;
    let nothing = || failed(std::io::ErrorKind::NotFound.into());
    found.next().ok_or_else(nothing)
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

async fn signalled() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

async fn authorize(State(token): State<Arc<str>>, request: Request, next: Next) -> Response {
    if is_authorized(request.headers(), &token) {
        return next.run(request).await;
    }
    let message = "the token is missing or wrong; send Authorization: Bearer TOKEN\n";
    (
        StatusCode::UNAUTHORIZED,
        [(WWW_AUTHENTICATE, "Bearer")],
        message,
    )
        .into_response()
}

fn is_authorized(headers: &HeaderMap, token: &str) -> bool {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return false;
    };
    let bytes = value.as_bytes();
    let Some((scheme, given)) = bytes.split_at_checked("Bearer ".len()) else {
        return false;
    };
    // In time that says nothing about how much of it is right.
    scheme.eq_ignore_ascii_case(b"Bearer ") && bool::from(given.ct_eq(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_enough() {
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            is_authorized(&headers, "0123456789abcdef")
        };
        assert!(with("Bearer 0123456789abcdef"));
        assert!(with("bearer 0123456789abcdef"));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "0123456789abcdef",
            "Basic 0123456789abcdef",
        ] {
            assert!(!with(wrong), "{wrong}");
        }
        assert!(!with("Bearer 0123456789abcde"));
        assert!(!with("Bearer 0123456789abcdef0"));
        assert!(!is_authorized(&HeaderMap::new(), "0123456789abcdef"));
    }

    #[test]
    fn loopback_in_any_spelling() {
        for (address, is) in [
            ("127.0.0.2", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(is_loopback(address.parse().unwrap()), is, "{address}");
        }
    }
}
