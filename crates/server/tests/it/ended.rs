//! What a client is told of a sandbox that failed, ended or is gone.

use axum::body::Body;
use futures_util::StreamExt as _;
use http_body_util::BodyExt as _;
use lifecycle::backend::Exit;
use lifecycle::fake::{Call, Fault, Gate};
use serde_json::{Value, json};

use crate::support::{DEADLINE, Server, request_for, start};

/// The entries of the audit trail, from the oldest on, as soon as there are so many.
async fn audited(server: &Server, count: usize) -> Vec<Value> {
    loop {
        let page = server.get("/v1/audit-events").await.expect(200).json();
        let mut items = page["items"].as_array().unwrap().clone();
        if items.len() >= count {
            items.reverse();
            return items;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_creation_that_fails_is_answered_with_its_reason_and_recorded_as_failed() {
    let server = start().await;
    let answer = server.post("/v1/sandboxes", request_for("nowhere")).await;
    let answer = answer.refused(400, "DOCKER::SANDBOX_IMAGE_PULL_FAILED");
    assert!(answer.text.contains("nowhere"), "{answer:?}");
    // What follows is recorded behind the failure.
    server.sandbox().await;
    let entries = audited(&server, 2).await;
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert_eq!(entries[0]["outcome"], "failure", "{entries:?}");
    assert!(entries[0]["resource"].is_string(), "{entries:?}");
    let message = entries[0]["message"].as_str().unwrap();
    assert!(message.contains("nowhere"), "{message}");
}

#[tokio::test]
async fn endpoints_and_the_proxy_say_why_a_sandbox_cannot_be_used() {
    let server = start().await;
    let (gate, reached, open) = Gate::new();
    server.backend.fail_next(Call::Pull, Fault::Wait(gate));
    let made = server.post("/v1/sandboxes", request_for("nowhere")).await;
    let id = made.expect(202).json()["id"].as_str().unwrap().to_owned();
    reached.await.unwrap();
    open.send(()).unwrap();
    let path = format!("/v1/sandboxes/{id}/endpoints/44772");
    let refused = server.get(&path).await;
    let refused = refused.refused(409, "DOCKER::SANDBOX_NOT_RUNNING");
    assert!(refused.text.contains("nowhere"), "{refused:?}");

    let paused = server.sandbox().await;
    let request = server.inside("GET", &paused, 44772, "/ping").await;
    server
        .post(&format!("/v1/sandboxes/{paused}/pause"), json!({}))
        .await
        .expect(202);
    let path = format!("/v1/sandboxes/{paused}/endpoints/44772");
    let refused = server.get(&path).await.refused(409, "SANDBOX_PAUSED");
    assert!(refused.text.contains("resume"), "{refused:?}");
    let refused = server.call(request.body(Body::empty()).unwrap()).await;
    refused.refused(409, "SANDBOX_PAUSED");
}

#[tokio::test]
async fn the_reason_and_the_output_of_a_sandbox_that_is_gone_can_be_read() {
    let server = start().await;
    let id = server.sandbox().await;
    server.backend.log(&id, "the last words\n");
    let exit = Exit {
        code: Some(3),
        signal: None,
        oom_killed: false,
        at: None,
    };
    let mut events = server.running.service.subscribe(None).await.unwrap();
    server.backend.exit(&id, exit);
    tokio::time::timeout(DEADLINE, events.next())
        .await
        .expect("its end is told");
    let path = format!("/v1/sandboxes/{id}");
    server.delete(&path).await.expect(204);
    let gone = server.get(&path).await;
    let gone = gone.refused(404, "DOCKER::SANDBOX_NOT_FOUND");
    assert!(gone.text.contains("exit code 3"), "{gone:?}");
    let text = |part: &str| format!("{path}/diagnostics/{part}");
    let logs = server.get(&text("logs")).await.expect(200);
    assert_eq!(logs.text, "the last words\n");
    let inspected = server.get(&text("inspect")).await.expect(200).text;
    assert!(inspected.contains("exit code 3"), "{inspected}");
    let summary = server.get(&text("summary")).await.expect(200).text;
    assert!(summary.contains("the last words"), "{summary}");
    let followed = server.get(&format!("{path}/logs")).await.expect(200).text;
    assert!(followed.contains("the last words"), "{followed}");
    assert!(followed.contains("event: end"), "{followed}");
}

#[tokio::test]
async fn a_renewal_tells_the_new_expiry() {
    let server = start().await;
    let id = server.sandbox().await;
    let request = server.request("GET", &format!("/v1/events?after=0&sandboxId={id}"));
    let mut frames = server
        .send(request.body(Body::empty()).unwrap())
        .await
        .into_body()
        .into_data_stream();
    let until = "2099-01-01T00:00:00Z";
    let path = format!("/v1/sandboxes/{id}/renew-expiration");
    server
        .post(&path, json!({"expiresAt": until}))
        .await
        .expect(200);
    let mut said = String::new();
    while !said.contains("event: sandbox.renewed") || !said.ends_with("\n\n") {
        let frame = tokio::time::timeout(DEADLINE, frames.next()).await;
        said.push_str(&String::from_utf8_lossy(
            &frame.expect("the renewal is told").unwrap().unwrap(),
        ));
    }
    let renewed = said.split("\n\n").find(|it| it.contains("sandbox.renewed"));
    assert!(renewed.unwrap().contains(until), "{said}");
}
