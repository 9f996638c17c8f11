//! What runs in a sandbox, as a stream of events and as the output when it is over.
//!
//! A stream that breaks is taken up again where it broke, so that every event is given out
//! exactly once; that needs events that are numbered, which the published daemon does not send.
//! Its streams end with [`Error::StreamBroken`] when they break.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use api::exec::command::CommandStatus;
use api::exec::event::{self, EventKind, ExecutionError};
use api::frame::StreamItem;
use api::query::QueryWriter;
use futures_util::{Stream, StreamExt as _};

use crate::error::{Error, Result};
use crate::event_stream::EventReader;
use crate::results::RichResult;
use crate::transport::{Target, segment};

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
        Self::reading(Reading {
            reader: EventReader::new(answer),
            kind,
            target,
            id: None,
            last_seq: None,
            failures: 0,
            ready: VecDeque::new(),
            is_over: false,
            tail: None,
        })
    }

    /// The events of a command after one of them, which may be its last.
    pub(crate) fn follow(answer: reqwest::Response, id: &str, after: u64, target: Target) -> Self {
        Self::reading(Reading {
            reader: EventReader::new(answer),
            kind: Kind::Command,
            target,
            id: Some(id.to_owned()),
            last_seq: (after > 0).then_some(after),
            failures: 0,
            ready: VecDeque::new(),
            is_over: false,
            tail: Some(Tail::default()),
        })
    }

    fn reading(state: Reading) -> Self {
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

/// A connection that was asked for what comes after an event.
#[derive(Default)]
struct Tail {
    /// It gave something.
    has_given: bool,
    /// The command had ended before it was asked, so that nothing can come later.
    is_after_end: bool,
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
    /// Nothing where this is the connection that the execution began with.
    tail: Option<Tail>,
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
                Ok(None) if self.has_no_more().await => return Ok(None),
                Ok(None) => self.resume(None).await?,
                Err(error @ Error::Connection { .. }) => self.resume(Some(error)).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the command had ended before it was asked for more, and had no more. One that ends
    /// between its last answer and this question is asked for more once again.
    async fn has_no_more(&mut self) -> bool {
        let Some(tail) = &self.tail else { return false };
        if tail.has_given {
            return false;
        }
        if tail.is_after_end {
            return true;
        }
        let Some(Ok(id)) = self.id.as_deref().map(segment) else {
            return false;
        };
        let asked = self.target.get(format!("/command/status/{id}"));
        let status: Result<CommandStatus> = asked.json_answer().await;
        let is_after_end = status.is_ok_and(|status| !status.running);
        self.tail = Some(Tail {
            has_given: false,
            is_after_end,
        });
        false
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
        if let Some(tail) = &mut self.tail {
            tail.has_given |= event.kind != EventKind::Ping;
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
        // What was followed from its beginning may break before its first event.
        let last = self.last_seq.or(self.tail.as_ref().map(|_| 0));
        let (Some(id), Some(last), Kind::Command) = (&self.id, last, self.kind) else {
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
                    let is_after_end = self.tail.take().is_some_and(|tail| tail.is_after_end);
                    self.tail = Some(Tail {
                        has_given: false,
                        is_after_end,
                    });
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
