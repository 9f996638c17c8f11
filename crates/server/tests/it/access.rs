//! Who may do what, and what is kept of it.

use std::time::Duration;

use axum::body::Body;
use serde_json::json;
use server::config::Config;
use sha2::{Digest as _, Sha256};

use crate::support::{Server, request_for, start_with};

async fn keyed() -> Server {
    start_with(|config| {
        config.server.api_key = Some("plain-key".to_owned().into());
        config.server.api_keys.0.push(server::config::ApiKey {
            name: "ci".to_owned(),
            sha256: hex::encode(Sha256::digest(b"ci-key")),
        });
    })
    .await
}

async fn with_key(server: &Server, method: &str, path: &str, key: &str) -> crate::support::Answer {
    let request = server
        .request(method, path)
        .header("OPEN-SANDBOX-API-KEY", key);
    server.call(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn every_route_but_the_open_ones_needs_a_key() {
    let server = keyed().await;
    for path in ["/health", "/version", "/docs", "/redoc", "/openapi.json"] {
        server.get(path).await.expect(200);
    }
    for (method, path) in [
        ("GET", "/sandboxes"),
        ("GET", "/v1/sandboxes"),
        ("POST", "/v1/sandboxes"),
        ("GET", "/v1/sandboxes/x"),
        ("DELETE", "/v1/sandboxes/x"),
        ("GET", "/v1/sandboxes/x/endpoints/80"),
        ("GET", "/v1/snapshots"),
        ("GET", "/v1/pools"),
        ("GET", "/v1/events"),
        ("GET", "/v1/audit-events"),
        ("GET", "/metrics"),
        ("POST", "/v1/metrics/events"),
    ] {
        let request = server.request(method, path).body(Body::empty()).unwrap();
        let answer = server.call(request).await.refused(401, "MISSING_API_KEY");
        assert!(answer.headers.contains_key("x-request-id"));
    }
    with_key(&server, "GET", "/v1/sandboxes", "plain-key")
        .await
        .expect(200);
    with_key(&server, "GET", "/v1/sandboxes", "ci-key")
        .await
        .expect(200);
    with_key(&server, "GET", "/v1/sandboxes", "other")
        .await
        .refused(401, "INVALID_API_KEY");
    let bearer = server
        .request("GET", "/metrics")
        .header("authorization", "Bearer ci-key");
    server
        .call(bearer.body(Body::empty()).unwrap())
        .await
        .expect(200);
}

#[tokio::test]
async fn guessing_is_slowed_down() {
    let server = keyed().await;
    let mut refused = 0;
    let limited = loop {
        let answer = with_key(&server, "GET", "/v1/sandboxes", "guess").await;
        match answer.status.as_u16() {
            401 => refused += 1,
            _ => break answer.refused(429, "RATE_LIMITED"),
        }
        assert!(refused < 1000, "nobody stops this");
    };
    assert!(limited.header("retry-after").parse::<u64>().unwrap() > 0);
    // Who holds a key is not kept out by those who guess, even from the same address.
    with_key(&server, "GET", "/v1/sandboxes", "ci-key")
        .await
        .expect(200);
    server
        .get("/v1/sandboxes")
        .await
        .refused(401, "MISSING_API_KEY");
}

#[tokio::test]
async fn a_bearer_token_of_an_application_is_no_guess() {
    let server = keyed().await;
    let made = server
        .request("POST", "/v1/sandboxes")
        .header("OPEN-SANDBOX-API-KEY", "ci-key")
        .body(request_for("local").to_string().into());
    let made = server.call(made.unwrap()).await.expect(202).json();
    let path = format!(
        "/v1/sandboxes/{}/proxy/44772/ping",
        made["id"].as_str().unwrap()
    );
    for _ in 0..50 {
        let request = server
            .request("GET", &path)
            .header("authorization", "Bearer of-the-app");
        let answer = server.call(request.body(Body::empty()).unwrap()).await;
        answer.refused(401, "MISSING_OR_INVALID_SECURE_ACCESS");
    }
    with_key(&server, "GET", "/v1/sandboxes", "guess")
        .await
        .refused(401, "INVALID_API_KEY");
    // A key is one also as a bearer token, and the next guess is not.
    let request = server
        .request("GET", &path)
        .header("authorization", "Bearer ci-key");
    server
        .call(request.body(Body::empty()).unwrap())
        .await
        .expect(200);
}

#[tokio::test]
async fn a_refusal_names_the_header_that_is_wanted() {
    let server = keyed().await;
    let answer = server.get("/v1/sandboxes").await.expect(401);
    let wanted = answer.header("www-authenticate");
    assert_eq!(wanted, "ApiKey header=\"OPEN-SANDBOX-API-KEY\"");
    let made = server
        .request("POST", "/v1/sandboxes")
        .header("OPEN-SANDBOX-API-KEY", "ci-key")
        .body(request_for("local").to_string().into());
    let made = server.call(made.unwrap()).await.expect(202).json();
    let path = format!("/v1/sandboxes/{}/proxy/80/", made["id"].as_str().unwrap());
    let answer = server.get(&path).await.expect(401);
    let wanted = answer.header("www-authenticate");
    assert_eq!(wanted, "ApiKey header=\"X-EXECD-ACCESS-TOKEN\"");
}

#[tokio::test]
async fn only_a_trusted_proxy_says_who_its_client_is() {
    for (trusted, seen) in [(&[][..], "127.0.0.1"), (&["127.0.0.0/8"], "192.0.2.7")] {
        let server = start_with(|config| {
            config.server.trusted_proxies = trusted.iter().map(|it| (*it).to_owned()).collect();
        })
        .await;
        let request = server
            .request("POST", "/v1/sandboxes")
            .header("x-forwarded-for", "6.6.6.6, 192.0.2.7")
            .body(request_for("local").to_string().into());
        server.call(request.unwrap()).await.expect(202);
        let all = server.get("/v1/audit-events").await.json();
        assert_eq!(all["items"][0]["client"], seen);
    }
}

#[tokio::test]
async fn a_page_of_a_sandbox_is_no_user_of_a_server_without_keys() {
    let server = start_with(|_| {}).await;
    let call = async |method: &str, path: &str, headers: &[(&str, &str)]| {
        let request = server.request(method, path).header("host", "localhost:1");
        let request = headers.iter().fold(request, |it, (k, v)| it.header(*k, *v));
        server.call(request.body(Body::empty()).unwrap()).await
    };
    let own = ("origin", "http://localhost:1");
    for headers in [
        &[("sec-fetch-site", "same-origin")][..],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-origin"), own],
        &[own],
    ] {
        for (method, path) in [
            ("GET", "/v1/sandboxes"),
            ("POST", "/v1/sandboxes"),
            ("GET", "/metrics"),
            ("GET", "/v1/sandboxes/x/endpoints/80"),
        ] {
            let answer = call(method, path, headers).await;
            answer.refused(403, "FORBIDDEN");
        }
        // The documentation in the browser needs no more than this.
        call("GET", "/openapi.json", headers).await.expect(200);
    }
    let typed = [("sec-fetch-site", "none")];
    call("GET", "/v1/sandboxes", &typed).await.expect(200);
}

#[tokio::test]
async fn every_change_is_recorded_with_who_what_and_how_it_ended() {
    let server = keyed().await;
    let request = server
        .request("POST", "/v1/sandboxes")
        .header("OPEN-SANDBOX-API-KEY", "ci-key")
        .header("x-request-id", "req-1");
    let made = server
        .call(
            request
                .body(request_for("local").to_string().into())
                .unwrap(),
        )
        .await;
    let id = made.expect(202).json()["id"].as_str().unwrap().to_owned();
    with_key(
        &server,
        "POST",
        &format!("/v1/sandboxes/{id}/resume"),
        "plain-key",
    )
    .await
    .expect(409);
    with_key(
        &server,
        "DELETE",
        &format!("/v1/sandboxes/{id}"),
        "plain-key",
    )
    .await
    .expect(204);
    with_key(&server, "GET", "/v1/sandboxes", "plain-key")
        .await
        .expect(200);

    let all = with_key(&server, "GET", "/v1/audit-events", "ci-key")
        .await
        .expect(200)
        .json();
    let brief: Vec<_> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            json!([
                item["actor"],
                item["action"],
                item["resource"],
                item["outcome"],
                item["code"]
            ])
        })
        .collect();
    assert_eq!(
        brief,
        [
            json!(["default", "sandbox.delete", id, "success", null]),
            json!([
                "default",
                "sandbox.resume",
                id,
                "refused",
                "DOCKER::SANDBOX_NOT_PAUSED"
            ]),
            json!(["ci", "sandbox.create", id, "success", null]),
        ]
    );
    let first = &all["items"][2];
    assert_eq!(
        (&first["requestId"], &first["client"]),
        (&json!("req-1"), &json!("127.0.0.1"))
    );

    let page = with_key(&server, "GET", "/v1/audit-events?limit=2", "ci-key")
        .await
        .json();
    let next = page["next"].as_u64().unwrap();
    let rest = with_key(
        &server,
        "GET",
        &format!("/v1/audit-events?before={next}"),
        "ci-key",
    )
    .await;
    assert_eq!(rest.json()["items"].as_array().unwrap().len(), 1);
    let own = with_key(&server, "GET", "/v1/audit-events?actor=ci", "ci-key")
        .await
        .json();
    assert_eq!(own["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_idempotency_key_belongs_to_who_used_it() {
    let server = keyed().await;
    let mut ids = Vec::new();
    for key in ["ci-key", "plain-key"] {
        let request = server
            .request("POST", "/v1/sandboxes")
            .header("OPEN-SANDBOX-API-KEY", key)
            .header("idempotency-key", "same");
        let body = request_for("local").to_string();
        let made = server
            .call(request.body(body.into()).unwrap())
            .await
            .expect(202);
        ids.push(made.json()["id"].clone());
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn web_pages_may_call_the_api() {
    let server = keyed().await;
    let preflight = server
        .request("OPTIONS", "/v1/sandboxes")
        .header("origin", "http://page.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "open-sandbox-api-key");
    let answer = server
        .call(preflight.body(Body::empty()).unwrap())
        .await
        .expect(200);
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    assert!(
        !answer
            .headers
            .contains_key("access-control-allow-credentials")
    );

    let server =
        start_with(|config| config.server.cors_origins = vec!["http://ours.example".into()]).await;
    let call = async |host: &str, origin: Option<&str>| {
        let request = server.request("GET", "/v1/sandboxes").header("host", host);
        let request = origin
            .into_iter()
            .fold(request, |it, origin| it.header("origin", origin));
        server.call(request.body(Body::empty()).unwrap()).await
    };
    let allowed = call("localhost", Some("http://ours.example"))
        .await
        .expect(200);
    assert_eq!(
        allowed.header("access-control-allow-origin"),
        "http://ours.example"
    );
    // Without keys nothing but the origin tells a page from a program.
    call("localhost", Some("http://theirs.example"))
        .await
        .refused(403, "FORBIDDEN");
    call("theirs.example", None).await.refused(403, "FORBIDDEN");
    call("localhost", None).await.expect(200);
}

#[tokio::test]
async fn keys_and_rules_are_taken_over_while_the_server_runs() {
    let server = start_with(|config| config.server.api_key = Some("old".to_owned().into())).await;
    let list = |key| with_key(&server, "GET", "/v1/sandboxes", key);
    list("old").await.expect(200);
    let mut config = Config::default();
    config.server.api_key = Some("new".to_owned().into());
    config.server.max_sandbox_timeout_seconds = Some(60);
    server.running.reload(&config).unwrap();
    list("new").await.expect(200);
    list("old").await.expect(401);
    let request = server
        .request("POST", "/v1/sandboxes")
        .header("content-type", "application/json")
        .header("open-sandbox-api-key", "new");
    let body = Body::from(request_for("local").to_string());
    let refused = server.call(request.body(body).unwrap()).await;
    assert!(refused.expect(400).text.contains("timeout"));
    // Half a file does not open a server.
    assert!(server.running.reload(&Config::default()).is_err());
    server.get("/v1/sandboxes").await.expect(401);
    list("new").await.expect(200);
}

/// The kernel says who may open the socket; the API key is for everybody else.
#[tokio::test]
async fn whoever_may_open_the_socket_needs_no_key() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api.sock");
    let server = start_with(|config| {
        config.server.api_key = Some("key".to_owned().into());
        config.server.socket = Some(path.clone());
    })
    .await;
    server.get("/v1/sandboxes").await.expect(401);
    let ask = async |host: &str| {
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        let text = format!("GET /v1/sandboxes HTTP/1.1\r\n{host}connection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = ask("host: localhost\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // A page that reaches the socket through a port that somebody forwards is not its user.
    let answer = ask("host: localhost\r\norigin: http://evil.example\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    server.running.stop(Duration::from_secs(5)).await;
}
