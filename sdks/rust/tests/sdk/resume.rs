//! What becomes of broken connections: streams that go on, streams that cannot, and which requests
//! are sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opensandbox::{Client, ConnectionConfig, Error, Event, RetryPolicy, Sandbox};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::sandbox;
use crate::server::Server;

/// Passes connections on and cuts each after so many bytes from the server; 0 is never.
struct Relay {
    address: String,
    cut_after: Arc<AtomicUsize>,
    cuts: Arc<AtomicUsize>,
}

impl Relay {
    async fn start(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (cut_after, cuts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (limit, count) = (Arc::clone(&cut_after), Arc::clone(&cuts));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&to).await.unwrap();
                tokio::spawn(pass(client, server, Arc::clone(&limit), Arc::clone(&count)));
            }
        });
        Self {
            address,
            cut_after,
            cuts,
        }
    }
}

async fn pass(
    client: TcpStream,
    server: TcpStream,
    cut_after: Arc<AtomicUsize>,
    cuts: Arc<AtomicUsize>,
) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    });
    let mut buffer = vec![0; 4096];
    let mut passed = 0;
    while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
        let limit = cut_after.load(Ordering::Acquire);
        if limit > 0 && passed >= limit {
            cuts.fetch_add(1, Ordering::AcqRel);
            break;
        }
        if to_client.write_all(&buffer[..length]).await.is_err() {
            break;
        }
        passed += length;
    }
    up.abort();
}

pub(crate) async fn a_broken_stream_goes_on_exactly_once(server: Arc<Server>) {
    const LINES: usize = 20_000;
    let relay = Relay::start(server.address.clone()).await;
    let config = server.config().domain(relay.address.clone());
    let sandbox = sandbox(&Client::new(config).unwrap()).await;
    // Every connection from now on lasts for some thousand events.
    relay.cut_after.store(200_000, Ordering::Release);
    let output = sandbox
        .commands()
        .run(format!("seq {LINES}; exit 5"))
        .await
        .unwrap();
    relay.cut_after.store(0, Ordering::Release);
    let wanted: String = (1..=LINES).map(|line| format!("{line}\n")).collect();
    assert!(output.stdout == wanted, "every line once and in order");
    assert_eq!(output.exit_code(), Some(5));
    let cuts = relay.cuts.load(Ordering::Acquire);
    assert!(cuts >= 3, "the connection was cut {cuts} times only");
    sandbox.kill().await.unwrap();
}

type Answer = Box<dyn Fn(&str, usize) -> Vec<u8> + Send + Sync>;

/// A server by hand: `answer` gets the request line and how many came before.
async fn by_hand(answer: Answer) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read_exact(&mut byte).await.is_err() {
                    break;
                }
                head.push(byte[0]);
            }
            let line = String::from_utf8_lossy(&head)
                .lines()
                .next()
                .unwrap_or("")
                .to_owned();
            let before = count.fetch_add(1, Ordering::AcqRel);
            let _ = stream.write_all(&answer(&line, before)).await;
            let _ = stream.shutdown().await;
            // Read what is left of the request, so that the close is not a reset.
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    });
    (address, requests)
}

fn json(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
        .into()
}

pub(crate) async fn a_stream_without_numbers_says_that_it_broke(_: Arc<Server>) {
    // As the published daemon sends them: bare objects, lines without their ends, no numbers.
    let events = [
        r#"{"type":"init","text":"c1","timestamp":1}"#,
        r#"{"type":"stdout","text":"l1","timestamp":2}"#,
        r#"{"type":"stdout","text":"l2","timestamp":3}"#,
        r#"{"type":"execution_complete","execution_time":4,"timestamp":4}"#,
    ];
    let stream = |events: &[&str]| {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let body: String = events.iter().map(|event| format!("{event}\n\n")).collect();
        format!("{head}{body}").into_bytes()
    };
    let (whole, torn) = (stream(&events), stream(&events[..2]));
    // The endpoint leads to another port than the server's; a relay makes them one.
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = relay.local_addr().unwrap();
    let (server, _) = by_hand(Box::new(move |line, before| {
        if line.contains("/endpoints/") {
            return json("200 OK", &format!(r#"{{"endpoint":"{address}"}}"#));
        }
        if before == 1 {
            whole.clone()
        } else {
            torn.clone()
        }
    }))
    .await;
    tokio::spawn(async move {
        while let Ok((mut client, _)) = relay.accept().await {
            let mut upstream = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
            });
        }
    });
    let config = ConnectionConfig::new().domain(address.to_string());
    let sandbox = Sandbox::handle(Client::new(config).unwrap(), "s1");
    let output = sandbox.commands().run("x").await.unwrap();
    assert_eq!(
        (output.stdout.as_str(), output.exit_code()),
        ("l1\nl2\n", Some(0))
    );

    let mut events = sandbox.commands().run("x").stream().await.unwrap();
    let mut seen = Vec::new();
    let error = loop {
        match events.next().await.expect("an error before the end") {
            Ok(event) => seen.push(event),
            Err(error) => break error,
        }
    };
    assert_eq!(seen[1..], [Event::Stdout("l1\n".to_owned())]);
    assert!(matches!(error, Error::StreamBroken { .. }), "{error}");
    assert!(
        events.next().await.is_none(),
        "nothing comes after an error"
    );
}

pub(crate) async fn only_what_is_safe_is_sent_again(_: Arc<Server>) {
    let (address, requests) = by_hand(Box::new(|line, before| {
        if line.starts_with("GET") && before >= 2 {
            return json("200 OK", r#"{"status":"healthy"}"#);
        }
        json(
            "503 Service Unavailable",
            r#"{"code":"BUSY","message":"not now"}"#,
        )
    }))
    .await;
    let policy = RetryPolicy {
        attempts: 3,
        first_delay: Duration::from_millis(1),
        longest_delay: Duration::from_millis(5),
    };
    let config = ConnectionConfig::new().domain(address).retry(policy);
    let client = Client::new(config).unwrap();
    assert_eq!(client.health().await.unwrap().status, "healthy");
    assert_eq!(requests.swap(0, Ordering::AcqRel), 3, "reading is repeated");
    let error = client.create("host").await.unwrap_err();
    assert_eq!(error.code(), Some("BUSY"));
    assert_eq!(requests.load(Ordering::Acquire), 1, "making is not");
}
