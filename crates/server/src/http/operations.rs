//! What operators and monitoring ask: health, version, metrics.

use std::time::Duration;

use api::json;
use api::metrics_event::MetricsEvent;
use api::sandbox::Health;
use api::version::{ServerCapabilities, Version};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, StatusCode, header};
use lifecycle::{Caller, SandboxFilter};

use super::audit::CallerService;
use super::extract::Whole;
use super::{App, Error};
use crate::metrics::Metrics;

/// `GET /health`: 200 only when a sandbox could be made and would be remembered.
pub(super) async fn health(State(app): State<App>) -> Response {
    let health = app.0.control.health().await;
    let problems: std::collections::BTreeMap<String, String> =
        [("backend", health.backend), ("store", health.store)]
            .into_iter()
            .filter_map(|(part, state)| Some((part.to_owned(), state.err()?)))
            .collect();
    if problems.is_empty() {
        return Json(Health {
            status: "healthy".to_owned(),
            problems: None,
        })
        .into_response();
    }
    tracing::warn!(?problems, "not healthy");
    let body = Health {
        status: "unhealthy".to_owned(),
        problems: Some(problems),
    };
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

/// `GET /version`
pub(super) async fn version(State(app): State<App>) -> Json<Version> {
    let can = app.0.control.capabilities();
    Json(Version {
        version: api::spec::PROTOCOL_VERSION.to_owned(),
        capabilities: Some(ServerCapabilities {
            pause: can.pause,
            snapshots: can.snapshot,
            no_network: can.network_none,
            network_rules: can.network_rules,
            disk_limit: can.disk_limit,
            gpus: can.gpu,
            platforms: can.foreign_platform,
            host_paths: app.0.control.allows_host_paths(),
        }),
    })
}

/// `GET /metrics`
pub(super) async fn metrics(
    State(app): State<App>,
    CallerService(service): CallerService,
) -> Result<Response, Error> {
    service.may_read_metrics()?;
    Ok(app.metrics().page())
}

impl App {
    /// All counters, with those that are looked up when asked for.
    pub fn metrics(&self) -> &Metrics {
        self.count_sandboxes();
        &self.0.metrics
    }

    fn count_sandboxes(&self) {
        let service = self.0.control.for_caller(Caller::server());
        let counts = lifecycle::State::ALL.map(|state| {
            let filter = SandboxFilter {
                states: vec![state],
                ..SandboxFilter::default()
            };
            (
                state,
                usize::try_from(service.list(&filter, 1, 1).total_items).unwrap_or(usize::MAX),
            )
        });
        self.0.metrics.sandboxes(counts);
    }
}

/// `POST /v1/metrics/events`: how long a create took, as the client saw it.
pub(super) async fn report(
    State(app): State<App>,
    headers: HeaderMap,
    Whole(body): Whole,
) -> Result<StatusCode, Error> {
    let event: MetricsEvent =
        json::from_slice(&body).map_err(|problem| Error::body(vec![problem]))?;
    let agent = headers
        .get(header::USER_AGENT)
        .and_then(|value| value.to_str().ok());
    let took = Duration::from_millis(event.create_duration_ms);
    app.0
        .metrics
        .reported_create(language(agent), took, event.success);
    Ok(StatusCode::NO_CONTENT)
}

/// `Python` of `OpenSandbox-Python-SDK/1.1.1`. Anything but a known name is `other`, so that
/// clients cannot make up labels.
fn language(agent: Option<&str>) -> &'static str {
    const KNOWN: [&str; 7] = [
        "Python",
        "JavaScript",
        "JS",
        "Kotlin",
        "CSharp",
        "Go",
        "Rust",
    ];
    let agent = agent.unwrap_or_default();
    let named = agent
        .strip_prefix("OpenSandbox-")
        .and_then(|rest| rest.split_once("-SDK/"));
    let known = named.and_then(|(name, _)| {
        KNOWN
            .into_iter()
            .find(|known| known.eq_ignore_ascii_case(name))
    });
    known.unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_clients_become_labels() {
        assert_eq!(language(Some("OpenSandbox-Python-SDK/1.1.1")), "Python");
        assert_eq!(language(Some("OpenSandbox-Evil-SDK/1")), "other");
        assert_eq!(language(Some("curl/8")), "other");
        assert_eq!(language(None), "other");
    }
}
