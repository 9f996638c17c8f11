//! A listener and its connections, over real sockets.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use daemon::Tasks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

use super::*;
use crate::Peer;
use crate::fake::{FakeSandboxes, RouterApi};

/// Nothing here should take this long; it only keeps a broken test from hanging.
const DEADLINE: Duration = Duration::from_secs(90);

fn app() -> Router {
    Router::new().route("/", get(|| async { "hello" })).route(
        "/peer",
        get(|peer: axum::Extension<Peer>| async move { peer.0.ip.to_string() }),
    )
}

async fn start(limits: Limits) -> (Tasks, SocketAddr) {
    let tasks = Tasks::new("test");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (api, trusted) = (RouterApi(app()), TrustedProxies::default());
    serve(&tasks, listener, api, FakeSandboxes, trusted, limits).unwrap();
    (tasks, address)
}

/// Sends text, reads to the end of the connection.
async fn exchange(address: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    read_all(&mut stream).await
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    tokio::time::timeout(DEADLINE, read)
        .await
        .expect("the server closes")
        .unwrap();
    String::from_utf8(answer).unwrap()
}

fn request(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n")
}

#[tokio::test]
async fn echoes_a_request_id_and_makes_one_where_it_is_unusable() {
    let (_tasks, address) = start(Limits::default()).await;
    let answer = exchange(address, &request("/", "x-request-id: mine-1\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("x-request-id: mine-1\r\n"), "{answer}");

    for unusable in [
        String::new(),
        "x-request-id: a b\r\n".into(),
        format!("x-request-id: {}\r\n", "a".repeat(129)),
    ] {
        let answer = exchange(address, &request("/", &unusable)).await;
        let id = answer
            .lines()
            .find_map(|line| line.strip_prefix("x-request-id: "))
            .unwrap();
        assert!(
            id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()),
            "{id}"
        );
    }
}

#[tokio::test]
async fn a_handler_is_told_who_its_client_is() {
    let (_tasks, address) = start(Limits::default()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let own = stream.local_addr().unwrap().ip().to_string();
    let request = request("/peer", "");
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(read_all(&mut stream).await.ends_with(&own));
}

/// On the runtime of the listener, and on threads of its own.
#[tokio::test]
async fn a_unix_socket_is_served_and_tells_the_user() {
    for threads in [0, 2] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let tasks = Tasks::new("test");
        let listener = UnixListener::bind(&path).unwrap();
        let user = get(|peer: axum::Extension<Peer>| async move { format!("{:?}", peer.0.user) });
        let api = RouterApi(app().route("/user", user));
        let trusted = TrustedProxies(vec!["127.0.0.1".parse().unwrap()]);
        let limits = Limits {
            threads,
            ..Limits::default()
        };
        serve(&tasks, listener, api, FakeSandboxes, trusted, limits).unwrap();
        for (path_asked, told) in [
            (
                "/user",
                format!("{:?}", Some(rustix::process::geteuid().as_raw())),
            ),
            ("/peer", "127.0.0.1".to_owned()),
        ] {
            let mut stream = UnixStream::connect(&path).await.unwrap();
            let text = request(path_asked, "x-forwarded-for: 192.0.2.9\r\n");
            stream.write_all(text.as_bytes()).await.unwrap();
            let mut answer = String::new();
            let read = stream.read_to_string(&mut answer);
            tokio::time::timeout(DEADLINE, read).await.unwrap().unwrap();
            assert!(answer.ends_with(&told), "{answer}");
        }
    }
}

#[tokio::test]
async fn refuses_a_head_that_is_too_large() {
    let (_tasks, address) = start(Limits {
        head_bytes: 1024,
        ..Limits::default()
    })
    .await;
    let answer = exchange(
        address,
        &request("/", &format!("a: {}\r\n", "b".repeat(2000))),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let (_tasks, address) = start(Limits {
        headers: 4,
        ..Limits::default()
    })
    .await;
    let answer = exchange(address, &request("/", &"a: b\r\n".repeat(9))).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn closes_connections_that_send_no_request_or_only_half_of_one() {
    let soon = Some(Duration::from_millis(500));
    let (_tasks, address) = start(Limits {
        idle: soon,
        head: soon,
        ..Limits::default()
    })
    .await;
    exchange(address, "").await;
    exchange(address, "GET / HTTP/1.1\r\nhost: x\r\n").await;
    // Also after a first request: this one does not ask to close.
    let answer = exchange(address, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn shutdown_closes_idle_connections_and_answers_those_in_work() {
    let entered = Arc::new(Notify::new());
    let release = Arc::new(Notify::new());
    let (entered_by_handler, waits) = (Arc::clone(&entered), Arc::clone(&release));
    let slow = move || async move {
        entered_by_handler.notify_one();
        waits.notified().await;
        "done"
    };
    let tasks = Tasks::new("test");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().route("/", get(slow));
    let (api, trusted, limits) = (RouterApi(app), TrustedProxies::default(), Limits::default());
    serve(&tasks, listener, api, FakeSandboxes, trusted, limits).unwrap();

    let mut idle = TcpStream::connect(address).await.unwrap();
    let working =
        tokio::spawn(async move { exchange(address, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await });
    entered.notified().await;
    let stopping = tokio::spawn(async move { tasks.shutdown(DEADLINE).await });
    assert_eq!(read_all(&mut idle).await, "");
    release.notify_one();
    assert!(working.await.unwrap().ends_with("done"));
    assert_eq!(stopping.await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn connections_are_dealt_out_to_threads_and_end_with_the_tasks() {
    let limits = Limits {
        threads: 2,
        ..Limits::default()
    };
    let thread = || async {
        let thread = std::thread::current();
        format!("{:?} {:?}", thread.name(), thread.id())
    };
    let tasks = Tasks::new("test");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().route("/thread", get(thread));
    let (api, trusted) = (RouterApi(app), TrustedProxies::default());
    serve(&tasks, listener, api, FakeSandboxes, trusted, limits).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let answer = exchange(address, &request("/thread", "")).await;
        let body = answer.rsplit("\r\n").next().unwrap().to_owned();
        assert!(body.contains("connections"), "{answer}");
        seen.insert(body);
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
    // One that is idle, and was certainly accepted, is closed.
    let mut idle = TcpStream::connect(address).await.unwrap();
    let text = "GET /thread HTTP/1.1\r\nhost: x\r\n\r\n";
    idle.write_all(text.as_bytes()).await.unwrap();
    let first = tokio::time::timeout(DEADLINE, idle.read_u8()).await;
    assert_eq!(first.expect("an answer in time").unwrap(), b'H');
    let late = tasks.shutdown(Duration::from_secs(30)).await;
    assert_eq!(late, Vec::<String>::new());
    assert!(read_all(&mut idle).await.contains("connections"));
}

#[tokio::test]
async fn half_a_head_has_less_time_than_an_idle_connection() {
    let (_tasks, address) = start(Limits {
        idle: None,
        head: Some(Duration::from_millis(200)),
        ..Limits::default()
    })
    .await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    assert_eq!(exchange(address, "GET / HTTP/1.1\r\nhost:").await, "");
    // Empty lines are no head.
    idle.write_all(b"\r\n\n").await.unwrap();
    assert_eq!(exchange(address, "\r\nGET / HT").await, "");
    let request = request("/", "");
    idle.write_all(request.as_bytes()).await.unwrap();
    assert!(read_all(&mut idle).await.ends_with("hello"));
}

#[tokio::test]
async fn strangers_without_end_keep_nobody_out() {
    let (_tasks, address) = start(Limits {
        connections: 8,
        ..Limits::default()
    })
    .await;
    let mut half: Vec<TcpStream> = Vec::new();
    for _ in 0..32 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        half.push(stream);
    }
    let answer = exchange(address, &request("/", "")).await;
    assert!(answer.ends_with("hello"), "{answer}");
    // The first to come was the first to go.
    assert_eq!(read_all(&mut half[0]).await, "");
}

#[tokio::test]
async fn a_known_client_keeps_its_connection_while_strangers_come() {
    let known = |permit: axum::Extension<ConnectionPermit>| async move {
        permit.0.mark_known();
        "known"
    };
    let tasks = Tasks::new("test");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let api = RouterApi(app().route("/known", get(known)));
    let limits = Limits {
        connections: 4,
        ..Limits::default()
    };
    let trusted = TrustedProxies::default();
    serve(&tasks, listener, api, FakeSandboxes, trusted, limits).unwrap();
    let mut client = TcpStream::connect(address).await.unwrap();
    let ask = b"GET /known HTTP/1.1\r\nhost: x\r\n\r\n";
    client.write_all(ask).await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"known") {
        assert!(client.read_buf(&mut seen).await.unwrap() > 0);
    }
    let mut strangers = Vec::new();
    for _ in 0..8 {
        strangers.push(TcpStream::connect(address).await.unwrap());
    }
    assert_eq!(read_all(&mut strangers[0]).await, "");
    client
        .write_all(request("/known", "").as_bytes())
        .await
        .unwrap();
    assert!(read_all(&mut client).await.ends_with("known"));
}
