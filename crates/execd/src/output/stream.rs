//! A client's event stream: `init`, a ping at once and every three seconds, output as it
//! comes, and one last event, after which the stream closes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::blocks::{Cursor, Lookup, next_record};
use super::journal::{AttachedReader, Journal};
use super::lines::{EventShape, OldLines};
use super::pump::now_ms;
use super::{blocks::Record, encode};

/// How often a quiet stream says that it lives, as the reference daemon does.
const PING_EVERY: Duration = Duration::from_secs(3);

/// Events are handed to the connection in pieces of this size.
const PIECE_BYTES: usize = 64 * 1024;

/// Pieces between the encoder and the connection: one being written, one ready.
const PIECES: usize = 2;

/// The number of the `init` event.
const INIT_SEQ: u64 = 1;

/// What a stream begins with.
pub(crate) struct StreamStart {
    /// The text of `init`: the id to ask by.
    pub(crate) id: String,
    pub(crate) started_ms: i64,
    pub(crate) shape: EventShape,
    /// The number of the last event the client has seen; 0 for none.
    pub(crate) after: u64,
    /// Complete at once: the command goes on in the background.
    pub(crate) is_detached: bool,
}

/// The events asked for are not kept any more; this is the oldest that is.
#[derive(Debug, thiserror::Error)]
#[error("the events after this one are no longer kept; the oldest that is has number {oldest}")]
pub(crate) struct EventsGone {
    pub(crate) oldest: u64,
}

/// Answers with the journal's events, from the one after `start.after` on.
pub(crate) fn respond(journal: &Arc<Journal>, start: &StreamStart) -> Result<Response, EventsGone> {
    let cursor = journal
        .seek_event(start.after.saturating_add(1).max(INIT_SEQ + 1))
        .map_err(|oldest| EventsGone { oldest: oldest.seq })?;
    let (pieces, receiver) = mpsc::channel::<Bytes>(PIECES);
    let mut stream = Stream {
        attached: journal.attach(cursor),
        journal: Arc::clone(journal),
        cursor,
        after: start.after,
        old: (start.shape == EventShape::Old).then(OldLines::default),
        out: Vec::new(),
        pieces,
    };
    stream.open(start);
    if start.is_detached {
        let seq = stream.numbered(INIT_SEQ + 1);
        encode::started(&mut stream.out, now_ms(), seq);
    }
    let first = std::mem::take(&mut stream.out);
    if !first.is_empty() {
        // Handed over before the connection first looks, so that the head and the first
        // events leave in one write.
        stream
            .pieces
            .try_send(first.into())
            .expect("the channel is empty");
    }
    if !start.is_detached {
        tokio::spawn(stream.run());
    }
    Ok(event_stream(receiver))
}

fn event_stream(receiver: mpsc::Receiver<Bytes>) -> Response {
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async {
        receiver
            .recv()
            .await
            .map(|piece| (Ok::<_, std::convert::Infallible>(piece), receiver))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

struct Stream {
    journal: Arc<Journal>,
    attached: AttachedReader,
    cursor: Cursor,
    after: u64,
    old: Option<OldLines>,
    out: Vec<u8>,
    pieces: mpsc::Sender<Bytes>,
}

/// The client is gone.
struct ClientLeft;

impl Stream {
    fn open(&mut self, start: &StreamStart) {
        if self.after < INIT_SEQ {
            let seq = self.numbered(INIT_SEQ);
            encode::init(&mut self.out, &start.id, start.started_ms, seq);
        }
        encode::ping(&mut self.out, now_ms());
    }

    /// Old clients do not know numbers.
    fn numbered(&self, seq: u64) -> Option<u64> {
        self.old.is_none().then_some(seq)
    }

    async fn run(mut self) {
        // Nobody is left to tell when the client is gone; dropping the stream lets the
        // command go on.
        let _ = self.follow().await;
    }

    async fn follow(&mut self) -> Result<(), ClientLeft> {
        let mut pings = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let journal = Arc::clone(&self.journal);
        loop {
            let grown = journal.grown.notified();
            match journal.find(self.cursor) {
                Lookup::Records { start, bytes } => {
                    self.cursor = start;
                    match bytes.load().await {
                        Ok(bytes) => self.send_records(bytes).await?,
                        Err(error) => {
                            tracing::warn!(error = %api::error_chain(&error), "kept output could not be read back");
                            return Err(ClientLeft);
                        }
                    }
                }
                Lookup::Dropped(oldest) => {
                    // Cannot happen to a reader that is attached; ending without a last
                    // event tells the client that its stream is not complete.
                    tracing::warn!(oldest = oldest.seq, "a stream lost its place");
                    return Err(ClientLeft);
                }
                Lookup::End(ending, seq) => {
                    self.flush_old(now_ms());
                    if seq > self.after {
                        let seq = self.numbered(seq);
                        encode::ending(&mut self.out, &ending, seq);
                    }
                    return self.send().await;
                }
                Lookup::Nothing => self.wait(grown, &mut pings).await?,
            }
        }
    }

    async fn wait(
        &mut self,
        grown: tokio::sync::futures::Notified<'_>,
        pings: &mut Interval,
    ) -> Result<(), ClientLeft> {
        tokio::select! {
            () = grown => Ok(()),
            _ = pings.tick() => {
                encode::ping(&mut self.out, now_ms());
                self.send().await
            }
            () = self.pieces.closed() => Err(ClientLeft),
        }
    }

    async fn send_records(&mut self, mut bytes: Bytes) -> Result<(), ClientLeft> {
        while let Some(record) = next_record(&mut bytes) {
            self.send_record(&record).await?;
            self.cursor = self.cursor.past(&record);
        }
        self.send().await?;
        self.attached.advance(self.cursor);
        Ok(())
    }

    async fn send_record(&mut self, record: &Record) -> Result<(), ClientLeft> {
        if let Some(old) = &mut self.old {
            let out = &mut self.out;
            old.push(record.channel, &record.bytes, |line| {
                encode::output(out, record.channel, line, record.time_ms, None);
            });
            return Ok(());
        }
        let lines = record.bytes.split_inclusive(|&byte| byte == b'\n');
        for (seq, line) in (self.cursor.seq..).zip(lines) {
            if seq > self.after {
                encode::output(
                    &mut self.out,
                    record.channel,
                    line,
                    record.time_ms,
                    Some(seq),
                );
                if self.out.len() >= PIECE_BYTES {
                    self.send().await?;
                }
            }
        }
        Ok(())
    }

    fn flush_old(&mut self, time_ms: i64) {
        let Some(old) = &mut self.old else { return };
        for (channel, line) in old.finish() {
            encode::output(&mut self.out, channel, &line, time_ms, None);
        }
    }

    async fn send(&mut self) -> Result<(), ClientLeft> {
        if self.out.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.out);
        self.pieces.send(piece.into()).await.map_err(|_| ClientLeft)
    }
}
