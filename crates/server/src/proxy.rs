//! The way into sandboxes: `/sandboxes/{id}/proxy/{port}/…` carries any HTTP request, stream or
//! upgraded connection to a port of the sandbox, or to its daemon.
//!
//! Every request shows the sandbox's own token or an API key. Nothing is looked up outside
//! memory, nothing is buffered, and no number of connections is the limit for all sandboxes
//! together. A sandbox that is being made or resumed is waited for, since the published clients
//! take much longer to come back after a refusal than it takes to become ready.

mod headers;
mod pool;
mod route;
mod tunnel;
mod upstream;
mod visitor;

use std::sync::Arc;
use std::time::Duration;

use api::id::SandboxId;
use axum::body::Body;
use daemon::Spawner;
use daemon::http::Peer;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use lifecycle::backend::{Stream, Target};
use lifecycle::{Sandbox, Service, State};
use secrecy::ExposeSecret as _;

use crate::access::Keys;
use crate::metrics::Metrics;
pub(crate) use headers::ACCESS_TOKEN;
use pool::{Place, Pool};
pub use route::Route;
use upstream::{Failure, Upstream};

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
    spawner: Spawner,
    metrics: Arc<Metrics>,
}

impl Proxy {
    /// A proxy into the sandboxes of `service`. Tunnels are tasks of `spawner`.
    pub fn new(service: Service, keys: Arc<Keys>, spawner: Spawner, metrics: Arc<Metrics>) -> Self {
        let pool = Arc::new(Pool::default());
        spawner.spawn("pool", pool::sweep(Arc::clone(&pool), spawner.stopping()));
        Self(Arc::new(Inner {
            service,
            keys,
            pool,
            spawner,
            metrics,
        }))
    }

    /// Carries one request and its answer.
    pub async fn forward(
        &self,
        request: Request<Incoming>,
        peer: Peer,
    ) -> Result<Response<Body>, Error> {
        let outcome = self.0.forward(request, peer).await;
        self.0.metrics.proxied(&outcome);
        outcome
    }
}

impl Inner {
    async fn forward(
        &self,
        mut request: Request<Incoming>,
        peer: Peer,
    ) -> Result<Response<Body>, Error> {
        if request.method() == Method::CONNECT {
            return Err(Error::Connect);
        }
        let route = Route::parse(request.uri().path()).map_err(Error::Route)?;
        let sandbox = self.service.get(&route.id)?;
        let token = sandbox.access_token.expose_secret();
        if let Some(welcome) = visitor::welcome(&request, &route, token) {
            return Ok(welcome);
        }
        self.authorize(&sandbox, &request, peer)?;
        self.wait_ready(&sandbox).await?;
        if sandbox.renew_on_access.is_some() && !headers::skips_renewal(request.headers()) {
            self.service.touch(&route.id);
        }
        let upgrade = headers::upgrade(request.headers());
        if upgrade.as_ref().is_some_and(tunnel::is_raw) && !route.is_control() {
            return self.raw(hyper::upgrade::on(&mut request), route).await;
        }
        if upgrade.is_some() {
            let client_side = hyper::upgrade::on(&mut request);
            let outbound = outbound(request, &route, &sandbox, peer, upgrade)?;
            return self.upgrade(outbound, client_side, route).await;
        }
        let outbound = outbound(request, &route, &sandbox, peer, None)?;
        let mut response = self.exchange(outbound, &route).await?;
        headers::clean_response(response.headers_mut(), &route.prefix);
        Ok(response.map(Body::new))
    }

    /// Sends a request on a connection that is open already, else on a new one.
    async fn exchange(
        &self,
        mut request: Request<Incoming>,
        route: &Route,
    ) -> Result<Response<upstream::Answer>, Error> {
        let place = Place {
            id: route.id.clone(),
            port: route.port,
            thread: std::thread::current().id(),
        };
        while let Some(kept) = self.pool.take(&place).await {
            match kept.send(request, &self.pool, place.clone()).await {
                Ok(response) => return Ok(response),
                Err(Failure::Unsent(unsent)) => request = *unsent,
                Err(Failure::Broken(error)) => return Err(closed(&error, route.port)),
            }
        }
        let opened = Upstream::open(self.connect(route).await?).await;
        let upstream = opened.map_err(|error| closed(&error, route.port))?;
        match upstream.send(request, &self.pool, place).await {
            Ok(response) => Ok(response),
            Err(Failure::Unsent(_)) => Err(Error::UpstreamClosed {
                port: route.port,
                message: "it took no request".to_owned(),
            }),
            Err(Failure::Broken(error)) => Err(closed(&error, route.port)),
        }
    }

    async fn connect(&self, route: &Route) -> Result<Box<dyn Stream>, Error> {
        let target = if route.is_control() {
            Target::Control
        } else {
            Target::Port(route.port)
        };
        Ok(self.service.connect(&route.id, target, HOLD).await?)
    }

    /// A plain byte stream to a port, for whatever does not speak HTTP.
    async fn raw(
        &self,
        client_side: hyper::upgrade::OnUpgrade,
        route: Route,
    ) -> Result<Response<Body>, Error> {
        let stream = self.connect(&route).await?;
        let (service, stopping) = (self.service.clone(), self.spawner.stopping());
        self.spawner.spawn("raw tunnel", async move {
            tunnel::run_raw(client_side, stream, stopping).await;
            service.touch(&route.id);
        });
        Ok(tunnel::raw_answer())
    }

    /// The sandbox's token, or an API key: whoever holds one could ask for the token anyway.
    fn authorize(
        &self,
        sandbox: &Sandbox,
        request: &Request<Incoming>,
        peer: Peer,
    ) -> Result<(), Error> {
        let headers = request.headers();
        let token = sandbox.access_token.expose_secret();
        let mut shown = headers::shown_tokens(headers).chain(visitor::shown_in_cookie(headers));
        let shows_token = shown.any(|shown| daemon::secret::equal(shown, token));
        if shows_token || (!self.keys.is_open() && self.shows_api_key(request, peer)) {
            Ok(())
        } else {
            Err(Error::Unauthorized(sandbox.id.clone()))
        }
    }

    fn shows_api_key(&self, request: &Request<Incoming>, peer: Peer) -> bool {
        let from = crate::http::address_of(Some(&peer));
        let key = crate::http::api_key(request.headers());
        key.is_some() && self.keys.check(key, from).is_ok()
    }

    /// Connections that are kept open reach into a paused sandbox too, and would only hang: so
    /// the state is looked at for every request.
    async fn wait_ready(&self, sandbox: &Sandbox) -> Result<(), Error> {
        let state = match sandbox.status.state {
            State::Pending | State::Resuming => {
                self.service
                    .wait_ready(&sandbox.id, HOLD)
                    .await?
                    .status
                    .state
            }
            state => state,
        };
        let wanted = "Running";
        match state {
            State::Running => Ok(()),
            State::Pausing | State::Paused => {
                Err(lifecycle::Error::Connect(lifecycle::backend::ConnectError::Paused).into())
            }
            State::Pending | State::Resuming => Err(lifecycle::Error::NotReady {
                id: sandbox.id.clone(),
                state,
                message: sandbox.status.message.clone(),
                waited: HOLD,
            }
            .into()),
            State::Stopping | State::Terminated | State::Failed => {
                let id = sandbox.id.clone();
                Err(lifecycle::Error::WrongState {
                    id,
                    action: "connect to",
                    state,
                    wanted,
                }
                .into())
            }
        }
    }

    /// Carries a request that asks for another protocol, on a connection of its own; when the
    /// service agrees, what follows is a tunnel.
    async fn upgrade(
        &self,
        request: Request<Incoming>,
        client_side: hyper::upgrade::OnUpgrade,
        route: Route,
    ) -> Result<Response<Body>, Error> {
        let stream = TokioIo::new(self.connect(&route).await?);
        let port = route.port;
        let opened = upstream::builder().handshake(stream).await;
        let (mut sender, connection) = opened.map_err(|error| closed(&error, port))?;
        self.spawner.spawn("upgrade", connection.with_upgrades());
        let answered = sender.send_request(request).await;
        let mut response = answered.map_err(|error| closed(&error, port))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            headers::clean_response(response.headers_mut(), &route.prefix);
            return Ok(response.map(Body::new));
        }
        let upstream_side = hyper::upgrade::on(&mut response);
        let (service, stopping) = (self.service.clone(), self.spawner.stopping());
        self.spawner.spawn("tunnel", async move {
            tunnel::run(client_side, upstream_side, stopping).await;
            // A terminal that was used for hours counts as access until it was closed.
            service.touch(&route.id);
        });
        Ok(response.map(|_| Body::empty()))
    }
}

/// The request as the service in the sandbox gets it.
fn outbound(
    request: Request<Incoming>,
    route: &Route,
    sandbox: &Sandbox,
    peer: Peer,
    upgrade: Option<http::HeaderValue>,
) -> Result<Request<Incoming>, Error> {
    let (mut parts, body) = request.into_parts();
    parts.uri = outbound_uri(route, parts.uri.query())?;
    parts.version = Version::HTTP_11;
    parts.extensions = http::Extensions::new();
    visitor::strip_cookie(&mut parts.headers);
    headers::clean_request(&mut parts.headers, route, peer, upgrade);
    if route.is_control() {
        headers::add_token(&mut parts.headers, &sandbox.access_token);
    }
    Ok(Request::from_parts(parts, body))
}

fn outbound_uri(route: &Route, query: Option<&str>) -> Result<Uri, Error> {
    let path = if route.path.is_empty() {
        "/"
    } else {
        &*route.path
    };
    let uri = match query {
        Some(query) => format!("{path}?{query}").try_into(),
        None => path.try_into(),
    };
    uri.map_err(|_| Error::Route("the path after the port is not a valid path"))
}

fn closed(error: &hyper::Error, port: u16) -> Error {
    Error::UpstreamClosed {
        port,
        message: daemon::error::chain(error).to_string(),
    }
}

/// Where a proxied request says who it is; kept here so that no other module touches tokens.
pub(crate) fn endpoint_headers(token: &secrecy::SecretString) -> (String, String) {
    (ACCESS_TOKEN.to_owned(), token.expose_secret().to_owned())
}
