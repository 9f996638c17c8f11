//! The contract's routes: statuses, shapes and codes as the published clients need them.

use lifecycle::backend::{Backend as _, Capabilities};
use lifecycle::fake::{Call, Fault, Gate};
use serde_json::{Value, json};

use crate::support::{request_for, start, start_with};

#[tokio::test]
async fn a_name_belongs_to_one_sandbox() {
    let server = start().await;
    let mut body = request_for("local");
    body["metadata"] = json!({"osb/name": "web"});
    let made = server.post("/v1/sandboxes", body.clone()).await.expect(202);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let found = server.get("/v1/sandboxes?metadata=osb%2Fname%3Dweb").await;
    assert_eq!(found.json()["items"][0]["id"], id);
    server
        .post("/v1/sandboxes", body.clone())
        .await
        .refused(409, "SANDBOX::NAME_TAKEN");
    let other = server.post("/v1/sandboxes", request_for("local")).await;
    let path = format!(
        "/v1/sandboxes/{}/metadata",
        other.json()["id"].as_str().unwrap()
    );
    server
        .body("PATCH", &path, json!({"osb/name": "web"}))
        .await
        .refused(409, "SANDBOX::NAME_TAKEN");
    server
        .delete(&format!("/v1/sandboxes/{id}"))
        .await
        .expect(204);
    server.post("/v1/sandboxes", body).await.expect(202);
}

#[tokio::test]
async fn a_sandbox_is_made_read_listed_changed_and_ended() {
    let server = start().await;
    for prefix in ["", "/v1"] {
        let mut body = request_for("local");
        body["metadata"] = json!({"team": "a"});
        body["extensions"] = json!({"opensandbox.extensions.x": "1", "other": "2"});
        let made = server
            .post(&format!("{prefix}/sandboxes"), body)
            .await
            .expect(202);
        let location = made.header("location").to_owned();
        assert!(!made.header("x-request-id").is_empty());
        let made = made.json();
        let id = made["id"].as_str().unwrap();
        assert_eq!(location, format!("/v1/sandboxes/{id}"));
        assert_eq!(made["status"]["state"], "Running");
        assert_eq!(made["status"]["reason"], "CONTAINER_RUNNING");
        assert_eq!(made["metadata"], json!({"team": "a"}));
        assert_eq!(made["extensions"], json!({"opensandbox.extensions.x": "1"}));
        assert_eq!(made["entrypoint"], json!(["tail", "-f", "/dev/null"]));
        assert!(made["expiresAt"].as_str().unwrap() > made["createdAt"].as_str().unwrap());

        let path = format!("{prefix}/sandboxes/{id}");
        let read = server.get(&path).await.expect(200).json();
        assert_eq!(read["image"], json!({"uri": "local"}));
        assert!(!has_null(&read), "{read}");
        let listed = server
            .get(&format!("{prefix}/sandboxes?state=running"))
            .await
            .expect(200);
        assert_eq!(listed.json()["items"][0]["id"], id);
        assert_eq!(
            listed.json()["pagination"],
            json!({"page": 1, "pageSize": 20, "totalItems": 1, "totalPages": 1, "hasNextPage": false})
        );

        let patch = json!({"team": null, "step": "2"});
        let patched = server
            .body("PATCH", &format!("{path}/metadata"), patch)
            .await
            .expect(200);
        assert_eq!(patched.json()["metadata"], json!({"step": "2"}));
        server
            .post(&format!("{path}/pause"), json!({}))
            .await
            .expect(202);
        assert_eq!(server.get(&path).await.json()["status"]["state"], "Paused");
        server
            .post(&format!("{path}/resume"), json!({}))
            .await
            .expect(202);
        let renew = json!({"expiresAt": "2099-01-02T03:04:05Z"});
        let renewed = server
            .post(&format!("{path}/renew-expiration"), renew)
            .await
            .expect(200);
        assert_eq!(renewed.json(), json!({"expiresAt": "2099-01-02T03:04:05Z"}));

        assert_eq!(server.delete(&path).await.expect(204).text, "");
        server
            .get(&path)
            .await
            .refused(404, "DOCKER::SANDBOX_NOT_FOUND");
        server
            .delete(&path)
            .await
            .refused(404, "DOCKER::SANDBOX_NOT_FOUND");
    }
    assert!(server.backend.sandboxes().is_empty());
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        _ => false,
    }
}

#[tokio::test]
async fn an_invalid_request_is_answered_in_both_shapes_with_every_problem() {
    let server = start().await;
    let body = json!({"image": {"uri": "local"}, "timeout": 5, "metadata": {"bad key": "x"}});
    let answer = server.post("/v1/sandboxes", body).await.expect(422).json();
    assert_eq!(answer["code"], "VALIDATION_FAILED");
    assert!(
        answer["message"].as_str().unwrap().contains("timeout"),
        "{answer}"
    );
    assert_eq!(answer["detail"][0]["loc"], json!(["body", "timeout"]));
    assert_eq!(answer["detail"].as_array().unwrap().len(), 2, "{answer}");

    for (body, status, code) in [
        (json!([]), 422, "VALIDATION_FAILED"),
        (json!({"image": 7}), 422, "VALIDATION_FAILED"),
        (json!({}), 422, "VALIDATION_FAILED"),
        (
            json!({"image": {"uri": "local"}, "resourceLimits": {"cpu": "lots"}}),
            400,
            "SANDBOX::INVALID_PARAMETER",
        ),
        (
            json!({"image": {"uri": "local"}, "metadata": {"opensandbox.io/x": "y"}}),
            400,
            "SANDBOX::INVALID_METADATA_LABEL",
        ),
        (
            json!({"image": {"uri": "missing"}}),
            400,
            "DOCKER::SANDBOX_IMAGE_PULL_FAILED",
        ),
        (json!({"snapshotId": "nope"}), 404, "SNAPSHOT::NOT_FOUND"),
    ] {
        let answer = server.post("/v1/sandboxes", body.clone()).await;
        if answer.status == 202 {
            continue;
        }
        answer.refused(status, code);
    }
    let request = server
        .request("POST", "/sandboxes")
        .body("{".into())
        .unwrap();
    server.call(request).await.refused(422, "VALIDATION_FAILED");
    server
        .get("/sandboxes?pageSize=201")
        .await
        .refused(422, "VALIDATION_FAILED");
    server
        .get("/sandboxes?metadata=x")
        .await
        .refused(400, "INVALID_METADATA_FORMAT");
    let large = json!({"image": {"uri": "local"}, "metadata": {"a": "x".repeat(2 << 20)}});
    server
        .post("/sandboxes", large)
        .await
        .refused(413, "BODY_TOO_LARGE");
}

#[tokio::test]
async fn what_would_not_be_honoured_is_refused() {
    let server = start_with(|config| {
        config.server.max_sandbox_timeout_seconds = Some(3600);
        config.renew_intent.enabled = false;
        config.storage.allowed_host_paths = vec!["/data".into()];
    })
    .await;
    let all = server.backend.capabilities();
    // As the backends that are.
    server.backend.set_capabilities(Capabilities {
        network_rules: false,
        ..all
    });
    let with = |field: &str, value: Value| {
        let mut body = request_for("local");
        body[field] = value;
        body
    };
    let rules =
        json!({"defaultAction": "deny", "egress": [{"action": "allow", "target": "a.example"}]});
    let host = |path: &str| json!([{"name": "v", "mountPath": "/v", "host": {"path": path}}]);
    let ossfs = json!([{"name": "v", "mountPath": "/v", "ossfs": {"bucket": "abc", "endpoint": "e",
        "accessKeyId": "i", "accessKeySecret": "s"}}]);
    for (field, value, status, code) in [
        (
            "networkPolicy",
            rules.clone(),
            400,
            "SANDBOX::API_NOT_SUPPORTED",
        ),
        (
            "lifecycle",
            json!({"preStart": {"command": ["x"]}}),
            400,
            "SANDBOX::API_NOT_SUPPORTED",
        ),
        (
            "resourceRequests",
            json!({"cpu": "1"}),
            400,
            "SANDBOX::API_NOT_SUPPORTED",
        ),
        (
            "extensions",
            json!({"poolRef": "p"}),
            400,
            "SANDBOX::UNSUPPORTED_POOL_REF",
        ),
        (
            "extensions",
            json!({"access.renew.extend.seconds": "300"}),
            400,
            "SANDBOX::API_NOT_SUPPORTED",
        ),
        ("timeout", json!(3601), 400, "SANDBOX::INVALID_PARAMETER"),
        (
            "volumes",
            host("/etc"),
            400,
            "VOLUME::HOST_PATH_NOT_ALLOWED",
        ),
        (
            "volumes",
            host("/database"),
            400,
            "VOLUME::HOST_PATH_NOT_ALLOWED",
        ),
        ("volumes", ossfs, 400, "VOLUME::UNSUPPORTED_BACKEND"),
    ] {
        let answer = server
            .post("/v1/sandboxes", with(field, value.clone()))
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (status, code),
            "{field} {value}"
        );
    }
    let template = json!({"templateId": "tpl-1", "timeout": 60});
    server
        .post("/v1/sandboxes", template)
        .await
        .refused(501, "FSB::API_NOT_SUPPORTED");
    assert!(server.backend.sandboxes().is_empty());

    server.backend.set_capabilities(all);
    let enforced = with("networkPolicy", rules);
    server.post("/v1/sandboxes", enforced).await.expect(202);
    // These ask for something that can be kept without a policy engine.
    for (field, value) in [
        (
            "networkPolicy",
            json!({"defaultAction": "deny", "egress": []}),
        ),
        (
            "networkPolicy",
            json!({"defaultAction": "allow", "egress": []}),
        ),
        ("secureAccess", json!(true)),
        ("volumes", host("/data/x")),
    ] {
        server
            .post("/v1/sandboxes", with(field, value))
            .await
            .expect(202);
    }
}

#[tokio::test]
async fn operations_in_the_wrong_state_answer_the_documented_conflict() {
    let server = start().await;
    let id = server.sandbox().await;
    let path = format!("/v1/sandboxes/{id}");
    server
        .post(&format!("{path}/resume"), json!({}))
        .await
        .refused(409, "DOCKER::SANDBOX_NOT_PAUSED");
    server
        .post(&format!("{path}/pause"), json!({}))
        .await
        .expect(202);
    server
        .post(&format!("{path}/pause"), json!({}))
        .await
        .refused(409, "DOCKER::SANDBOX_NOT_RUNNING");
    let past = json!({"expiresAt": "2001-01-01T00:00:00Z"});
    server
        .post(&format!("{path}/renew-expiration"), past)
        .await
        .refused(400, "DOCKER::INVALID_EXPIRATION");

    let mut manual = request_for("local");
    manual["timeout"] = Value::Null;
    let made = server
        .post("/v1/sandboxes", manual)
        .await
        .expect(202)
        .json();
    assert!(made.get("expiresAt").is_none(), "{made}");
    let renew = format!(
        "/v1/sandboxes/{}/renew-expiration",
        made["id"].as_str().unwrap()
    );
    let later = json!({"expiresAt": "2099-01-01T00:00:00Z"});
    server
        .post(&renew, later)
        .await
        .refused(409, "DOCKER::INVALID_EXPIRATION");

    for (method, path) in [
        ("GET", "/v1/sandboxes/nope"),
        ("POST", "/v1/sandboxes/nope/pause"),
        ("POST", "/v1/sandboxes/nope/resume"),
        ("GET", "/v1/sandboxes/nope/endpoints/80"),
        ("POST", "/v1/sandboxes/nope/snapshots"),
        ("GET", "/v1/sandboxes/nope/networkpolicy"),
        ("GET", "/v1/sandboxes/nope/diagnostics/logs"),
        ("GET", "/v1/sandboxes/no%20id"),
    ] {
        let request = server
            .request(method, path)
            .body(axum::body::Body::empty())
            .unwrap();
        server
            .call(request)
            .await
            .refused(404, "DOCKER::SANDBOX_NOT_FOUND");
    }
}

#[tokio::test]
async fn a_create_can_be_repeated_with_its_key() {
    let server = start().await;
    let send = async |key: &str, image: &str| {
        let request = server
            .request("POST", "/v1/sandboxes")
            .header("idempotency-key", key);
        server
            .call(request.body(request_for(image).to_string().into()).unwrap())
            .await
    };
    let first = send("k1", "local").await.expect(202).json();
    let again = send("k1", "local").await.expect(202).json();
    assert_eq!(first["id"], again["id"]);
    assert_eq!(server.backend.calls(Call::Create), 1);
    send("k1", "remote")
        .await
        .refused(409, "IDEMPOTENCY_KEY_REUSED");
    send("", "local").await.refused(422, "VALIDATION_FAILED");
    assert_ne!(
        send("k2", "local").await.expect(202).json()["id"],
        first["id"]
    );
}

#[tokio::test]
async fn a_sandbox_whose_image_is_pulled_is_pending_and_its_endpoint_waits() {
    let server = start().await;
    let (gate, reached, open) = Gate::new();
    server.backend.fail_next(Call::Pull, Fault::Wait(gate));
    let made = server
        .post("/v1/sandboxes", request_for("remote"))
        .await
        .expect(202)
        .json();
    assert_eq!(made["status"]["state"], "Pending", "{made}");
    let id = made["id"].as_str().unwrap().to_owned();
    reached.await.unwrap();
    let path = format!("/v1/sandboxes/{id}/endpoints/44772");
    let endpoint = server.get(&path);
    let mut endpoint = std::pin::pin!(endpoint);
    tokio::select! {
        biased;
        answer = &mut endpoint => panic!("it must wait: {answer:?}"),
        listed = server.get("/v1/sandboxes?state=Pending") => {
            assert_eq!(listed.json()["items"][0]["id"], id);
        }
    }
    open.send(()).unwrap();
    endpoint.await.expect(200);
    let read = server.get(&format!("/v1/sandboxes/{id}")).await.json();
    assert_eq!(read["status"]["state"], "Running");
}

#[tokio::test]
async fn secure_access_has_its_header_in_endpoints_and_it_lets_in() {
    let server = start().await;
    let mut request = request_for("local");
    request["secureAccess"] = json!(true);
    let made = server.post("/v1/sandboxes", request).await.expect(202);
    let id = made.json()["id"].as_str().unwrap().parse().unwrap();
    let (path, headers) = server.endpoint(&id, 44772).await;
    let name = "OpenSandbox-Secure-Access";
    let request = server.request("GET", &format!("{path}/ping"));
    let request = request.header(name, &headers[name]);
    server
        .call(request.body(axum::body::Body::empty()).unwrap())
        .await
        .expect(200);
    let plain = server.sandbox().await;
    assert!(!server.endpoint(&plain, 44772).await.1.contains_key(name));
}

#[tokio::test]
async fn endpoints_lead_through_the_proxy_with_the_token() {
    let server = start().await;
    let id = server.sandbox().await;
    let host = server.address();
    for (path, endpoint) in [
        ("/v1", format!("{host}/v1/sandboxes/{id}/proxy/44772")),
        ("", format!("{host}/sandboxes/{id}/proxy/44772")),
    ] {
        let answer = server
            .get(&format!("{path}/sandboxes/{id}/endpoints/44772"))
            .await
            .expect(200);
        assert_eq!(answer.json()["endpoint"], endpoint);
        let token = answer.json()["headers"]["X-EXECD-ACCESS-TOKEN"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(token.len() >= 32, "{token}");
    }
    let path = format!("/v1/sandboxes/{id}/endpoints");
    // The published clients ask for this port of every sandbox and give up if it fails.
    server.get(&format!("{path}/18080")).await.expect(200);
    server
        .get(&format!("{path}/80?use_server_proxy=true"))
        .await
        .expect(200);
    server
        .get(&format!("{path}/80?expires=99999999999"))
        .await
        .refused(400, "SANDBOX::API_NOT_SUPPORTED");
    server
        .get(&format!("{path}/0"))
        .await
        .refused(400, "DOCKER::INVALID_PORT");
    server
        .get(&format!("{path}/65536"))
        .await
        .refused(400, "DOCKER::INVALID_PORT");
    server
        .get(&format!("{path}/http"))
        .await
        .refused(422, "VALIDATION_FAILED");

    let server =
        start_with(|config| config.server.eip = Some("https://sandbox.example".into())).await;
    let id = server.sandbox().await;
    let answer = server
        .get(&format!("/v1/sandboxes/{id}/endpoints/80"))
        .await
        .expect(200);
    assert_eq!(
        answer.json()["endpoint"],
        format!("sandbox.example/v1/sandboxes/{id}/proxy/80")
    );
}

#[tokio::test]
async fn a_snapshot_is_made_found_used_and_removed() {
    let server = start().await;
    let id = server.sandbox().await;
    let made = server
        .post(
            &format!("/v1/sandboxes/{id}/snapshots"),
            json!({"name": "one"}),
        )
        .await
        .expect(202);
    let snapshot = made.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(made.header("location"), format!("/v1/snapshots/{snapshot}"));
    assert_eq!(made.json()["sandboxId"], id.as_str());
    let path = format!("/v1/snapshots/{snapshot}");
    let mut events = server.running.service.subscribe(Some(0)).await.unwrap();
    while server.get(&path).await.expect(200).json()["status"]["state"] != "Ready" {
        let _ = tokio::time::timeout(crate::support::DEADLINE, events.next())
            .await
            .unwrap();
    }
    for (query, count) in [
        (format!("sandboxId={id}"), 1),
        ("name=one&state=Ready".to_owned(), 1),
        ("name=two".to_owned(), 0),
        ("state=ready".to_owned(), 0),
        ("sandboxId=not%20an%20id".to_owned(), 0),
    ] {
        let listed = server
            .get(&format!("/v1/snapshots?{query}"))
            .await
            .expect(200)
            .json();
        assert_eq!(listed["items"].as_array().unwrap().len(), count, "{query}");
    }
    let restored = server
        .post(
            "/v1/sandboxes",
            json!({"snapshotId": snapshot, "timeout": 60}),
        )
        .await
        .expect(202);
    let restored = restored.json()["id"].as_str().unwrap().to_owned();
    let read = server
        .get(&format!("/v1/sandboxes/{restored}"))
        .await
        .json();
    assert_eq!(read["snapshotId"], snapshot.as_str());
    assert!(read.get("image").is_none());
    server
        .delete(&path)
        .await
        .refused(409, "SNAPSHOT::DELETE_CONFLICT");
    server
        .delete(&format!("/v1/sandboxes/{restored}"))
        .await
        .expect(204);
    server.delete(&path).await.expect(204);
    server.get(&path).await.refused(404, "SNAPSHOT::NOT_FOUND");
    server
        .post(
            &format!("/v1/sandboxes/{id}/snapshots"),
            json!({"name": ""}),
        )
        .await
        .refused(422, "VALIDATION_FAILED");
}

#[tokio::test]
async fn what_no_backend_has_is_answered_as_the_published_server_does() {
    let server = start().await;
    for (method, path, code) in [
        (
            "GET",
            "/v1/pools".to_owned(),
            "KUBERNETES::POOL_NOT_SUPPORTED",
        ),
        (
            "POST",
            "/pools".to_owned(),
            "KUBERNETES::POOL_NOT_SUPPORTED",
        ),
        (
            "PUT",
            "/v1/pools/x".to_owned(),
            "KUBERNETES::POOL_NOT_SUPPORTED",
        ),
        (
            "DELETE",
            "/v1/pools/x".to_owned(),
            "KUBERNETES::POOL_NOT_SUPPORTED",
        ),
        ("GET", "/v1/templates".to_owned(), "FSB::API_NOT_SUPPORTED"),
        (
            "DELETE",
            "/templates/x".to_owned(),
            "FSB::API_NOT_SUPPORTED",
        ),
    ] {
        server
            .body(method, &path, json!({}))
            .await
            .refused(501, code);
    }
}
