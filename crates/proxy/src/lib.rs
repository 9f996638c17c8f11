//! Everything that carries traffic into sandboxes: listeners, each a TCP port or a unix socket, whose requests
//! go to a port of a sandbox or to an API.
//!
//! What the crate needs to know of sandboxes is one trait, [`Sandboxes`]: which sandbox a request
//! means, whether it may go there, and a stream to it. All else is in here: the threads that serve
//! connections (`serve`, `threads`) and how many there may be (`connection_limit`), the choice between proxy and API
//! for each request of a connection (`connection`, `dispatch`), the forwarding of one (`relay`,
//! `exchange`), what its heads become (`request_head`, `response_head`) and what never passes (`secrets`,
//! `confine`), who the client is behind other proxies (`peer`), upgraded connections (`tunnel`), idle
//! connections into sandboxes (`pool`) and access for browsers ([`browser_link`]). How a gateway's requests
//! name their sandbox and show their right is in [`gateway`].
//!
//! Speaks HTTP/1.1 only. A request that is forwarded is never parsed by the HTTP library: taking a
//! message apart and putting it together again, twice, costs more than everything else that is done to
//! it. A request to the API is never parsed by anything else (`hyper_io`), but for a first look at bytes
//! that are not a whole head (`connection`).
//!
//! Knows no state of a sandbox, no route of an API, no status code for an error.

#![forbid(unsafe_code)]

mod accept;
mod access;
pub mod body;
pub mod browser_link;
mod confine;
mod connection;
mod connection_limit;
mod dispatch;
mod exchange;
#[cfg(test)]
mod fake;
pub mod gateway;
mod headers;
mod http2;
mod hyper_io;
mod idle;
pub mod message;
mod peer;
mod pool;
mod relay;
mod request_head;
mod request_id;
mod response_head;
mod route;
mod secrets;
mod serve;
mod threads;
mod tls;
mod transfer;
mod tunnel;

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use access::shows_token;
pub use connection_limit::ConnectionPermit;
pub use headers::skips_renewal;
pub use hyper_io::RequestBody;
use message::{Head, Malformed};
pub use peer::{Network, Peer, TrustedProxies, network_of};
pub use request_id::{REQUEST_ID, RequestId};
pub use route::Route;
pub use serve::{Limits, Listener, serve};
pub use tls::{Tls, TlsError};

/// The sandboxes that requests go into.
pub trait Sandboxes: Send + Sync + 'static {
    /// The sandbox that a request goes to, for the calls that follow.
    type Sandbox: Send + Sync;
    /// A connection to a port of a sandbox.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;
    /// Why a request is refused, or why a sandbox cannot be reached.
    type Error: std::error::Error + Send + 'static;

    /// A header that every forwarded response gets.
    const RESPONSE_HEADER: Option<(&'static str, &'static str)> = None;

    /// Whether a request with this target goes into a sandbox rather than to the API. Called for every
    /// request, before anything else of it is parsed.
    fn is_proxied(&self, target: &str) -> bool;

    /// Which sandbox and port a request is for, if its sender may go there. Decides from memory.
    fn route(&self, request: Head<'_>, peer: Peer) -> Result<Routed<Self::Sandbox>, Self::Error>;

    /// Whether these bytes are an API key, or the token of this sandbox. Such a value is never
    /// forwarded, wherever in a request's head it stands.
    fn is_secret(&self, sandbox: &Self::Sandbox, value: &[u8]) -> bool;

    /// Waits until the sandbox takes requests. Called for every request, also where an open connection
    /// into the sandbox is at hand: one into a paused sandbox would only hang.
    fn ready(
        &self,
        sandbox: &Self::Sandbox,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Opens a stream to the port that the request is for.
    fn connect(
        &self,
        sandbox: &Self::Sandbox,
        route: &Route,
    ) -> impl Future<Output = Result<Self::Stream, Self::Error>> + Send;

    /// Notes that an upgraded connection has ended.
    fn tunnel_closed(&self, sandbox: &Self::Sandbox);

    /// The response to a request that was not forwarded, or got no response.
    fn refuse(&self, error: Error<Self::Error>, id: &RequestId) -> Response<Bytes>;

    /// Told of every request that was for a sandbox, when it is over.
    fn observe(&self, request: &RequestRecord);
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Routed<S> {
    /// It is forwarded.
    Forward(Forward<S>),
    /// It is answered with this.
    Respond(Response<Bytes>),
}

/// Where a request is forwarded to.
#[derive(Debug)]
pub struct Forward<S> {
    /// The sandbox.
    pub sandbox: S,
    /// Its port, and the path there.
    pub route: Route,
    /// The sandbox's own token, which its daemon wants to see. No other service gets it.
    pub token: Option<SecretString>,
    /// Whose origin the pages of the service have in a browser.
    pub origin: PageOrigin,
    /// When the sender's right ends. What is still open then is closed.
    pub until: Option<Instant>,
    /// Cancelled when the sender's right is taken away, with the same effect.
    pub revoked: Option<CancellationToken>,
    /// How a stream of events is ended when the server stops; `None` leaves it to its service until the end of
    /// the grace period.
    pub stream_end: Option<StreamEnd>,
}

/// How a stream of events, each of which its service writes as a whole into one chunk, is ended when the server
/// stops: behind the last whole one.
#[derive(Debug, Clone, Copy)]
pub enum StreamEnd {
    /// Without a word: its client knows that it has no last event, and asks for the rest.
    Resumable,
    /// With one more event, which says why.
    Event(fn() -> Vec<u8>),
}

/// Whose origin the pages of a service have in a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageOrigin {
    /// The service's own, by a host name that nothing else has.
    Own,
    /// By their address that of all sandboxes, so each page is given one that is nobody else's.
    Isolated,
    /// That of all sandboxes.
    Shared,
}

/// Why a request was not forwarded, or got no response.
#[derive(Debug, thiserror::Error)]
pub enum Error<E: std::error::Error + 'static> {
    /// The sandbox cannot be reached, or not by this client.
    #[error(transparent)]
    Sandbox(E),
    /// HTTP's own CONNECT (RFC 9110 9.3.6) is not a way into a sandbox.
    #[error("CONNECT is not a method of this proxy; use an Upgrade")]
    Connect,
    /// A script that a browser asks for as a service worker (Service Workers, 4.1): it could see the
    /// requests, and so the tokens, of every sandbox under the same origin.
    #[error(
        "a service worker cannot be installed from here, because all sandboxes share this origin"
    )]
    ServiceWorker,
    /// Where the request ends is not clear.
    #[error("the request cannot be carried on: {0}")]
    Malformed(Malformed),
    /// The service in the sandbox closed the connection before its response was complete.
    #[error("the service on port {port} closed the connection without a whole answer: {message}")]
    UpstreamClosed {
        /// The port in the sandbox.
        port: u16,
        /// What was received instead.
        message: String,
    },
    /// A request without TLS, where nothing else is spoken.
    #[error("this port speaks TLS: use https:// in place of http://")]
    NotTls,
    /// A bug: the proxy panicked. The panic's own text is in the log only.
    #[error("the proxy panicked")]
    Panicked,
}

/// A request into a sandbox that is over.
#[derive(Debug)]
pub struct RequestRecord {
    /// Its method.
    pub method: Method,
    /// Its path without the query, which may hold a token; only where debug logs are wanted.
    pub path: Option<String>,
    /// The status of its response and the time to it; `None` for a client that went away before.
    pub response: Option<(u16, Duration)>,
    /// How it went.
    pub outcome: RequestOutcome,
}

/// How a request into a sandbox went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestOutcome {
    /// It was answered.
    Answered,
    /// It was not forwarded.
    Refused,
    /// The service in the sandbox did not complete its response.
    Failed,
}

/// Answers the requests that go into no sandbox.
pub trait Api: Send + Sync + 'static {
    /// The body of a response.
    type Body: hyper::body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// Answers one. Its [`RequestId`], its [`Peer`] and the [`ConnectionPermit`] of its connection are extensions of it;
    /// the id is added to the response afterwards.
    fn respond(
        &self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}
