//! The HTTP shell that every process of ours serves through: a handler, such as an axum router, on
//! any number of TCP and unix listeners, with limits, request ids, and an answer for a handler that
//! panics.
//!
//! A handler can also carry requests on to somebody else, byte by byte (`turns`, `line`, `flow`, `wire`).
//! Speaks HTTP/1.1 only. Knows nothing of any route. Bodies are limited where they are read
//! ([`body::read`]), because uploads and proxied streams have no limit.

pub mod body;
mod failure;
pub mod flow;
mod lanes;
pub mod line;
mod request_id;
mod turns;
pub mod wire;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse as _;
use futures_util::FutureExt as _;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;
use tower::ServiceExt as _;
use tracing::Instrument as _;

pub use failure::Failure;
use lanes::Lanes;
pub use line::Line;
pub use request_id::{REQUEST_ID, RequestId};

use crate::tasks::Spawner;

/// After `accept` failed for want of a resource, try again when a connection has closed, and at
/// the latest after this long: the resource may have been freed by someone else.
const ACCEPT_RETRY: Duration = Duration::from_millis(250);

/// What a connection may use before a handler sees anything of it.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a request's line and headers. 64 KiB carries any real cookie jar; a client that
    /// sends more gets 431.
    pub head_bytes: usize,
    /// Number of headers.
    pub headers: usize,
    /// From the moment a connection could take a request to the end of that request's head.
    /// Bounds idle keep-alive connections and clients that send their headers drop by drop alike,
    /// since both cost the same. `None` waits for ever.
    pub idle: Option<Duration>,
    /// Threads of their own that TCP connections are dealt out to; with 0 they are served where
    /// everything else runs. Worth it for handlers that pass bytes on, and only for those.
    pub lanes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // Idle: longer than the 30 s for which the published clients keep a connection, so that
        // it is they who close it and never race with us.
        Self {
            head_bytes: 64 * 1024,
            headers: 100,
            idle: Some(Duration::from_secs(75)),
            lanes: 0,
        }
    }
}

/// Where connections come from. Bound by the caller, so that a failure to bind is the caller's
/// error and not a log line.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A unix socket.
    Unix(UnixListener),
}

/// Who is at the other end of a connection; an extension of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Over TCP.
    Tcp(SocketAddr),
    /// Over a unix socket.
    Unix,
}

/// What the shell knows of a request beside what is in it.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Its name.
    pub id: RequestId,
    /// Who sent it.
    pub peer: Peer,
}

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers one.
    fn handle(
        &self,
        request: Request<Incoming>,
        arrival: Arrival,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// Whether it carries on any requests at all.
    const CARRIES: bool = false;

    /// Whether it carries on requests for this target, as the client wrote it.
    fn carries(&self, _target: &str) -> bool {
        false
    }

    /// Carries one on and sends its answer. The connection is then at the next request, or cannot
    /// be used any more.
    fn carry(&self, _line: &mut Line) -> impl Future<Output = Next> + Send {
        async { Next::Close }
    }
}

/// What comes after a request that was carried on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another request.
    Request,
    /// The end of the connection.
    Close,
}

/// The request id and the peer are extensions of the request, and the id is in every log line.
impl Handler for Router {
    async fn handle(&self, request: Request<Incoming>, arrival: Arrival) -> Response<Body> {
        let span = tracing::info_span!("request", request_id = %arrival.id);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(arrival.id);
        request.extensions_mut().insert(arrival.peer);
        match self.clone().oneshot(request).instrument(span).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// Serves `app` on all listeners until the branch is asked to stop. Then no connection is
/// accepted any more, idle ones are closed, and each request in work is answered within the
/// branch's grace period.
pub fn serve(
    spawner: &Spawner,
    listeners: Vec<Listener>,
    app: impl Handler,
    limits: Limits,
) -> io::Result<()> {
    let shell = Arc::new(Shell {
        lanes: Lanes::start(limits.lanes)?,
        app,
        http: connection_builder(limits),
        limits,
        spawner: spawner.clone(),
        closed: Notify::new(),
    });
    for listener in listeners {
        let shell = Arc::clone(&shell);
        spawner.spawn("accept", accept(shell, listener));
    }
    Ok(())
}

struct Shell<H> {
    app: H,
    http: http1::Builder,
    limits: Limits,
    spawner: Spawner,
    lanes: Lanes,
    /// Tells an accept loop that ran out of descriptors that one may be free.
    closed: Notify,
}

fn connection_builder(limits: Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_header_size(limits.head_bytes)
        .max_headers(limits.headers);
    http
}

async fn accept<H: Handler>(shell: Arc<Shell<H>>, listener: Listener) {
    let stopping = shell.spawner.stopping();
    loop {
        let accepted = tokio::select! {
            () = stopping.cancelled() => return,
            accepted = accept_one(&listener) => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                let freed = tokio::time::timeout(ACCEPT_RETRY, shell.closed.notified());
                tokio::select! { () = stopping.cancelled() => return, _ = freed => {} }
                continue;
            }
        };
        let spawner = shell.spawner.clone();
        let shell = Arc::clone(&shell);
        match stream {
            Stream::Tcp(stream) => {
                // An answer is written in one piece; waiting for more to send only delays it.
                let _ = stream.set_nodelay(true);
                match shell.lanes.next().cloned() {
                    Some(lane) => drop(spawner.spawn_on(&lane, "connection", async move {
                        if let Some(stream) = here(stream) {
                            connection(shell, stream, peer).await;
                        }
                    })),
                    None => drop(spawner.spawn("connection", connection(shell, stream, peer))),
                }
            }
            Stream::Unix(stream) => {
                drop(spawner.spawn("connection", connection(shell, stream, peer)));
            }
        }
    }
}

/// Lets the event loop of this thread watch a stream that another one has watched.
fn here(stream: tokio::net::TcpStream) -> Option<tokio::net::TcpStream> {
    let moved = stream.into_std().and_then(tokio::net::TcpStream::from_std);
    moved
        .inspect_err(|error| tracing::warn!(%error, "a connection could not be served"))
        .ok()
}

enum Stream {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

async fn accept_one(listener: &Listener) -> io::Result<(Stream, Peer)> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, address) = listener.accept().await?;
            Ok((Stream::Tcp(stream), Peer::Tcp(address)))
        }
        Listener::Unix(listener) => {
            let (stream, _) = listener.accept().await?;
            Ok((Stream::Unix(stream), Peer::Unix))
        }
    }
}

/// `accept` also reports errors of the one connection it would have returned (accept(2)); the
/// next one may be fine.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

async fn connection<H, S>(shell: Arc<Shell<H>>, stream: S, peer: Peer)
where
    H: Handler,
    S: line::Io + 'static,
{
    if H::CARRIES {
        turns::serve(&shell, Box::new(stream), peer).await;
    } else {
        serve_all(&shell, stream, peer).await;
    }
    shell.closed.notify_waiters();
}

/// A connection all of whose requests are answered by the handler.
async fn serve_all<H, S>(shell: &Shell<H>, stream: S, peer: Peer)
where
    H: Handler,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let app = &shell.app;
    let service = service_fn(|request| answer(app, request, peer));
    let mut serving = pin!(
        shell
            .http
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
    );
    let stopping = shell.spawner.stopping();
    let outcome = tokio::select! {
        outcome = serving.as_mut() => outcome,
        () = stopping.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(error = %api::error_chain(&error), "a connection ended early");
    }
}

/// One request: names it, hands it to the handler, and answers for one that panicked.
async fn answer<H: Handler>(
    app: &H,
    request: Request<Incoming>,
    peer: Peer,
) -> Result<Response<Body>, Infallible> {
    let id = RequestId::of(request.headers());
    let arrival = Arrival {
        id: id.clone(),
        peer,
    };
    let handled = AssertUnwindSafe(app.handle(request, arrival)).catch_unwind();
    let mut response = handled.await.unwrap_or_else(|panic| {
        let message = panic_message(&*panic);
        tracing::error!(request_id = %id, error = message, "a handler panicked");
        Failure::panicked(&id).into_response()
    });
    response.headers_mut().insert(REQUEST_ID, id.header());
    Ok(response)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests;
