//! What runs in a sandbox, as a stream of events and as the output when it is over.
//!
//! A stream that breaks is taken up again where it broke, so that every event is given out
//! exactly once; that needs events that are numbered, which the published daemon does not send.
//! Its streams end with [`Error::StreamBroken`] when they break.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use api::exec::event::{self, EventKind, ExecutionError};
use api::frame::{Decoder, EVENT_BYTES_MAX, StreamItem};
use api::query::QueryWriter;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};

use crate::error::{Error, Result};
use crate::transport::{self, Target, segment};

/// Longer than any event we send; the published daemon sends whole lines, however long.
const EVENT_BYTES_LIMIT: usize = 16 * EVENT_BYTES_MAX;

/// Attempts to take a broken stream up again without a single event in between: with the growing
/// waits between them some ten seconds, in which a server restarts.
const RESUME_ATTEMPTS: u32 = 8;

/// The wait before the second attempt; it doubles from there. The first is made at once.
const RESUME_DELAY: Duration = Duration::from_millis(100);

/// After the last event the daemon closes the stream at once. A proxy that keeps it open must not
/// keep the caller.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// One event of an execution.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// It has begun.
    Started {
        /// What to ask by: a command's id, the session's, the context's.
        id: String,
    },
    /// Output, with the line ends it was written with.
    Stdout(String),
    /// Error output, with the line ends it was written with.
    Stderr(String),
    /// A value or a display of code.
    Result(RichResult),
    /// How many cells the context has run.
    Count(u64),
    /// It failed.
    Error(ExecutionError),
    /// It is over.
    Completed {
        /// How long it took.
        took: Option<Duration>,
    },
}

/// A value of code in every form it has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RichResult {
    /// By media type: text as it is, images as base64.
    pub by_type: BTreeMap<String, String>,
    /// Which cell it is the value of; nothing for a display.
    pub count: Option<u64>,
}

impl RichResult {
    /// The value as plain text.
    pub fn text(&self) -> Option<&str> {
        let text = self.by_type.get("text/plain");
        text.or_else(|| self.by_type.get("text"))
            .map(String::as_str)
    }

    /// The value in this form.
    pub fn get(&self, media_type: &str) -> Option<&str> {
        self.by_type.get(media_type).map(String::as_str)
    }
}

/// How an execution ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// With this code.
    Code(i32),
    /// By this signal, named as `killed`, `terminated` and so on.
    Signal(String),
    /// With an exception, or it did not start.
    Failed,
}

/// Everything an execution gave.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// What to ask by.
    pub id: Option<String>,
    /// Its output.
    pub stdout: String,
    /// Its error output.
    pub stderr: String,
    /// Values and displays of code.
    pub results: Vec<RichResult>,
    /// How it failed; nothing if it did not.
    pub error: Option<ExecutionError>,
    /// How many cells the context has run.
    pub count: Option<u64>,
    /// How long it took.
    pub took: Option<Duration>,
    is_complete: bool,
}

impl Output {
    /// The exit code: 0 when it completed, -1 for a signal, nothing when there is none because it
    /// did not start or was code that failed.
    pub fn exit_code(&self) -> Option<i32> {
        match &self.error {
            Some(error) => error.evalue.parse().ok(),
            None => self.is_complete.then_some(0),
        }
    }

    /// How it ended.
    pub fn ending(&self) -> Ending {
        let signal = |error: &ExecutionError| {
            let line = error.traceback.first()?;
            Some(line.strip_prefix("signal: ")?.to_owned())
        };
        match (self.error.as_ref().and_then(signal), self.exit_code()) {
            (Some(name), _) => Ending::Signal(name),
            (None, Some(code)) => Ending::Code(code),
            (None, None) => Ending::Failed,
        }
    }

    /// Whether it succeeded.
    pub fn is_success(&self) -> bool {
        self.error.is_none() && self.is_complete
    }

    /// The text of the last value of code.
    pub fn text(&self) -> Option<&str> {
        self.results.iter().rev().find_map(RichResult::text)
    }

    /// Takes an event in.
    pub fn push(&mut self, event: Event) {
        match event {
            Event::Started { id } => self.id = Some(id),
            Event::Stdout(text) => self.stdout.push_str(&text),
            Event::Stderr(text) => self.stderr.push_str(&text),
            Event::Result(result) => self.results.push(result),
            Event::Count(count) => self.count = Some(count),
            Event::Error(error) => self.error = Some(error),
            Event::Completed { took } => {
                self.took = took;
                self.is_complete = true;
            }
        }
    }
}

/// An execution under way: a [`Stream`] of its events. Dropping it lets the execution go on
/// without a reader.
#[must_use = "an execution's events come when the stream is read"]
pub struct Execution {
    events: Pin<Box<dyn Stream<Item = Result<Event>> + Send>>,
}

impl Execution {
    pub(crate) fn new(answer: reqwest::Response, kind: Kind, target: Target) -> Self {
        let state = Reading {
            reader: EventReader::new(answer),
            kind,
            target,
            id: None,
            last_seq: None,
            failures: 0,
            ready: VecDeque::new(),
            is_over: false,
        };
        let events = futures_util::stream::unfold(Some(state), |state| async {
            let mut state = state?;
            match state.next().await {
                Ok(Some(event)) => Some((Ok(event), Some(state))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        Self {
            events: Box::pin(events),
        }
    }

    /// The next event.
    pub async fn next(&mut self) -> Option<Result<Event>> {
        self.events.next().await
    }

    /// Reads to the end and returns everything.
    pub async fn output(mut self) -> Result<Output> {
        let mut output = Output::default();
        while let Some(event) = self.next().await {
            output.push(event?);
        }
        Ok(output)
    }
}

impl Stream for Execution {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.as_mut().poll_next(cx)
    }
}

impl std::fmt::Debug for Execution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Execution")
    }
}

/// What an execution is of, which decides how its stream is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Can be taken up again; `error` is its last event.
    Command,
    /// As a command, but its events cannot be asked for again.
    Session,
    /// Texts are as they were written; `execution_complete` comes after `error`.
    Code,
}

struct Reading {
    reader: EventReader,
    kind: Kind,
    target: Target,
    id: Option<String>,
    last_seq: Option<u64>,
    /// Attempts to go on since the last event.
    failures: u32,
    ready: VecDeque<Event>,
    is_over: bool,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let frames = if self.is_over {
                // The last event has come: an error or a silence after it takes nothing away.
                match tokio::time::timeout(DRAIN_TIME, self.reader.frames()).await {
                    Ok(Ok(Some(frames))) => Ok(Some(frames)),
                    _ => return Ok(None),
                }
            } else {
                self.reader.frames().await
            };
            match frames {
                Ok(Some(frames)) => self.take(frames)?,
                Ok(None) if self.is_over => return Ok(None),
                Ok(None) => self.resume(None).await?,
                Err(error @ Error::Connection { .. }) => self.resume(Some(error)).await?,
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, items: Vec<StreamItem>) -> Result<()> {
        for item in items {
            match item {
                StreamItem::Event(event) => self.take_event(event),
                StreamItem::Failure(body) => {
                    return Err(Error::StreamBroken {
                        what: self.what(),
                        message: format!("{} ({})", body.message, body.code),
                        source: None,
                    });
                }
            }
        }
        Ok(())
    }

    fn take_event(&mut self, event: event::Event) {
        if let Some(seq) = event.seq {
            if self.last_seq.is_some_and(|last| seq <= last) {
                return;
            }
            self.last_seq = Some(seq);
            self.failures = 0;
        }
        let text = event.text.unwrap_or_default();
        let text = match (event.seq, self.kind) {
            // Events without numbers are lines without their ends, except those of code.
            (None, Kind::Command | Kind::Session) if !text.ends_with('\n') => text + "\n",
            _ => text,
        };
        let event = match event.kind {
            EventKind::Init => {
                let id = text.trim_end().to_owned();
                self.id = Some(id.clone());
                Event::Started { id }
            }
            EventKind::Stdout => Event::Stdout(text),
            EventKind::Stderr => Event::Stderr(text),
            EventKind::Result => Event::Result(RichResult {
                by_type: event.results.unwrap_or_default(),
                count: event.execution_count,
            }),
            EventKind::ExecutionCount => Event::Count(event.execution_count.unwrap_or_default()),
            EventKind::Error => {
                self.is_over = true;
                Event::Error(event.error.unwrap_or_default())
            }
            EventKind::ExecutionComplete => {
                self.is_over = true;
                Event::Completed {
                    took: event.execution_time.map(Duration::from_millis),
                }
            }
            EventKind::Ping | EventKind::Status | EventKind::Unknown => return,
        };
        self.ready.push_back(event);
    }

    fn what(&self) -> String {
        let kind = match self.kind {
            Kind::Command => "command",
            Kind::Session => "session",
            Kind::Code => "context",
        };
        format!("{kind} {}", self.id.as_deref().unwrap_or("(not begun)"))
    }

    /// Goes on after the last event that came.
    async fn resume(&mut self, cause: Option<Error>) -> Result<()> {
        let broken = |what, message: &str, source: Option<Error>| Error::StreamBroken {
            what,
            message: message.to_owned(),
            source: source.map(Box::new),
        };
        let (Some(id), Some(last), Kind::Command) = (&self.id, self.last_seq, self.kind) else {
            let message = "the connection ended before the last event, and this kind of stream \
                           cannot be taken up again";
            return Err(broken(self.what(), message, cause));
        };
        let path = format!("/command/{}/events", segment(id)?);
        let query = QueryWriter::new().pair("after", &last.to_string()).finish();
        let mut cause = cause;
        while self.failures < RESUME_ATTEMPTS {
            if self.failures > 0 {
                tokio::time::sleep(RESUME_DELAY * 2_u32.pow(self.failures - 1)).await;
            }
            self.failures += 1;
            let request = self.target.get(path.clone()).query(query.clone());
            match request.send().await {
                Ok(answer) => {
                    self.reader = EventReader::new(answer);
                    return Ok(());
                }
                Err(error) if error.is_retryable() => cause = Some(error),
                Err(error) => {
                    return Err(broken(
                        self.what(),
                        "its rest is not to be had",
                        Some(error),
                    ));
                }
            }
        }
        Err(broken(
            self.what(),
            "the sandbox could not be reached again",
            cause,
        ))
    }
}

/// The bytes of one connection as events.
struct EventReader {
    answer: reqwest::Response,
    decoder: Decoder,
    is_finished: bool,
}

impl EventReader {
    fn new(answer: reqwest::Response) -> Self {
        Self {
            answer,
            decoder: Decoder::new(EVENT_BYTES_LIMIT),
            is_finished: false,
        }
    }

    /// The next events; `None` at the end of the connection.
    async fn frames(&mut self) -> Result<Option<Vec<StreamItem>>> {
        if self.is_finished {
            return Ok(None);
        }
        let unreadable = |error: api::frame::DecodeError| Error::Unreadable {
            what: "an event stream".to_owned(),
            message: error.to_string(),
        };
        let mut items = Vec::new();
        match self.piece().await? {
            Some(piece) => {
                let mut rest: &[u8] = &piece;
                while let Some(frame) = self.decoder.next(&mut rest).map_err(unreadable)? {
                    items.push(frame.item().map_err(unreadable)?);
                }
            }
            None => {
                self.is_finished = true;
                // Half an event at the end of a broken connection comes again when resumed.
                if let Ok(Some(frame)) = self.decoder.finish()
                    && let Ok(item) = frame.item()
                {
                    items.push(item);
                }
            }
        }
        Ok(Some(items))
    }

    async fn piece(&mut self) -> Result<Option<Bytes>> {
        let url = self.answer.url().path().to_owned();
        let piece = self.answer.chunk().await;
        piece.map_err(|error| transport::unreachable(url, error))
    }
}

/// A stream of JSON values of one type: metrics and lifecycle events.
pub(crate) fn values<T: serde::de::DeserializeOwned + Send + 'static>(
    answer: reqwest::Response,
    what: &'static str,
) -> impl Stream<Item = Result<T>> + Send {
    struct State<T> {
        answer: reqwest::Response,
        decoder: Decoder,
        ready: VecDeque<T>,
    }
    let state = State {
        answer,
        decoder: Decoder::new(EVENT_BYTES_LIMIT),
        ready: VecDeque::new(),
    };
    futures_util::stream::try_unfold(state, move |mut state| async move {
        loop {
            if let Some(value) = state.ready.pop_front() {
                return Ok(Some((value, state)));
            }
            let url = state.answer.url().path().to_owned();
            let piece = state.answer.chunk().await;
            let Some(piece) = piece.map_err(|error| transport::unreachable(url, error))? else {
                return Ok(None);
            };
            let unreadable = |error: api::frame::DecodeError| Error::Unreadable {
                what: what.to_owned(),
                message: error.to_string(),
            };
            let mut rest: &[u8] = &piece;
            while let Some(frame) = state.decoder.next(&mut rest).map_err(unreadable)? {
                state.ready.push_back(frame.json().map_err(unreadable)?);
            }
        }
    })
}
