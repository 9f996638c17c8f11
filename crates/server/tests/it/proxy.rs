//! The way into sandboxes.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use lifecycle::fake::{Call, Fault, Gate};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_stream::wrappers::ReceiverStream;

use crate::support::{DEADLINE, read, request_for, start, start_with};

#[tokio::test]
async fn every_method_reaches_the_port_with_path_query_and_body() {
    let server = start().await;
    let id = server.sandbox().await;
    server.backend.listen(&id, 8000);
    for method in [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND",
    ] {
        let request = server.inside(method, &id, 8000, "/a%2Fb//c?x=%20&y").await;
        let answer = server
            .call(request.body(Body::from("body")).unwrap())
            .await
            .expect(200);
        assert_eq!(answer.header("x-fake-method"), method);
        assert_eq!(answer.header("x-fake-path"), "/a%2Fb//c?x=%20&y");
        assert_eq!(answer.header("x-fake-target"), "8000");
        assert_eq!(
            answer.text,
            if method == "HEAD" { "" } else { "body" },
            "{method}"
        );
    }
    for (path, seen) in [("", "/"), ("/", "/"), ("?q=1", "/?q=1")] {
        let request = server.inside("POST", &id, 8000, path).await;
        let answer = server
            .call(request.body(Body::empty()).unwrap())
            .await
            .expect(200);
        assert_eq!(answer.header("x-fake-path"), seen);
    }
    let request = server.inside("GET", &id, 44772, "/ping").await;
    assert_eq!(
        server
            .call(request.body(Body::empty()).unwrap())
            .await
            .expect(200)
            .text,
        "pong"
    );
}

#[tokio::test]
async fn headers_of_the_application_pass_and_keys_do_not() {
    let server = start().await;
    let id = server.sandbox().await;
    server.backend.listen(&id, 8000);
    let request = server
        .inside("GET", &id, 8000, "/headers")
        .await
        .header("cookie", "session=1")
        .header("authorization", "Bearer app")
        .header("x-forwarded-for", "6.6.6.6")
        .header("opensandbox-access-renew", "skip");
    let seen = server
        .call(request.body(Body::empty()).unwrap())
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&seen["cookie"], &seen["authorization"]),
        (&json!("session=1"), &json!("Bearer app"))
    );
    assert_eq!(seen["x-forwarded-for"], "127.0.0.1");
    assert_eq!(seen["x-forwarded-host"], server.address().to_string());
    assert_eq!(seen["host"], "localhost:8000");
    assert!(seen.get("x-execd-access-token").is_none(), "{seen}");
    assert!(seen.get("opensandbox-access-renew").is_none(), "{seen}");
}

#[tokio::test]
async fn without_the_token_nothing_passes() {
    let server = start_with(|config| config.server.api_key = Some("key".to_owned().into())).await;
    let call = async |path: &str, headers: &[(&str, &str)]| {
        let request = headers
            .iter()
            .fold(server.request("GET", path), |it, (k, v)| it.header(*k, *v));
        server.call(request.body(Body::empty()).unwrap()).await
    };
    let key = ("OPEN-SANDBOX-API-KEY", "key");
    let request = server.request("POST", "/v1/sandboxes").header(key.0, key.1);
    let made = server
        .call(
            request
                .body(request_for("local").to_string().into())
                .unwrap(),
        )
        .await;
    let id: api::id::SandboxId = made.expect(202).json()["id"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    server.backend.listen(&id, 8000);
    let endpoint = call(&format!("/v1/sandboxes/{id}/endpoints/8000"), &[key])
        .await
        .json();
    let token = endpoint["headers"]["X-EXECD-ACCESS-TOKEN"]
        .as_str()
        .unwrap()
        .to_owned();

    for port in [8000, 44772] {
        let path = format!("/v1/sandboxes/{id}/proxy/{port}/ping");
        let refused = "MISSING_OR_INVALID_SECURE_ACCESS";
        call(&path, &[]).await.refused(401, refused);
        call(&path, &[("x-execd-access-token", "wrong")])
            .await
            .refused(401, refused);
        call(&path, &[("x-execd-access-token", &token[1..])])
            .await
            .refused(401, refused);
        call(&path, &[("open-sandbox-api-key", "wrong")])
            .await
            .refused(401, refused);
        for header in ["x-execd-access-token", "opensandbox-secure-access"] {
            assert_eq!(
                call(&path, &[(header, &token)]).await.expect(200).text,
                "pong"
            );
        }
        // Whoever holds an API key could ask for the token anyway.
        assert_eq!(call(&path, &[key]).await.expect(200).text, "pong");
    }
}

#[tokio::test]
async fn a_browser_gets_in_with_a_link_and_stays_in_with_a_cookie() {
    let server = start().await;
    let id = server.sandbox().await;
    server.backend.listen(&id, 8000);
    let (path, headers) = server.endpoint(&id, 8000).await;
    let token = &headers["X-EXECD-ACCESS-TOKEN"];
    let link = format!("{path}/headers?opensandbox_token={token}&a=1");
    let welcome = server.get(&link).await.expect(303);
    assert_eq!(welcome.header("location"), format!("{path}/headers?a=1"));
    let cookie = welcome.header("set-cookie").to_owned();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains(&format!("Path={path};")),
        "{cookie}"
    );

    let pair = cookie.split(';').next().unwrap();
    let request = server.request("GET", welcome.header("location"));
    let request = request.header("cookie", format!("theirs=1; {pair}"));
    let seen = server
        .call(request.body(Body::empty()).unwrap())
        .await
        .expect(200)
        .json();
    assert_eq!(
        seen["cookie"], "theirs=1",
        "the token does not go into the sandbox"
    );

    let wrong = format!("{path}/headers?opensandbox_token={}", &token[1..]);
    server
        .get(&wrong)
        .await
        .refused(401, "MISSING_OR_INVALID_SECURE_ACCESS");
    let request = server.request("GET", &format!("{path}/headers"));
    let request = request
        .header("cookie", "opensandbox-token=wrong")
        .body(Body::empty())
        .unwrap();
    server
        .call(request)
        .await
        .refused(401, "MISSING_OR_INVALID_SECURE_ACCESS");
}

#[tokio::test]
async fn a_cookie_that_was_given_over_tls_is_never_shown_without() {
    for (trusted, is_secure) in [(false, false), (true, true)] {
        let server = start_with(|config| {
            let proxies = trusted.then(|| "127.0.0.1".to_owned());
            config.server.trusted_proxies = proxies.into_iter().collect();
        })
        .await;
        let id = server.sandbox().await;
        let (path, headers) = server.endpoint(&id, 8000).await;
        let token = &headers["X-EXECD-ACCESS-TOKEN"];
        let request = server
            .request("GET", &format!("{path}/?opensandbox_token={token}"))
            .header("x-forwarded-proto", "https");
        let welcome = server.call(request.body(Body::empty()).unwrap()).await;
        let welcome = welcome.expect(303);
        let cookie = welcome.header("set-cookie");
        assert_eq!(cookie.ends_with("; Secure"), is_secure, "{cookie}");
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_told_apart() {
    let server = start().await;
    let id = server.sandbox().await;
    let get = async |port: u16| {
        let request = server.inside("GET", &id, port, "/ping").await;
        server.call(request.body(Body::empty()).unwrap()).await
    };
    get(8000).await.refused(502, "PORT_NOT_LISTENING");
    // The egress API, which is the server's and has nothing there.
    get(18080).await.expect(404);
    server.backend.listen(&id, 8000);
    get(8000).await.expect(200);
    let token = server.endpoint(&id, 8000).await.1;
    server
        .post(&format!("/v1/sandboxes/{id}/pause"), json!({}))
        .await
        .expect(202);
    // Also over the connection that is kept open, which would only hang.
    let with_token = || {
        let request = server.request("GET", &format!("/v1/sandboxes/{id}/proxy/8000/ping"));
        let request = token
            .iter()
            .fold(request, |it, (name, value)| it.header(name, value));
        request.body(Body::empty()).unwrap()
    };
    server
        .call(with_token())
        .await
        .refused(409, "SANDBOX_PAUSED");
    server
        .post(&format!("/v1/sandboxes/{id}/resume"), json!({}))
        .await
        .expect(202);
    server.call(with_token()).await.expect(200);
    server
        .delete(&format!("/v1/sandboxes/{id}"))
        .await
        .expect(204);
    server
        .call(with_token())
        .await
        .refused(404, "DOCKER::SANDBOX_NOT_FOUND");
    server
        .get("/v1/sandboxes/nope/proxy/80/")
        .await
        .refused(404, "DOCKER::SANDBOX_NOT_FOUND");
    server
        .get("/v1/sandboxes/nope/proxy/0/")
        .await
        .refused(400, "DOCKER::INVALID_PORT");
    server
        .get("/v1/sandboxes/nope/proxy/http")
        .await
        .refused(400, "DOCKER::INVALID_PORT");
}

#[tokio::test]
async fn bytes_flow_both_ways_before_either_side_has_ended() {
    let server = start().await;
    let id = server.sandbox().await;
    let (feed, chunks) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(1);
    let body = Body::new(StreamBody::new(ReceiverStream::new(chunks)));
    let request = server
        .inside("POST", &id, 44772, "/echo")
        .await
        .body(body)
        .unwrap();
    feed.send(Ok(Frame::data(Bytes::from_static(b"one"))))
        .await
        .unwrap();
    let mut response = server.send(request).await;
    for text in ["one", "two", "three"] {
        let frame = tokio::time::timeout(DEADLINE, response.body_mut().frame())
            .await
            .unwrap();
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), text);
        let next = if text == "one" { "two" } else { "three" };
        feed.send(Ok(Frame::data(Bytes::from(next)))).await.unwrap();
    }
    drop(feed);
    assert_eq!(read(response).await.text, "three");
}

#[tokio::test]
async fn an_upgraded_connection_is_a_tunnel() {
    let server = start().await;
    let id = server.sandbox().await;
    server.backend.listen(&id, 6080);
    for (port, protocol) in [(6080, "websocket"), (44772, "anything/1")] {
        let request = server
            .inside("GET", &id, port, "/socket")
            .await
            .header("connection", "Upgrade")
            .header("upgrade", protocol);
        let mut response = server.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 101);
        assert_eq!(response.headers()["upgrade"], protocol);
        let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
        stream.write_all(b"\x00raw bytes\xff").await.unwrap();
        let mut echoed = [0; 11];
        tokio::time::timeout(DEADLINE, stream.read_exact(&mut echoed))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&echoed, b"\x00raw bytes\xff");
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest))
            .await
            .unwrap()
            .unwrap();
        assert!(rest.is_empty());
    }
    // Without a token there is no tunnel either.
    let request = server
        .request("GET", &format!("/v1/sandboxes/{id}/proxy/6080/socket"))
        .header("connection", "Upgrade")
        .header("upgrade", "websocket");
    server
        .call(request.body(Body::empty()).unwrap())
        .await
        .expect(401);
}

#[tokio::test]
async fn a_request_waits_for_a_sandbox_that_is_being_made() {
    let server = start().await;
    let (gate, reached, open) = Gate::new();
    server.backend.fail_next(Call::Pull, Fault::Wait(gate));
    let made = server
        .post("/v1/sandboxes", request_for("remote"))
        .await
        .expect(202)
        .json();
    let id: api::id::SandboxId = made["id"].as_str().unwrap().parse().unwrap();
    reached.await.unwrap();
    let token = server
        .running
        .service
        .get(&id)
        .unwrap()
        .access_token
        .clone();
    let request = server
        .request("GET", &format!("/v1/sandboxes/{id}/proxy/44772/ping"))
        .header(
            "x-execd-access-token",
            secrecy::ExposeSecret::expose_secret(&token),
        );
    let ping = server.call(request.body(Body::empty()).unwrap());
    let mut ping = std::pin::pin!(ping);
    tokio::select! {
        biased;
        answer = &mut ping => panic!("it must wait: {answer:?}"),
        _ = server.get("/v1/sandboxes") => {}
    }
    // A stranger does not wait: they are refused at once.
    let stranger = server
        .get(&format!("/v1/sandboxes/{id}/proxy/44772/ping"))
        .await;
    stranger.refused(401, "MISSING_OR_INVALID_SECURE_ACCESS");
    open.send(()).unwrap();
    assert_eq!(ping.await.expect(200).text, "pong");
}

#[tokio::test]
async fn connections_are_kept_per_sandbox_and_port() {
    let server = start().await;
    let (one, two) = (server.sandbox().await, server.sandbox().await);
    for id in [&one, &two] {
        server.backend.listen(id, 8000);
    }
    let before = server.backend.calls(Call::Connect);
    // With a body of known length, a streamed one, and none.
    for (method, path) in [("GET", "/ping"), ("POST", "/any"), ("HEAD", "/any")] {
        for _ in 0..3 {
            for (id, port) in [(&one, 8000), (&two, 8000), (&one, 44772)] {
                let request = server.inside(method, id, port, path).await;
                let answer = server.call(request.body(Body::from("pong")).unwrap());
                let text = answer.await.expect(200).text;
                assert_eq!(text, if method == "HEAD" { "" } else { "pong" });
            }
        }
    }
    let made = server.backend.calls(Call::Connect) - before;
    assert_eq!(made, 3, "27 requests to 3 places, one after the other");
}

#[tokio::test]
async fn access_keeps_a_sandbox_alive_if_it_asked_for_that() {
    let server = start_with(|config| config.renew_intent.min_interval_seconds = 0).await;
    let mut body = request_for("local");
    body["timeout"] = json!(60);
    body["extensions"] = json!({"access.renew.extend.seconds": "3600"});
    let made = server.post("/v1/sandboxes", body).await.expect(202).json();
    let id: api::id::SandboxId = made["id"].as_str().unwrap().parse().unwrap();
    let expires = |service: &lifecycle::Service| service.get(&id).unwrap().expires_at.unwrap();
    let at_first = expires(&server.running.service);
    let ping = async |renew: Option<&str>| {
        let request = server.inside("GET", &id, 44772, "/ping").await;
        let request = renew
            .into_iter()
            .fold(request, |it, v| it.header("opensandbox-access-renew", v));
        server
            .call(request.body(Body::empty()).unwrap())
            .await
            .expect(200);
    };
    ping(Some("skip")).await;
    assert_eq!(expires(&server.running.service), at_first);
    let mut events = server.running.service.subscribe(None).await.unwrap();
    ping(None).await;
    tokio::time::timeout(DEADLINE, events.next())
        .await
        .expect("a renewal")
        .unwrap()
        .unwrap();
    let later = expires(&server.running.service).duration_since(at_first);
    assert!(later > jiff::SignedDuration::from_secs(3000), "{later}");
}

#[tokio::test]
async fn a_stopping_server_closes_tunnels_and_leaves_sandboxes() {
    let server = start().await;
    let id = server.sandbox().await;
    let request = server
        .inside("GET", &id, 44772, "/socket")
        .await
        .header("connection", "upgrade")
        .header("upgrade", "echo");
    let mut response = server.send(request.body(Body::empty()).unwrap()).await;
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    server.running.stop(Duration::from_secs(5)).await;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest))
        .await
        .expect("closed");
    assert_eq!(server.backend.sandboxes().len(), 1);
}
