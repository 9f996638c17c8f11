//! What every request meets before its handler: counting, the API key, the limit on work.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use daemon::http::Peer;
use tokio::time::Instant;

use super::{App, Error, address_of, api_key};

/// Counts requests by route and writes a line for each at level debug.
pub(super) async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let path = tracing::enabled!(tracing::Level::DEBUG).then(|| request.uri().path().to_owned());
    let response = next.run(request).await;
    // Routes of the API are matched further in, and tell it on the way out.
    let matched = matched.or_else(|| response.extensions().get::<MatchedPath>().cloned());
    let route = matched.as_ref().map_or("unmatched", MatchedPath::as_str);
    let (status, took) = (response.status(), began.elapsed());
    app.0.metrics.answered(&method, route, status, took);
    if let Some(path) = path {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(%method, path, status = status.as_u16(), took_us, "answered");
    }
    response
}

/// Lets holders of an API key pass and notes who they are.
pub(super) async fn authenticate(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    let from = address_of(request.extensions().get::<Peer>());
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let mut response = match app.0.keys.check(api_key(request.headers()), from) {
        Ok(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Err(denied) => {
            app.0.metrics.denied();
            Error::from(denied).into_response()
        }
    };
    if let Some(matched) = matched {
        response.extensions_mut().insert(matched);
    }
    response
}

/// Refuses requests beyond the number the operator allows in work at once.
pub(super) async fn limit(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(room) = &app.0.room else {
        return next.run(request).await;
    };
    match room.try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => Error::Full.into_response(),
    }
}
