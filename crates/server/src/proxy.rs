//! The way into sandboxes: `/sandboxes/{id}/proxy/{port}/…` carries any HTTP request, stream or
//! upgraded connection to a port of the sandbox, or to its daemon.
//!
//! Every request shows the sandbox's own token or an API key. Nothing is looked up outside
//! memory, nothing is buffered, and no number of connections is the limit for all sandboxes
//! together. A sandbox that is being made or resumed is waited for, since the published clients
//! take much longer to come back after a refusal than it takes to become ready.

mod headers;
mod pool;
mod relay;
mod route;
mod tunnel;
mod visitor;

use std::sync::Arc;
use std::time::Duration;

use api::id::SandboxId;
use axum::body::Body;
use daemon::Spawner;
use daemon::http::flow::{Buffer, Flow};
use daemon::http::wire::{Length, Malformed, Message};
use daemon::http::{Line, Next, Peer};
use http::{HeaderMap, Response};
use lifecycle::backend::{Stream, Target};
use lifecycle::{Sandbox, Service};
use secrecy::ExposeSecret as _;
use tokio::io::AsyncWriteExt as _;

use crate::access::Keys;
use crate::metrics::Metrics;
pub(crate) use headers::ACCESS_TOKEN;
use headers::Outbound;
use pool::{Place, Pool};
use relay::{Carried, Failure, Outgoing, Upstream};
pub use route::Route;

/// How long a request waits for a sandbox to become ready: less than the 30 s after which the
/// published clients give up, so that they still get our answer.
pub const HOLD: Duration = Duration::from_secs(25);

/// Why a request did not get through.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path names no sandbox and port.
    #[error("{0}")]
    Route(&'static str),
    /// Neither the sandbox's token nor an API key.
    #[error(
        "access to sandbox {0} needs its token: send the headers that GET /sandboxes/{0}/endpoints/PORT answered"
    )]
    Unauthorized(SandboxId),
    /// HTTP's own CONNECT is not a way into a sandbox.
    #[error("CONNECT is not a method of this proxy; use an Upgrade")]
    Connect,
    /// Where the request ends is not clear.
    #[error("the request cannot be carried on: {0}")]
    Malformed(Malformed),
    /// The sandbox, or nothing in it, can be reached.
    #[error(transparent)]
    Lifecycle(#[from] lifecycle::Error),
    /// The service in the sandbox closed the connection before it had answered.
    #[error("the service on port {port} closed the connection without a whole answer: {message}")]
    UpstreamClosed {
        /// Where.
        port: u16,
        /// What was seen.
        message: String,
    },
}

/// Carries requests into sandboxes.
#[derive(Clone)]
pub struct Proxy(Arc<Inner>);

struct Inner {
    service: Service,
    keys: Arc<Keys>,
    pool: Arc<Pool>,
    metrics: Arc<Metrics>,
}

/// What became of a request.
pub enum Outcome {
    /// It was answered.
    Answered(Next),
    /// It is to be answered with this.
    Answer(Response<Body>),
    /// Its client has gone, or has got a part of an answer that cannot be completed.
    Gone,
}

/// A request that may go into its sandbox.
struct Admitted {
    sandbox: Arc<Sandbox>,
    route: Route,
    head: Vec<u8>,
    renews: bool,
    expects_continue: bool,
    is_repeatable: bool,
    switch: Switch,
}

/// Whether a request asks for another protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Switch {
    No,
    /// One that the service inside speaks.
    Protocol,
    /// A plain byte stream.
    Raw,
}

impl Proxy {
    /// A proxy into the sandboxes of `service`. What it keeps is looked after by a task of
    /// `spawner`.
    pub fn new(
        service: Service,
        keys: Arc<Keys>,
        spawner: &Spawner,
        metrics: Arc<Metrics>,
    ) -> Self {
        let pool = Arc::new(Pool::default());
        spawner.spawn("pool", pool::sweep(Arc::clone(&pool), spawner.stopping()));
        Self(Arc::new(Inner {
            service,
            keys,
            pool,
            metrics,
        }))
    }

    /// Carries one request and its answer. Answers also whether all of the request was read, so
    /// that another one may follow.
    pub async fn carry(&self, line: &mut Line) -> (Result<Outcome, Error>, bool) {
        let admitted = self.0.admit(line);
        let length = line.request().request_length();
        line.take_head();
        let mut outgoing = Outgoing {
            bytes: Vec::new(),
            rest: match length {
                Ok(length) => Flow::new(length),
                Err(error) => {
                    let outcome = Err(Error::Malformed(error));
                    self.0.metrics.proxied(&outcome);
                    return (outcome, false);
                }
            },
        };
        let outcome = match admitted {
            Ok(Ok(mut admitted)) => {
                outgoing.bytes = std::mem::take(&mut admitted.head);
                match take_body(line, &mut outgoing) {
                    Ok(()) => self.0.send(line, admitted, &mut outgoing).await,
                    Err(error) => Err(error),
                }
            }
            Ok(Err(answer)) => take_body(line, &mut outgoing).map(|()| Outcome::Answer(answer)),
            Err(refused) => take_body(line, &mut outgoing).and(Err(refused)),
        };
        self.0.metrics.proxied(&outcome);
        (outcome, outgoing.rest.is_done())
    }
}

/// Takes what was read of the body already, to be sent with the head.
fn take_body(line: &mut Line, outgoing: &mut Outgoing) -> Result<(), Error> {
    let Outgoing { bytes, rest } = outgoing;
    let (_, buffer) = line.parts();
    rest.take(buffer, bytes, relay::TOGETHER_BYTES)
        .map_err(Error::Malformed)
}

impl Inner {
    /// Looks at a request and at who sent it. `Ok(Err(_))` is the answer to one that needs to go
    /// no further.
    fn admit(&self, line: &Line) -> Result<Result<Admitted, Response<Body>>, Error> {
        let request = line.request();
        if request.method() == "CONNECT" {
            return Err(Error::Connect);
        }
        let route = Route::parse(request.target()).map_err(Error::Route)?;
        let sandbox = self.service.get(&route.id)?;
        let token = sandbox.access_token.expose_secret();
        if let Some(welcome) = visitor::welcome(request, &route, token) {
            return Ok(Err(welcome));
        }
        self.authorize(&sandbox, request, line.peer())?;
        let upgrade = headers::upgrade(request);
        let switch = match upgrade {
            None => Switch::No,
            Some(protocol) if tunnel::is_raw(protocol) && !route.is_control() => Switch::Raw,
            Some(_) => Switch::Protocol,
        };
        let length = request.request_length().map_err(Error::Malformed)?;
        if switch == Switch::Raw && length != Length::Exactly(0) {
            return Err(Error::Malformed(Malformed::Length(
                "what asks for a plain byte stream has no body in front of it",
            )));
        }
        let mut head = Vec::with_capacity(1024);
        let outbound = Outbound {
            route: &route,
            peer: line.peer(),
            length,
            token: route.is_control().then_some(token),
            upgrade,
        };
        headers::write_request(&mut head, request, &outbound);
        let renews = sandbox.renew_on_access.is_some() && !headers::skips_renewal(request);
        // RFC 9110, 9.2.2: doing these twice is doing them once.
        let is_repeatable = matches!(
            request.method(),
            "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
        );
        Ok(Ok(Admitted {
            expects_continue: headers::expects_continue(request),
            is_repeatable,
            sandbox,
            route,
            head,
            renews,
            switch,
        }))
    }

    async fn send(
        &self,
        line: &mut Line,
        admitted: Admitted,
        outgoing: &mut Outgoing,
    ) -> Result<Outcome, Error> {
        let Admitted { sandbox, route, .. } = &admitted;
        self.service.wait_reachable(sandbox, HOLD).await?;
        if admitted.renews {
            self.service.touch(&route.id);
        }
        if admitted.switch == Switch::Raw {
            let stream = self.connect(route).await?;
            let answer = tunnel::raw_answer(line.request_id().as_str());
            line.begin_answer(101);
            if line.parts().0.write_all(answer.as_bytes()).await.is_err() {
                return Ok(Outcome::Gone);
            }
            return Ok(self.tunnel(line, stream, &Buffer::default(), route).await);
        }
        let place = Place {
            id: route.id.clone(),
            port: route.port,
            thread: std::thread::current().id(),
        };
        let may_switch = admitted.switch == Switch::Protocol;
        let is_whole = outgoing.rest.is_done();
        let kept = match may_switch {
            true => None,
            false => self.pool.take(&place).await,
        };
        let mut upstream = match kept {
            Some(upstream) => upstream,
            None => Upstream::new(self.connect(route).await?),
        };
        if admitted.expects_continue && !is_whole {
            let told = line.parts().0.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
            if told.await.is_err() {
                return Ok(Outcome::Gone);
            }
        }
        loop {
            let carried = relay::carry(line, upstream, outgoing, &route.prefix, may_switch).await;
            return match carried {
                Ok(Carried::Whole { next, upstream }) => {
                    if let Some(upstream) = upstream {
                        self.pool.put(place, upstream);
                    }
                    Ok(Outcome::Answered(next))
                }
                Ok(Carried::Switched(upstream)) => {
                    let (stream, said) = upstream.into_parts();
                    Ok(self.tunnel(line, stream, &said, route).await)
                }
                Err(Failure::Closed { was_stale, .. })
                    if was_stale && is_whole && admitted.is_repeatable =>
                {
                    upstream = Upstream::new(self.connect(route).await?);
                    continue;
                }
                Err(Failure::Closed { message, .. }) => Err(Error::UpstreamClosed {
                    port: route.port,
                    message,
                }),
                Err(Failure::Request(error)) => Err(Error::Malformed(error)),
                Err(Failure::Gone) => Ok(Outcome::Gone),
            };
        }
    }

    /// Carries bytes of whatever both sides speak from now on.
    async fn tunnel(
        &self,
        line: &mut Line,
        upstream: Box<dyn Stream>,
        said: &Buffer,
        route: &Route,
    ) -> Outcome {
        tunnel::run(line, upstream, said).await;
        // A terminal that was used for hours counts as access until it was closed.
        self.service.touch(&route.id);
        Outcome::Answered(Next::Close)
    }

    async fn connect(&self, route: &Route) -> Result<Box<dyn Stream>, Error> {
        let target = if route.is_control() {
            Target::Control
        } else {
            Target::Port(route.port)
        };
        Ok(self.service.connect(&route.id, target, HOLD).await?)
    }

    /// The sandbox's token, or an API key: whoever holds one could ask for the token anyway.
    fn authorize(&self, sandbox: &Sandbox, request: Message<'_>, peer: Peer) -> Result<(), Error> {
        let token = sandbox.access_token.expose_secret();
        let mut shown = headers::shown_tokens(request).chain(visitor::shown_in_cookie(request));
        let shows_token = shown.any(|shown| daemon::secret::equal(shown, token));
        if shows_token || (!self.keys.is_open() && self.shows_api_key(request, peer)) {
            Ok(())
        } else {
            Err(Error::Unauthorized(sandbox.id.clone()))
        }
    }

    fn shows_api_key(&self, request: Message<'_>, peer: Peer) -> bool {
        let from = crate::http::address_of(Some(&peer));
        let headers: HeaderMap = request
            .headers()
            .filter_map(|(name, value)| Some((name.parse().ok()?, value.try_into().ok()?)))
            .collect();
        let key = crate::http::api_key(&headers);
        key.is_some() && self.keys.check(key, from).is_ok()
    }
}

/// Where a proxied request says who it is; kept here so that no other module touches tokens.
pub(crate) fn endpoint_headers(token: &secrecy::SecretString) -> (String, String) {
    (ACCESS_TOKEN.to_owned(), token.expose_secret().to_owned())
}
