//! The way into sandboxes: `/sandboxes/{id}/proxy/{port}/…` carries any HTTP request, stream or
//! upgraded connection to a port of the sandbox, or to its daemon.
//!
//! Every request shows the sandbox's own token or an API key. Nothing is looked up outside
//! memory, nothing is buffered, and no number of connections is the limit for all sandboxes
//! together. A sandbox that is being made or resumed is waited for, since the published clients
//! take much longer to come back after a refusal than it takes to become ready.

mod connector;
mod headers;
mod route;
mod tunnel;
mod visitor;

use std::sync::Arc;
use std::time::Duration;

use api::id::SandboxId;
use axum::body::Body;
use daemon::Spawner;
use daemon::http::Peer;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use lifecycle::{Sandbox, Service, State};
use secrecy::ExposeSecret as _;

use crate::access::Keys;
use crate::metrics::Metrics;
use connector::Connector;
pub(crate) use headers::ACCESS_TOKEN;
pub use route::Route;

/// How long a request waits for a sandbox to become ready: less than the 30 s after which the
/// published clients give up, so that they still get our answer.
pub const HOLD: Duration = Duration::from_secs(25);

/// Idle connections into a sandbox are closed after this long: well before the daemon inside
/// would close them, so that no request meets a connection that is just being closed.
const IDLE: Duration = Duration::from_secs(30);

/// Idle connections kept for one port of one sandbox. More than the published clients open at
/// once for one sandbox would only cost descriptors.
const IDLE_PER_PORT: usize = 32;

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
    client: Client<Connector, Body>,
    spawner: Spawner,
    metrics: Arc<Metrics>,
}

impl Proxy {
    /// A proxy into the sandboxes of `service`. Tunnels are tasks of `spawner`.
    pub fn new(service: Service, keys: Arc<Keys>, spawner: Spawner, metrics: Arc<Metrics>) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_PER_PORT)
            .set_host(false)
            .build(Connector::new(service.clone()));
        Self(Arc::new(Inner {
            service,
            keys,
            client,
            spawner,
            metrics,
        }))
    }

    /// Carries one request and its answer.
    pub async fn forward(&self, request: Request<Body>) -> Result<Response<Body>, Error> {
        let outcome = self.0.forward(request).await;
        self.0.metrics.proxied(&outcome);
        outcome
    }
}

impl Inner {
    async fn forward(&self, mut request: Request<Body>) -> Result<Response<Body>, Error> {
        if request.method() == Method::CONNECT {
            return Err(Error::Connect);
        }
        let route = Route::parse(request.uri().path()).map_err(Error::Route)?;
        let sandbox = self.service.get(&route.id)?;
        let token = sandbox.access_token.expose_secret();
        if let Some(welcome) = visitor::welcome(&request, &route, token) {
            return Ok(welcome);
        }
        self.authorize(&sandbox, &request)?;
        self.wait_ready(&sandbox).await?;
        if !headers::skips_renewal(request.headers()) {
            self.service.touch(&route.id);
        }

        let upgrade = headers::upgrade(request.headers());
        let client_side = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let outbound = outbound(request, &route, &sandbox, upgrade)?;
        let mut response = match self.client.request(outbound).await {
            Ok(response) => response,
            Err(error) => return Err(upstream_error(&error, route.port)),
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch(response, client_side, route);
        }
        headers::clean_response(response.headers_mut(), &route.prefix);
        Ok(response.map(Body::new))
    }

    /// The sandbox's token, or an API key: whoever holds one could ask for the token anyway.
    fn authorize(&self, sandbox: &Sandbox, request: &Request<Body>) -> Result<(), Error> {
        let headers = request.headers();
        let token = sandbox.access_token.expose_secret();
        let mut shown = headers::shown_tokens(headers).chain(visitor::shown_in_cookie(headers));
        let shows_token = shown.any(|shown| daemon::secret::equal(shown, token));
        if shows_token || (!self.keys.is_open() && self.shows_api_key(request)) {
            Ok(())
        } else {
            Err(Error::Unauthorized(sandbox.id.clone()))
        }
    }

    fn shows_api_key(&self, request: &Request<Body>) -> bool {
        let from = crate::http::address_of(request.extensions().get::<Peer>());
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

    fn switch(
        &self,
        mut response: Response<hyper::body::Incoming>,
        client_side: Option<hyper::upgrade::OnUpgrade>,
        route: Route,
    ) -> Result<Response<Body>, Error> {
        let Some(client_side) = client_side else {
            let message = "it switched protocols without being asked".to_owned();
            return Err(Error::UpstreamClosed {
                port: route.port,
                message,
            });
        };
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
    request: Request<Body>,
    route: &Route,
    sandbox: &Sandbox,
    upgrade: Option<http::HeaderValue>,
) -> Result<Request<Body>, Error> {
    let (mut parts, body) = request.into_parts();
    let peer = parts.extensions.get::<Peer>().copied();
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
    let path_and_query = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    Uri::builder()
        .scheme("http")
        .authority(connector::authority(&route.id, route.port))
        .path_and_query(path_and_query)
        .build()
        .map_err(|_| Error::Route("the path after the port is not a valid path"))
}

/// Finds the typed reason in what the HTTP client wrapped around it.
fn upstream_error(error: &hyper_util::client::legacy::Error, port: u16) -> Error {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(found) = cause.downcast_ref::<lifecycle::Error>() {
            return found.clone().into();
        }
        source = cause.source();
    }
    Error::UpstreamClosed {
        port,
        message: daemon::error::chain(error).to_string(),
    }
}

/// Where a proxied request says who it is; kept here so that no other module touches tokens.
pub(crate) fn endpoint_headers(token: &secrecy::SecretString) -> (String, String) {
    (ACCESS_TOKEN.to_owned(), token.expose_secret().to_owned())
}
