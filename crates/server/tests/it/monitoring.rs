//! What deploy/ has for whoever watches a server, held against the server's own page.

use std::collections::BTreeSet;

use axum::body::Body;

use crate::support::{DEADLINE, request_for, start};

/// The names of metrics in a text, without the endings that Prometheus adds.
fn metric_names(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_name(c))
        .filter(|word| word.starts_with("osb_server_"))
        .map(|word| {
            let ends = ["_bucket", "_count", "_sum", "_total", "_info"];
            let end = ends.iter().find_map(|end| word.strip_suffix(end));
            end.unwrap_or(word).to_owned()
        })
        .collect()
}

#[tokio::test]
async fn the_dashboard_and_the_alerts_ask_for_metrics_that_there_are() {
    let server = start().await;
    let id = server.sandbox().await;
    let remote = request_for("remote");
    server.post("/v1/sandboxes", remote).await.expect(202);
    server.get("/v1/sandboxes/nope").await.expect(404);
    let request = server.inside("GET", &id, 44772, "/ping").await;
    let pinged = server.call(request.body(Body::empty()).unwrap()).await;
    pinged.expect(200);
    // The download is counted when the sandbox is made.
    server
        .running
        .service
        .wait_ready(&id, DEADLINE)
        .await
        .unwrap();
    let mut events = server.running.service.subscribe(Some(0)).await.unwrap();
    let page = loop {
        let page = server.get("/metrics").await.expect(200).text;
        if page.contains("osb_server_pulls_total") {
            break page;
        }
        let next = tokio::time::timeout(DEADLINE, events.next()).await;
        next.expect("the sandbox is made");
    };
    let there = metric_names(&page);
    for (file, text) in [
        (
            "grafana-dashboard.json",
            include_str!("../../../../deploy/grafana-dashboard.json"),
        ),
        (
            "prometheus-alerts.yaml",
            include_str!("../../../../deploy/prometheus-alerts.yaml"),
        ),
    ] {
        let asked = metric_names(text);
        assert!(asked.len() > 4, "{file}: {asked:?}");
        let missing: Vec<_> = asked.difference(&there).collect();
        assert!(missing.is_empty(), "{file} asks for {missing:?}");
    }
}
