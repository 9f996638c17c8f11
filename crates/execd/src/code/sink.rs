//! Where the events of one run go: to the client that asked, or nowhere once it has left.
//!
//! A client that does not read holds up its own context and nothing else: the sink takes a few
//! pieces and then waits.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use api::exec::event::{Event, EventKind, ExecutionError};
use api::frame::{Encoder, Framing};
use axum::body::{Body, Bytes};
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Pieces between a context and the connection: enough that small results never wait.
const PIECES: usize = 8;

/// How often a quiet stream says that it lives, as the reference daemon does.
const PING_EVERY: Duration = Duration::from_secs(3);

const ENCODER: Encoder = Encoder::new(Framing::Bare);

/// Which of the two streams text was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Stdout,
    Stderr,
}

/// The writing end.
pub(super) struct Sink {
    pieces: mpsc::Sender<Bytes>,
    begun: Instant,
}

impl Sink {
    /// A sink and the answer it feeds. `init` names the context, and a ping follows it, as the
    /// published clients know it.
    pub(super) fn open(context: &str) -> (Self, Response) {
        let (pieces, receiver) = mpsc::channel(PIECES);
        let sink = Self {
            pieces,
            begun: Instant::now(),
        };
        let mut first = Vec::new();
        ENCODER.event(
            &mut first,
            &Event::with_text(EventKind::Init, now(), context),
        );
        ENCODER.event(&mut first, &ping());
        sink.pieces
            .try_send(first.into())
            .expect("the channel is empty");
        (sink, answer(receiver))
    }

    /// Text of user code, in events of a bounded size.
    pub(super) async fn text(&self, channel: Channel, mut text: &str) {
        let kind = match channel {
            Channel::Stdout => EventKind::Stdout,
            Channel::Stderr => EventKind::Stderr,
        };
        while !text.is_empty() {
            let mut end = text.len().min(api::frame::TEXT_BYTES_MAX);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let (piece, rest) = text.split_at(end);
            self.event(&Event::with_text(kind, now(), piece)).await;
            text = rest;
        }
    }

    /// A value by media type: the result of the cell when it has a count, else a display.
    pub(super) async fn value(&self, count: Option<u64>, mut values: BTreeMap<String, String>) {
        // Some clients read `text`, others `text/plain`.
        if let Some(plain) = values.get("text/plain").cloned() {
            values.insert("text".to_owned(), plain);
        }
        if let Some(count) = count {
            let counted = Event {
                execution_count: Some(count),
                ..Event::new(EventKind::ExecutionCount, now())
            };
            self.event(&counted).await;
        }
        let event = Event {
            execution_count: count,
            results: Some(values),
            ..Event::new(EventKind::Result, now())
        };
        self.event(&event).await;
    }

    pub(super) async fn error(&self, error: ExecutionError) {
        self.event(&Event::failed(now(), error)).await;
    }

    /// The last event; the stream closes with it.
    pub(super) async fn complete(self) {
        let took = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last = Event {
            execution_time: Some(took),
            ..Event::new(EventKind::ExecutionComplete, now())
        };
        self.event(&last).await;
    }

    async fn event(&self, event: &Event) {
        let mut out = Vec::new();
        ENCODER.event(&mut out, event);
        // The client may have left; the code goes on without it.
        let _ = self.pieces.send(out.into()).await;
    }
}

fn answer(receiver: mpsc::Receiver<Bytes>) -> Response {
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async {
        match tokio::time::timeout(PING_EVERY, receiver.recv()).await {
            Ok(None) => None,
            Ok(Some(piece)) => Some((Ok::<_, Infallible>(piece), receiver)),
            Err(_) => {
                let mut out = Vec::new();
                ENCODER.event(&mut out, &ping());
                Some((Ok(out.into()), receiver))
            }
        }
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static(api::frame::CONTENT_TYPE),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

fn ping() -> Event {
    Event::with_text(EventKind::Ping, now(), "pong")
}

fn now() -> i64 {
    Timestamp::now().as_millisecond()
}
