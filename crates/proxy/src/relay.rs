//! Forwarding one request into its sandbox: its route, a connection, the exchange, and the response that the client gets where there is none to forward.
//!
//! Nothing is looked up outside memory, nothing is buffered, and connections have no limit that all
//! sandboxes share.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use daemon::TaskSpawner;
use futures_util::FutureExt as _;
use http::{Method, Response};
use secrecy::ExposeSecret as _;
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body::Length;
use crate::connection::{Connection, Persistence};
use crate::exchange::{
    self, ExchangeError, Exchanged, Outgoing, Terms, Upstream, WRITTEN_TOGETHER_MAX,
};
use crate::headers;
use crate::message::{Head, Malformed};
use crate::pool::{self, Pool, PoolKey};
use crate::request_head::{ForwardedRequest, write_request};
use crate::transfer::{Buffer, Transfer};
use crate::{
    Error, Forward, PageOrigin, Peer, RequestOutcome, RequestRecord, Route, Routed, Sandboxes,
    StreamEnd, TrustedProxies, tunnel,
};

/// The header by which a browser asks for the script of a service worker (Service Workers, 6.1).
const SERVICE_WORKER: &str = "service-worker";

/// Forwards requests into sandboxes.
pub(crate) struct Relay<S: Sandboxes> {
    pub(crate) sandboxes: S,
    pub(crate) trusted: TrustedProxies,
    pool: Arc<Pool<S::Stream>>,
    pub(crate) spawner: TaskSpawner,
}

/// A request that is forwarded.
pub(crate) struct RoutedRequest<S> {
    pub(crate) sandbox: S,
    pub(crate) route: Route,
    pub(crate) origin: PageOrigin,
    until: Option<Instant>,
    stream_end: Option<StreamEnd>,
    revoked: Option<CancellationToken>,
    /// As HTTP/1.1 has it.
    pub(crate) head: Vec<u8>,
    expects_continue: bool,
    is_idempotent: bool,
    upgrade: Upgrade,
}

impl<S> RoutedRequest<S> {
    /// The end of the sender's right, if that has one.
    pub(crate) fn right_end(&self) -> Option<impl Future<Output = ()> + Send + use<S>> {
        let (until, revoked) = (self.until, self.revoked.clone());
        if until.is_none() && revoked.is_none() {
            return None;
        }
        Some(async move {
            let expired = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            match &revoked {
                Some(revoked) => tokio::select! {
                    () = revoked.cancelled() => {}
                    () = expired => {}
                },
                None => expired.await,
            }
        })
    }
}

/// The protocol that a request asks to switch to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upgrade {
    None,
    /// One that the service in the sandbox speaks.
    Service,
    /// A plain byte stream.
    Raw,
}

/// What a request came to.
enum Relayed {
    /// A response was forwarded.
    Forwarded(Persistence),
    /// The client gets this response.
    Respond(Response<Bytes>),
    /// The client has gone, or has got a part of a response that cannot be completed.
    ClientGone,
}

type Result<T, S> = std::result::Result<T, Error<<S as Sandboxes>::Error>>;

impl<S: Sandboxes> Relay<S> {
    /// A relay whose idle connections into sandboxes are closed by a task of `spawner`.
    pub(crate) fn new(sandboxes: S, trusted: TrustedProxies, spawner: &TaskSpawner) -> Self {
        let pool = Arc::new(Pool::default());
        spawner.spawn("pool", pool::sweep(Arc::clone(&pool), spawner.stopping()));
        Self {
            sandboxes,
            trusted,
            pool,
            spawner: spawner.clone(),
        }
    }

    /// Serves the request whose head the connection has received. A panic is answered for.
    pub(crate) async fn forward(&self, connection: &mut Connection) -> Persistence {
        let began = Instant::now();
        let head = connection.head();
        let method = Method::from_bytes(head.method().as_bytes()).unwrap_or_default();
        let path = path_for_log(head.target());
        let served = AssertUnwindSafe(self.serve(connection)).catch_unwind();
        let (done, is_request_read) = served.await.unwrap_or_else(|panic| {
            let (request_id, error) = (connection.request_id(), panic_message(&*panic));
            tracing::error!(%request_id, error, "the proxy panicked");
            (Err(Error::Panicked), false)
        });
        let outcome = outcome_of::<_, S>(&done);
        let response = match done {
            Ok(Relayed::Forwarded(persistence)) => Ok(persistence),
            Ok(Relayed::ClientGone) => Ok(Persistence::Close),
            Ok(Relayed::Respond(response)) => Err(response),
            Err(error) => Err(self.sandboxes.refuse(error, connection.request_id())),
        };
        let persistence = match response {
            Ok(persistence) => persistence,
            Err(response) => {
                let responded = connection.respond(&response, is_request_read).await;
                responded.unwrap_or(Persistence::Close)
            }
        };
        // A response that broke off counts too. Its time is that to its head: how long the whole takes
        // is the service's business.
        let response = connection.response();
        self.sandboxes.observe(&RequestRecord {
            method,
            path,
            response: response.map(|(status, at)| (status, at - began)),
            outcome,
        });
        persistence
    }

    /// Serves a request. The flag is whether all of it was read, so that another one may follow.
    async fn serve(&self, connection: &mut Connection) -> (Result<Relayed, S>, bool) {
        let peer = self.trusted.peer_of(connection.client(), connection.head());
        let routed = self.route(connection.head(), peer);
        let length = connection.head().request_length();
        connection.remove_head();
        let mut outgoing = match length {
            Ok(length) => Outgoing {
                bytes: Vec::new(),
                rest: Transfer::new(length),
            },
            Err(error) => return (Err(Error::Malformed(error)), false),
        };
        let done = match routed {
            Ok(Ok(mut routed)) => {
                connection.mark_known();
                outgoing.bytes = std::mem::take(&mut routed.head);
                match take_body(connection, &mut outgoing) {
                    Ok(()) => self.send_in_time(connection, routed, &mut outgoing).await,
                    Err(error) => Err(Error::Malformed(error)),
                }
            }
            Ok(Err(response)) => take_body(connection, &mut outgoing)
                .map(|()| Relayed::Respond(response))
                .map_err(Error::Malformed),
            Err(refused) => match take_body(connection, &mut outgoing) {
                Ok(()) => Err(refused),
                Err(error) => Err(Error::Malformed(error)),
            },
        };
        (done, outgoing.rest.is_done())
    }

    /// Lets a request in and writes its head for the service. `Ok(Err(_))` is the response to one that
    /// is not forwarded.
    pub(crate) fn route(
        &self,
        request: Head<'_>,
        peer: Peer,
    ) -> Result<std::result::Result<RoutedRequest<S::Sandbox>, Response<Bytes>>, S> {
        if request.method() == "CONNECT" {
            return Err(Error::Connect);
        }
        let routed = self.sandboxes.route(request, peer);
        let forward = match routed.map_err(Error::Sandbox)? {
            Routed::Forward(forward) => forward,
            Routed::Respond(response) => return Ok(Err(response)),
        };
        let is_worker = request.values(SERVICE_WORKER).next().is_some();
        if is_worker && forward.origin != PageOrigin::Own {
            return Err(Error::ServiceWorker);
        }
        let Forward {
            sandbox,
            route,
            token,
            origin,
            until,
            stream_end,
            revoked,
        } = forward;
        let protocol = headers::upgrade(request);
        let upgrade = match protocol {
            None => Upgrade::None,
            Some(protocol) if tunnel::is_raw(protocol) && !route.is_control() => Upgrade::Raw,
            Some(_) => Upgrade::Service,
        };
        let length = request.request_length().map_err(Error::Malformed)?;
        if upgrade == Upgrade::Raw && length != Length::Exactly(0) {
            return Err(Error::Malformed(Malformed::Length(
                "what asks for a plain byte stream has no body in front of it",
            )));
        }
        let mut head = Vec::with_capacity(1024);
        let forwarded = ForwardedRequest {
            route: &route,
            peer,
            length,
            token: token.as_ref().map(|token| token.expose_secret()),
            upgrade: protocol,
        };
        let is_secret = |value: &[u8]| self.sandboxes.is_secret(&sandbox, value);
        write_request(&mut head, request, &forwarded, is_secret);
        Ok(Ok(RoutedRequest {
            expects_continue: headers::expects_continue(request),
            is_idempotent: is_idempotent(request.method()),
            sandbox,
            route,
            origin,
            until,
            stream_end,
            revoked,
            head,
            upgrade,
        }))
    }

    /// Sends a request for as long as its sender's right holds. Whatever is open then, a tunnel or a
    /// response without end, is cut off.
    async fn send_in_time(
        &self,
        connection: &mut Connection,
        routed: RoutedRequest<S::Sandbox>,
        outgoing: &mut Outgoing,
    ) -> Result<Relayed, S> {
        let Some(over) = routed.right_end() else {
            return self.send(connection, routed, outgoing).await;
        };
        let sent = tokio::select! {
            done = self.send(connection, routed, outgoing) => Some(done),
            () = over => None,
        };
        match sent {
            Some(done) => done,
            None => {
                connection.reset();
                Ok(Relayed::ClientGone)
            }
        }
    }

    async fn send(
        &self,
        connection: &mut Connection,
        routed: RoutedRequest<S::Sandbox>,
        outgoing: &mut Outgoing,
    ) -> Result<Relayed, S> {
        let RoutedRequest { sandbox, route, .. } = &routed;
        self.sandboxes
            .ready(sandbox)
            .await
            .map_err(Error::Sandbox)?;
        if routed.upgrade == Upgrade::Raw {
            return self.send_raw(connection, &routed).await;
        }
        let key = PoolKey::of(route);
        let may_switch = routed.upgrade == Upgrade::Service;
        let is_complete = outgoing.rest.is_done();
        let idle = match may_switch {
            true => None,
            false => self.pool.take(&key).await,
        };
        let mut upstream = match idle {
            Some(upstream) => upstream,
            None => Upstream::new(self.connect(&routed).await?),
        };
        if routed.expects_continue && !is_complete {
            let (client, _) = connection.parts();
            let written = client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
            if written.is_err() || client.flush().await.is_err() {
                return Ok(Relayed::ClientGone);
            }
        }
        let terms = Terms {
            prefix: &route.prefix,
            may_switch,
            origin: routed.origin,
            header: S::RESPONSE_HEADER,
            stream_end: routed.stream_end,
        };
        loop {
            let exchanged = exchange::exchange(connection, upstream, outgoing, &terms).await;
            return match exchanged {
                Ok(Exchanged::Complete {
                    persistence,
                    upstream,
                }) => {
                    if let Some(upstream) = upstream {
                        self.pool.put(key, upstream);
                    }
                    Ok(Relayed::Forwarded(persistence))
                }
                Ok(Exchanged::Switched(upstream)) => {
                    let (stream, received) = upstream.into_parts();
                    Ok(self.tunnel(connection, stream, &received, sandbox).await)
                }
                Err(ExchangeError::Closed { was_stale, .. })
                    if was_stale && is_complete && routed.is_idempotent =>
                {
                    upstream = Upstream::new(self.connect(&routed).await?);
                    continue;
                }
                Err(ExchangeError::Closed { message, .. }) => Err(Error::UpstreamClosed {
                    port: route.port,
                    message,
                }),
                Err(ExchangeError::Request(error)) => Err(Error::Malformed(error)),
                Err(ExchangeError::ClientGone) => Ok(Relayed::ClientGone),
            };
        }
    }

    /// Makes the connection a plain byte stream.
    async fn send_raw(
        &self,
        connection: &mut Connection,
        routed: &RoutedRequest<S::Sandbox>,
    ) -> Result<Relayed, S> {
        let stream = self.connect(routed).await?;
        let response = tunnel::raw_response(connection.request_id().as_str());
        connection.begin_response(101);
        let (client, _) = connection.parts();
        let written = client.write_all(response.as_bytes()).await;
        if written.is_err() || client.flush().await.is_err() {
            return Ok(Relayed::ClientGone);
        }
        let (nothing, sandbox) = (Buffer::default(), &routed.sandbox);
        Ok(self.tunnel(connection, stream, &nothing, sandbox).await)
    }

    pub(crate) async fn connect(&self, routed: &RoutedRequest<S::Sandbox>) -> Result<S::Stream, S> {
        let connected = self.sandboxes.connect(&routed.sandbox, &routed.route);
        connected.await.map_err(Error::Sandbox)
    }

    /// Copies bytes of whatever protocol both sides speak from now on.
    async fn tunnel(
        &self,
        connection: &mut Connection,
        stream: S::Stream,
        received: &Buffer,
        sandbox: &S::Sandbox,
    ) -> Relayed {
        tunnel::run(connection, stream, received).await;
        self.sandboxes.tunnel_closed(sandbox);
        Relayed::Forwarded(Persistence::Close)
    }
}

/// How a request went.
pub(crate) fn outcome_of<T, S: Sandboxes>(done: &Result<T, S>) -> RequestOutcome {
    match done {
        Ok(_) => RequestOutcome::Answered,
        Err(Error::UpstreamClosed { .. } | Error::Panicked) => RequestOutcome::Failed,
        Err(_) => RequestOutcome::Refused,
    }
}

/// Whether doing a request twice is the same as doing it once (RFC 9110 9.2.2), so that it may be sent
/// again on a new connection.
fn is_idempotent(method: &str) -> bool {
    matches!(
        method,
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
    )
}

/// Takes what was read of the body already, to be sent with the head.
fn take_body(
    connection: &mut Connection,
    outgoing: &mut Outgoing,
) -> std::result::Result<(), Malformed> {
    let Outgoing { bytes, rest } = outgoing;
    let (_, buffer) = connection.parts();
    rest.take_buffered(buffer, bytes, WRITTEN_TOGETHER_MAX)
}

/// The path of a target, where somebody will read it. Not the query: it may hold a token.
pub(crate) fn path_for_log(target: &str) -> Option<String> {
    let path = || target.split('?').next().unwrap_or_default().to_owned();
    tracing::enabled!(tracing::Level::DEBUG).then(path)
}

/// The text of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
