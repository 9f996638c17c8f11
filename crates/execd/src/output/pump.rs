//! Reads a process's pipes into its journal.
//!
//! Complete lines are journalled at once. The fragment after the last line waits a moment
//! for its end, because a program that writes in blocks breaks lines at random places;
//! when the pipe stays empty it is journalled as it is, so a prompt is seen without a
//! newline. Bytes that begin a character wait for its rest.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::journal::{Channel, Journal};
use super::lines::incomplete_suffix;
use crate::limits;
use crate::sys;

/// How long a fragment waits for the rest of its line. Longer than a writer needs between
/// two blocks, too short for a person to notice.
const FRAGMENT_PATIENCE: Duration = Duration::from_millis(4);

/// How long a line that may be a shell's farewell waits for the shell to end: as long as a
/// busy machine may take to end a process that is already on its way.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(1);

thread_local! {
    /// Where pipes are read into, one at a time: commands that print nothing need no
    /// buffer of their own.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One pipe.
pub(crate) struct Source {
    channel: Channel,
    pipe: pipe::Receiver,
    /// Read but not journalled: a fragment, or the beginning of a character.
    carry: Vec<u8>,
    /// A last line that waits like a fragment, because it may be a farewell.
    held_line: Option<&'static [u8]>,
    /// When the fragment is journalled, come what may.
    flush_at: Option<Instant>,
}

/// All pipes of a process.
pub(crate) struct Pump {
    journal: Arc<Journal>,
    sources: Vec<Source>,
}

enum Turn {
    Read(usize),
    /// The pipe has nothing now.
    Empty,
    /// Every writer has closed it.
    Closed,
}

impl Source {
    pub(crate) fn new(channel: Channel, pipe: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let pipe = pipe::Receiver::from_owned_fd(pipe)?;
        Ok(Self {
            channel,
            pipe,
            carry: Vec::new(),
            held_line: None,
            flush_at: None,
        })
    }

    /// Makes this line, when it is the last, wait a moment as a fragment does.
    pub(crate) fn holding(mut self, line: &'static [u8]) -> Self {
        self.held_line = Some(line);
        self
    }
}

impl Pump {
    pub(crate) fn new(journal: Arc<Journal>, sources: Vec<Source>) -> Self {
        Self { journal, sources }
    }

    /// Sends what is read from now on to another journal.
    pub(crate) fn switch(&mut self, journal: Arc<Journal>) {
        self.journal = journal;
    }

    /// Drops a line that waited because a shell prints it while it ends.
    pub(crate) fn forget_farewell(&mut self) {
        for source in &mut self.sources {
            if source.holds_farewell() {
                source.carry.clear();
            }
        }
    }

    /// Whether every pipe is closed.
    pub(crate) fn is_done(&self) -> bool {
        self.sources.is_empty()
    }

    /// Reads until every pipe is closed. May be dropped and called again at any time.
    pub(crate) async fn run(&mut self) {
        while !self.is_done() {
            self.make_room().await;
            let index = self.ready().await;
            if let Some(index) = index {
                self.read(index);
            }
        }
    }

    /// Reads what the pipes hold now and no more: for the moment after the process ended,
    /// when a child that lives on may hold a pipe open, or even write without pause.
    pub(crate) async fn drain(&mut self) {
        self.read_waiting().await;
        for source in &mut self.sources {
            source.flush_everything(&self.journal);
        }
    }

    /// As [`Self::drain`], leaving fragments where they are.
    pub(crate) async fn read_waiting(&mut self) {
        for index in 0..self.sources.len() {
            let mut left = sys::readable_bytes(self.sources[index].pipe.as_fd());
            while left > 0 {
                self.make_room().await;
                match self.sources[index].turn(&self.journal, left) {
                    Turn::Read(read) => left -= read,
                    Turn::Empty | Turn::Closed => break,
                }
            }
        }
    }

    /// Waits until the journal takes more.
    async fn make_room(&self) {
        self.journal.settle().await;
        loop {
            let room = self.journal.room.notified();
            if self.journal.has_room() {
                return;
            }
            room.await;
        }
    }

    /// The pipe that can be read, or none when a fragment's time has come (which is then
    /// journalled).
    async fn ready(&mut self) -> Option<usize> {
        let flush_at = self
            .sources
            .iter()
            .filter_map(|source| source.flush_at)
            .min();
        let readable = readable(&self.sources);
        match flush_at {
            None => Some(readable.await),
            Some(at) => match tokio::time::timeout_at(at, readable).await {
                Ok(index) => Some(index),
                Err(_) => {
                    let now = Instant::now();
                    for source in &mut self.sources {
                        if source.flush_at.is_some_and(|at| at <= now) {
                            source.flush_text(&self.journal);
                        }
                    }
                    None
                }
            },
        }
    }

    fn read(&mut self, index: usize) {
        let turn = self.sources[index].turn(&self.journal, limits::EVENT_BYTES);
        if matches!(turn, Turn::Closed) {
            // Every writer is gone, the shell too: the line that waited is its farewell.
            if self.sources[index].holds_farewell() {
                self.sources[index].carry.clear();
            }
            self.sources[index].flush_everything(&self.journal);
            self.sources.remove(index);
        }
    }
}

/// The first pipe that is readable or closed.
async fn readable(sources: &[Source]) -> usize {
    match sources {
        [only] => {
            let _ = only.pipe.readable().await;
            0
        }
        [first, second] => tokio::select! {
            _ = first.pipe.readable() => 0,
            _ = second.pipe.readable() => 1,
        },
        _ => std::future::pending().await,
    }
}

impl Source {
    /// One read of at most `most` bytes, journalled as far as it goes.
    fn turn(&mut self, journal: &Journal, most: usize) -> Turn {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(limits::EVENT_BYTES, 0);
            let held = self.carry.len();
            scratch[..held].copy_from_slice(&self.carry);
            let end = (held + most).min(scratch.len());
            let read = match self.pipe.try_read(&mut scratch[held..end]) {
                Ok(0) => return Turn::Closed,
                Ok(read) => read,
                // Also what the runtime says before it has heard of the bytes from the kernel,
                // as when the process printed and ended at once. The pipe itself knows.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match rustix::io::read(self.pipe.as_fd(), &mut scratch[held..end]) {
                        Ok(0) => return Turn::Closed,
                        Ok(read) => read,
                        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                            return Turn::Empty;
                        }
                        Err(_) => return Turn::Closed,
                    }
                }
                Err(_) => return Turn::Closed,
            };
            let filled = &scratch[..held + read];
            let is_full = held + read == scratch.len();
            let lines = filled
                .iter()
                .rposition(|&byte| byte == b'\n')
                .map_or(0, |at| at + 1);
            let cut = match lines {
                0 if is_full => filled.len() - incomplete_suffix(filled),
                lines => lines - self.held_tail(&filled[..lines]),
            };
            journal.append(self.channel, now_ms(), &filled[..cut]);
            self.carry.clear();
            self.carry.extend_from_slice(&filled[cut..]);
            if self.carry.is_empty() {
                self.flush_at = None;
            } else if cut > 0 || self.flush_at.is_none() {
                self.flush_at = Some(Instant::now() + self.patience());
            }
            Turn::Read(read)
        })
    }

    fn holds_farewell(&self) -> bool {
        self.held_line.is_some_and(|line| line == self.carry)
    }

    fn patience(&self) -> Duration {
        if self.holds_farewell() {
            FAREWELL_PATIENCE
        } else {
            FRAGMENT_PATIENCE
        }
    }

    /// The length of the line to hold, when the text ends in it.
    fn held_tail(&self, text: &[u8]) -> usize {
        let Some(line) = self.held_line else { return 0 };
        match text.strip_suffix(line) {
            Some(before) if before.last().is_none_or(|&byte| byte == b'\n') => line.len(),
            _ => 0,
        }
    }

    /// Journals the fragment but for a character that is not complete.
    fn flush_text(&mut self, journal: &Journal) {
        let text = self.carry.len() - incomplete_suffix(&self.carry);
        journal.append(self.channel, now_ms(), &self.carry[..text]);
        self.carry.drain(..text);
        self.flush_at = None;
    }

    fn flush_everything(&mut self, journal: &Journal) {
        journal.append(self.channel, now_ms(), &self.carry);
        self.carry = Vec::new();
        self.flush_at = None;
    }
}

/// The time in Unix milliseconds.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
