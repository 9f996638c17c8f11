//! Tenants and keys while the server runs: made, used, rotated and revoked, and what belongs to whom.

use axum::body::Body;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use lifecycle::fake;
use serde_json::{Value, json};
use server::config::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::raw::Raw;
use crate::support::{Answer, DEADLINE, Server, request_for, start, start_on, start_with};

const ROOT: &str = "root-key";

async fn keyed() -> Server {
    start_with(|config| config.server.api_key = Some(ROOT.to_owned().into())).await
}

async fn call(server: &Server, key: &str, method: &str, path: &str, body: Value) -> Answer {
    let request = server.request(method, path);
    let request = request.header("open-sandbox-api-key", key);
    let request = request.header("content-type", "application/json");
    let body = match body {
        Value::Null => Body::empty(),
        body => Body::from(body.to_string()),
    };
    server.call(request.body(body).unwrap()).await
}

async fn get(server: &Server, key: &str, path: &str) -> Answer {
    call(server, key, "GET", path, Value::Null).await
}

async fn tenant(server: &Server, name: &str) -> String {
    let body = json!({"name": name});
    call(server, ROOT, "POST", "/v1/tenants", body)
        .await
        .expect(201);
    key(
        server,
        json!({"name": "admin", "role": "admin", "tenant": name}),
    )
    .await
    .0
}

/// A new key, and its id.
async fn key(server: &Server, body: Value) -> (String, String) {
    let made = call(server, ROOT, "POST", "/v1/keys", body)
        .await
        .expect(201)
        .json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&made["value"]), text(&made["key"]["id"]))
}

fn named(name: &str) -> Value {
    let mut body = request_for("local");
    body["metadata"] = json!({"osb/name": name});
    body
}

#[tokio::test]
async fn tenants_share_neither_names_nor_volumes_nor_events_nor_audit() {
    let server = keyed().await;
    let keys = [
        tenant(&server, "acme").await,
        tenant(&server, "beta").await,
        ROOT.to_owned(),
    ];
    let mut ids = Vec::new();
    for key in &keys {
        let made = call(&server, key, "POST", "/v1/sandboxes", named("web")).await;
        ids.push(made.expect(202).json()["id"].as_str().unwrap().to_owned());
        let again = call(&server, key, "POST", "/v1/sandboxes", named("web")).await;
        again.refused(409, "SANDBOX::NAME_TAKEN");
        let body = json!({"name": "data"});
        call(&server, key, "POST", "/v1/volumes", body)
            .await
            .expect(201);
    }
    for (key, id) in keys.iter().zip(&ids) {
        let listed = get(&server, key, "/v1/sandboxes").await.expect(200);
        assert_eq!(listed.json()["pagination"]["totalItems"], 1);
        let volumes = get(&server, key, "/v1/volumes").await.expect(200).json();
        assert_eq!(volumes["items"].as_array().unwrap().len(), 1);
        assert_eq!(volumes["items"][0]["name"], "data");
        let audit = get(&server, key, "/v1/audit-events").await.expect(200).text;
        for other in &ids {
            assert_eq!(audit.contains(other.as_str()), other == id, "{audit}");
        }
    }
    // What is mounted under one name is another volume for each.
    let mut body = request_for("local");
    body["volumes"] = json!([{"name": "v", "pvc": {"claimName": "data"}, "mountPath": "/data"}]);
    call(&server, &keys[0], "POST", "/v1/sandboxes", body)
        .await
        .expect(202);
    let used = get(&server, &keys[0], "/v1/volumes").await.json();
    assert_eq!(used["items"][0]["users"].as_array().unwrap().len(), 1);
    let used = get(&server, &keys[1], "/v1/volumes").await.json();
    assert!(used["items"][0]["users"].as_array().unwrap().is_empty());
    let other = call(
        &server,
        ROOT,
        "POST",
        "/v1/volumes",
        json!({"name": "osb-tenant.acme.data"}),
    );
    other.await.expect(400);
    // Of all that happened each stream tells its tenant's part.
    for (key, id) in keys.iter().zip(&ids) {
        let mut events = open(&server, key, "/v1/events?after=0").await;
        let seen = until(&mut events, id).await;
        for other in ids.iter().filter(|other| *other != id) {
            assert!(!seen.contains(other.as_str()), "{seen}");
        }
    }
}

async fn open(server: &Server, key: &str, path: &str) -> hyper::body::Incoming {
    let request = server
        .request("GET", path)
        .header("open-sandbox-api-key", key);
    let response = server.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), 200);
    response.into_body()
}

/// What a stream says up to where it names something.
async fn until(stream: &mut hyper::body::Incoming, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let frame = tokio::time::timeout(DEADLINE, stream.frame()).await;
        let frame = frame.expect("in time").expect("it goes on").unwrap();
        text += &String::from_utf8_lossy(frame.data_ref().unwrap());
    }
    text
}

/// Waits for a stream to break off.
async fn broken(mut stream: hyper::body::Incoming) {
    let read = async { while let Some(Ok(_)) = stream.frame().await {} };
    tokio::time::timeout(DEADLINE, read)
        .await
        .expect("it ends by itself");
}

#[tokio::test]
async fn what_is_open_with_a_key_ends_with_it() {
    let server = keyed().await;
    let (value, id) = key(&server, json!({"name": "ci", "role": "user"})).await;
    let made = call(
        &server,
        &value,
        "POST",
        "/v1/sandboxes",
        request_for("local"),
    )
    .await;
    let sandbox: api::id::SandboxId = made.json()["id"].as_str().unwrap().parse().unwrap();
    server.backend.listen(&sandbox, 6080);
    let token = call(
        &server,
        &value,
        "POST",
        "/v1/tokens",
        json!({"sandboxId": sandbox}),
    )
    .await;
    let token = token.expect(201).json()["value"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut streams = Vec::new();
    let mut tunnels = Vec::new();
    for key in [&value, &token] {
        streams.push(open(&server, key, "/v1/events").await);
        let logs = format!("/v1/sandboxes/{sandbox}/logs");
        streams.push(open(&server, key, &logs).await);
        let path = format!("/v1/sandboxes/{sandbox}/proxy/6080/socket");
        let request = server
            .request("GET", &path)
            .header("open-sandbox-api-key", key)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket");
        let mut response = server.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 101);
        let mut tunnel = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
        tunnel.write_all(b"ping").await.unwrap();
        tunnel.read_exact(&mut [0; 4]).await.unwrap();
        tunnels.push(tunnel);
    }
    let path = format!("/v1/keys/{id}");
    call(&server, ROOT, "DELETE", &path, Value::Null)
        .await
        .expect(204);
    for stream in streams {
        broken(stream).await;
    }
    for mut tunnel in tunnels {
        let ended = tokio::time::timeout(DEADLINE, tunnel.read_to_end(&mut Vec::new())).await;
        let _ = ended.expect("the tunnel ends by itself");
    }
    for key in [&value, &token] {
        get(&server, key, "/v1/sandboxes")
            .await
            .refused(401, "INVALID_API_KEY");
    }
    // The sandbox lives on: it belongs to the tenant.
    get(&server, ROOT, &format!("/v1/sandboxes/{sandbox}"))
        .await
        .expect(200);
}

#[tokio::test]
async fn a_rotated_key_is_good_by_its_new_value_and_by_the_old_one_for_a_while() {
    let server = keyed().await;
    let (old, id) = key(&server, json!({"name": "ci", "role": "user"})).await;
    let token = call(&server, &old, "POST", "/v1/tokens", Value::Null).await;
    let token = token.expect(201).json()["value"]
        .as_str()
        .unwrap()
        .to_owned();
    let events = open(&server, &old, "/v1/events").await;
    let path = format!("/v1/keys/{id}/rotate");
    let body = json!({"graceSeconds": 3600});
    let rotated = call(&server, ROOT, "POST", &path, body)
        .await
        .expect(200)
        .json();
    let new = rotated["value"].as_str().unwrap();
    broken(events).await;
    for key in [old.as_str(), new, &token] {
        get(&server, key, "/v1/sandboxes").await.expect(200);
    }
    let rotated = call(&server, ROOT, "POST", &path, Value::Null)
        .await
        .expect(200)
        .json();
    let newest = rotated["value"].as_str().unwrap();
    get(&server, newest, "/v1/sandboxes").await.expect(200);
    for key in [old.as_str(), new, &token] {
        get(&server, key, "/v1/sandboxes")
            .await
            .refused(401, "INVALID_API_KEY");
    }
    let body = json!({"graceSeconds": 10_000_000});
    call(&server, ROOT, "POST", &path, body).await.expect(400);
}

#[tokio::test]
async fn keys_are_kept_and_their_last_use_is_told() {
    let (backend, store) = (fake::Backend::new(), fake::Store::new());
    let configured = |config: &mut Config| config.server.api_key = Some(ROOT.to_owned().into());
    let server = start_on(backend.clone(), store.clone(), configured).await;
    let admin = tenant(&server, "acme").await;
    let list = async |server: &Server, key: &str| {
        get(server, key, "/v1/keys").await.expect(200).json()["items"].clone()
    };
    let before = list(&server, ROOT).await;
    assert_eq!(
        before[0]["isConfigured"], false,
        "acme's come before default's"
    );
    assert!(before[0].get("lastUsedAt").is_none());
    let own = list(&server, &admin).await;
    assert_eq!(
        own.as_array().unwrap().len(),
        1,
        "administrators see their tenant's"
    );
    assert!(list(&server, ROOT).await[0].get("lastUsedAt").is_some());
    let text = get(&server, ROOT, "/v1/keys").await.text;
    assert!(
        !text.contains(&admin) && !text.contains(&hex::encode(lifecycle::hash(admin.as_bytes())))
    );
    server.running.stop(DEADLINE).await;
    let server = start_on(backend, store, configured).await;
    assert!(
        list(&server, ROOT).await[0].get("lastUsedAt").is_some(),
        "the use was kept"
    );
    get(&server, &admin, "/v1/sandboxes").await.expect(200);
}

#[tokio::test]
async fn the_first_key_of_an_open_server_is_an_administrators_and_the_last_one_stays() {
    let server = start().await;
    let body = json!({"name": "ci", "role": "user"});
    server
        .post("/v1/keys", body)
        .await
        .refused(409, "KEY::CONFLICT");
    server
        .post("/v1/tokens", json!({}))
        .await
        .refused(403, "FORBIDDEN");
    let body = json!({"name": "root", "role": "admin"});
    let made = server
        .post("/v1/keys", body.clone())
        .await
        .expect(201)
        .json();
    let (root, id) = (
        made["value"].as_str().unwrap(),
        made["key"]["id"].as_str().unwrap(),
    );
    server
        .get("/v1/sandboxes")
        .await
        .refused(401, "MISSING_API_KEY");
    get(&server, root, "/v1/sandboxes").await.expect(200);
    let again = call(&server, root, "POST", "/v1/keys", body).await;
    again.refused(409, "KEY::CONFLICT");
    let path = format!("/v1/keys/{id}");
    let last = call(&server, root, "DELETE", &path, Value::Null).await;
    last.refused(409, "KEY::CONFLICT");
    server
        .get("/v1/sandboxes")
        .await
        .refused(401, "MISSING_API_KEY");
}

#[tokio::test]
async fn a_key_makes_no_key_and_no_token_that_may_do_more() {
    let server = keyed().await;
    let admin = tenant(&server, "acme").await;
    for tenant in ["default", "beta"] {
        let body = json!({"name": "x", "role": "viewer", "tenant": tenant});
        let refused = call(&server, &admin, "POST", "/v1/keys", body).await;
        refused.refused(404, "TENANT::NOT_FOUND");
    }
    let body = json!({"name": "x", "role": "admin", "actions": ["read"]});
    let reader = key(&server, body).await.0;
    let refused = call(
        &server,
        &reader,
        "POST",
        "/v1/tokens",
        json!({"actions": ["change"]}),
    )
    .await;
    refused.refused(403, "FORBIDDEN");
    let body = json!({"name": "y", "role": "admin", "tenant": "acme"});
    call(&server, &reader, "POST", "/v1/keys", body)
        .await
        .refused(403, "FORBIDDEN");
    let token = call(
        &server,
        &reader,
        "POST",
        "/v1/tokens",
        json!({"ttlSeconds": 60}),
    )
    .await;
    let token = token.expect(201).json()["value"]
        .as_str()
        .unwrap()
        .to_owned();
    let made = call(
        &server,
        &token,
        "POST",
        "/v1/sandboxes",
        request_for("local"),
    )
    .await;
    made.refused(403, "FORBIDDEN");
    let made = call(&server, &token, "POST", "/v1/tokens", Value::Null).await;
    made.refused(403, "FORBIDDEN");
    for bad in [json!({"ttlSeconds": 0}), json!({"ttlSeconds": 1_000_000})] {
        call(&server, ROOT, "POST", "/v1/tokens", bad)
            .await
            .expect(400);
    }
    for bad in [
        json!({"name": "", "role": "user"}),
        json!({"name": "a b", "role": "user"}),
    ] {
        call(&server, ROOT, "POST", "/v1/keys", bad)
            .await
            .expect(400);
    }
    let over = json!({"name": "over", "role": "user", "expiresAt": "2001-01-01T00:00:00Z"});
    call(&server, ROOT, "POST", "/v1/keys", over)
        .await
        .expect(400);
    let unknown = json!({"name": "z", "role": "user", "image": ["x"]});
    call(&server, ROOT, "POST", "/v1/keys", unknown)
        .await
        .expect(422);
}

#[tokio::test]
async fn a_narrow_or_short_key_makes_and_takes_no_wider_one() {
    let server = keyed().await;
    let soon = "2100-01-01T00:00:00Z";
    let narrow = [
        json!({"name": "keys", "role": "admin", "actions": ["keys", "read"]}),
        json!({"name": "images", "role": "admin", "images": ["python*"]}),
        json!({"name": "short", "role": "admin", "expiresAt": soon}),
    ];
    let (_, other) = key(&server, json!({"name": "other", "role": "admin"})).await;
    let rotate = format!("/v1/keys/{other}/rotate");
    let wide = json!({"name": "wide", "role": "admin"});
    for body in narrow {
        let (narrow, _) = key(&server, body).await;
        let made = call(&server, &narrow, "POST", "/v1/keys", wide.clone()).await;
        made.refused(403, "FORBIDDEN");
        let taken = call(&server, &narrow, "POST", &rotate, json!({})).await;
        taken.refused(403, "FORBIDDEN");
    }
    let token = call(&server, ROOT, "POST", "/v1/tokens", json!({})).await;
    let token = token.expect(201).json()["value"]
        .as_str()
        .unwrap()
        .to_owned();
    let made = call(&server, &token, "POST", "/v1/keys", wide).await;
    made.refused(403, "FORBIDDEN");
    for name in ["system", "anonymous", "egress-token"] {
        let body = json!({"name": name, "role": "viewer"});
        let refused = call(&server, ROOT, "POST", "/v1/keys", body).await;
        refused.expect(400);
    }
}

#[tokio::test]
async fn a_key_that_ends_while_its_request_is_coming_makes_no_other() {
    let server = keyed().await;
    let (value, id) = key(&server, json!({"name": "thief", "role": "admin"})).await;
    let body = json!({"name": "kept", "role": "admin"}).to_string();
    let mut client = Raw::new(TcpStream::connect(server.address()).await.unwrap());
    let head = format!(
        "POST /v1/keys HTTP/1.1\r\nhost: localhost\r\nopen-sandbox-api-key: {value}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        body.len()
    );
    client.say(head).await;
    // The key was good: its body is asked for (RFC 9110 10.1.1).
    assert_eq!(client.head().await.status(), 100);
    let path = format!("/v1/keys/{id}");
    call(&server, ROOT, "DELETE", &path, Value::Null)
        .await
        .expect(204);
    client.say(body).await;
    client.message().await.expect(403);
}

#[tokio::test]
async fn labels_of_a_key_go_to_what_it_makes_and_stay_there() {
    let server = keyed().await;
    let body = json!({"name": "blue", "role": "user", "labels": {"team": "blue"}});
    let blue = key(&server, body).await.0;
    let made = call(
        &server,
        &blue,
        "POST",
        "/v1/sandboxes",
        request_for("local"),
    )
    .await;
    let made = made.expect(202).json();
    assert_eq!(made["metadata"]["team"], "blue");
    let mut other = request_for("local");
    other["metadata"] = json!({"team": "red"});
    let refused = call(&server, &blue, "POST", "/v1/sandboxes", other).await;
    refused.refused(403, "FORBIDDEN");
    let path = format!("/v1/sandboxes/{}/metadata", made["id"].as_str().unwrap());
    for patch in [json!({"team": null}), json!({"team": "red"})] {
        call(&server, &blue, "PATCH", &path, patch)
            .await
            .refused(403, "FORBIDDEN");
    }
    let patch = json!({"team": "blue", "note": "x"});
    call(&server, &blue, "PATCH", &path, patch)
        .await
        .expect(200);
    let mut mounting = request_for("local");
    mounting["volumes"] = json!([{"name": "v", "pvc": {"claimName": "d"}, "mountPath": "/d"}]);
    let refused = call(&server, &blue, "POST", "/v1/sandboxes", mounting).await;
    refused.refused(403, "FORBIDDEN");
    // Its stream tells the end of what it saw, too.
    let mut events = open(&server, &blue, "/v1/events?after=0").await;
    until(&mut events, "sandbox.metadata").await;
    let path = format!("/v1/sandboxes/{}", made["id"].as_str().unwrap());
    call(&server, ROOT, "DELETE", &path, Value::Null)
        .await
        .expect(204);
    until(&mut events, "sandbox.deleted").await;
}

#[tokio::test]
async fn a_tenant_goes_when_it_has_nothing_any_more_and_its_keys_with_it() {
    let server = keyed().await;
    let admin = tenant(&server, "acme").await;
    let made = call(
        &server,
        &admin,
        "POST",
        "/v1/sandboxes",
        request_for("local"),
    )
    .await;
    let id = made.expect(202).json()["id"].as_str().unwrap().to_owned();
    let remove = async || call(&server, ROOT, "DELETE", "/v1/tenants/acme", Value::Null).await;
    let refused = remove().await.refused(409, "TENANT::CONFLICT");
    assert!(refused.text.contains("1 sandboxes"), "{refused:?}");
    get(&server, &admin, &format!("/v1/sandboxes/{id}"))
        .await
        .expect(200);
    let path = format!("/v1/sandboxes/{id}");
    call(&server, &admin, "DELETE", &path, Value::Null)
        .await
        .expect(204);
    let body = json!({"name": "data"});
    call(&server, &admin, "POST", "/v1/volumes", body)
        .await
        .expect(201);
    remove().await.refused(409, "TENANT::CONFLICT");
    call(&server, &admin, "DELETE", "/v1/volumes/data", Value::Null)
        .await
        .expect(204);
    remove().await.expect(204);
    get(&server, &admin, "/v1/sandboxes")
        .await
        .refused(401, "INVALID_API_KEY");
    remove().await.refused(404, "TENANT::NOT_FOUND");
    for bad in ["", "A", "a.b", "-a", "default"] {
        let body = json!({"name": bad});
        let refused = call(&server, ROOT, "POST", "/v1/tenants", body).await;
        assert!(refused.status.is_client_error(), "{bad}: {refused:?}");
    }
}

#[tokio::test]
async fn tenants_of_a_file_are_taken_over_while_the_server_runs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tenants.toml");
    let acme = "[[tenants]]\nname = 'acme'\nnamespace = 'ns'\napi_keys = ['acme-key']\n";
    std::fs::write(&path, acme).unwrap();
    let configured = |config: &mut Config| {
        config.server.api_key = Some(ROOT.to_owned().into());
        config.tenants.provider = "file".to_owned();
        config.tenants.path = Some(path.clone());
    };
    let server = start_with(configured).await;
    let made = call(
        &server,
        "acme-key",
        "POST",
        "/v1/sandboxes",
        request_for("local"),
    )
    .await;
    let id = made.expect(202).json()["id"].as_str().unwrap().to_owned();
    get(&server, ROOT, &format!("/v1/sandboxes/{id}"))
        .await
        .expect(404);
    get(&server, "acme-key", "/v1/keys")
        .await
        .refused(403, "FORBIDDEN");
    let removal = call(&server, ROOT, "DELETE", "/v1/tenants/acme", Value::Null).await;
    removal.refused(409, "TENANT::CONFLICT");
    let mut config = Config::default();
    configured(&mut config);
    std::fs::write(&path, "[[tenants]]\nname =").unwrap();
    assert!(server.running.reload(&config).is_err());
    std::fs::remove_file(&path).unwrap();
    assert!(server.running.reload(&config).is_err());
    get(&server, "acme-key", "/v1/sandboxes").await.expect(200);
    let events = open(&server, "acme-key", "/v1/events").await;
    let beta = "[[tenants]]\nname = 'beta'\napi_keys = ['beta-key']\n";
    std::fs::write(&path, beta).unwrap();
    server.running.reload(&config).unwrap();
    broken(events).await;
    get(&server, "acme-key", "/v1/sandboxes")
        .await
        .refused(401, "INVALID_API_KEY");
    get(&server, "beta-key", &format!("/v1/sandboxes/{id}"))
        .await
        .expect(404);
    std::fs::write(&path, acme).unwrap();
    server.running.reload(&config).unwrap();
    get(&server, "acme-key", &format!("/v1/sandboxes/{id}"))
        .await
        .expect(200);
}
