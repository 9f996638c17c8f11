//! Where every request arrives: those into sandboxes go straight to the proxy, on the thread of
//! their connection, all others to the router, on the runtime that does the server's own work.
//!
//! The router with its layers costs more than the proxy's own work on a small request, and none of
//! it is meant for the applications inside.

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse as _;
use daemon::http::{Arrival, Handler, Line, Next};
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{App, Error, guard};
use crate::metrics;
use crate::proxy::{Outcome, Route};

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

    async fn proxy(&self, line: &mut Line) -> Next {
        let began = Instant::now();
        let method = metrics::method_label(line.request().method());
        let path = guard::path_for_log(line.request().target());
        let (outcome, is_all_read) = self.app.0.proxy.carry(line).await;
        let response = match outcome {
            Ok(Outcome::Answered(next)) => Ok(next),
            Ok(Outcome::Gone) => Ok(Next::Close),
            Ok(Outcome::Answer(response)) => Err(response),
            Err(error) => {
                let span = tracing::info_span!("request", request_id = %line.request_id());
                Err(span.in_scope(|| Error::from(error).into_response()))
            }
        };
        let next = match response {
            Ok(next) => next,
            Err(response) => {
                let answered = line.answer(response, is_all_read).await;
                answered.unwrap_or(Next::Close)
            }
        };
        // A part of an answer is one too, and how long the whole takes is the service's business.
        if let Some((status, at)) = line.answered() {
            guard::count(&self.app, method, PROXIED, status, at - began, path);
        }
        next
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
        self.route(request, arrival).await
    }

    const CARRIES: bool = true;

    fn carries(&self, target: &str) -> bool {
        Route::is_for(target)
    }

    async fn carry(&self, line: &mut Line) -> Next {
        self.proxy(line).await
    }
}
