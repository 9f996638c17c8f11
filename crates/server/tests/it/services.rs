//! Services in sandboxes that say what they like: whatever it is, it is the answer to the request
//! it was sent for, and to no other.

use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::raw::{PLAYED, stage, stage_with};
use crate::support::DEADLINE;

const HEALTH: &str = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// An answer that nobody asked for.
const SMUGGLED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled";

#[tokio::test]
async fn whatever_a_service_says_the_next_answer_is_not_its() {
    let mut stage = stage().await;
    let endless = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "b".repeat(70_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(101));
    let early = |count| {
        let early = "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n".repeat(count);
        format!("{early}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    };
    let (early, endless_early) = (early(200), early(5000));
    for (method, said, status, text) in [
        (
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes",
            200,
            "yes",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            200,
            "hello",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nA: b\r\n\r\n",
            200,
            "ok",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nyes",
            502,
            "message",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nyes",
            502,
            "message",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nbad\n",
            502,
            "message",
        ),
        (
            "GET",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
            502,
            "message",
        ),
        (
            "GET",
            "HTTP/1.1 042 Odd\r\nContent-Length: 3\r\n\r\nyes",
            502,
            "message",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 3\r\n\r\nyes",
            502,
            "message",
        ),
        ("GET", "HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", 502, "message"),
        ("GET", "SSH-2.0-OpenSSH\r\n\r\n", 502, "message"),
        ("GET", &endless, 502, "message"),
        ("GET", &many, 502, "message"),
        ("GET", &early, 200, "ok"),
        ("GET", &endless_early, 502, "interim answers without end"),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes",
            200,
            "",
        ),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\n\r\n",
            200,
            "",
        ),
        (
            "GET",
            "HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\nyes",
            204,
            "",
        ),
        (
            "GET",
            "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\n\r\n",
            204,
            "",
        ),
        (
            "GET",
            "HTTP/1.1 304 No\r\nContent-Length: 3\r\n\r\nyes",
            304,
            "",
        ),
    ] {
        let mut client = stage.client().await;
        client
            .say(stage.request(method, PLAYED, "X-Request-Id: mine\r\n", ""))
            .await;
        let mut service = stage.service().await;
        assert!(service.head().await.is_whole);
        let stream = &mut service.stream;
        // It may be refused before it has said all.
        if stream.write_all(said.as_bytes()).await.is_ok() {
            let _ = stream.write_all(SMUGGLED.as_bytes()).await;
        }
        let answer = match method {
            "HEAD" => client.head().await,
            _ => client.message().await,
        };
        let answer = answer.expect(status);
        assert!(answer.text().contains(text), "{said:?} {answer:?}");
        assert_eq!(answer.header("x-request-id"), Some("mine"), "{said:?}");
        assert_eq!(answer.header("connection"), None, "{said:?}");
        client.say(HEALTH).await;
        let health = client.message().await.expect(200);
        assert!(health.text().contains("healthy"), "{said:?} {health:?}");
        // Nor does the next request into the sandbox get it.
        client.say(stage.request("GET", PLAYED, "", "")).await;
        let mut service = stage.service().await;
        assert!(service.head().await.is_whole, "{said:?}");
        service
            .say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nnext")
            .await;
        assert_eq!(
            client.message().await.expect(200).text(),
            "next",
            "{said:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_seen_to_break_off() {
    let mut stage = stage().await;
    for said in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\npart",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n0\r\n",
    ] {
        let mut client = stage.client().await;
        client.say(stage.request("GET", PLAYED, "", "")).await;
        let mut service = stage.service().await;
        service.head().await;
        service.say(said).await;
        drop(service);
        let answer = client.message().await;
        assert_eq!(answer.status(), 200, "{said:?}");
        assert!(
            !answer.is_whole && answer.body == b"part",
            "{said:?} {answer:?}"
        );
    }
    // What goes wrong later, behind a part that has already passed.
    let mut client = stage.client().await;
    client.say(stage.request("GET", PLAYED, "", "")).await;
    let mut service = stage.service().await;
    service.head().await;
    service
        .say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n")
        .await;
    assert_eq!(client.head().await.status(), 200);
    assert_eq!(client.bytes(9).await, b"4\r\npart\r\n");
    service.say(format!("no size\r\n{SMUGGLED}")).await;
    assert_eq!(client.rest().await, b"");

    for said in ["", "HTTP/1.1 200 OK\r\nContent-Le"] {
        let mut client = stage.client().await;
        client.say(stage.request("GET", PLAYED, "", "")).await;
        let mut service = stage.service().await;
        service.head().await;
        service.say(said).await;
        drop(service);
        client.message().await.expect(502);
        client.say(HEALTH).await;
        client.message().await.expect(200);
    }
}

#[tokio::test]
async fn an_answer_without_a_length_ends_with_the_connection() {
    let mut stage = stage().await;
    for version in ["1.0", "1.1"] {
        let mut client = stage.client().await;
        let request = stage.request("GET", PLAYED, "", "");
        client.say(request + HEALTH).await;
        let mut service = stage.service().await;
        service.head().await;
        service
            .say(format!(
                "HTTP/{version} 200 OK\r\nConnection: keep-alive\r\n\r\n{SMUGGLED}"
            ))
            .await;
        drop(service);
        let answer = client.message().await.expect(200);
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(answer.text(), SMUGGLED);
    }
}

#[tokio::test]
async fn an_answer_without_a_length_that_breaks_off_does_not_end() {
    let mut stage = stage().await;
    let mut client = stage.client().await;
    let headers = "Content-Length: 4\r\n";
    client
        .say(stage.request("POST", PLAYED, headers, "body"))
        .await;
    let mut service = stage.service().await;
    service.say("HTTP/1.1 200 OK\r\n\r\npart").await;
    assert_eq!(client.head().await.status(), 200);
    assert_eq!(client.bytes(4).await, b"part");
    // Closed with something unread, a connection is reset.
    drop(service);
    let read = client.stream.read_u8();
    let read = tokio::time::timeout(DEADLINE, read).await;
    let error = read.expect("the end in time").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_request_is_repeated_only_if_nothing_was_heard_and_it_may_be() {
    const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let mut stage = stage().await;
    for (method, headers, body, said, is_repeated) in [
        ("GET", "", "", "", true),
        ("PUT", "Content-Length: 2\r\n", "ab", "", true),
        ("POST", "Content-Length: 2\r\n", "ab", "", false),
        ("GET", "", "", "HTTP/1.1 2", false),
        ("GET", "", "", "HTTP/1.1 102 Processing\r\n\r\n", false),
    ] {
        let mut client = stage.client().await;
        let request = stage.request(method, PLAYED, headers, body);
        client.say(&request).await;
        let mut service = stage.service().await;
        service.message().await;
        service.say(ANSWER).await;
        client.message().await.expect(200);
        // The connection is kept; this time it is closed when the request has come.
        client.say(&request).await;
        assert_eq!(service.message().await.body, body.as_bytes(), "{method}");
        service.say(said).await;
        drop(service);
        if is_repeated {
            let mut service = stage.service().await;
            assert_eq!(service.message().await.body, body.as_bytes(), "{method}");
            // And only once.
            drop(service);
        }
        client.message().await.expect(502);
        assert!(stage.is_left_alone(), "{method} {said}");
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_not_used_again() {
    const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let mut stage = stage().await;
    let mut client = stage.client().await;
    let request = stage.request("POST", PLAYED, "Content-Length: 2\r\n", "ab");
    for _ in 0..3 {
        client.say(&request).await;
        let mut service = stage.service().await;
        assert_eq!(service.message().await.body, b"ab");
        service.say(ANSWER).await;
        assert_eq!(client.message().await.expect(200).text(), "ok");
        drop(service);
    }
}

#[tokio::test]
async fn a_service_may_answer_before_it_has_read() {
    let mut stage = stage().await;
    let mut client = stage.client().await;
    // Not all of it was sent when the answer comes, nor ever will be.
    let body = "x".repeat(200_000);
    let headers = format!("Content-Length: {}\r\n", body.len() + 1);
    client
        .say(stage.request("POST", PLAYED, &headers, &body))
        .await;
    let mut service = stage.service().await;
    service
        .say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly")
        .await;
    let answer = client.message().await.expect(200);
    assert_eq!(answer.text(), "early");
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(client.rest().await, b"");
}

#[tokio::test]
async fn bytes_right_behind_the_heads_go_through_the_tunnel() {
    let mut stage = stage().await;
    let upgrade = "Connection: upgrade\r\nUpgrade: some\r\n";
    let raw = "Connection: upgrade\r\nUpgrade: tcp\r\n";
    for (headers, said) in [
        (
            upgrade,
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: some\r\n\r\n",
        ),
        (raw, ""),
    ] {
        let mut client = stage.client().await;
        client
            .say(stage.request("GET", PLAYED, headers, "first "))
            .await;
        let mut service = stage.service().await;
        if !said.is_empty() {
            assert_eq!(service.head().await.header("upgrade"), Some("some"));
        }
        service.say(format!("{said}hello ")).await;
        assert_eq!(client.head().await.status(), 101);
        assert_eq!(client.bytes(6).await, b"hello ");
        assert_eq!(service.bytes(6).await, b"first ");
        client.say("second").await;
        assert_eq!(service.bytes(6).await, b"second");
        service.say("bye").await;
        drop(service);
        assert_eq!(client.rest().await, b"bye");
    }
    // A body in front of a plain byte stream would be neither.
    let mut client = stage.client().await;
    let headers = format!("{raw}Content-Length: 5\r\n");
    client
        .say(stage.request("GET", PLAYED, &headers, "hello"))
        .await;
    client.message().await.expect(400);
}

#[tokio::test]
async fn a_stopping_server_lets_an_exchange_end() {
    let mut stage = stage().await;
    let mut client = stage.client().await;
    client.say(stage.request("GET", PLAYED, "", "")).await;
    let mut service = stage.service().await;
    service.head().await;
    let mut idle = stage.client().await;
    idle.say(HEALTH).await;
    idle.message().await.expect(200);
    let running = stage.server.running;
    let stopping = tokio::spawn(async move { running.stop(DEADLINE).await });
    assert_eq!(idle.rest().await, b"");
    service
        .say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
        .await;
    let answer = client.message().await.expect(200);
    assert_eq!(
        (answer.text(), answer.header("connection")),
        ("done", Some("close"))
    );
    client.stream.shutdown().await.unwrap();
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_service_speaks_for_itself_and_not_for_the_origin() {
    let mut stage = stage().await;
    let mut client = stage.client().await;
    client.say(stage.request("GET", PLAYED, "", "")).await;
    let mut service = stage.service().await;
    service.head().await;
    service
        .say(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nService-Worker-Allowed: /\r\n\
             Clear-Site-Data: \"*\"\r\nStrict-Transport-Security: max-age=1\r\nAlt-Svc: clear\r\n\
             NEL: {}\r\nReport-To: {}\r\nReporting-Endpoints: a=\"/\"\r\n\
             Set-Cookie: a=1; Path=/; Domain=localhost\r\n\
             Set-Cookie: opensandbox-token=evil; Path=/\r\nContent-Length: 0\r\n\r\n",
        )
        .await;
    let answer = client.message().await.expect(200);
    let names: Vec<&str> = answer.headers.iter().map(|(name, _)| &**name).collect();
    assert_eq!(
        names,
        [
            "content-type",
            "set-cookie",
            "date",
            "x-request-id",
            "content-security-policy",
            "content-length"
        ]
    );
    let path = stage.target(PLAYED, "");
    let cookie = format!("a=1; Path={path}");
    assert_eq!(answer.header("set-cookie"), Some(cookie.as_str()));
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.starts_with("sandbox allow-scripts "), "{policy}");
    assert!(!policy.contains("allow-same-origin"), "{policy}");

    // A service worker would see the requests of every sandbox.
    let headers = "Service-Worker: script\r\n";
    client.say(stage.request("GET", PLAYED, headers, "")).await;
    let refused = client.message().await.expect(403);
    assert!(refused.text().contains("FORBIDDEN"), "{refused:?}");
}

#[tokio::test]
async fn no_key_or_token_gets_into_a_sandbox() {
    let mut stage = stage_with(|config| {
        config.server.api_key = Some("plain/key".to_owned().into());
        config.server.api_keys.0.push(server::config::ApiKey {
            name: "ci".to_owned(),
            sha256: hex::encode(Sha256::digest(b"osb_0123456789abcdef")),
        });
    })
    .await;
    let token = stage.token().to_owned();
    for secret in [&token, "plain/key", "osb_0123456789abcdef"] {
        let mut client = stage.client().await;
        let basic = base64::Engine::encode(
            &base64::engine::general_purpose::STANDARD,
            format!("me:{secret}"),
        );
        let target = stage.target(
            PLAYED,
            &format!("/x?a=1&opensandbox_token={token}&k={secret}"),
        );
        let pass = stage.pass();
        client
            .say(format!(
                "POST {target} HTTP/1.1\r\n{pass}Authorization: Bearer {secret}\r\n\
                 Authorization: Basic {basic}\r\nX-Api-Key: {secret}\r\nA: b\r\n\
                 Cookie: s={secret}; t=1; opensandbox-token={token}\r\n\
                 Open-Sandbox-Api-Key: {secret}\r\n\
                 Referer: http://a/?opensandbox_token={token}\r\n\r\n"
            ))
            .await;
        let mut service = stage.service().await;
        let heard = service.head().await;
        assert_eq!(heard.first, "POST /x?a=1 HTTP/1.1");
        assert_eq!(heard.header("cookie"), Some("t=1"));
        assert_eq!(heard.header("a"), Some("b"));
        for (name, value) in &heard.headers {
            assert!(
                !value.contains(secret) && !value.contains(&token),
                "{name}: {value}"
            );
            assert!(!matches!(
                name.as_str(),
                "authorization" | "x-api-key" | "referer"
            ));
        }
        service
            .say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            .await;
        client.message().await.expect(200);
    }
    // Shown as a bearer token a key lets in, and stays outside all the same.
    let mut client = stage.client().await;
    let target = stage.target(PLAYED, "/");
    client
        .say(format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer plain/key\r\n\r\n"
        ))
        .await;
    let mut service = stage.service().await;
    assert_eq!(service.head().await.header("authorization"), None);
}

#[tokio::test]
async fn a_body_in_tiny_chunks_passes_whole() {
    const CHUNKS: usize = 100_000;
    let mut stage = stage().await;
    let mut client = stage.client().await;
    client.say(stage.request("GET", PLAYED, "", "")).await;
    let mut service = stage.service().await;
    service.head().await;
    let chunks = "1\r\na\r\n".repeat(CHUNKS);
    let answer = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
    let (_, heard) = tokio::join!(service.say(answer), client.message());
    assert_eq!(heard.expect(200).body.len(), CHUNKS);
}
