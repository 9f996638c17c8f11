//! What the settings of exports mean, and which cannot be.

#[cfg(feature = "otlp")]
use std::time::Duration;

use daemon::config::Problems;

use super::Otel;

#[cfg(feature = "otlp")]
impl Otel {
    /// Where metrics and traces are exported to, if they are.
    pub(crate) fn settings(&self) -> Option<daemon::otlp::Settings> {
        self.enabled.then(|| daemon::otlp::Settings {
            endpoint: self.endpoint.clone().unwrap_or_default(),
            service_name: self.service_name.clone(),
            interval: Duration::from_millis(self.export_interval_millis),
            has_traces: self.traces,
        })
    }
}

#[cfg(feature = "otlp")]
pub(super) fn check(otel: &Otel, problems: &mut Problems) {
    if let Some(Err(error)) = otel.settings().map(|settings| settings.check()) {
        problems.add(format!("otel: {error}"));
    }
}

#[cfg(not(feature = "otlp"))]
pub(super) fn check(otel: &Otel, problems: &mut Problems) {
    if otel.enabled {
        problems.add(
            "otel.enabled: this program was built without the feature otlp; scrape /metrics, or \
             build it with --features otlp",
        );
    }
}
