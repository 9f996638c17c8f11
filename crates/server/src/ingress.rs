//! The sandboxes of this server, as the proxy sees them: `/sandboxes/{id}/proxy/{port}/…` is a port of
//! a sandbox, or its daemon.
//!
//! Every request shows the sandbox's own token or an API key. A sandbox that is being made or resumed is
//! waited for, since the published clients take much longer to come back after a refusal than it takes
//! to become ready.

use std::sync::Arc;
use std::time::Duration;

use api::endpoint::EGRESS_PORT;
use api::id::SandboxId;
use api::sandbox::{API_KEY_HEADER, EXTENSION_PAGE_ORIGIN, PAGE_ORIGIN_SHARED};
use bytes::Bytes;
use http::Response;
use jiff::Timestamp;
use lifecycle::backend::{Stream, Target};
use lifecycle::{Caller, ControlPlane, KeyUse, Sandbox, Service};
use proxy::message::Head;
use proxy::{
    Forward, PageOrigin, Peer, RequestId, RequestRecord, Route, Routed, Sandboxes, browser_link,
};
use secrecy::ExposeSecret as _;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::access::Keys;
use crate::http::{self as surface, bearer};
use crate::metrics::Metrics;
use crate::stream_end::stream_end;
use crate::traces;

/// How long a request waits for a sandbox to become ready: less than the 30 s after which the
/// published clients give up, so that they still get our answer.
pub(crate) const READY_WAIT: Duration = Duration::from_secs(25);

/// The name under which requests into sandboxes are counted.
const ROUTE_LABEL: &str = "/sandboxes/{id}/proxy/{port}";

/// Why a request may not go into a sandbox, or cannot.
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
    /// The port of the egress API, by another way than that API's.
    #[error(
        "the egress API of sandbox {0} is elsewhere: GET /sandboxes/{0}/endpoints/18080 tells where"
    )]
    EgressApi(SandboxId),
    /// The sandbox, or nothing in it, can be reached.
    #[error(transparent)]
    Lifecycle(#[from] lifecycle::Error),
}

/// The sandboxes of this server.
pub struct Ingress {
    /// As whoever has the token of a sandbox uses it.
    service: Service,
    control: ControlPlane,
    keys: Arc<Keys>,
    metrics: Arc<Metrics>,
}

/// The sandbox that a request goes to.
pub struct Destination {
    sandbox: Arc<Sandbox>,
    /// Whether the request prolongs the sandbox's life.
    renews: bool,
    /// The trace that the request is part of, where traces are wanted.
    trace: Option<String>,
}

impl Ingress {
    pub(crate) fn new(control: ControlPlane, keys: Arc<Keys>, metrics: Arc<Metrics>) -> Self {
        Self {
            service: control.for_caller(Caller::visitor()),
            control,
            keys,
            metrics,
        }
    }

    /// The sandbox with this id.
    pub(crate) fn find(&self, id: &SandboxId) -> Result<Arc<Sandbox>, Error> {
        Ok(self.service.get(id)?)
    }

    /// Counts a request that is over, under the name of what it came through.
    pub(crate) fn count(&self, request: &RequestRecord, label: &str) {
        self.metrics.proxied(request.outcome);
        if let Some((status, took)) = request.response {
            let path = request.path.as_deref();
            let metrics = &self.metrics;
            surface::count(metrics, &request.method, label, status, took, path);
        }
    }

    /// Who shows an API key. One is as good as the token for whoever could ask for the token anyway. Only
    /// one in the header that is ours counts as a guess; a bearer token may be the application's own.
    fn key_holder(&self, request: Head<'_>, peer: Peer) -> Option<Caller> {
        if self.keys.is_open() {
            return None;
        }
        let own = request.values(API_KEY_HEADER).next();
        let own = own.and_then(|value| str::from_utf8(value).ok());
        let own = own.and_then(|key| self.keys.check(Some(key), Some(peer.ip)).ok());
        let mut authorization = request.values("authorization");
        own.or_else(|| authorization.find_map(|value| self.keys.find(bearer(value)?)))
    }

    /// The key that lets a request into a sandbox, if it shows one; whoever shows the key of somebody else
    /// is told what they are told everywhere.
    pub(crate) fn let_in_by_key(
        &self,
        request: Head<'_>,
        peer: Peer,
        sandbox: &Sandbox,
    ) -> Result<Option<KeyUse>, Error> {
        let Some(caller) = self.key_holder(request, peer) else {
            return Ok(None);
        };
        let key = caller.key.clone();
        self.control.for_caller(caller).may_connect(&sandbox.id)?;
        Ok(key)
    }
}

/// When a key ends by itself, for what is open with it.
pub(crate) fn ends_at(key: &KeyUse) -> Option<Instant> {
    let left = key.expires_at?.duration_since(Timestamp::now());
    let left = Duration::try_from(left).unwrap_or_default();
    Some(Instant::now() + left.min(FAR))
}

/// An end further away than this is none: no connection lives for a hundred years.
pub(crate) const FAR: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Whose origin pages of a sandbox have where its address has that of all: nobody else's, unless its creator
/// said otherwise.
pub(crate) fn page_origin(sandbox: &Sandbox) -> PageOrigin {
    match sandbox.extensions.get(EXTENSION_PAGE_ORIGIN) {
        Some(origin) if origin == PAGE_ORIGIN_SHARED => PageOrigin::Shared,
        _ => PageOrigin::Isolated,
    }
}

impl Destination {
    pub(crate) fn new(sandbox: Arc<Sandbox>, request: Head<'_>) -> Self {
        let renews = sandbox.renew_on_access.is_some() && !proxy::skips_renewal(request);
        let trace = traces::is_wanted().then(|| {
            let named = request.values(traces::PARENT_HEADER).next()?;
            Some(str::from_utf8(named).ok()?.to_owned())
        });
        Self {
            sandbox,
            renews,
            trace: trace.flatten(),
        }
    }
}

impl Sandboxes for Ingress {
    type Sandbox = Destination;
    type Stream = Box<dyn Stream>;
    type Error = Error;

    fn is_proxied(&self, target: &str) -> bool {
        // The egress API is the server's own and answered by its router.
        Route::is_for(target) && !Route::is_for_port(target, EGRESS_PORT)
    }

    fn route(&self, request: Head<'_>, peer: Peer) -> Result<Routed<Destination>, Error> {
        let route = Route::parse(request.target()).map_err(Error::Route)?;
        if route.port == EGRESS_PORT {
            return Err(Error::EgressApi(route.id));
        }
        let sandbox = self.find(&route.id)?;
        let token = sandbox.access_token.expose_secret();
        if let Some(redirect) = browser_link::redirect(request, peer, &route, token) {
            return Ok(Routed::Respond(redirect));
        }
        let mut key = None;
        if !proxy::shows_token(request, token) {
            key = self.let_in_by_key(request, peer, &sandbox)?;
            if key.is_none() {
                return Err(Error::Unauthorized(sandbox.id.clone()));
            }
        }
        Ok(Routed::Forward(Forward {
            token: route.is_control().then(|| sandbox.access_token.clone()),
            origin: page_origin(&sandbox),
            until: key.as_ref().and_then(ends_at),
            revoked: key.map(|key| key.revoked),
            stream_end: stream_end(request, &route),
            sandbox: Destination::new(sandbox, request),
            route,
        }))
    }

    fn is_secret(&self, destination: &Destination, value: &[u8]) -> bool {
        let sandbox = &destination.sandbox;
        let mut tokens = [&sandbox.access_token, &sandbox.egress_token].into_iter();
        tokens.any(|token| daemon::secret::equal(value, token.expose_secret()))
            || self.keys.knows(value)
    }

    async fn ready(&self, destination: &Destination) -> Result<(), Error> {
        let sandbox = &destination.sandbox;
        self.service.wait_reachable(sandbox, READY_WAIT).await?;
        if destination.renews {
            self.service.touch(&sandbox.id);
        }
        Ok(())
    }

    async fn connect(
        &self,
        destination: &Destination,
        route: &Route,
    ) -> Result<Box<dyn Stream>, Error> {
        let target = if route.is_control() {
            Target::Control
        } else {
            Target::Port(route.port)
        };
        let step = tracing::info_span!(
            target: "trace",
            "connect to sandbox",
            sandbox_id = %route.id,
            port = route.port,
            traceparent = destination.trace.as_deref(),
        );
        let connected = self.service.connect(&route.id, target, READY_WAIT);
        Ok(connected.instrument(step).await?)
    }

    fn tunnel_closed(&self, destination: &Destination) {
        // A terminal that was used for hours counts as access until it was closed.
        self.service.touch(&destination.sandbox.id);
    }

    fn refuse(&self, error: proxy::Error<Error>, id: &RequestId) -> Response<Bytes> {
        let span = tracing::info_span!("request", request_id = %id);
        span.in_scope(|| match error {
            proxy::Error::Panicked => surface::Error::Panicked(id.clone()).into_bytes(),
            error => surface::Error::from(error).into_bytes(),
        })
    }

    fn observe(&self, request: &RequestRecord) {
        self.count(request, ROUTE_LABEL);
    }
}
