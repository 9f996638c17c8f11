//! The end of a sandbox's log, from the engine, within the limits asked for.

use std::collections::VecDeque;
use std::sync::Arc;

use api::error_chain;
use bollard::container::LogOutput;
use bollard::query_parameters::LogsOptionsBuilder;
use futures_util::{Stream, StreamExt as _};
use jiff::Timestamp;
use lifecycle::backend::{Error, LOG_PIECES, LogQuery, Logs};
use tokio::sync::mpsc;

use crate::engine::{Engine, EngineError};
use crate::handoff::SERVING;
use crate::sandbox::{EVENT_MAX, Sandbox, State};

/// However much is asked for, no more than this is held in memory.
const BYTES_MAX: usize = 16 << 20;

pub(crate) async fn read(
    engine: &Engine,
    sandbox: &Sandbox,
    query: LogQuery,
) -> Result<Logs, Error> {
    // One more than asked for tells whether there was more.
    let tail = query.tail_lines.saturating_add(1).to_string();
    let mut options = LogsOptionsBuilder::default()
        .stdout(true)
        .stderr(true)
        .timestamps(true)
        .tail(&tail);
    if let Some(since) = query.since {
        // Whole seconds are all that the engine takes; the rest is filtered here.
        options = options.since(i32::try_from(since.as_second()).unwrap_or(i32::MAX));
    }
    let reports = engine.api.logs(&sandbox.container, Some(options.build()));
    let read = async {
        let mut reports = std::pin::pin!(reports);
        let mut kept = Tail::new(query);
        while let Some(report) = reports.next().await {
            kept.take(&report?.into_bytes());
        }
        Ok(kept.finish())
    };
    let done = engine.call("reading a log", read).await;
    done.map_err(|failure| match failure {
        EngineError::Refused { status: 404, .. } => Error::NotFound(sandbox.id.clone()),
        other => Error::Io {
            action: format!("reading the log of sandbox {}", sandbox.id),
            source: std::io::Error::other(error_chain(&other).to_string()),
        },
    })
}

/// The newest lines and what comes, until the container has ended and its last words were given.
pub(crate) fn follow(
    engine: &Engine,
    sandbox: &Arc<Sandbox>,
    query: LogQuery,
) -> mpsc::Receiver<String> {
    let (send, pieces) = mpsc::channel(LOG_PIECES);
    let (engine, sandbox) = (engine.clone(), sandbox.clone());
    tokio::spawn(async move {
        let told = tokio::select! {
            told = tell(&engine, &sandbox, query, &send) => told,
            () = send.closed() => return,
        };
        if let Err(error) = told {
            tracing::warn!(sandbox_id = %sandbox.id, error = %error_chain(&error), "a log is no longer followed");
        }
    });
    pieces
}

async fn tell(
    engine: &Engine,
    sandbox: &Sandbox,
    query: LogQuery,
    send: &mpsc::Sender<String>,
) -> Result<(), bollard::errors::Error> {
    let options = || {
        LogsOptionsBuilder::default()
            .stdout(true)
            .stderr(true)
            .timestamps(true)
    };
    let tail = query.tail_lines.to_string();
    let followed = options().follow(true).tail(&tail).build();
    let mut last = None;
    let reports = engine.api.logs(&sandbox.container, Some(followed));
    pass_on(reports, &mut last, send).await?;
    // The engine ends the stream with the container, and at times before a last line that has no line
    // break. What is in its log when it has told of the end is all.
    let is_over = |state: &State| matches!(state, State::Exited(_) | State::Gone);
    let _ = sandbox.until(EVENT_MAX, is_over).await;
    if sandbox.state() == State::Gone {
        return Ok(());
    }
    let rest = match last {
        // Whole seconds are all that the engine takes; what was told already is left out here.
        Some(last) => options().since(i32::try_from(last.as_second()).unwrap_or(i32::MAX)),
        None => options().tail(&tail),
    };
    let reports = engine.api.logs(&sandbox.container, Some(rest.build()));
    match pass_on(reports, &mut last, send).await {
        // Removed at the same moment.
        Err(bollard::errors::Error::DockerResponseServerError {
            status_code: 404 | 409,
            ..
        }) => Ok(()),
        other => other,
    }
}

/// Passes on what was written after `last`, which moves on.
async fn pass_on(
    reports: impl Stream<Item = Result<LogOutput, bollard::errors::Error>>,
    last: &mut Option<Timestamp>,
    send: &mpsc::Sender<String>,
) -> Result<(), bollard::errors::Error> {
    let mut reports = std::pin::pin!(reports);
    let before = *last;
    while let Some(report) = reports.next().await {
        let report = report?.into_bytes();
        let (time, text) = split_time(&report);
        if time.is_some() && time <= before {
            continue;
        }
        *last = time.max(*last);
        // The daemon's own word to the backend; the engine hands out lines one by one.
        if text == SERVING.as_bytes() {
            continue;
        }
        let text = String::from_utf8_lossy(text).into_owned();
        if send.send(text).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// A line as the engine has it: its time, a blank, its text.
fn split_time(line: &[u8]) -> (Option<Timestamp>, &[u8]) {
    let blank = line.iter().position(|byte| *byte == b' ');
    let (time, text) = line.split_at(blank.map_or(0, |at| at + 1));
    let time = std::str::from_utf8(time).unwrap_or_default().trim_end();
    (time.parse().ok(), text)
}

/// The newest lines.
struct Tail {
    query: LogQuery,
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    is_cut: bool,
    /// The line that is not ended yet.
    open: Vec<u8>,
}

impl Tail {
    fn new(query: LogQuery) -> Self {
        Self {
            query,
            lines: VecDeque::new(),
            bytes: 0,
            is_cut: false,
            open: Vec::new(),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.open.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.open);
                self.add(&line);
            }
        }
    }

    fn add(&mut self, line: &[u8]) {
        let (time, text) = split_time(line);
        if let (Some(since), Some(time)) = (self.query.since, time)
            && time < since
        {
            return;
        }
        if text == SERVING.as_bytes() {
            return;
        }
        self.bytes += text.len();
        self.lines.push_back(text.to_vec());
        let bytes_max = self.query.max_bytes.min(BYTES_MAX);
        while self.lines.len() > self.query.tail_lines
            || (self.bytes > bytes_max && self.lines.len() > 1)
        {
            let oldest = self.lines.pop_front().expect("it has more than none");
            self.bytes -= oldest.len();
            self.is_cut = true;
        }
        if self.bytes > bytes_max {
            let last = self.lines.front_mut().expect("it has one");
            last.drain(..last.len() - bytes_max);
            self.bytes = bytes_max;
            self.is_cut = true;
        }
    }

    fn finish(mut self) -> Logs {
        let rest = std::mem::take(&mut self.open);
        if !rest.is_empty() {
            self.add(&rest);
        }
        let bytes = self.lines.into_iter().flatten().collect::<Vec<u8>>();
        Logs {
            text: String::from_utf8_lossy(&bytes).into_owned(),
            truncated: self.is_cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tail_lines: usize, max_bytes: usize, since: Option<&str>, expected: (&str, bool)) {
        let query = LogQuery {
            tail_lines,
            since: since.map(|at| at.parse().unwrap()),
            max_bytes,
        };
        let mut kept = Tail::new(query);
        kept.take(b"2026-01-01T00:00:00.1Z execd: serving\n2026-01-01T00:00:01.1Z on");
        kept.take(b"e\n2026-01-01T00:00:02Z two\n2026-01-01T00:00:03Z three");
        let logs = kept.finish();
        assert_eq!((logs.text.as_str(), logs.truncated), expected);
    }

    #[test]
    fn the_newest_lines_within_all_limits() {
        check(10, 100, None, ("one\ntwo\nthree", false));
        check(2, 100, None, ("two\nthree", true));
        check(10, 9, None, ("two\nthree", true));
        check(10, 3, None, ("ree", true));
        check(0, 100, None, ("", true));
        check(10, 100, Some("2026-01-01T00:00:02Z"), ("two\nthree", false));
    }
}
