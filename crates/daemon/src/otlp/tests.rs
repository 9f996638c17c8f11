//! What an export says of a page that the real registry wrote.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;

use super::*;
use crate::metrics;

/// A page as the real registry writes it, with a label value that needs escaping.
fn page() -> String {
    let mut registry = Registry::with_prefix("osb");
    let requests = family::Family::<Vec<(String, String)>, Counter>::default();
    let label = vec![
        ("route".to_owned(), "/a\"b\\c\n{x},y=\"z\"".to_owned()),
        ("status".to_owned(), "200".to_owned()),
    ];
    requests.get_or_create(&label).inc_by(3);
    registry.register("requests", "Requests answered", requests);
    let alive = Gauge::<i64>::default();
    alive.set(-2);
    registry.register("alive", "Alive", alive);
    let took = Histogram::new([0.1, 1.0]);
    for seconds in [0.05, 0.5, 0.7, 30.0] {
        took.observe(seconds);
    }
    registry.register("took_seconds", "Durations", took);
    metrics::text(&registry)
}

#[test]
fn a_page_becomes_a_message() {
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(2);
    let message = message(&page(), "me", start, now);
    let resource = &message["resourceMetrics"][0];
    assert_eq!(
        resource["resource"]["attributes"][0],
        json!({ "key": "service.name", "value": { "stringValue": "me" } })
    );
    let metrics = resource["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let [requests, alive, took] = &metrics[..] else {
        panic!("three metrics: {metrics:#?}")
    };

    assert_eq!(requests["name"], "osb_requests");
    assert_eq!(requests["sum"]["isMonotonic"], true);
    let point = &requests["sum"]["dataPoints"][0];
    assert_eq!(point["asDouble"], 3.0);
    assert_eq!(point["startTimeUnixNano"], "1000000000");
    assert_eq!(point["timeUnixNano"], "2000000000");
    assert_eq!(
        point["attributes"][0]["value"]["stringValue"],
        "/a\"b\\c\n{x},y=\"z\""
    );
    assert_eq!(point["attributes"][1]["value"]["stringValue"], "200");

    assert_eq!(alive["gauge"]["dataPoints"][0]["asDouble"], -2.0);

    let point = &took["histogram"]["dataPoints"][0];
    assert_eq!(point["explicitBounds"], json!([0.1, 1.0]));
    assert_eq!(point["bucketCounts"], json!(["1", "2", "1"]));
    assert_eq!(point["count"], "4");
    assert_eq!(point["sum"], 31.25);
}

#[test]
fn pages_we_did_not_write_do_no_harm() {
    for page in [
        "",
        "osb 1",
        "# HELP a\n# TYPE\n",
        "# HELP a b\n# TYPE a counter\na{x=\"",
        "# HELP a b\n# TYPE a counter\na{x=\"\\",
        "# HELP a b\n# TYPE a counter\na{x} 1\na_total nothing\na_total{x=\"1\"",
        "# HELP a b\n# TYPE a histogram\na_bucket{le=\"x\"} 1\na_bucket 2",
        "# HELP ä b\n# TYPE ä gauge\nä{ü=\"ö\"} 1",
    ] {
        message(page, "me", SystemTime::UNIX_EPOCH, SystemTime::now());
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let settings = |endpoint: &str, seconds| Settings {
        endpoint: endpoint.to_owned(),
        service_name: "me".to_owned(),
        interval: Duration::from_secs(seconds),
        has_traces: true,
    };
    for endpoint in ["", "collector:4318", "/v1/metrics", "ftp://a", "http://"] {
        let error = settings(endpoint, 60).check().unwrap_err().to_string();
        assert!(
            error.contains("http://127.0.0.1:4318"),
            "{endpoint}: {error}"
        );
    }
    assert!(settings("http://a", 0).check().is_err());
    let url = |endpoint| settings(endpoint, 60).url().unwrap().to_string();
    assert_eq!(url("http://a:4318"), "http://a:4318/v1/metrics");
    assert_eq!(
        url("https://a/otlp/v1/metrics"),
        "https://a/otlp/v1/metrics"
    );
}

#[tokio::test]
async fn exports_at_each_interval_and_once_more_at_the_end() {
    let (arrived, mut arrivals) = mpsc::channel(4);
    let take = axum::routing::post(move |body: String| {
        let arrived = arrived.clone();
        async move { arrived.send(body).await.expect("the test listens") }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new().route(METRICS_PATH, take);
    tokio::spawn(axum::serve(listener, router).into_future());

    let settings = Settings {
        endpoint: format!("http://{address}"),
        service_name: "me".to_owned(),
        interval: Duration::from_secs(1),
        has_traces: false,
    };
    let stop = CancellationToken::new();
    let text: Arc<str> = page().into();
    let exporter = tokio::spawn(export(settings, move || text.to_string(), stop.clone()));
    let first: Value = serde_json::from_str(&arrivals.recv().await.unwrap()).unwrap();
    assert!(first["resourceMetrics"].is_array());
    stop.cancel();
    arrivals
        .recv()
        .await
        .expect("what came since the last export");
    exporter.await.unwrap().unwrap();
}
