//! Where every request arrives: those into sandboxes go straight to the proxy, on the thread of
//! their connection, all others to the router, on the runtime that does the server's own work.
//!
//! The router with its layers costs more than the proxy's own work on a small request, and none of
//! it is meant for the applications inside.

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse as _;
use daemon::http::{Arrival, Handler};
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{App, Error, guard};
use crate::proxy::Route;

/// The name under which requests into sandboxes are counted.
const PROXIED: &str = "/sandboxes/{id}/proxy/{port}";

/// Answers everything.
pub struct Front {
    app: App,
    router: Router,
    home: Handle,
}

impl Front {
    pub(super) fn new(app: App, router: Router) -> Self {
        let home = Handle::current();
        Self { app, router, home }
    }

    async fn proxy(&self, request: Request<Incoming>, arrival: Arrival) -> Response<Body> {
        let began = Instant::now();
        let method = request.method().clone();
        let path = guard::path_for_log(request.uri());
        let forwarded = self.app.0.proxy.forward(request, arrival.peer).await;
        let response = forwarded.unwrap_or_else(|error| {
            let _span = tracing::info_span!("request", request_id = %arrival.id).entered();
            Error::from(error).into_response()
        });
        guard::count(&self.app, &method, PROXIED, &response, began, path);
        response
    }
}

impl Front {
    /// A client that hangs up ends the work, as if it were done here; changes have tasks of their
    /// own.
    async fn route(&self, request: Request<Incoming>, arrival: Arrival) -> Response<Body> {
        let router = self.router.clone();
        let work = self
            .home
            .spawn(async move { router.handle(request, arrival).await });
        match AbortOnDropHandle::new(work).await {
            Ok(response) => response,
            // The shell turns a panic into an answer; it must happen in the task that it watches.
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Error::from(lifecycle::Error::ShuttingDown).into_response(),
            },
        }
    }
}

impl Handler for Front {
    async fn handle(&self, request: Request<Incoming>, arrival: Arrival) -> Response<Body> {
        if Route::is_for(request.uri().path()) {
            self.proxy(request, arrival).await
        } else {
            self.route(request, arrival).await
        }
    }
}
