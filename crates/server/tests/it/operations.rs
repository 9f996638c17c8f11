//! What operators see: health, metrics, events, diagnostics, limits.

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use lifecycle::backend;
use lifecycle::fake::{self, Call, Fault, StoreFault};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::support::{DEADLINE, start, start_on, start_with};

#[tokio::test]
async fn health_is_200_only_when_backend_and_store_work() {
    let server = start().await;
    assert_eq!(
        server.get("/health").await.expect(200).json(),
        json!({"status": "healthy"})
    );
    let version = server.get("/version").await.expect(200).json();
    assert_eq!(version["version"], "1.1.1");
    let broken = backend::Error::Unavailable {
        backend: "fake",
        message: "out of order".into(),
    };
    server.backend.fail_next(Call::Health, Fault::Fail(broken));
    let answer = server.get("/health").await.expect(503).json();
    assert_eq!(answer["status"], "unhealthy");
    assert!(
        answer["problems"]["backend"]
            .as_str()
            .unwrap()
            .contains("out of order"),
        "{answer}"
    );
    server.get("/health").await.expect(200);
}

#[tokio::test]
async fn a_store_that_fails_is_told_and_nothing_is_acknowledged() {
    let server = start().await;
    // Without the API, whose audit trail also writes.
    let request = lifecycle::CreateRequest::from_image("local");
    let made = server.running.service.create(request, None).await.unwrap();
    let id = made.sandbox.id.clone();
    // More than one, because a write of the creation may still be under way.
    for _ in 0..8 {
        let full = lifecycle::store::Error::Full {
            store: "memory",
            location: "nowhere".into(),
        };
        server.store.fail_next(StoreFault::Refuse(full));
    }
    let path = format!("/v1/sandboxes/{id}/metadata");
    let answer = server.body("PATCH", &path, json!({"a": "b"})).await;
    let answer = answer.refused(503, "UNAVAILABLE");
    assert!(
        !answer.text.contains("nowhere"),
        "where it is kept is no client's business"
    );
}

#[tokio::test]
async fn faults_of_the_backend_do_not_show_its_insides() {
    let server = start().await;
    let inside = backend::Error::Io {
        action: "mounting /var/lib/opensandbox/secret-path".into(),
        source: std::io::Error::other("boom"),
    };
    server.backend.fail_next(Call::Create, Fault::Fail(inside));
    let answer = server
        .post("/v1/sandboxes", crate::support::request_for("local"))
        .await;
    let answer = answer.refused(500, "SANDBOX::INTERNAL_ERROR");
    assert!(
        !answer.text.contains("secret-path") && !answer.text.contains("boom"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn metrics_are_counted_by_route() {
    let server = start().await;
    let id = server.sandbox().await;
    server.get(&format!("/v1/sandboxes/{id}")).await.expect(200);
    server.get("/v1/sandboxes/nope").await.expect(404);
    let request = server.inside("GET", &id, 44772, "/ping").await;
    server
        .call(request.body(Body::empty()).unwrap())
        .await
        .expect(200);
    let report = json!({"eventType": "sandbox.create", "createDurationMs": 12, "success": true});
    server
        .post("/v1/metrics/events", report.clone())
        .await
        .expect(204);
    server
        .post("/metrics/events", report)
        .await
        .refused(404, "ROUTE_NOT_FOUND");
    let page = server.get("/metrics").await.expect(200).text;
    for line in [
        r#"osb_server_http_requests_total{method="GET",route="/v1/sandboxes/{id}",status="200"} 1"#,
        r#"osb_server_http_requests_total{method="GET",route="/v1/sandboxes/{id}",status="404"} 1"#,
        r#"osb_server_http_requests_total{method="POST",route="/v1/sandboxes",status="202"} 1"#,
        r#"osb_server_proxied_requests_total{outcome="answered"} 1"#,
        r#"osb_server_sandboxes{state="Running"} 1"#,
        r#"osb_server_reported_create_duration_seconds_count{language="other",success="true"} 1"#,
        r#"osb_server_creations_total{image="local",outcome="made"} 1"#,
        r#"osb_server_creation_duration_seconds_count{phase="make",outcome="made"} 1"#,
        r#"osb_server_creation_duration_seconds_count{phase="total",outcome="made"} 1"#,
        r#"osb_server_errors_total{code="DOCKER::SANDBOX_NOT_FOUND"} 1"#,
        r#"osb_server_build_info{version="#,
    ] {
        assert!(page.contains(line), "{line}\nnot in\n{page}");
    }
    assert!(!page.contains(id.as_str()), "ids are no labels");
}

#[tokio::test]
async fn unknown_routes_methods_and_slashes_are_answered_as_documented() {
    let server = start().await;
    server.get("/nope").await.refused(404, "ROUTE_NOT_FOUND");
    server
        .get("/v1/health")
        .await
        .refused(404, "ROUTE_NOT_FOUND");
    server
        .body("PUT", "/v1/sandboxes", json!({}))
        .await
        .refused(405, "METHOD_NOT_ALLOWED");
    let moved = server.get("/v1/sandboxes/?page=2").await.expect(307);
    assert_eq!(moved.header("location"), "/v1/sandboxes?page=2");
    server.get("//evil.example/").await.expect(404);
    let document = server.get("/openapi.json").await.expect(200).json();
    assert!(
        document["paths"]["/sandboxes"]["post"].is_object(),
        "{document}"
    );
    assert!(
        server
            .get("/docs")
            .await
            .expect(200)
            .text
            .contains("openapi.json")
    );
}

/// Reads frames of an event stream until `count` have come.
async fn frames(body: &mut Incoming, count: usize) -> Vec<(u64, String, Value)> {
    let mut text = String::new();
    loop {
        let frames: Vec<_> = text
            .split_inclusive("\n\n")
            .filter(|it| it.ends_with("\n\n"))
            .collect();
        let frames: Vec<_> = frames
            .iter()
            .filter_map(|frame| parse_frame(frame))
            .collect();
        if frames.len() >= count {
            return frames;
        }
        let frame = tokio::time::timeout(DEADLINE, body.frame())
            .await
            .expect("an event in time");
        let data = frame
            .expect("the stream goes on")
            .unwrap()
            .into_data()
            .unwrap();
        text += std::str::from_utf8(&data).unwrap();
    }
}

fn parse_frame(frame: &str) -> Option<(u64, String, Value)> {
    let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
    let data = serde_json::from_str(field("data: ")?).unwrap();
    Some((
        field("id: ")?.parse().unwrap(),
        field("event: ")?.to_owned(),
        data,
    ))
}

#[tokio::test]
async fn events_stream_live_and_go_on_after_the_last_one_seen() {
    let server = start().await;
    let open = async |query: &str, last: Option<u64>| {
        let request = server.request("GET", &format!("/v1/events{query}"));
        let request = last
            .into_iter()
            .fold(request, |it, id| it.header("last-event-id", id));
        let response = server.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        response.into_body()
    };
    let mut live = open("", None).await;
    let id = server.sandbox().await;
    let other = server.sandbox().await;
    let seen = frames(&mut live, 2).await;
    assert_eq!(
        (seen[0].1.as_str(), &seen[0].2["sandboxId"]),
        ("sandbox.created", &json!(id))
    );
    server
        .delete(&format!("/v1/sandboxes/{id}"))
        .await
        .expect(204);

    let mut again = open("", Some(seen[0].0)).await;
    let rest = frames(&mut again, 2).await;
    assert!(
        rest.iter().all(|(number, ..)| *number > seen[0].0),
        "{rest:?}"
    );
    assert_eq!(rest[0], seen[1]);

    let mut one = open(&format!("?after=0&sandboxId={other}"), None).await;
    let of_other = frames(&mut one, 2).await;
    assert!(
        of_other
            .iter()
            .all(|(_, _, data)| data["sandboxId"] == json!(other)),
        "{of_other:?}"
    );
    server
        .get("/v1/events?after=x")
        .await
        .refused(422, "VALIDATION_FAILED");
}

#[tokio::test]
async fn diagnostics_come_as_json_with_a_scope_and_as_text_without() {
    let server = start().await;
    let id = server.sandbox().await;
    server.backend.log(&id, "line one\nline two\n");
    let path = format!("/v1/sandboxes/{id}/diagnostics");
    let logs = server
        .get(&format!("{path}/logs?scope=container"))
        .await
        .expect(200)
        .json();
    assert_eq!(logs["sandboxId"], id.as_str());
    assert_eq!(
        (&logs["kind"], &logs["delivery"]),
        (&json!("logs"), &json!("inline"))
    );
    assert!(
        logs["content"].as_str().unwrap().contains("line two"),
        "{logs}"
    );
    assert_eq!(
        logs["contentLength"],
        logs["content"].as_str().unwrap().len()
    );
    let events = server
        .get(&format!("{path}/events?scope=all"))
        .await
        .expect(200)
        .json();
    assert!(
        events["content"].as_str().unwrap().contains("created"),
        "{events}"
    );
    server
        .get(&format!("{path}/logs?scope=runtime"))
        .await
        .refused(400, "DIAGNOSTICS_SCOPE_UNSUPPORTED");

    let text = server.get(&format!("{path}/logs?tail=1")).await.expect(200);
    assert_eq!(text.header("deprecation"), "true");
    assert_eq!(text.header("content-type"), "text/plain; charset=utf-8");
    assert!(
        text.text.contains("line two") && !text.text.contains("line one"),
        "{text:?}"
    );
    server
        .get(&format!("{path}/logs?tail=0"))
        .await
        .refused(422, "VALIDATION_FAILED");
    for kind in ["events", "inspect", "summary"] {
        server.get(&format!("{path}/{kind}")).await.expect(200);
    }
    let token = server
        .endpoint(&id, 80)
        .await
        .1
        .into_values()
        .next()
        .unwrap();
    let summary = server.get(&format!("{path}/summary")).await.text;
    assert!(
        summary.contains("line two") && summary.contains("Running"),
        "{summary}"
    );
    assert!(!summary.contains(&token), "diagnostics carry no secret");
}

#[tokio::test]
async fn a_restart_finds_the_sandboxes_again() {
    let (backend, store) = (fake::Backend::new(), fake::Store::new());
    let server = start_on(backend.clone(), store.clone(), |_| {}).await;
    let id = server.sandbox().await;
    let (_, token) = server.endpoint(&id, 44772).await;
    server.running.stop(Duration::from_secs(5)).await;
    let server = start_on(backend, store, |_| {}).await;
    let read = server
        .get(&format!("/v1/sandboxes/{id}"))
        .await
        .expect(200)
        .json();
    assert_eq!(read["status"]["state"], "Running");
    assert_eq!(
        server.endpoint(&id, 44772).await.1,
        token,
        "clients keep their endpoint"
    );
}

#[tokio::test]
async fn beyond_the_limit_of_work_there_is_503() {
    let server = start_with(|config| config.server.limit_concurrency = 1).await;
    let request = server
        .request("GET", "/v1/events")
        .body(Body::empty())
        .unwrap();
    let stream = server.send(request).await;
    // The head of an answer ends the work; the stream itself holds no room.
    server.get("/v1/sandboxes").await.expect(200);
    drop(stream);
    let (gate, reached, open) = fake::Gate::new();
    server.backend.fail_next(Call::Create, Fault::Wait(gate));
    let create = server.post("/v1/sandboxes", crate::support::request_for("local"));
    let mut create = std::pin::pin!(create);
    tokio::select! {
        biased;
        answer = &mut create => panic!("it must wait: {answer:?}"),
        _ = reached => {}
    }
    let refused = server
        .get("/v1/sandboxes")
        .await
        .refused(503, "UNAVAILABLE");
    assert_eq!(refused.header("retry-after"), "1");
    server.get("/health").await.expect(200);
    open.send(()).unwrap();
    create.await.expect(202);
}

#[tokio::test]
async fn a_client_that_hangs_up_during_create_leaves_a_sandbox_that_can_be_found() {
    let server = start().await;
    let (gate, reached, open) = fake::Gate::new();
    server.backend.fail_next(Call::Create, Fault::Wait(gate));
    let mut body = crate::support::request_for("local");
    body["metadata"] = json!({"job": "7"});
    {
        let create = server.post("/v1/sandboxes", body);
        let mut create = std::pin::pin!(create);
        tokio::select! {
            biased;
            answer = &mut create => panic!("it must wait: {answer:?}"),
            _ = reached => {}
        }
    }
    let mut events = server.running.service.subscribe(None).await.unwrap();
    open.send(()).unwrap();
    let found = loop {
        let listed = server
            .get("/v1/sandboxes?state=Running&metadata=job%3D7")
            .await
            .json();
        if listed["pagination"]["totalItems"] == 1 {
            break listed["items"][0]["id"].clone();
        }
        tokio::time::timeout(DEADLINE, events.next())
            .await
            .expect("it becomes ready");
    };
    let audit = loop {
        let audit = server.get("/v1/audit-events").await.expect(200).json();
        if audit["items"]
            .as_array()
            .is_some_and(|items| !items.is_empty())
        {
            break audit;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        (
            &audit["items"][0]["resource"],
            &audit["items"][0]["outcome"]
        ),
        (&found, &json!("success"))
    );
}

#[tokio::test]
async fn idle_connections_do_not_keep_others_out() {
    const IDLE: usize = 500;
    let server = start().await;
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(TcpStream::connect(server.address()).await.unwrap());
    }
    server.get("/v1/sandboxes").await.expect(200);
    let mut byte = [0];
    assert!(
        idle[0].try_read(&mut byte).is_err(),
        "still open and silent"
    );
    server.running.stop(Duration::from_secs(5)).await;
    for stream in &mut idle {
        let read = tokio::time::timeout(DEADLINE, stream.read(&mut byte))
            .await
            .expect("closed");
        assert_eq!(read.unwrap_or(0), 0);
    }
}

#[cfg(feature = "otlp")]
#[tokio::test]
async fn metrics_reach_a_collector() {
    let (arrived, mut arrivals) = tokio::sync::mpsc::channel(4);
    let take = axum::routing::post(move |body: String| {
        let arrived = arrived.clone();
        async move { arrived.send(body).await.expect("the test listens") }
    });
    let collector = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let router = axum::Router::new().route("/v1/metrics", take);
    tokio::spawn(axum::serve(collector, router).into_future());
    let server = start_with(|config| {
        config.otel.enabled = true;
        config.otel.endpoint = Some(endpoint);
    })
    .await;
    server.get("/health").await.expect(200);
    // Stopping exports what came since the last time.
    tokio::time::timeout(DEADLINE, server.running.stop(DEADLINE))
        .await
        .expect("the server stops");
    let message = arrivals.recv().await.unwrap();
    for expected in ["opensandbox-server", "osb_server_http_requests", "/health"] {
        assert!(message.contains(expected), "{expected} not in {message}");
    }
}

#[tokio::test]
async fn a_snapshot_that_failed_tells_why() {
    let server = start().await;
    let id = server.sandbox().await;
    let fault = Fault::Fail(lifecycle::backend::Error::Io {
        action: "copying the writable layer".to_owned(),
        source: std::io::Error::from(std::io::ErrorKind::StorageFull),
    });
    server.backend.fail_next(Call::Snapshot, fault);
    let path = format!("/v1/sandboxes/{id}/snapshots");
    let made = server.post(&path, json!({})).await;
    let snapshot = made.json()["id"].as_str().unwrap().to_owned();
    let seen = server.get(&format!("/v1/snapshots/{snapshot}")).await;
    let status = seen.expect(200).json()["status"].clone();
    assert_eq!(status["state"], "Failed", "{status}");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("no storage space"), "{message}");
}
