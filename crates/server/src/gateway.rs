//! The gateway: a listener of its own at which every request is for a port of a sandbox, named by its host,
//! a header or its path (`proxy::gateway`).
//!
//! What endpoints are told to clients is in `told`, the key that routes are signed with where the operator
//! set none in `own_key`. Where a request goes and what becomes of it there is as at the server's own
//! paths (`ingress`).

mod own_key;
mod told;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::endpoint::EGRESS_PORT;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use lifecycle::Sandbox;
use lifecycle::backend::Stream;
use proxy::gateway::link::{Codes, LinkError, LinkTarget};
use proxy::gateway::{
    Access, Address, AddressError, Addressing, Attempts, Denied, HostNames, POWERED_BY, Protected,
    Right,
};
use proxy::message::Head;
use proxy::{
    Api, Forward, PageOrigin, Peer, RequestBody, RequestId, RequestRecord, Route, Routed, Sandboxes,
};
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use crate::config::{Config, IngressMode};
use crate::http as surface;
use crate::ingress::{self, Destination, Ingress};
use crate::run;
use crate::stream_end::stream_end;

pub(crate) use told::Asked;
pub use told::NotTold;

/// Where load balancers ask whether the gateway serves, as at the published one.
const STATUS_PATH: &str = "/status.ok";

/// The name under which the gateway's requests are counted.
const ROUTE_LABEL: &str = "gateway";

/// Why a request to the gateway goes nowhere.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It names no port of a sandbox.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// It may not go there.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Its link lets nobody in.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The sandbox, or nothing in it, can be reached.
    #[error(transparent)]
    Ingress(#[from] ingress::Error),
}

/// What the gateway and those who tell its address share.
#[derive(Debug)]
pub(crate) struct Shared {
    names: HostNames,
    access: Access,
    codes: Codes,
    requires_token: bool,
    settings: crate::config::Ingress,
    /// The port that it listens at.
    port: u16,
    /// Whether it speaks TLS.
    is_tls: bool,
}

impl Shared {
    /// For a gateway that listens at this address; `None` where the configuration wants none.
    pub(crate) fn open(config: &Config, at: SocketAddr) -> Result<Arc<Self>, run::Error> {
        let settings = config.ingress.clone();
        let keys = settings.secure_access.key_ring();
        let keys = match keys.expect("checked when the settings were read") {
            Some(keys) => keys,
            None => own_key::load(config)?,
        };
        let without_port = |host: &str| {
            let authority = host.parse::<http::uri::Authority>().ok();
            authority.map(|authority| authority.host().to_ascii_lowercase())
        };
        let told = settings.gateway.told().map(|(_, address)| address);
        let own = told.into_iter().chain(config.server.eip.as_deref());
        Ok(Arc::new(Self {
            names: HostNames {
                base: settings.gateway.wildcard().and_then(without_port),
                own: own.filter_map(without_port).collect(),
            },
            access: Access {
                keys: Some(keys),
                longest: Duration::from_secs(settings.secure_access.max_ttl_seconds),
                attempts: Attempts::default(),
            },
            codes: Codes::new(now()),
            requires_token: settings.gateway.require_token,
            settings,
            is_tls: config.ingress.gateway.tls.certificate.is_some()
                || config.server.tls.certificate.is_some(),
            port: at.port(),
        }))
    }

    fn protected<'a>(&self, sandbox: &'a Sandbox) -> Protected<'a> {
        Protected {
            id: &sandbox.id,
            token: sandbox.access_token.expose_secret(),
            is_open: !self.requires_token && !sandbox.secure_access,
            epoch: ROUTE_EPOCH,
        }
    }
}

/// The number that signatures are made with. One that a sandbox could raise would revoke them.
const ROUTE_EPOCH: u64 = 0;

/// Where the gateway listens, if the configuration wants one.
pub(crate) fn address(config: &Config) -> Option<SocketAddr> {
    let is_wanted = config.ingress.mode == IngressMode::Gateway;
    is_wanted.then(|| config.ingress.gateway.listens_at())
}

/// The time since the beginning of 1970.
fn now() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default()
}

/// The sandboxes of this server, behind the gateway.
pub(crate) struct Gateway {
    ingress: Ingress,
    shared: Arc<Shared>,
}

impl Gateway {
    pub(crate) fn new(ingress: Ingress, shared: Arc<Shared>) -> Self {
        Self { ingress, shared }
    }

    fn forward(
        &self,
        request: Head<'_>,
        address: Address,
        sandbox: Arc<Sandbox>,
        peer: Peer,
    ) -> Result<Forward<Destination>, Error> {
        let shared = &self.shared;
        let (protected, now) = (shared.protected(&sandbox), now());
        let mut shown = Ok(None);
        let shows_key = || {
            shown = self.ingress.let_in_by_key(request, peer, &sandbox);
            matches!(shown, Ok(Some(_)))
        };
        let decided = shared.access.decide(
            request,
            &address,
            &protected,
            peer,
            shows_key,
            now.as_secs(),
        );
        let (key, allowed) = match (shown, decided) {
            // What lets nobody in may say why a key does not either.
            (Err(error), Err(_)) => return Err(error.into()),
            (key, decided) => (key.ok().flatten(), decided?),
        };
        let address = match allowed.right {
            Right::Open => address.without_signature(),
            _ => address,
        };
        // The last second belongs to the right.
        let until = allowed.until.map(|until| {
            let left = Duration::from_secs(until + 1).saturating_sub(now);
            Instant::now() + left.min(ingress::FAR)
        });
        let until = until.or(key.as_ref().and_then(ingress::ends_at));
        let origin = match address.addressing {
            Addressing::Host => PageOrigin::Own,
            Addressing::Header | Addressing::Path => ingress::page_origin(&sandbox),
        };
        Ok(Forward {
            token: address
                .route
                .is_control()
                .then(|| sandbox.access_token.clone()),
            stream_end: stream_end(request, &address.route),
            sandbox: Destination::new(sandbox, request),
            route: address.route,
            origin,
            until,
            revoked: key.map(|key| key.revoked),
        })
    }
}

impl Sandboxes for Gateway {
    type Sandbox = Destination;
    type Stream = Box<dyn Stream>;
    type Error = Error;

    const RESPONSE_HEADER: Option<(&'static str, &'static str)> = Some(POWERED_BY);

    /// There is no API at this port: a path that looks like one's may be a service's.
    fn is_proxied(&self, _: &str) -> bool {
        true
    }

    fn route(&self, request: Head<'_>, peer: Peer) -> Result<Routed<Destination>, Error> {
        let address = match self.shared.names.address(request) {
            Ok(address) => address,
            Err(_) if request.target() == STATUS_PATH => {
                return Ok(Routed::Respond(Response::new(Bytes::from_static(b"OK"))));
            }
            Err(error) => return Err(error.into()),
        };
        if address.route.port == EGRESS_PORT {
            return Err(ingress::Error::EgressApi(address.route.id).into());
        }
        let sandbox = self.ingress.find(&address.route.id)?;
        let target = LinkTarget {
            id: &sandbox.id,
            port: address.route.port,
            epoch: ROUTE_EPOCH,
        };
        if let Some(keys) = &self.shared.access.keys {
            let codes = &self.shared.codes;
            let redeemed = codes.redeem(request, &address, keys, target, now());
            if let Some(response) = redeemed {
                return Ok(Routed::Respond(response?));
            }
        }
        let forward = self.forward(request, address, sandbox, peer)?;
        Ok(Routed::Forward(forward))
    }

    fn is_secret(&self, destination: &Destination, value: &[u8]) -> bool {
        self.ingress.is_secret(destination, value)
    }

    async fn ready(&self, destination: &Destination) -> Result<(), Error> {
        Ok(self.ingress.ready(destination).await?)
    }

    async fn connect(
        &self,
        destination: &Destination,
        route: &Route,
    ) -> Result<Box<dyn Stream>, Error> {
        Ok(self.ingress.connect(destination, route).await?)
    }

    fn tunnel_closed(&self, destination: &Destination) {
        self.ingress.tunnel_closed(destination);
    }

    fn refuse(&self, error: proxy::Error<Error>, id: &RequestId) -> Response<Bytes> {
        let span = tracing::info_span!("request", request_id = %id);
        let mut response = span.in_scope(|| surface::gateway_response(&error, id));
        let (name, value) = POWERED_BY;
        let headers = response.headers_mut();
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        response
    }

    fn observe(&self, request: &RequestRecord) {
        self.ingress.count(request, ROUTE_LABEL);
    }
}

/// Refuses what has no target that could name a sandbox; everything else is a sandbox's.
pub(crate) struct NoApi;

impl Api for NoApi {
    type Body = http_body_util::Full<Bytes>;

    async fn respond(&self, request: Request<RequestBody>) -> Response<Self::Body> {
        let id = request.extensions().get::<RequestId>().cloned();
        let id = id.unwrap_or_else(RequestId::random);
        let error = proxy::Error::Sandbox(Error::Address(AddressError::Path));
        surface::gateway_response(&error, &id).map(http_body_util::Full::new)
    }
}
