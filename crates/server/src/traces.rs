//! Traces of requests: where their steps are collected, and the span of a request. The steps themselves are where
//! they are taken: in `lifecycle` the calls of the backend, in `runtime` the phases of a creation.

use daemon::TaskSpawner;
use daemon::telemetry::Steps;
use http::HeaderMap;
use tracing::Span;

use crate::config::Config;

/// The header by which a request names the trace that it is part of (W3C Trace Context, 3.2).
pub(crate) const PARENT_HEADER: &str = "traceparent";

/// The steps that were collected and are to be exported, if any are.
#[cfg(feature = "otlp")]
pub struct Traces(Option<(daemon::otlp::Settings, daemon::otlp::traces::Collected)>);

/// Where steps are collected, if the configuration wants traces, and where they come out.
#[cfg(feature = "otlp")]
pub(crate) fn open(config: &Config) -> (Steps, Traces) {
    let settings = config
        .otel
        .settings()
        .filter(|settings| settings.has_traces);
    let Some(settings) = settings else {
        return (None, Traces(None));
    };
    let (collector, collected) = daemon::otlp::traces::channel();
    (Some(collector), Traces(Some((settings, collected))))
}

#[cfg(feature = "otlp")]
impl Traces {
    /// Exports them from now on.
    pub(crate) fn export(self, spawner: &TaskSpawner) {
        let Some((settings, collected)) = self.0 else {
            return;
        };
        let stopping = spawner.stopping();
        spawner.spawn("traces", async move {
            let exported = daemon::otlp::traces::export(settings, collected, stopping).await;
            if let Err(error) = exported {
                let error: &dyn std::error::Error = &error;
                tracing::error!(error, "traces are not exported");
            }
        });
    }
}

/// None: this program was built without exports.
#[cfg(not(feature = "otlp"))]
pub struct Traces;

#[cfg(not(feature = "otlp"))]
pub(crate) fn open(_: &Config) -> (Steps, Traces) {
    (None, Traces)
}

#[cfg(not(feature = "otlp"))]
impl Traces {
    pub(crate) fn export(self, _: &TaskSpawner) {}
}

/// The trace that these headers name, where traces are wanted.
pub(crate) fn parent(headers: &HeaderMap) -> Option<&str> {
    is_wanted().then(|| headers.get(PARENT_HEADER)?.to_str().ok())?
}

/// Whether anybody collects steps.
pub(crate) fn is_wanted() -> bool {
    tracing::enabled!(target: "trace", tracing::Level::INFO)
}

/// The span of a request to the API. Its path is without the query, which may hold what nobody should read.
pub(crate) fn of_request(
    method: &http::Method,
    path: &str,
    headers: &HeaderMap,
    id: Option<&str>,
) -> Span {
    tracing::info_span!(
        target: "trace",
        "request",
        "http.request.method" = method.as_str(),
        "url.path" = path,
        request_id = id,
        traceparent = parent(headers),
        "http.response.status_code" = tracing::field::Empty,
        error = tracing::field::Empty,
    )
}
