//! The Prometheus page. What is counted belongs to each crate's own `metrics.rs`.

use axum::response::{IntoResponse, Response};
use http::header;
pub use prometheus_client::registry::Registry;

/// The registry in the OpenMetrics text format, which Prometheus reads.
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry)
        .expect("writing to a string cannot fail");
    text
}

/// The registry as an HTTP answer.
pub fn page(registry: &Registry) -> Response {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, TYPE)], text(registry)).into_response()
}
