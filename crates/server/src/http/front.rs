//! Where requests to the API arrive: handed from the thread of their connection to the runtime that does
//! the server's own work, and answered for if a handler panics.
//!
//! Requests into sandboxes never come here (`ingress`): the router with its layers costs more than all
//! that the proxy does to a small request, and none of it is meant for the applications inside.

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse as _;
use http::{Request, Response};
use proxy::{Api, RequestBody, RequestId};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt as _;
use tracing::Instrument as _;

use super::Error;
use crate::traces;

/// Answers every request to the API.
pub struct Front {
    router: Router,
    home: Handle,
}

impl Front {
    /// Runs the router on the runtime that this is called in.
    pub(super) fn new(router: Router) -> Self {
        let home = Handle::current();
        Self { router, home }
    }
}

impl Api for Front {
    type Body = Body;

    /// A client that hangs up ends the work, as if it were done here; changes have tasks of their own.
    async fn respond(&self, request: Request<RequestBody>) -> Response<Body> {
        respond(&self.home, self.router.clone(), request.map(Body::new)).await
    }
}

async fn respond(home: &Handle, router: Router, request: Request<Body>) -> Response<Body> {
    let id = request.extensions().get::<RequestId>().cloned();
    let span = tracing::info_span!("request", request_id = id.as_ref().map(RequestId::as_str));
    let step = span.in_scope(|| {
        let id = id.as_ref().map(RequestId::as_str);
        traces::of_request(
            request.method(),
            request.uri().path(),
            request.headers(),
            id,
        )
    });
    let answered = step.clone();
    let work = async move {
        let answer = router.oneshot(request).await;
        if let Ok(response) = &answer {
            let status = response.status();
            answered.record("http.response.status_code", status.as_u16());
            if status.is_server_error() {
                answered.record("error", status.as_str());
            }
        }
        answer
    };
    let work = home.spawn(work.instrument(step).instrument(span));
    let failed = match AbortOnDropHandle::new(work).await {
        Ok(Ok(response)) => return response,
        Ok(Err(never)) => match never {},
        Err(failed) => failed,
    };
    let (Ok(panic), Some(id)) = (failed.try_into_panic(), id) else {
        return Error::from(lifecycle::Error::ShuttingDown).into_response();
    };
    tracing::error!(request_id = %id, error = text_of(&*panic), "a handler panicked");
    Error::Panicked(id).into_response()
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use http::StatusCode;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_answered_with_500_and_the_request_id() {
        let handler = || async {
            panic!("on purpose");
            #[expect(unreachable_code, reason = "gives the handler a type")]
            ""
        };
        let router = Router::new().route("/", get(handler));
        let mut request = Request::new(Body::empty());
        let id = RequestId::random();
        request.extensions_mut().insert(id.clone());
        let response = respond(&Handle::current(), router, request).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        let body = String::from_utf8(body.unwrap().to_vec()).unwrap();
        assert!(body.contains("\"code\":\"INTERNAL_ERROR\""), "{body}");
        assert!(body.contains(id.as_str()), "{body}");
        assert!(
            !body.contains("on purpose"),
            "a panic's text is not for clients: {body}"
        );
    }
}
