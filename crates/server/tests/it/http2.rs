//! The gateway over HTTP/2: what passes to services that speak HTTP/1.1, and what must not.

use std::future::poll_fn;

use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Request, Response};
use serde_json::Value;
use server::config::IngressMode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::raw::{ECHO, PLAYED, STREAMED, Stage, stage_with};
use crate::support::DEADLINE;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113 6) and the flags that are used here.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

async fn stage() -> Stage {
    stage_with(|config| {
        config.ingress.mode = IngressMode::Gateway;
        config.ingress.gateway.port = 0;
    })
    .await
}

async fn socket(stage: &Stage) -> TcpStream {
    let gateway = stage.server.running.gateway.expect("it has one");
    TcpStream::connect(gateway).await.unwrap()
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(DEADLINE, work).await;
    done.expect("an end in time")
}

/// A client of HTTP/2 that knows so beforehand.
async fn client(stage: &Stage) -> SendRequest<Bytes> {
    let (client, connection) = in_time(h2::client::handshake(socket(stage).await))
        .await
        .unwrap();
    tokio::spawn(connection);
    in_time(client.ready()).await.unwrap()
}

/// A request to a port of the stage's sandbox.
fn request(stage: &Stage, method: Method, port: u16, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(format!("http://localhost{path}"))
        .header("opensandbox-ingress-to", format!("{}-{port}", stage.id))
        .header("opensandbox-secure-access", stage.token())
}

struct Answer {
    head: Response<()>,
    body: Bytes,
}

impl Answer {
    #[track_caller]
    fn expect(self, status: u16) -> Self {
        assert_eq!(
            self.head.status().as_u16(),
            status,
            "{:?} {:?}",
            self.head,
            self.body
        );
        self
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

async fn rest(mut body: RecvStream) -> Result<Bytes, h2::Error> {
    let mut all = BytesMut::new();
    while let Some(data) = in_time(body.data()).await {
        let data = data?;
        all.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    Ok(all.freeze())
}

async fn send(mut to: SendStream<Bytes>, mut data: Bytes) {
    while !data.is_empty() {
        to.reserve_capacity(data.len());
        let room = match to.capacity() {
            0 => match in_time(poll_fn(|context| to.poll_capacity(context))).await {
                Some(Ok(room)) => room,
                _ => return,
            },
            room => room,
        };
        to.send_data(data.split_to(room.min(data.len())), false)
            .unwrap();
    }
    to.send_data(Bytes::new(), true).unwrap();
}

async fn call(
    client: &mut SendRequest<Bytes>,
    request: http::request::Builder,
    body: &[u8],
) -> Answer {
    let request = request.body(()).unwrap();
    let (response, to) = client.send_request(request, body.is_empty()).unwrap();
    if !body.is_empty() {
        tokio::spawn(send(to, Bytes::copy_from_slice(body)));
    }
    let (parts, body) = in_time(response).await.unwrap().into_parts();
    Answer {
        head: Response::from_parts(parts, ()),
        body: rest(body).await.unwrap(),
    }
}

#[tokio::test]
async fn requests_and_bodies_pass_as_with_http_1_1() {
    let stage = stage().await;
    let client = &mut client(&stage).await;
    let seen = request(&stage, Method::GET, STREAMED, "/headers")
        .header("cookie", "a=1")
        .header("cookie", format!("b={}", stage.token()))
        .header("cookie", "c=3")
        .header("te", "trailers");
    let seen = call(client, seen, b"").await.expect(200);
    let seen_headers = seen.json();
    assert_eq!(
        seen_headers["cookie"], "a=1; c=3",
        "one header, and no token in it"
    );
    assert_eq!(seen_headers["host"], format!("localhost:{STREAMED}"));
    assert_eq!(seen_headers["x-forwarded-host"], "localhost");
    assert_eq!(seen_headers["x-forwarded-for"], "127.0.0.1");
    for ours in ["te", "opensandbox-ingress-to", "opensandbox-secure-access"] {
        assert_eq!(seen_headers.get(ours), None, "{seen_headers}");
    }
    assert!(seen.head.headers().contains_key("x-request-id"));
    let large = vec![b'x'; 3 << 20];
    for (port, stated) in [
        (STREAMED, true),
        (STREAMED, false),
        (ECHO, true),
        (ECHO, false),
    ] {
        let mut echo = request(&stage, Method::POST, port, "/a%2Fb?x");
        if stated {
            echo = echo.header("content-length", large.len());
        }
        let echoed = call(client, echo, &large).await.expect(200);
        assert!(echoed.body == large, "{port} {stated}");
        for name in ["connection", "transfer-encoding", "keep-alive"] {
            assert!(!echoed.head.headers().contains_key(name), "{name}");
        }
    }
    let head = call(client, request(&stage, Method::HEAD, STREAMED, "/x"), b"").await;
    assert!(head.expect(200).body.is_empty());
    let refused = Request::builder()
        .uri("http://localhost/")
        .header("opensandbox-ingress-to", format!("{}-{STREAMED}", stage.id));
    let refused = call(client, refused, b"").await.expect(401);
    assert!(refused.body.starts_with(b"OpenSandbox Ingress: "));
    assert!(refused.head.headers().contains_key("x-request-id"));
}

#[tokio::test]
async fn streams_of_one_connection_are_not_mixed_up() {
    let stage = stage().await;
    let other = stage.server.sandbox().await;
    stage.server.backend.listen(&other, STREAMED);
    let client = client(&stage).await;
    let mut calls = tokio::task::JoinSet::new();
    for turn in 0..100_usize {
        let mut client = client.clone();
        let port = [STREAMED, ECHO][turn % 2];
        let own = request(&stage, Method::POST, port, &format!("/{turn}"));
        calls.spawn(async move {
            let body = format!("{turn}").repeat(turn + 1);
            let echoed = call(&mut client, own, body.as_bytes()).await.expect(200);
            assert_eq!(echoed.body, body.as_bytes());
        });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
    // The token of one sandbox is not that of another, on the same connection either.
    let foreign = Request::builder()
        .uri("http://localhost/")
        .header("opensandbox-ingress-to", format!("{other}-{STREAMED}"))
        .header("opensandbox-secure-access", stage.token());
    call(&mut client.clone(), foreign, b"").await.expect(401);
}

#[tokio::test]
async fn what_breaks_off_is_reset_and_not_ended() {
    let mut stage = stage().await;
    let client = &mut client(&stage).await;
    let broken = request(&stage, Method::GET, PLAYED, "/").body(()).unwrap();
    let (response, _) = client.send_request(broken, true).unwrap();
    let mut service = stage.service().await;
    service.head().await;
    service
        .say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        .await;
    drop(service);
    // A reset may overtake the head of the response.
    if let Ok(response) = in_time(response).await {
        let body = rest(response.into_body()).await;
        assert!(body.is_err(), "the client learns that half is missing");
    }
    // A client that gives up closes what was open for it.
    let given_up = request(&stage, Method::GET, PLAYED, "/").body(()).unwrap();
    let (response, mut to) = client.send_request(given_up, true).unwrap();
    let mut service = stage.service().await;
    service.head().await;
    to.send_reset(Reason::CANCEL);
    drop(response);
    assert!(service.rest().await.is_empty());
    // The connection is good for more.
    call(client, request(&stage, Method::GET, STREAMED, "/ping"), b"")
        .await
        .expect(200);
}

#[tokio::test]
async fn interim_responses_and_answers_before_the_end_of_a_request_pass() {
    let mut stage = stage().await;
    let client = &mut client(&stage).await;
    let early = request(&stage, Method::POST, PLAYED, "/").body(()).unwrap();
    let (response, mut to) = client.send_request(early, false).unwrap();
    to.send_data(Bytes::from_static(b"begun"), false).unwrap();
    let mut service = stage.service().await;
    service.head().await;
    service
        .say("HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nfull")
        .await;
    let response = in_time(response).await.unwrap();
    assert_eq!(response.status(), 413);
    assert_eq!(rest(response.into_body()).await.unwrap(), "full");
}

/// A literal header field that is not indexed, without Huffman coding (RFC 7541 6.2.2).
fn field(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    for part in [name, value] {
        assert!(part.len() < 127, "fits in one byte");
        block.push(u8::try_from(part.len()).unwrap());
        block.extend_from_slice(part);
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let stream = stream.to_be_bytes();
    [&length[1..], &[kind, flags], &stream, payload].concat()
}

/// Sends a request byte by byte, and returns the type of the first frame about it, and what it holds.
async fn say(stage: &Stage, fields: &[(&[u8], &[u8])], end: bool, data: &[&[u8]]) -> (u8, Vec<u8>) {
    let mut stream = socket(stage).await;
    let mut block = Vec::new();
    for (name, value) in fields {
        field(&mut block, name, value);
    }
    let flags = END_HEADERS | if end { END_STREAM } else { 0 };
    let mut said = [
        PREFACE,
        &frame(SETTINGS, 0, 0, &[]),
        &frame(HEADERS, flags, 1, &block),
    ]
    .concat();
    for (at, piece) in data.iter().enumerate() {
        let flags = if at + 1 == data.len() { END_STREAM } else { 0 };
        said.extend(frame(DATA, flags, 1, piece));
    }
    stream.write_all(&said).await.unwrap();
    loop {
        let mut head = [0; 9];
        if in_time(stream.read_exact(&mut head)).await.is_err() {
            return (GOAWAY, Vec::new());
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        in_time(stream.read_exact(&mut payload)).await.unwrap();
        if matches!(head[3], HEADERS | RST_STREAM | GOAWAY) {
            return (head[3], payload);
        }
    }
}

/// The fields of a request that passes, with others put in for some and more behind them.
fn fields<'a>(
    token: &'a str,
    to: &'a str,
    instead: &[(&'a [u8], &'a [u8])],
    more: &[(&'a [u8], &'a [u8])],
) -> Vec<(&'a [u8], &'a [u8])> {
    let usual: [(&[u8], &[u8]); 6] = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/x"),
        (b":authority", b"localhost"),
        (b"opensandbox-ingress-to", to.as_bytes()),
        (b"opensandbox-secure-access", token.as_bytes()),
    ];
    let mut all: Vec<(&[u8], &[u8])> = Vec::new();
    for (name, value) in usual {
        match instead.iter().find(|(own, _)| *own == name) {
            Some((_, b"-")) => {}
            Some((_, value)) => all.push((name, value)),
            None => all.push((name, value)),
        }
    }
    for (name, value) in more {
        // Pseudo-headers of nobody stand where the known ones do.
        let at = if *name == b":evil" { 0 } else { all.len() };
        all.insert(at, (name, value));
    }
    all
}

type Fields<'a> = &'a [(&'a [u8], &'a [u8])];

#[tokio::test]
async fn nothing_becomes_another_request_on_its_way_to_http_1_1() {
    let mut stage = stage().await;
    let to = format!("{}-{PLAYED}", stage.id);
    let token = stage.token().to_owned();
    let cases: [(&str, Fields<'_>, Fields<'_>); 29] = [
        ("h2.CL", &[], &[(b"content-length", b"3")]),
        (
            "h2.CL twice",
            &[],
            &[(b"content-length", b"0"), (b"content-length", b"3")],
        ),
        ("h2.CL list", &[], &[(b"content-length", b"0, 3")]),
        ("h2.CL sign", &[], &[(b"content-length", b"+3")]),
        ("h2.TE", &[], &[(b"transfer-encoding", b"chunked")]),
        (
            "h2.TE and CL",
            &[],
            &[
                (b"transfer-encoding", b"chunked"),
                (b"content-length", b"0"),
            ],
        ),
        (
            "h2.TE in a name",
            &[],
            &[(b"a: b\r\ntransfer-encoding", b"chunked")],
        ),
        (
            "h2.TE in a value",
            &[],
            &[(b"a", b"b\r\ntransfer-encoding: chunked")],
        ),
        ("line feed", &[], &[(b"a", b"b\nc: d")]),
        ("nul", &[], &[(b"a", b"b\0c")]),
        ("name with a colon", &[], &[(b"a:b", b"c")]),
        ("name with a space", &[], &[(b"a b", b"c")]),
        ("name in capitals", &[], &[(b"Content-Length", b"0")]),
        ("no name", &[], &[(b"", b"c")]),
        ("connection", &[], &[(b"connection", b"x-own")]),
        ("keep-alive", &[], &[(b"keep-alive", b"5")]),
        ("proxy-connection", &[], &[(b"proxy-connection", b"close")]),
        ("upgrade", &[], &[(b"upgrade", b"websocket")]),
        ("te", &[], &[(b"te", b"chunked")]),
        (
            "path with a line",
            &[(b":path", b"/ HTTP/1.1\r\na: b")],
            &[],
        ),
        ("path with a space", &[(b":path", b"/x HTTP/1.1")], &[]),
        ("path of another host", &[(b":path", b"http://other/")], &[]),
        ("no path", &[(b":path", b"-")], &[]),
        (
            "method with a space",
            &[(b":method", b"GET / HTTP/1.1\r\na:")],
            &[],
        ),
        ("no method", &[(b":method", b"-")], &[]),
        ("two hosts", &[], &[(b"host", b"other")]),
        (
            "authority with a line",
            &[(b":authority", b"localhost\r\na: b")],
            &[],
        ),
        ("pseudo-header behind", &[], &[(b":path", b"/y")]),
        ("pseudo-header of nobody", &[], &[(b":evil", b"1")]),
    ];
    for (what, instead, more) in cases {
        let (kind, said) = say(&stage, &fields(&token, &to, instead, more), true, &[]).await;
        // 0x8c is the index of ":status: 400" (RFC 7541 appendix A).
        let is_refused = kind != HEADERS || said.first() == Some(&0x8c);
        assert!(is_refused, "{what}: {kind} {said:x?}");
        assert!(stage.is_left_alone(), "{what}: a service was asked");
    }
    // The same without the part that is wrong gets there.
    let passing = fields(&token, &to, &[], &[]);
    let mut connections = stage.take_connections();
    let serve = async {
        let stream = in_time(connections.recv()).await.unwrap();
        let mut service = crate::raw::Raw::new(tokio::net::UnixStream::from_std(stream).unwrap());
        let heard = service.head().await;
        service.say("HTTP/1.1 204 No Content\r\n\r\n").await;
        heard
    };
    let ((kind, _), heard) = tokio::join!(say(&stage, &passing, true, &[]), serve);
    assert_eq!((kind, heard.first.as_str()), (HEADERS, "POST /x HTTP/1.1"));
}

#[tokio::test]
async fn connect_is_no_way_into_a_sandbox() {
    let mut stage = stage().await;
    let to = format!("{}-{PLAYED}", stage.id);
    let token = stage.token().to_owned();
    let plain: Fields<'_> = &[
        (b":method", b"CONNECT"),
        (b":scheme", b"-"),
        (b":path", b"-"),
    ];
    let (kind, said) = say(&stage, &fields(&token, &to, plain, &[]), true, &[]).await;
    // A literal ":status", whose value is not among the indexed ones.
    assert_eq!(kind, HEADERS);
    assert!(
        said.windows(3).any(|it| it == b"405") || said.len() > 2,
        "{said:x?}"
    );
    let method: Fields<'_> = &[(b":method", b"CONNECT")];
    let extended = fields(&token, &to, method, &[]);
    let mut extended: Vec<_> = extended;
    extended.insert(4, (b":protocol", b"websocket"));
    let (kind, _) = say(&stage, &extended, false, &[]).await;
    assert_ne!(kind, HEADERS);
    assert!(stage.is_left_alone());
}

#[tokio::test]
async fn a_body_that_is_not_as_long_as_it_says_is_no_second_request() {
    let mut stage = stage().await;
    let to = format!("{}-{PLAYED}", stage.id);
    let token = stage.token().to_owned();
    let length: Fields<'_> = &[(b"content-length", b"3")];
    let head = fields(&token, &to, &[], length);
    let evil: &[u8] = b"abcGET /evil HTTP/1.1\r\nhost: a\r\n\r\n";
    for data in [&[evil][..], &[b"a"], &[b"abc", evil]] {
        let (kind, _) = say(&stage, &head, false, data).await;
        assert_eq!(kind, RST_STREAM);
        // The service may have been asked before the body turned out to be wrong.
        while let Some(mut service) = stage.try_service() {
            let heard = service.rest().await;
            let heard = String::from_utf8_lossy(&heard);
            assert_eq!(heard.matches("HTTP/1.1").count(), 1, "{heard}");
            assert!(!heard.contains("evil"), "{heard}");
        }
    }
}

#[tokio::test]
async fn a_server_that_stops_lets_streams_end() {
    let mut stage = stage().await;
    let mut client = client(&stage).await;
    let slow = request(&stage, Method::GET, PLAYED, "/").body(()).unwrap();
    let (response, _) = client.send_request(slow, true).unwrap();
    let mut service = stage.service().await;
    service.head().await;
    let server = stage.server;
    let stop = tokio::spawn(async move { server.running.stop(DEADLINE).await });
    // No new request is taken; the one under way gets its response.
    while client.clone().ready().await.is_ok() && !stop.is_finished() {
        let more = Request::get("http://localhost/").body(()).unwrap();
        match client.send_request(more, true) {
            Ok((refused, _)) => drop(refused.await),
            Err(_) => break,
        }
    }
    service
        .say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
        .await;
    let response = in_time(response).await.unwrap();
    assert_eq!(rest(response.into_body()).await.unwrap(), "done");
    in_time(stop).await.unwrap();
}
