//! The HTTP surface: which routes there are, and what happens to every request on its way to
//! them.
//!
//! A handler reads the request, calls `lifecycle` and maps the answer; it decides nothing. Routes
//! exist at `/` and at `/v1`, but for those that the table mounts as written. From the outside in, a
//! request passes: request id (`proxy`), panic guard (`front`), counters and log line, CORS, the API
//! key, the limit on requests in flight, the audit trail. Requests into sandboxes never come here
//! (`ingress`).

mod audit;
mod body;
mod create;
mod diagnostics;
mod docs;
mod egress;
mod endpoints;
mod error;
mod events;
mod extract;
mod front;
mod guard;
mod images;
mod keys;
mod operations;
mod policy;
mod routes;
mod sandboxes;
mod snapshots;
mod tenants;
mod unsupported;
mod volumes;
mod wire;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::error::ErrorCode;
use api::sandbox::{API_KEY_HEADER, ORIGIN_HEADER, REQUEST_ID_HEADER};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use daemon::TaskSpawner;
use http::{HeaderMap, HeaderName, StatusCode, header};
use lifecycle::ControlPlane;
use proxy::Peer;
use tokio::sync::Semaphore;
use tower_http::cors::{AllowOrigin, Any, CorsLayer};

pub use error::Error;
pub(crate) use error::gateway::gateway_response;
pub use front::Front;
pub(crate) use guard::count;

use self::routes::Routes;
use crate::access::{Given, Keys, LastKeyRemoved};
use crate::config::{self, Config};
use crate::gateway;
use crate::ingress::Ingress;
use crate::metrics::Metrics;

/// Browsers may keep the answer to a preflight this long; most cap it lower.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(600);

/// What handlers need.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    control: ControlPlane,
    keys: Arc<Keys>,
    metrics: Arc<Metrics>,
    rules: Rules,
    /// Where endpoints lead to, if not through this server's own paths.
    gateway: Option<Arc<gateway::Shared>>,
    spawner: TaskSpawner,
    /// Room for requests in flight; `None` is no limit.
    room: Option<Semaphore>,
}

/// What the operator decided about HTTP requests. Rules about what they ask for are the control
/// plane's.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    eip: Option<String>,
    /// Origins of web pages that may call a server without keys.
    pages: Vec<String>,
    /// Whose presets requests name.
    egress: config::Egress,
}

impl App {
    /// The application for a checked configuration.
    pub(crate) fn new(
        config: &Config,
        control: ControlPlane,
        metrics: Arc<Metrics>,
        gateway: Option<Arc<gateway::Shared>>,
        spawner: TaskSpawner,
        given: Given,
    ) -> Self {
        let keys = Arc::new(Keys::of(&given, control.api_keys()));
        control.set_given(given.keys, given.tenants, given.is_closed);
        let room = match config.server.limit_concurrency {
            0 => None,
            limit => Some(Semaphore::new(limit as usize)),
        };
        let rules = Rules::of(config);
        Self(Arc::new(Inner {
            control,
            keys,
            metrics,
            rules,
            gateway,
            spawner,
            room,
        }))
    }

    /// Takes the API keys of another configuration.
    pub(crate) fn replace_keys(&self, given: Given) -> Result<(), LastKeyRemoved> {
        self.0.keys.replace(&given)?;
        let control = &self.0.control;
        control.set_given(given.keys, given.tenants, given.is_closed);
        Ok(())
    }

    /// Answers every request to the API.
    pub fn front(self, cors_origins: &[String]) -> Front {
        Front::new(self.router(cors_origins))
    }

    /// Where endpoints lead to, if not through this server's own paths.
    fn gateway(&self) -> Option<&gateway::Shared> {
        self.0.gateway.as_deref()
    }

    /// The way into sandboxes.
    pub fn ingress(&self) -> Ingress {
        let control = self.0.control.clone();
        let (keys, metrics) = (&self.0.keys, &self.0.metrics);
        Ingress::new(control, Arc::clone(keys), Arc::clone(metrics))
    }

    /// Every route but those into sandboxes.
    fn router(self, cors_origins: &[String]) -> Router {
        let cors = cors(cors_origins, self.0.keys.is_open());
        let Routes { guarded, open } = routes::table(&self);
        let guarded = guarded
            .route_layer(from_fn_with_state(self.clone(), guard::limit))
            .route_layer(from_fn_with_state(self.clone(), guard::authenticate));
        open.route("/docs", get(docs::page))
            .route("/redoc", get(docs::page))
            .merge(guarded)
            .merge(egress::routes(&self))
            .fallback(not_found)
            .method_not_allowed_fallback(|| async { Error::MethodNotAllowed })
            .layer(cors)
            .layer(DefaultBodyLimit::disable())
            .layer(from_fn_with_state(self.clone(), guard::observe))
            .with_state(self)
    }
}

impl Rules {
    fn of(config: &Config) -> Self {
        Self {
            eip: config.server.eip.clone(),
            pages: named_origins(&config.server.cors_origins)
                .cloned()
                .collect(),
            egress: config.egress.clone(),
        }
    }
}

/// The published server redirects a path with a slash too many, and clients follow it.
async fn not_found(request: Request) -> Response {
    let uri = request.uri();
    let trimmed = uri.path().trim_end_matches('/');
    if trimmed.len() == uri.path().len() || trimmed.is_empty() || trimmed.starts_with("//") {
        return Error::NotFound.into_response();
    }
    let location = match uri.query() {
        Some(query) => format!("{trimmed}?{query}"),
        None => trimmed.to_owned(),
    };
    (
        StatusCode::TEMPORARY_REDIRECT,
        [(header::LOCATION, location)],
    )
        .into_response()
}

fn named_origins(origins: &[String]) -> impl Iterator<Item = &String> {
    origins.iter().filter(|origin| *origin != "*")
}

/// Without keys `*` counts for nothing: any page a person here looks at could then make sandboxes.
fn cors(origins: &[String], is_open: bool) -> CorsLayer {
    let origins = if !is_open && origins.iter().any(|origin| origin == "*") {
        AllowOrigin::from(Any)
    } else {
        AllowOrigin::list(named_origins(origins).filter_map(|origin| origin.parse().ok()))
    };
    CorsLayer::new()
        .allow_origin(origins)
        .allow_methods(Any)
        .allow_headers(Any)
        .expose_headers([REQUEST_ID_HEADER, ORIGIN_HEADER].map(header_name))
        .max_age(PREFLIGHT_MAX_AGE)
}

fn header_name(name: &str) -> HeaderName {
    HeaderName::from_bytes(name.as_bytes()).expect("a header of the contract has a legal name")
}

/// The key a request shows: in the contract's header, or as a bearer token, which is what
/// Prometheus and most tools can send.
fn api_key(headers: &HeaderMap) -> Option<&str> {
    let own = headers
        .get(API_KEY_HEADER)
        .and_then(|value| value.to_str().ok());
    let from_bearer = || {
        let key = bearer(headers.get(header::AUTHORIZATION)?.as_bytes())?;
        str::from_utf8(key).ok()
    };
    own.or_else(from_bearer)
}

/// The bearer token in the value of an Authorization header (RFC 6750 2.1).
pub(crate) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let at = value.iter().position(|byte| *byte == b' ')?;
    let (scheme, token) = value.split_at(at);
    scheme
        .eq_ignore_ascii_case(b"bearer")
        .then(|| token.trim_ascii())
}

/// The address a request came from.
fn address_of(peer: Option<&Peer>) -> Option<IpAddr> {
    peer.map(|peer| peer.ip)
}

/// A request for something this server does not have, in the reference's own words.
fn not_supported(code: ErrorCode, message: &str) -> Error {
    Error::NotSupported {
        code,
        message: message.to_owned(),
    }
}
