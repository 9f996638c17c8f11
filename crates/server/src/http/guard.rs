//! What every request meets before its handler: counting, the API key, the limit on work.

use std::net::IpAddr;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use http::Method;
use http::header::{self, HeaderMap, HeaderValue};
use http::uri::Authority;
use lifecycle::Caller;
use proxy::{ConnectionPermit, Peer};
use tokio::time::Instant;

use super::error::Answered;
use super::{App, Error, address_of, api_key};
use crate::access::{Denied, WRONG_KEY_DELAY};
use crate::metrics::{self, Metrics};

/// Counts requests by route and writes a line for each at level debug.
pub(super) async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let path = path_for_log(request.uri().path());
    let response = next.run(request).await;
    // The router's routes are matched further in, and tell it on the way out.
    let matched = matched.or_else(|| response.extensions().get::<MatchedPath>().cloned());
    let route = matched.as_ref().map_or("unmatched", MatchedPath::as_str);
    let (status, took) = (response.status().as_u16(), began.elapsed());
    if let Some(answered) = response.extensions().get::<Answered>() {
        app.0.metrics.failed(answered.code.as_str());
    }
    count(
        &app.0.metrics,
        &method,
        route,
        status,
        took,
        path.as_deref(),
    );
    response
}

/// The path of a target, where somebody will read it. Not the query: it may hold a token.
fn path_for_log(target: &str) -> Option<String> {
    let path = || target.split('?').next().unwrap_or_default().to_owned();
    tracing::enabled!(tracing::Level::DEBUG).then(path)
}

/// Counts a response by its route, and writes a line about it if its path was kept for that.
pub(crate) fn count(
    metrics: &Metrics,
    method: &Method,
    route: &str,
    status: u16,
    took: Duration,
    path: Option<&str>,
) {
    let method = metrics::method_label(method);
    metrics.answered(method, route, status, took);
    if let Some(path) = path {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(method, path, status, took_us, "answered");
    }
}

/// Lets holders of an API key pass and notes who they are. Where there are no keys, everyone on
/// this machine passes, but not the web pages they look at; and so does, everywhere, whoever may open
/// the server's unix socket.
pub(super) async fn authenticate(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    let user = request.extensions().get::<Peer>();
    let user = user.and_then(|peer| peer.user);
    let needs_no_key = app.0.keys.is_open() || user.is_some();
    if needs_no_key && !is_of_this_machine(request.headers(), &app.0.rules.pages) {
        return Error::StrangePage.into_response();
    }
    let extensions = request.extensions();
    let from = address_of(extensions.get::<Peer>());
    let permit = extensions.get::<ConnectionPermit>().cloned();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let checked = match user {
        Some(user) => Ok(Caller::admin(format!("user {user}"))),
        None => app.0.keys.check(api_key(request.headers()), from),
    };
    let mut response = match checked {
        Ok(caller) => {
            if let Some(permit) = permit {
                permit.mark_known();
            }
            request.extensions_mut().insert(caller.clone());
            while_allowed(next.run(request).await, caller)
        }
        Err(denied) => {
            app.0.metrics.denied();
            if let Denied::Throttled { .. } = denied {
                tokio::time::sleep(WRONG_KEY_DELAY).await;
            }
            Error::from(denied).into_response()
        }
    };
    if let Some(matched) = matched {
        response.extensions_mut().insert(matched);
    }
    response
}

/// Why a response without an end of its own breaks off.
#[derive(Debug, thiserror::Error)]
#[error("the API key of this request has ended")]
struct KeyEnded;

/// Lets a response that has no known end break off when its caller may not do anything any more.
fn while_allowed(response: Response, caller: Caller) -> Response {
    if caller.key.is_none() || response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        let ended = Box::pin(async move { caller.ended().await });
        let state = Some((body.into_data_stream(), ended));
        let pieces = futures_util::stream::unfold(state, |state| async move {
            let (mut pieces, mut ended) = state?;
            tokio::select! {
                biased;
                () = &mut ended => Some((Err(axum::Error::new(KeyEnded)), None)),
                piece = pieces.next() => Some((piece?, Some((pieces, ended)))),
            }
        });
        Body::from_stream(pieces)
    })
}

/// Refuses requests beyond the number the operator allows in flight at once.
pub(super) async fn limit(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(room) = &app.0.room else {
        return next.run(request).await;
    };
    match room.try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => Error::Full.into_response(),
    }
}

/// The header in which a browser says how the page that asks is related to what it asks for (Fetch
/// Metadata 2.3). No page can set or leave out a header whose name begins with `Sec-`.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Whether a request comes from a program here, or from a person who typed its address, rather than from a
/// page that a site or a sandbox sent to a browser here. Such a page is known by its `Origin` or by
/// `Sec-Fetch-Site`, and one that had its own name point to this machine by the `Host` it asks for. Pages
/// of sandboxes have the API's own origin, so that says nothing.
fn is_of_this_machine(headers: &HeaderMap, pages: &[String]) -> bool {
    let text = |name| {
        headers
            .get(name)
            .map(|value: &HeaderValue| value.to_str().unwrap_or(""))
    };
    let host = text(header::HOST).unwrap_or("");
    let is_named = |origin: &str| pages.iter().any(|page| page == origin);
    let is_page = headers
        .get_all(SEC_FETCH_SITE)
        .iter()
        .any(|site| site != "none");
    let is_allowed = match text(header::ORIGIN) {
        Some(origin) => is_named(origin),
        None => !is_page,
    };
    is_local_name(host) && is_allowed
}

fn is_local_name(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority.host().trim_matches(['[', ']']);
    let is_loopback = name
        .parse::<IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    is_loopback || name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(host: &'static str, origin: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static(host));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
        }
        is_of_this_machine(&headers, &["http://dash.example".to_owned()])
    }

    #[test]
    fn programs_pass_and_strange_pages_do_not() {
        for host in [
            "127.0.0.1:8080",
            "localhost:8080",
            "[::1]:8080",
            "osb.localhost",
            "127.9.0.1",
        ] {
            assert!(passes(host, None), "{host}");
        }
        assert!(
            !passes("localhost:8080", Some("http://localhost:8080")),
            "a page of a sandbox"
        );
        assert!(passes("localhost:8080", Some("http://dash.example")));
        assert!(!passes("localhost:8080", Some("http://evil.example")));
        assert!(!passes("localhost:8080", Some("http://localhost:3000")));
        assert!(!passes("localhost:8080", Some("null")));
        assert!(
            !passes("evil.example:8080", None),
            "a name that points here"
        );
        assert!(!passes(
            "evil.example:8080",
            Some("http://evil.example:8080")
        ));
        assert!(!passes("", None));
    }

    #[test]
    fn a_page_is_known_also_where_it_sends_no_origin() {
        let ours = "http://dash.example";
        for (site, origin, is_passed) in [
            ("none", None, true),
            ("same-origin", None, false),
            ("same-site", None, false),
            ("cross-site", None, false),
            ("", None, false),
            ("cross-site", Some(ours), true),
            ("same-origin", Some("http://localhost:8080"), false),
            ("none", Some("http://localhost:8080"), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("localhost:8080"));
            headers.insert(SEC_FETCH_SITE, HeaderValue::from_static(site));
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            }
            let passes = is_of_this_machine(&headers, &[ours.to_owned()]);
            assert_eq!(passes, is_passed, "{site} {origin:?}");
        }
    }
}
