//! The end of a sandbox's log, from the engine, within the limits asked for.

use std::collections::VecDeque;

use api::error_chain;
use bollard::query_parameters::LogsOptionsBuilder;
use futures_util::StreamExt as _;
use jiff::Timestamp;
use lifecycle::backend::{Error, LOG_PIECES, LogQuery, Logs};
use tokio::sync::mpsc;

use crate::engine::{Engine, EngineError};
use crate::handoff::SERVING;
use crate::sandbox::Sandbox;

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

/// The newest lines and what comes, until the engine says that there is no more: it does when the
/// container has ended.
pub(crate) fn follow(
    engine: &Engine,
    sandbox: &Sandbox,
    query: LogQuery,
) -> mpsc::Receiver<String> {
    let options = LogsOptionsBuilder::default()
        .stdout(true)
        .stderr(true)
        .follow(true)
        .tail(&query.tail_lines.to_string());
    let mut reports = engine
        .api
        .logs(&sandbox.container, Some(options.build()))
        .boxed();
    let (send, pieces) = mpsc::channel(LOG_PIECES);
    let id = sandbox.id.clone();
    tokio::spawn(async move {
        loop {
            let report = tokio::select! {
                report = reports.next() => report,
                () = send.closed() => return,
            };
            let bytes = match report {
                Some(Ok(report)) => report.into_bytes(),
                Some(Err(error)) => {
                    tracing::warn!(sandbox_id = %id, error = %error_chain(&error), "a log is no longer followed");
                    return;
                }
                None => return,
            };
            // The daemon's own word to the backend; the engine hands out lines one by one.
            if bytes == SERVING.as_bytes() {
                continue;
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if send.send(text).await.is_err() {
                return;
            }
        }
    });
    pieces
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

    /// A line as the engine has it: its time, a blank, its text.
    fn add(&mut self, line: &[u8]) {
        let blank = line
            .iter()
            .position(|byte| *byte == b' ')
            .map_or(0, |at| at + 1);
        let (time, text) = line.split_at(blank);
        if let Some(since) = self.query.since {
            let time = std::str::from_utf8(time).unwrap_or_default().trim_end();
            if time.parse::<Timestamp>().is_ok_and(|time| time < since) {
                return;
            }
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
