//! Event streams as a client reads them.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::Value;

use crate::daemon::Daemon;

/// Nothing in these tests takes longer unless it hangs, however busy the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// An open event stream.
pub(crate) struct Stream {
    body: Incoming,
    buffer: BytesMut,
}

impl Stream {
    /// The next event that is not a ping; `None` at the end. Pings do not make it wait longer.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let event = async {
            loop {
                let event = self.any().await?;
                if event["type"] != "ping" {
                    return Some(event);
                }
            }
        };
        tokio::time::timeout(PATIENCE, event)
            .await
            .unwrap_or_else(|_| panic!("no event but pings came within {PATIENCE:?}"))
    }

    /// The next event; `None` at the end.
    pub(crate) async fn any(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let line = self.buffer.split_to(end);
                self.buffer.advance(2);
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.buffer.extend_from_slice(frame.data_ref().unwrap());
        }
    }

    /// All events that are left, without pings.
    pub(crate) async fn rest(mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// Opens an event stream with a request.
pub(crate) async fn open(daemon: &Daemon, method: Method, uri: &str, body: &Value) -> Stream {
    open_as(daemon, method, uri, body, "test/1.0").await
}

pub(crate) async fn open_as(
    daemon: &Daemon,
    method: Method,
    uri: &str,
    body: &Value,
    agent: &str,
) -> Stream {
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("host", "execd")
        .header("user-agent", agent)
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    let response = tokio::time::timeout(PATIENCE, daemon.begin(request))
        .await
        .unwrap();
    if response.status() != 200 {
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        panic!("{status}: {}", String::from_utf8_lossy(&body));
    }
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    Stream {
        body: response.into_body(),
        buffer: BytesMut::new(),
    }
}

/// Starts a command and returns its id and its stream, past `init`.
pub(crate) async fn start(daemon: &Daemon, body: &Value) -> (String, Stream) {
    let mut stream = open(daemon, Method::POST, "/command", body).await;
    let init = stream.next().await.unwrap();
    assert_eq!(init["type"], "init");
    (init["text"].as_str().unwrap().to_owned(), stream)
}

/// Runs a command to its end.
pub(crate) async fn run(daemon: &Daemon, body: &Value) -> Outcome {
    let (id, stream) = start(daemon, body).await;
    Outcome::new(id, stream.rest().await)
}

/// What a whole stream said.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) id: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// 0, or the error's value.
    pub(crate) code: String,
    pub(crate) events: Vec<Value>,
}

impl Outcome {
    /// Exactly one last event, and it is the last.
    pub(crate) fn new(id: String, events: Vec<Value>) -> Self {
        let (last, output) = events.split_last().expect("a last event");
        let text = |kind: &str| -> String {
            output
                .iter()
                .filter(|e| e["type"] == kind)
                .map(|e| e["text"].as_str().unwrap())
                .collect()
        };
        let code = match last["type"].as_str().unwrap() {
            "execution_complete" => "0".to_owned(),
            "error" => {
                assert_eq!(last["error"]["ename"], "CommandExecError");
                last["error"]["evalue"].as_str().unwrap().to_owned()
            }
            other => panic!("the last event is {other}"),
        };
        assert!(
            output
                .iter()
                .all(|e| e["type"] == "stdout" || e["type"] == "stderr"),
            "{output:?}"
        );
        let (stdout, stderr) = (text("stdout"), text("stderr"));
        Self {
            id,
            stdout,
            stderr,
            code,
            events,
        }
    }

    pub(crate) fn texts(&self, kind: &str) -> Vec<&str> {
        let texts = self.events.iter().filter(|e| e["type"] == kind);
        texts.map(|e| e["text"].as_str().unwrap()).collect()
    }
}
