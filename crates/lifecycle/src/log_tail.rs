//! The end of a log, within the limits of a query, from lines that begin with their time: what container engines
//! and kubelets give out.
//!
//! Leaves out the daemon's own word to its backend. Reads from nowhere.

use std::collections::VecDeque;
use std::fmt;

use jiff::Timestamp;

use crate::backend::{LogQuery, Logs};
use crate::execd::SERVING;

/// However much is asked for, no more than this is held in memory.
const BYTES_MAX: usize = 16 << 20;

/// A line as engines and kubelets have it: its time, a blank, its text.
pub fn split_time(line: &[u8]) -> (Option<Timestamp>, &[u8]) {
    let blank = line.iter().position(|byte| *byte == b' ');
    let (time, text) = line.split_at(blank.map_or(0, |at| at + 1));
    let time = std::str::from_utf8(time).unwrap_or_default().trim_end();
    (time.parse().ok(), text)
}

/// The newest lines.
pub struct Tail {
    query: LogQuery,
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    is_cut: bool,
    /// The line that is not ended yet.
    open: Vec<u8>,
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tail")
            .field("lines", &self.lines.len())
            .finish_non_exhaustive()
    }
}

impl Tail {
    /// Nothing yet.
    pub fn new(query: LogQuery) -> Self {
        Self {
            query,
            lines: VecDeque::new(),
            bytes: 0,
            is_cut: false,
            open: Vec::new(),
        }
    }

    /// Takes in a piece, which may end within a line.
    pub fn take(&mut self, bytes: &[u8]) {
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

    /// What is kept, the line that is not ended included.
    pub fn finish(mut self) -> Logs {
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
