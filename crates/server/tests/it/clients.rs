//! Clients that send what they like, and when they like, on one connection to the proxy and to the
//! API.

use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

use crate::raw::{ECHO, PLAYED, STREAMED, Stage, stage};
use crate::support::DEADLINE;

/// A large body: more than all buffers on its way together.
const LARGE: usize = 16 * 1024 * 1024;

const HEALTH: &str = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Requests for the API and into the sandbox, and what the answers to them hold.
fn several(stage: &Stage) -> (String, Vec<(u16, &'static str)>) {
    let chunks = "3;a=b\r\none\r\n004\r\n two\r\n0\r\nTrailer: x\r\n\r\n";
    let wrong =
        "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let requests = [
        stage.request("POST", ECHO, "Content-Length: 3\r\n", "one"),
        HEALTH.to_owned(),
        stage.request("POST", ECHO, "Transfer-Encoding: chunked\r\n", chunks),
        format!("{wrong}Content-Length: 7\r\n\r\n{{GET / "),
        format!("{wrong}Transfer-Encoding: chunked\r\n\r\n2\r\n{{]\r\n5\r\nGET /\r\n0\r\n\r\n"),
        stage.request("GET", ECHO, "", ""),
        HEALTH.to_owned(),
    ];
    let answers = vec![
        (200, "one"),
        (200, "healthy"),
        (200, "one two"),
        (422, "message"),
        (422, "message"),
        (200, ""),
        (200, "healthy"),
    ];
    (requests.concat(), answers)
}

#[tokio::test]
async fn requests_that_are_sent_at_once_are_answered_in_turn() {
    let stage = stage().await;
    let (requests, answers) = several(&stage);
    for piece in [usize::MAX, 1, 7] {
        let mut client = stage.client().await;
        for piece in requests.as_bytes().chunks(piece.min(requests.len())) {
            client.say(piece).await;
        }
        for (status, text) in &answers {
            let answer = client.message().await.expect(*status);
            assert!(answer.text().contains(text), "{piece} {text} {answer:?}");
        }
        client.stream.shutdown().await.unwrap();
        assert_eq!(client.rest().await, b"");
    }
}

#[tokio::test]
async fn odd_heads_are_read_or_refused_at_once() {
    let stage = stage().await;
    let target = stage.target(ECHO, "/x");
    let pass = stage.pass();
    let many = "A: b\r\n".repeat(101);
    let long = format!("A: {}\r\n", "b".repeat(70_000));
    let address = stage.server.address();
    for (status, text) in [
        (
            200,
            format!("GET {target} HTTP/1.1\n{}\n", pass.replace('\r', "")),
        ),
        (200, format!("\r\n\r\nGET {target} HTTP/1.1\r\n{pass}\r\n")),
        (
            200,
            format!("GET http://{address}{target} HTTP/1.1\r\n{pass}\r\n"),
        ),
        (200, format!("GET {target} HTTP/1.0\r\n{pass}\r\n")),
        (
            200,
            format!(
                "GET {target} HTTP/1.1\r\n{}\r\n",
                pass.replace("Host: a\r\n", "")
            ),
        ),
        (431, format!("GET {target} HTTP/1.1\r\n{pass}{many}\r\n")),
        (431, format!("GET {target} HTTP/1.1\r\n{pass}{long}\r\n")),
        (
            400,
            format!("GET {target} HTTP/1.1\r\n{pass}A: b\r\n c\r\n\r\n"),
        ),
        (400, format!("GET {target} HTTP/1.1\r\n{pass}A: \0\r\n\r\n")),
        (400, format!("GET {target} HTTP/1.1\r\n{pass}A : b\r\n\r\n")),
        (
            400,
            format!(
                "GET {target} HTTP/1.1\r\n{pass}Content-Length: 1\r\nContent-Length: 2\r\n\r\n"
            ),
        ),
        (
            400,
            format!(
                "GET {target} HTTP/1.1\r\n{pass}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
        ),
        (405, format!("CONNECT {target} HTTP/1.1\r\n{pass}\r\n")),
        (400, "GET /health\r\n".to_owned()),
        // What a client says first that takes this for a port with TLS.
        (400, "\x16\x03\x01\x02".to_owned()),
    ] {
        let mut client = stage.client().await;
        client.say(&text).await;
        let answer = client.message().await.expect(status);
        if !matches!(status, 200 | 405) || text.contains("HTTP/1.0") {
            assert_eq!(
                answer.header("connection"),
                Some("close"),
                "{text:?} {answer:?}"
            );
            assert_eq!(client.rest().await, b"", "{text:?}");
        } else {
            client.say(HEALTH).await;
            client.message().await.expect(200);
        }
    }
    let mut client = stage.client().await;
    client
        .say(format!("GET {target} HTTP/1.1\r\n{pass}A: ").as_bytes())
        .await;
    client.say(b"\xff\xe9\r\n\r\n").await;
    client.message().await.expect(200);
}

#[tokio::test]
async fn whoever_waits_to_be_told_is_told_to_send_its_body() {
    let stage = stage().await;
    let mut client = stage.client().await;
    let headers = "Expect: 100-continue\r\nContent-Length: 4\r\n";
    let create = format!("POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    for (head, body, status) in [
        (stage.request("POST", ECHO, headers, ""), "body", 200),
        (create, "{\"a\"", 422),
        (stage.request("POST", ECHO, headers, ""), "body", 200),
    ] {
        client.say(head).await;
        assert_eq!(client.head().await.status(), 100);
        client.say(body).await;
        client.message().await.expect(status);
    }
    // Nobody is told to send what nobody will read.
    client.say(stage.request("POST", 81, headers, "")).await;
    let answer = client.message().await;
    assert_eq!(answer.status(), 502, "{answer:?}");
    assert_eq!(answer.header("connection"), Some("close"));
}

#[tokio::test]
async fn a_service_learns_that_its_client_has_gone() {
    let mut stage = stage().await;
    let length = "Content-Length: 9\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n";
    for (headers, body, said) in [
        ("", "", ""),
        ("", "", "HTTP/1.1 200 OK\r\n"),
        ("", "", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"),
        (length, "half", ""),
        (
            length,
            "half",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
        ),
        (chunked, "3\r\na", ""),
        (chunked, "3\r\nabc\r\n", "HTTP/1.1 200 OK\r\n\r\nab"),
    ] {
        let mut client = stage.client().await;
        client
            .say(stage.request("POST", PLAYED, headers, body))
            .await;
        let mut service = stage.service().await;
        assert!(service.head().await.is_whole);
        let body = service.bytes(body.len()).await;
        service.say(said).await;
        if said.ends_with("ab") {
            assert_eq!(client.head().await.status(), 200);
            assert_eq!(client.bytes(2).await, b"ab");
        }
        drop(client);
        assert_eq!(service.rest().await, b"", "{headers} {body:?} {said}");
    }
}

#[tokio::test]
async fn a_service_that_takes_no_more_learns_it_too() {
    let mut stage = stage().await;
    let mut client = stage.client().await;
    let headers = "Content-Length: 999999999\r\n";
    client
        .say(stage.request("POST", PLAYED, headers, "x"))
        .await;
    let mut service = stage.service().await;
    service.head().await;
    let stream = service.stream.into_std().unwrap();
    stream.shutdown(std::net::Shutdown::Read).unwrap();
    service.stream = UnixStream::from_std(stream).unwrap();
    client.say(vec![b'x'; 1024 * 1024]).await;
    drop(client);
    // What a client never gets to see is taken from the service only while there is one.
    let told = async {
        let early = b"HTTP/1.1 102 Processing\r\n\r\n";
        while service.stream.write_all(early).await.is_ok() {}
    };
    tokio::time::timeout(DEADLINE, told).await.unwrap();
}

#[tokio::test]
async fn a_request_that_goes_wrong_puts_nothing_into_an_answer_that_has_begun() {
    let mut stage = stage().await;
    let mut client = stage.client().await;
    let headers = "Transfer-Encoding: chunked\r\n";
    client
        .say(stage.request("POST", PLAYED, headers, "3\r\nabc\r\n"))
        .await;
    let mut service = stage.service().await;
    service.head().await;
    service
        .say("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun")
        .await;
    assert_eq!(client.head().await.status(), 200);
    assert_eq!(client.bytes(5).await, b"begun");
    client.say("no chunk\r\n").await;
    assert_eq!(client.rest().await, b"");
}

#[tokio::test]
async fn a_client_that_is_still_sending_can_read_an_early_answer() {
    let mut stage = stage().await;
    let body = "x".repeat(1024 * 1024);
    let length = format!("Content-Length: {LARGE}\r\n");
    let wrong = format!("POST /v1/sandboxes HTTP/1.1\r\nHost: evil.example\r\n{length}\r\n{body}");
    for (request, status) in [
        (stage.request("POST", PLAYED, &length, &body), 413),
        (stage.request("POST", 81, &length, &body), 502),
        (wrong, 403),
        (format!("GET /{body} HTTP/1.1\r\n\r\n"), 431),
    ] {
        let mut client = stage.client().await;
        client.say(request).await;
        if status == 413 {
            let mut service = stage.service().await;
            service.head().await;
            service
                .say("HTTP/1.1 413 No\r\nContent-Length: 4\r\n\r\nnone")
                .await;
        }
        let answer = client.message().await.expect(status);
        // The library decides for itself, and not always before it answers.
        if status != 403 {
            assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn large_bodies_pass_both_ways_at_once() {
    let stage = stage().await;
    let body: Vec<u8> = (0..LARGE).map(|at| (at / 251) as u8 ^ at as u8).collect();
    let mut client = stage.client().await;
    let headers = format!("Content-Length: {LARGE}\r\n");
    client
        .say(stage.request("POST", STREAMED, &headers, ""))
        .await;
    let stream = client.stream.into_std().unwrap();
    let mut writer = tokio::net::TcpStream::from_std(stream.try_clone().unwrap()).unwrap();
    client.stream = tokio::net::TcpStream::from_std(stream).unwrap();
    let sent = body.clone();
    let writing = tokio::spawn(async move { writer.write_all(&sent).await });
    let answer = client.message().await.expect(200);
    assert!(answer.body == body, "not what was sent");
    writing.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_hangs_up_is_missed_also_behind_another_request() {
    let mut stage = stage().await;
    for behind in ["G", "GET / HTTP/1.1\r\n", HEALTH] {
        let mut client = stage.client().await;
        client.say(stage.request("GET", PLAYED, "", behind)).await;
        let mut service = stage.service().await;
        assert!(service.head().await.is_whole);
        drop(client);
        assert_eq!(service.rest().await, b"", "the service is told");
    }
}

#[tokio::test]
async fn empty_lines_before_a_request_are_passed_over_and_bounded() {
    let stage = stage().await;
    let mut client = stage.client().await;
    for lines in ["\r\n", "\n", "\r\n\n\r\n"] {
        client.say(format!("{lines}{HEALTH}")).await;
        client.message().await.expect(200);
        let request = stage.request("GET", ECHO, "", "");
        client.say(format!("{lines}{request}")).await;
        client.message().await.expect(200);
    }
    for line in ["\r\n", "\n", "\r"] {
        let mut client = stage.client().await;
        // The connection may be closed before all is said.
        let _ = client
            .stream
            .write_all(line.repeat(70_000).as_bytes())
            .await;
        let answer = client.message().await;
        assert!(matches!(answer.status(), 0 | 400 | 431), "{answer:?}");
    }
}
