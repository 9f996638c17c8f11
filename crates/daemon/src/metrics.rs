//! The text that Prometheus reads. What is counted belongs to each crate's own `metrics.rs`.

pub use prometheus_client::registry::Registry;

/// The media type of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The registry in the OpenMetrics text format.
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry)
        .expect("writing to a string cannot fail");
    text
}
