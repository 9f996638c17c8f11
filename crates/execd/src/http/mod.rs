//! The HTTP face of the daemon: which routes exist, who may call them, and the accept
//! loops that serve them on every listener.
//!
//! The handlers live in the feature modules; each gives a router that is merged here.

mod auth;
mod json;
mod problem;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::response::Response;
use http::{Method, Request, Uri};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::ServiceExt as _;

pub(crate) use auth::Token;
pub(crate) use json::{Json, OptionalJson};
pub(crate) use problem::{PRECONDITION_FAILED, Problem};

use crate::limits;
use crate::state::Shared;
use crate::{code, command, files, isolated, metrics, proxy, pty, session, tunnel};

/// The whole API, ready to be served.
#[derive(Clone)]
pub(crate) struct App {
    router: Router,
    token: Arc<Token>,
    connections: Arc<Semaphore>,
}

impl App {
    pub(crate) fn new(shared: &Arc<Shared>, token: Token) -> Self {
        let router = Router::new()
            .route("/ping", axum::routing::get(|| async {}))
            .merge(code::router(Arc::clone(shared)))
            .merge(command::router(Arc::clone(shared)))
            .merge(files::router(Arc::clone(shared)))
            .merge(isolated::router())
            .merge(metrics::router(Arc::clone(shared)))
            .merge(proxy::router(Arc::clone(shared)))
            .merge(pty::router(Arc::clone(shared)))
            .merge(session::router(Arc::clone(shared)))
            .merge(tunnel::router())
            .fallback(unknown_route)
            .method_not_allowed_fallback(wrong_method)
            .layer(DefaultBodyLimit::max(limits::JSON_BODY_BYTES));
        Self {
            router,
            token: Arc::new(token),
            connections: Arc::new(Semaphore::new(limits::CONNECTIONS)),
        }
    }

    /// Serves a unix socket until the process ends.
    pub(crate) async fn serve_unix(self, listener: UnixListener) {
        loop {
            let permit = self.connection_permit().await;
            match listener.accept().await {
                Ok((stream, _)) => self.serve_connection(stream, permit),
                Err(error) => refused_accept(&error).await,
            }
        }
    }

    /// Serves a TCP socket until the process ends.
    pub(crate) async fn serve_tcp(self, listener: TcpListener) {
        loop {
            let permit = self.connection_permit().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Events are small and must leave at once.
                    let _ = stream.set_nodelay(true);
                    self.serve_connection(stream, permit);
                }
                Err(error) => refused_accept(&error).await,
            }
        }
    }

    /// Taken before accepting, so that connections over the limit wait in the kernel's
    /// backlog instead of being refused.
    async fn connection_permit(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.connections)
            .acquire_owned()
            .await
            .expect("never closed")
    }

    fn serve_connection(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        permit: OwnedSemaphorePermit,
    ) {
        let app = self.clone();
        let service = service_fn(move |request| app.clone().answer(request));
        let connection = hyper::server::conn::http1::Builder::new()
            .max_buf_size(limits::HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        tokio::spawn(async move {
            // A connection that ends early is the client's affair.
            let _ = connection.await;
            drop(permit);
        });
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response, Infallible> {
        if !self.token.admits(request.headers()) {
            return Ok(auth::refusal());
        }
        self.router.oneshot(request.map(Body::new)).await
    }
}

/// accept(2) reports errors of connections that died in the queue, and the lack of
/// descriptors or memory. Neither may end the daemon; the second would spin, so the loop
/// yields to the tasks whose end gives descriptors back.
async fn refused_accept(error: &io::Error) {
    tracing::warn!(error = %api::error_chain(error), "a connection could not be accepted");
    tokio::task::yield_now().await;
}

async fn unknown_route(method: Method, uri: Uri) -> Problem {
    Problem::route_not_found(&method, &uri)
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    Problem::method_not_allowed(&method, &uri)
}
