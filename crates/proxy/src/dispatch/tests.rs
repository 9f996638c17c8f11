//! Requests that are answered and requests that are carried on, in turn on one connection.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use daemon::Tasks;
use futures_util::StreamExt as _;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::*;
use crate::TrustedProxies;
use crate::connection_limit::ConnectionLimit;
use crate::fake::{FakeSandboxes, RouterApi};

/// Nothing here should take this long; it only keeps a broken test from hanging.
const DEADLINE: Duration = Duration::from_secs(90);

const CARRIED: &str = "GET /carried HTTP/1.1\r\nhost: x\r\n\r\n";

/// Never tired of waiting, so that whatever ends a connection is not that.
const PATIENT: Limits = Limits {
    head_bytes: 1024,
    headers: 100,
    idle: None,
    head: None,
    connections: 4096,
    threads: 0,
};

#[derive(Clone, Default)]
struct Slow {
    entered: Arc<Notify>,
    release: Arc<Notify>,
    dropped: Arc<Notify>,
}

struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn app(slow: &Slow) -> RouterApi {
    let slow = slow.clone();
    // Reads no more than the beginning, and keeps the rest until its answer was sent.
    let beginning = |mut body: Body| async move {
        let _ = body.frame().await;
        let end = futures_util::stream::iter([Ok::<_, io::Error>("enough")]);
        Body::from_stream(end.inspect(move |_| {
            let _kept = &body;
        }))
    };
    RouterApi(
        Router::new()
            .route("/", get(|| async { "hello" }))
            .route("/beginning", post(beginning))
            .route("/echo", post(|body: String| async { body }))
            .route(
                "/slow",
                get(|| async move {
                    let _dropped = Dropped(slow.dropped);
                    slow.entered.notify_one();
                    slow.release.notified().await;
                    "slow"
                }),
            ),
    )
}

async fn start(limits: Limits) -> (Tasks, SocketAddr, Slow) {
    let (tasks, slow) = (Tasks::new("test"), Slow::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (api, trusted) = (app(&slow), TrustedProxies::default());
    crate::serve(&tasks, listener, api, FakeSandboxes, trusted, limits).unwrap();
    (tasks, address, slow)
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let read = tokio::time::timeout(DEADLINE, read).await;
    read.expect("the server closes").unwrap();
    String::from_utf8(answer).unwrap()
}

/// Sends text, reads to the end of the connection.
async fn exchange(address: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    read_all(&mut stream).await
}

fn close(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n")
}

/// What each of the answers ends with.
fn bodies(answers: &str) -> Vec<&str> {
    let parts = answers.split("HTTP/1.1 ").skip(1);
    parts.map(|it| it.rsplit("\r\n").next().unwrap()).collect()
}

#[tokio::test]
async fn a_proxy_that_panics_is_answered_for() {
    let (_tasks, address, _) = start(PATIENT).await;
    let id = "x-request-id: mine-3\r\n";
    let request = format!("GET /carried/panic HTTP/1.1\r\n{id}\r\n");
    let answer = exchange(address, &format!("{request}{CARRIED}")).await;
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert_eq!(answer.matches("mine-3").count(), 2, "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    assert!(!answer.contains("on purpose"), "{answer}");
    // Not into the middle of an answer.
    let answer = exchange(address, "GET /carried/late HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nbegun"), "{answer}");
}

#[tokio::test]
async fn a_connection_ends_where_its_client_said() {
    let (_tasks, address, _) = start(PATIENT).await;
    let answers = exchange(address, &(CARRIED.to_owned() + &close("/", ""))).await;
    assert_eq!(bodies(&answers), ["carried", "hello"]);
    let hello = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let answers = exchange(
        address,
        &(hello.to_owned() + &close("/carried", "") + hello),
    )
    .await;
    assert_eq!(bodies(&answers), ["hello", "carried"]);
    let answer = exchange(address, "GET / HTTP/1.0\r\n\r\n").await;
    assert!(answer.ends_with("hello"), "{answer}");
    let kept = "GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n";
    let answers = exchange(address, &(kept.to_owned() + &close("/", ""))).await;
    assert_eq!(answers.matches("hello").count(), 2, "{answers}");
    let answer = exchange(address, "GET /carried HTTP/1.0\r\n\r\n").await;
    assert!(answer.ends_with("carried"), "{answer}");
    let answer = exchange(address, "nonsense\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let head = "a: b\r\n".repeat(1000);
    let answer = exchange(address, &close("/carried", &head)).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn what_a_handler_did_not_read_is_no_part_of_what_follows() {
    let (_tasks, address, _) = start(PATIENT).await;
    let head = "POST /beginning HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunks = "3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n";
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{head}{chunks}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"0\r\n\r\n") {
        let read = tokio::time::timeout(DEADLINE, stream.read_buf(&mut answer)).await;
        assert!(read.expect("an answer in time").unwrap() > 0);
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.contains("enough"), "{answer}");
    assert!(!answer.contains("connection: close"), "{answer}");
    let rest = close("/", "");
    stream.write_all(rest.as_bytes()).await.unwrap();
    assert!(read_all(&mut stream).await.ends_with("hello"));
}

#[tokio::test]
async fn requests_for_both_may_follow_one_another_in_one_piece() {
    let (_tasks, address, _) = start(PATIENT).await;
    let hello = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let length = "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 34\r\n\r\n";
    assert_eq!(CARRIED.len(), 34, "what looks like a request is a body");
    let chunks = "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    let text = format!(
        "{hello}{CARRIED}{hello}{length}{CARRIED}{CARRIED}\r\n{hello}\
         {chunks}22\r\n{CARRIED}\r\n0\r\n\r\n{CARRIED}{chunks}0\r\n\r\n{hello}{}",
        close("/carried", ""),
    );
    let in_one_piece = exchange(address, &text).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in text.as_bytes() {
        stream.write_all(&[*byte]).await.unwrap();
    }
    for answers in [in_one_piece, read_all(&mut stream).await] {
        let echoed = CARRIED.trim_end();
        let seen: Vec<_> = answers
            .split("HTTP/1.1 200 OK\r\n")
            .skip(1)
            .map(|answer| answer.split_once("\r\n\r\n").unwrap().1.trim_end())
            .collect();
        assert_eq!(
            seen,
            [
                "hello", "carried", "hello", echoed, "carried", "hello", echoed, "carried", "",
                "hello", "carried"
            ],
            "{answers}"
        );
    }
}

#[tokio::test]
async fn a_head_that_two_parsers_could_read_differently_hides_no_request() {
    let (_tasks, address, _) = start(PATIENT).await;
    // By its Content-Length the second request is the body of the first, by its chunks it is not. The
    // library takes or refuses the first, and ends the connection behind it.
    for lengths in [
        "content-length: 41\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 41\r\n",
        "content-length: 5\r\ncontent-length: 41\r\n",
        "transfer-encoding: chunked, identity\r\n",
    ] {
        let text = format!(
            "POST /echo HTTP/1.1\r\nhost: x\r\n{lengths}\r\n0\r\n\r\n{}",
            close("/carried", "")
        );
        let answers = exchange(address, &text).await;
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
        assert!(answers.contains("connection: close\r\n"), "{answers}");
    }
}

#[tokio::test]
async fn who_sends_no_request_or_half_of_one_is_not_waited_for() {
    let (_tasks, address, _) = start(Limits {
        idle: Some(Duration::from_millis(500)),
        head: Some(Duration::from_millis(500)),
        ..PATIENT
    })
    .await;
    for text in [
        "",
        "GET / HTTP/1.1\r\nhost: x\r\n",
        "GET /carried HTTP/1.1\r\nhost: x\r\n",
    ] {
        assert_eq!(exchange(address, text).await, "");
    }
    let hello = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let answers = exchange(address, &format!("{CARRIED}{hello}GET")).await;
    assert_eq!(bodies(&answers), ["carried", "hello"]);
}

#[tokio::test]
async fn a_stopping_server_answers_what_it_works_on_and_ends() {
    let (tasks, address, slow) = start(PATIENT).await;
    let text = "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n";
    let working = tokio::spawn(async move { exchange(address, text).await });
    slow.entered.notified().await;
    let stopping = tokio::spawn(async move { tasks.shutdown(DEADLINE).await });
    slow.release.notify_one();
    let answers = working.await.unwrap();
    assert_eq!(bodies(&answers), ["slow"], "{answers}");
    assert_eq!(stopping.await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_handler_whose_client_hangs_up_is_dropped() {
    let (_tasks, address, slow) = start(PATIENT).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    let text = format!("{CARRIED}GET /slow HTTP/1.1\r\nhost: x\r\n\r\n");
    client.write_all(text.as_bytes()).await.unwrap();
    slow.entered.notified().await;
    drop(client);
    let dropped = tokio::time::timeout(DEADLINE, slow.dropped.notified()).await;
    dropped.expect("an end in time");
}

/// A stream that counts how often it is looked at.
struct Counted<S>(S, Arc<AtomicUsize>);

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_read(context, room)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Io for Counted<S> {}

#[tokio::test]
async fn a_connection_that_waits_is_left_alone() {
    let (tasks, slow) = (Tasks::new("test"), Slow::default());
    let relay = Relay::new(FakeSandboxes, TrustedProxies::default(), &tasks);
    let dispatch = Dispatch::new(app(&slow), relay, PATIENT);
    let address = "192.0.2.1".parse().unwrap();
    let limit = Arc::new(ConnectionLimit::new(1));
    let permit = limit.open(address, true, &tasks.stopping()).unwrap();
    let looks = Arc::new(AtomicUsize::new(0));
    let (mut client, ours) = tokio::io::duplex(1024);
    let stream = Box::new(Counted(ours, Arc::clone(&looks)));
    let origin = Client {
        address,
        is_tls: false,
        user: None,
    };
    let serving = tokio::spawn(async move { dispatch.serve(stream, origin, permit, false).await });
    // Waits for a handler with the next request at hand, then for a request.
    let text = format!("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n{CARRIED}");
    client.write_all(text.as_bytes()).await.unwrap();
    slow.entered.notified().await;
    let settle = async || {
        // Whatever would run by itself runs whenever others let it.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        looks.load(Ordering::Relaxed)
    };
    assert_eq!(settle().await, settle().await);
    slow.release.notify_one();
    let mut seen = Vec::new();
    while !seen.ends_with(b"carried") {
        let read = tokio::time::timeout(DEADLINE, client.read_buf(&mut seen)).await;
        assert!(read.expect("answers in time").unwrap() > 0);
    }
    assert_eq!(settle().await, settle().await);
    drop(client);
    let ended = tokio::time::timeout(DEADLINE, serving).await;
    ended.expect("an end in time").unwrap();
}
