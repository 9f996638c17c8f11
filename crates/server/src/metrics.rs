//! Everything the server counts, for `GET /metrics`.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::response::{IntoResponse as _, Response};
use daemon::metrics::Registry;
use http::{Method, header};
use lifecycle::{CreationTimes, Observer, Origin, Reason};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use proxy::RequestOutcome;

/// Upper bounds of durations, in seconds: from a cached read to a slow image pull.
const SECONDS: [f64; 13] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];

/// The counters.
pub struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    durations: Family<Route, Histogram>,
    /// By outcome: answered, refused, failed. Not looked up in a family, because proxying is what
    /// happens most.
    proxied: [Counter; 3],
    reported_creates: Family<Reported, Histogram>,
    sandboxes: Family<InState, Gauge>,
    denied: Counter,
    errors: Family<Failed, Counter>,
    creations: Family<Creation, Counter>,
    creation_phases: Family<Phase, Histogram>,
    pulls: Family<Pull, Counter>,
    /// Images that have a label of their own.
    images: Mutex<BTreeSet<String>>,
}

/// Images with a label of their own; all others are `other`, so that clients cannot make up labels without end.
const IMAGES_MAX: usize = 50;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failed {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Creation {
    image: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    phase: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pull {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    method: &'static str,
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Proxied {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reported {
    language: String,
    success: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    state: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("osb_server");
        let requests = Family::default();
        let durations =
            Family::<Route, Histogram>::new_with_constructor(|| Histogram::new(SECONDS));
        let proxied = Family::<Proxied, Counter>::default();
        let reported_creates =
            Family::<Reported, Histogram>::new_with_constructor(|| Histogram::new(SECONDS));
        let sandboxes = Family::default();
        let denied = Counter::default();
        registry.register("http_requests", "Requests answered", requests.clone());
        registry.register(
            "http_request_duration_seconds",
            "Time to the head of an answer",
            durations.clone(),
        );
        registry.register(
            "proxied_requests",
            "Requests into sandboxes",
            proxied.clone(),
        );
        registry.register(
            "reported_create_duration_seconds",
            "Time to create a sandbox, as clients report it",
            reported_creates.clone(),
        );
        registry.register("sandboxes", "Sandboxes by state", sandboxes.clone());
        registry.register(
            "denied_requests",
            "Requests without a valid API key",
            denied.clone(),
        );
        let errors = Family::default();
        registry.register("errors", "Answers with an error code", errors.clone());
        let creations = Family::default();
        registry.register("creations", "Creations that have ended", creations.clone());
        let creation_phases =
            Family::<Phase, Histogram>::new_with_constructor(|| Histogram::new(SECONDS));
        registry.register(
            "creation_duration_seconds",
            "Time that creations took, by phase: pull, make, and all of it",
            creation_phases.clone(),
        );
        let pulls = Family::default();
        registry.register("pulls", "Images that creations waited for", pulls.clone());
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "What runs", Info::new(version));
        let proxied = ["answered", "refused", "failed"]
            .map(|outcome| proxied.get_or_create(&Proxied { outcome }).clone());
        Self {
            registry,
            requests,
            durations,
            proxied,
            reported_creates,
            sandboxes,
            denied,
            errors,
            creations,
            creation_phases,
            pulls,
            images: Mutex::default(),
        }
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Observer for Metrics {
    fn created(&self, creation: &CreationTimes<'_>) {
        let outcome = match creation.failure {
            None => "made",
            Some(_) => "failed",
        };
        let image = self.image_label(creation.origin);
        self.creations
            .get_or_create(&Creation { image, outcome })
            .inc();
        let phases = [
            ("pull", creation.pull),
            ("make", creation.make),
            ("total", Some(creation.total)),
        ];
        for (phase, took) in phases {
            if let Some(took) = took {
                self.creation_phases
                    .get_or_create(&Phase { phase, outcome })
                    .observe(took.as_secs_f64());
            }
        }
        if creation.pull.is_some() {
            let outcome = match creation.failure {
                Some(Reason::ImagePullFailed) => "failed",
                _ => "pulled",
            };
            self.pulls.get_or_create(&Pull { outcome }).inc();
        }
    }
}

impl Metrics {
    /// The page for Prometheus.
    pub fn page(&self) -> Response {
        let headers = [(header::CONTENT_TYPE, daemon::metrics::CONTENT_TYPE)];
        (headers, self.text()).into_response()
    }

    /// The same page as text.
    pub fn text(&self) -> String {
        daemon::metrics::text(&self.registry)
    }

    /// Counts an answered request. `route` is the pattern, not the path.
    pub fn answered(&self, method: &'static str, route: &str, status: u16, took: Duration) {
        let route = route.to_owned();
        self.durations
            .get_or_create(&Route {
                method,
                route: route.clone(),
            })
            .observe(took.as_secs_f64());
        self.requests
            .get_or_create(&Request {
                method,
                route,
                status,
            })
            .inc();
    }

    /// The image without its tag or digest, while there are few.
    fn image_label(&self, origin: &Origin) -> String {
        let name = match origin {
            Origin::Image(reference) => without_version(reference).to_owned(),
            Origin::Snapshot(_) => "snapshot".to_owned(),
        };
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        if images.contains(&name) || images.len() < IMAGES_MAX {
            images.insert(name.clone());
            return name;
        }
        "other".to_owned()
    }

    /// Counts an answer with an error code of the contract.
    pub fn failed(&self, code: &'static str) {
        self.errors.get_or_create(&Failed { code }).inc();
    }

    /// Counts a request that showed no valid key.
    pub fn denied(&self) {
        self.denied.inc();
    }

    /// Counts a request into a sandbox.
    pub fn proxied(&self, outcome: RequestOutcome) {
        let [answered, refused, failed] = &self.proxied;
        let counter = match outcome {
            RequestOutcome::Answered => answered,
            RequestOutcome::Refused => refused,
            RequestOutcome::Failed => failed,
        };
        counter.inc();
    }

    /// Keeps what a client reports about a create of its own.
    pub fn reported_create(&self, language: &str, took: Duration, success: bool) {
        let label = Reported {
            language: language.to_owned(),
            success: success.to_string(),
        };
        self.reported_creates
            .get_or_create(&label)
            .observe(took.as_secs_f64());
    }

    /// Sets how many sandboxes there are in each state.
    pub fn sandboxes(&self, counts: impl IntoIterator<Item = (lifecycle::State, usize)>) {
        for (state, count) in counts {
            let label = InState {
                state: state.as_str(),
            };
            self.sandboxes
                .get_or_create(&label)
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

/// An image reference without its tag or digest. A colon before the last slash is that of a port.
fn without_version(reference: &str) -> &str {
    let name = reference.split('@').next().unwrap_or(reference);
    match name.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => before,
        _ => name,
    }
}

/// Methods come from clients, and labels must not: anything unusual is `OTHER`.
pub(crate) fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "OTHER",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_labels_without_their_version_and_only_so_many() {
        for (reference, label) in [
            ("host", "host"),
            ("python:3.12", "python"),
            ("127.0.0.1:5000/a/b:1", "127.0.0.1:5000/a/b"),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b"),
            ("a/b@sha256:0123", "a/b"),
        ] {
            assert_eq!(without_version(reference), label);
        }
        let metrics = Metrics::default();
        for number in 0..=IMAGES_MAX {
            let origin = Origin::Image(format!("image-{number}"));
            let label = metrics.image_label(&origin);
            let expected = if number < IMAGES_MAX {
                format!("image-{number}")
            } else {
                "other".to_owned()
            };
            assert_eq!(label, expected);
        }
    }
}
