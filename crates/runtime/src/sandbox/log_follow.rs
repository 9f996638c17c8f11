//! A sandbox's log as it is written, told by the kernel when there is more.
//!
//! The log is cut to its newest half when it is full. Whoever follows it finds the place again by
//! what it gave out last; of lines that are all the same some may then be missing.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use lifecycle::backend::LogQuery;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::logs;
use crate::sys::event::watch_for;

/// Read and given out at once.
const PIECE_BYTES: usize = 64 * 1024;

/// This many bytes of what was given out last are read again before each piece, to see that the log
/// was not cut meanwhile: enough not to match elsewhere by chance, few enough to cost nothing.
const LAST_BYTES: usize = 256;

/// A log that is followed.
pub(crate) struct LogFollower {
    log: Arc<File>,
    watch: AsyncFd<OwnedFd>,
    /// The offset in the file behind what was given out last.
    at: u64,
    /// The last bytes that were given out; at most [`LAST_BYTES`].
    last: Vec<u8>,
    /// The beginning of a UTF-8 character whose rest has not been written.
    incomplete: Vec<u8>,
}

impl LogFollower {
    /// Opens the log; returns its newest lines as well.
    pub(crate) fn open(path: &Path, query: LogQuery) -> io::Result<(Self, String)> {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // Before anything is read, so that nothing is written unseen.
        inotify::add_watch(&watch, path, WatchFlags::MODIFY)?;
        let log = File::open(path)?;
        let at = log.metadata()?.len();
        let first = logs::read_until(&log, at, query)?.text;
        let from = at.saturating_sub(LAST_BYTES as u64);
        let mut last = vec![0; usize::try_from(at - from).unwrap_or(LAST_BYTES)];
        log.read_exact_at(&mut last, from)?;
        let follower = Self {
            log: Arc::new(log),
            watch: watch_for(watch, Interest::READABLE)?,
            at,
            last,
            incomplete: Vec::new(),
        };
        Ok((follower, first))
    }

    /// Gives out what comes until `ended` is and everything was given, or nobody reads.
    pub(crate) async fn run(
        mut self,
        first: String,
        ended: impl Future<Output = ()>,
        pieces: mpsc::Sender<String>,
    ) -> io::Result<()> {
        let mut ended = std::pin::pin!(ended);
        let mut is_over = false;
        let mut piece = first;
        loop {
            if !piece.is_empty() && pieces.send(piece).await.is_err() {
                return Ok(());
            }
            let bytes = self.read().await?;
            if !bytes.is_empty() {
                piece = self.text(&bytes);
                continue;
            }
            piece = String::new();
            if is_over {
                let rest = String::from_utf8_lossy(&self.incomplete).into_owned();
                if !rest.is_empty() {
                    // The last of all; nobody need be there for it.
                    let _ = pieces.send(rest).await;
                }
                return Ok(());
            }
            tokio::select! {
                ready = self.watch.readable() => {
                    let mut ready = ready?;
                    let mut told = [0_u8; 1024];
                    while rustix::io::read(self.watch.get_ref(), &mut told).is_ok() {}
                    ready.clear_ready();
                }
                () = &mut ended => is_over = true,
                () = pieces.closed() => return Ok(()),
            }
        }
    }

    /// What was written since, at most a piece.
    async fn read(&mut self) -> io::Result<Vec<u8>> {
        let (log, at, last) = (self.log.clone(), self.at, self.last.clone());
        let read = tokio::task::spawn_blocking(move || after(&log, at, &last));
        let (at, bytes) = read.await.map_err(io::Error::other)??;
        self.at = at + bytes.len() as u64;
        if !bytes.is_empty() {
            self.last.extend_from_slice(&bytes);
            let cut = self.last.len().saturating_sub(LAST_BYTES);
            self.last.drain(..cut);
        }
        Ok(bytes)
    }

    /// Bytes as text; an incomplete UTF-8 character at the end waits for its rest.
    fn text(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.incomplete);
        all.extend_from_slice(bytes);
        self.incomplete = all.split_off(all.len() - incomplete_suffix(&all));
        String::from_utf8_lossy(&all).into_owned()
    }
}

/// How many bytes at the end begin a UTF-8 character that is incomplete.
fn incomplete_suffix(bytes: &[u8]) -> usize {
    let begin = bytes.iter().rev().take(3).position(|byte| *byte >= 0xc0);
    let Some(back) = begin else {
        return 0;
    };
    let end = &bytes[bytes.len() - back - 1..];
    match std::str::from_utf8(end) {
        Err(error) if error.error_len().is_none() => end.len(),
        _ => 0,
    }
}

/// What stands behind `last`, which ended at `at` when it was read; and where that is now.
fn after(log: &File, at: u64, last: &[u8]) -> io::Result<(u64, Vec<u8>)> {
    let before = last.len() as u64;
    let mut bytes = vec![0; last.len() + PIECE_BYTES];
    let count = read_at(log, &mut bytes, at - before)?;
    bytes.truncate(count);
    if bytes.starts_with(last) {
        bytes.drain(..last.len());
        return Ok((at, bytes));
    }
    let length = log.metadata()?.len();
    let mut whole = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let count = read_at(log, &mut whole, 0)?;
    whole.truncate(count);
    let found = whole.windows(last.len().max(1)).rposition(|it| it == last);
    let begin = found.map_or(0, |at| at + last.len());
    let end = whole.len().min(begin + PIECE_BYTES);
    Ok((begin as u64, whole[begin..end].to_vec()))
}

/// Fills as much of `bytes` as there is.
fn read_at(log: &File, bytes: &mut [u8], from: u64) -> io::Result<usize> {
    let mut count = 0;
    while count < bytes.len() {
        match log.read_at(&mut bytes[count..], from + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const ALL: LogQuery = LogQuery {
        tail_lines: 100,
        since: None,
        max_bytes: 1 << 20,
    };

    #[tokio::test]
    async fn what_is_written_is_given_out_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = File::create(&path).unwrap();
        log.write_all(b"old\n").unwrap();
        let (follower, first) = LogFollower::open(&path, ALL).unwrap();
        assert_eq!(first, "old\n");
        let (send, mut pieces) = mpsc::channel(1);
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let run = tokio::spawn(async move {
            let ended = async {
                let _ = ended.await;
            };
            follower.run(first, ended, send).await
        });
        assert_eq!(pieces.recv().await.unwrap(), "old\n");
        log.write_all(b"new\n\xe2\x82").unwrap();
        assert_eq!(pieces.recv().await.unwrap(), "new\n");
        log.write_all(b"\xac\xff\n").unwrap();
        assert_eq!(pieces.recv().await.unwrap(), "\u{20ac}\u{fffd}\n");
        log.write_all(b"last").unwrap();
        end.send(()).unwrap();
        let mut rest = String::new();
        while let Some(piece) = pieces.recv().await {
            rest.push_str(&piece);
        }
        assert_eq!(rest, "last");
        run.await.unwrap().unwrap();
    }

    #[test]
    fn a_log_that_was_cut_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let text: String = (0..1000).map(|number| format!("line {number}\n")).collect();
        std::fs::write(&path, &text).unwrap();
        let log = File::open(&path).unwrap();
        let given = text.find("line 900\n").unwrap();
        let last = &text.as_bytes()[given - LAST_BYTES..given];
        let whole = after(&log, given as u64, last).unwrap();
        assert_eq!(whole.1, &text.as_bytes()[given..]);
        // The newest half moves to the front.
        let half = text.find("line 500\n").unwrap();
        std::fs::write(&path, &text[half..]).unwrap();
        let (at, bytes) = after(&log, given as u64, last).unwrap();
        assert_eq!(at as usize, given - half);
        assert_eq!(bytes, &text.as_bytes()[given..]);
        // Nothing of what was given out is left.
        std::fs::write(&path, "other\n").unwrap();
        assert_eq!(after(&log, given as u64, last).unwrap().1, b"other\n");
    }
}
