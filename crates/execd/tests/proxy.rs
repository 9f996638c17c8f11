//! `/proxy/{port}` of a real daemon, with services on loopback.

#![expect(
    clippy::unwrap_used,
    reason = "a failed unwrap in a test is the test's failure"
)]

mod daemon;

use std::{
    convert::Infallible,
    net::{Ipv4Addr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use daemon::Daemon;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket},
    sync::mpsc,
};

type Answer = Response<BoxBody<Bytes, Infallible>>;

fn full(text: impl Into<Bytes>) -> BoxBody<Bytes, Infallible> {
    Full::new(text.into()).boxed()
}

/// A service on a loopback port of its own; counts its connections.
async fn service<F, A>(
    address: impl tokio::net::ToSocketAddrs,
    answer: F,
) -> (u16, Arc<AtomicUsize>)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let listener = TcpListener::bind(address).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let answer = answer.clone();
            let serve = hyper::server::conn::http1::Builder::new()
                .serve_connection(
                    TokioIo::new(stream),
                    service_fn(move |request| {
                        let answered = answer(request);
                        async move { Ok::<_, Infallible>(answered.await) }
                    }),
                )
                .with_upgrades();
            tokio::spawn(serve);
        }
    });
    (port, connections)
}

/// Tells what arrived.
async fn echo(request: Request<Incoming>) -> Answer {
    let head = format!(
        "{} {} {:?}",
        request.method(),
        request.uri(),
        request.headers()
    );
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut response = Response::new(full([head.as_bytes(), b"\n", &body].concat()));
    response
        .headers_mut()
        .insert("x-service", "yes".parse().unwrap());
    response
        .headers_mut()
        .insert(header::CONNECTION, "x-hop".parse().unwrap());
    response
        .headers_mut()
        .insert("x-hop", "not for the client".parse().unwrap());
    response
}

const METHODS: [&str; 7] = [
    "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND",
];

#[tokio::test]
async fn methods_paths_bodies_and_headers_cross() {
    let daemon = Daemon::start();
    let (port, connections) = service((Ipv4Addr::LOCALHOST, 0), echo).await;
    for method in METHODS {
        let request = Request::builder()
            .method(method)
            .uri(format!("/proxy/{port}/a%2Fb/../c?x=%20&y"))
            .header("x-execd-access-token", "secret")
            .header("x-kept", "1")
            .header("connection", "x-dropped")
            .header("x-dropped", "1")
            .body(Full::new(Bytes::from("body")))
            .unwrap();
        let answer = daemon.send(request).await;
        assert_eq!(answer.status, StatusCode::OK);
        let text = answer.text();
        assert!(
            text.starts_with(&format!("{method} /a%2Fb/../c?x=%20&y ")),
            "{text}"
        );
        assert!(text.ends_with("\nbody"), "{text}");
        assert!(text.contains("x-kept"), "{text}");
        for absent in ["secret", "x-dropped", "connection"] {
            assert!(!text.contains(absent), "{absent} in {text}");
        }
        assert_eq!(answer.headers["x-service"], "yes");
        assert!(!answer.headers.contains_key("x-hop"));
    }
    // The daemon keeps a connection when it has seen the end of the answer, which a quick client may
    // have seen before it: not each request finds it.
    let connections = connections.load(Ordering::SeqCst);
    assert!(
        connections < METHODS.len(),
        "no connection to the service was kept: {connections}"
    );
    assert!(
        daemon
            .get(&format!("/proxy/{port}"))
            .await
            .text()
            .starts_with("GET / ")
    );
}

#[tokio::test]
async fn head_has_the_length_and_no_body() {
    let daemon = Daemon::start();
    let (port, _) = service((Ipv4Addr::LOCALHOST, 0), |_| async {
        Response::new(full("12345"))
    })
    .await;
    let head = daemon
        .call(Method::HEAD, &format!("/proxy/{port}/"), "")
        .await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
    assert_eq!(head.headers[header::CONTENT_LENGTH], "5");
    // The same connection serves the next request: nothing of a body was left on it.
    assert_eq!(daemon.get(&format!("/proxy/{port}/")).await.text(), "12345");
}

/// A port of the first loopback address that is bound and never listened on: nobody else gets it
/// while the socket lives, and whoever dials it is refused.
fn refused_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

#[tokio::test]
async fn a_service_on_the_other_loopback_is_found_and_an_absent_one_named() {
    let daemon = Daemon::start();
    // On the first loopback address nobody may answer instead of it.
    let (_unanswered, port) = refused_port();
    let (port, _) = service((Ipv6Addr::LOCALHOST, port), echo).await;
    assert_eq!(
        daemon.get(&format!("/proxy/{port}/")).await.status,
        StatusCode::OK
    );
    let (_closed, closed) = refused_port();
    let answer = daemon.get(&format!("/proxy/{closed}/")).await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (StatusCode::BAD_GATEWAY, "RUNTIME_ERROR")
    );
    assert!(answer.text().contains(&closed.to_string()));
    for wrong in [
        "/proxy",
        "/proxy/",
        "/proxy/http/",
        "/proxy/0/",
        "/proxy/70000/x",
    ] {
        assert_eq!(
            daemon.get(wrong).await.status,
            StatusCode::BAD_REQUEST,
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn both_directions_stream() {
    let daemon = Daemon::start();
    // Answers each piece as it comes: neither side may wait for the other's end.
    let (port, _) = service((Ipv4Addr::LOCALHOST, 0), |request| async {
        Response::new(request.into_body().map_err(|e| panic!("{e}")).boxed())
    })
    .await;
    let (pieces, incoming) = mpsc::channel::<Bytes>(1);
    let body = StreamBody::new(futures_util::stream::unfold(
        incoming,
        |mut incoming| async {
            incoming
                .recv()
                .await
                .map(|piece| (Ok::<_, Infallible>(Frame::data(piece)), incoming))
        },
    ));
    let request = Request::post(format!("/proxy/{port}/"))
        .body(BodyExt::boxed_unsync(body))
        .unwrap();
    pieces.send("first".into()).await.unwrap();
    let mut answer = daemon.begin(request).await.into_body();
    for expected in ["first", "second", "third"] {
        if expected != "first" {
            pieces.send(expected.into()).await.unwrap();
        }
        let got = answer.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(got, expected);
    }
    drop(pieces);
    assert!(answer.frame().await.is_none());
}

#[tokio::test]
async fn an_upgrade_is_a_tunnel_of_bytes() {
    let daemon = Daemon::start();
    let (port, _) = service((Ipv4Addr::LOCALHOST, 0), |mut request| async move {
        let asked = request.headers()[header::UPGRADE].clone();
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgraded.await.unwrap());
            io.write_all(b"hello ").await.unwrap();
            let mut all = Vec::new();
            io.read_to_end(&mut all).await.unwrap();
            all.make_ascii_uppercase();
            io.write_all(&all).await.unwrap();
            io.shutdown().await.unwrap();
        });
        Response::builder()
            .status(101)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, asked)
            .body(full(""))
            .unwrap()
    })
    .await;
    let request = Request::get(format!("/proxy/{port}/ws"))
        .header("connection", "keep-alive, Upgrade")
        .header("upgrade", "anything/1")
        .body(Full::<Bytes>::default())
        .unwrap();
    let mut response = daemon.begin(request).await;
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()[header::UPGRADE], "anything/1");
    let mut tunnel = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    let mut greeting = [0; 6];
    tunnel.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"hello ");
    tunnel.write_all(b"and \x00\xffbytes").await.unwrap();
    // Closing one direction crosses too, and the other stays open for the answer.
    tunnel.shutdown().await.unwrap();
    let mut rest = Vec::new();
    tunnel.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"AND \x00\xffBYTES");
}

#[tokio::test]
async fn a_service_that_closes_kept_connections_is_asked_again() {
    let daemon = Daemon::start();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (closed, mut was_closed) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            // Promises to keep the connection and closes it after one answer.
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await.unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .await
                .unwrap();
            drop(stream);
            closed.send(()).await.unwrap();
        }
    });
    for _ in 0..20 {
        let answer = daemon.get(&format!("/proxy/{port}/")).await;
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (StatusCode::OK, "ok"),
            "{}",
            answer.text()
        );
        was_closed.recv().await.unwrap();
    }
}
