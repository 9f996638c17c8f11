//! The bounded record of one command's output, read by position.
//!
//! Output is kept as records (channel, time, bytes) in blocks of some tens of KiB. The
//! newest blocks are in memory; older ones go to unnamed files; at the limit the oldest
//! are dropped. Every event
//! derived from the records has a number, from 2 on (1 is `init`), and every byte an
//! offset; both are found again by the block they lie in.
//!
//! A record holds whole events: each line with its ending is one, and so is a fragment at
//! the end of a record. That makes the numbering a property of the journal alone, the same
//! for each reader at any time.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::Notify;

use super::blocks::{Blocks, Cursor, FileLocation, Location, Lookup, next_record};
use super::spool::Spool;
use crate::limits;
use crate::process::{Exit, locked};

/// Which of the two streams bytes were written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Stdout,
    Stderr,
}

/// How the execution ended; the last event of a stream.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    Exited {
        exit: Exit,
        time_ms: i64,
        took_ms: u64,
    },
    /// It never ran.
    NotStarted { message: String, time_ms: i64 },
    /// It ran out of its time and was killed.
    TimedOut { time_ms: i64 },
}

pub(crate) struct Journal {
    inner: Mutex<Blocks>,
    spool: Arc<Spool>,
    /// Something was added, or the end was.
    pub(super) grown: Notify,
    /// A reader moved on or left.
    pub(super) room: Notify,
    /// A move to a file is over.
    settled: Notify,
}

impl Journal {
    pub(crate) fn new(spool: Arc<Spool>) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Blocks::new()),
            spool,
            grown: Notify::new(),
            room: Notify::new(),
            settled: Notify::new(),
        })
    }

    /// Adds output that arrived at one moment, at most [`limits::EVENT_BYTES`] of it.
    pub(super) fn append(&self, channel: Channel, time_ms: i64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        locked(&self.inner).append(channel, time_ms, bytes);
        self.grown.notify_waiters();
    }

    /// Copies the recent output of another journal, as far as that is in memory.
    pub(crate) fn copy_recent(&self, other: &Journal) {
        let recent = locked(&other.inner).recent();
        for mut bytes in recent {
            while let Some(record) = next_record(&mut bytes) {
                self.append(record.channel, record.time_ms, &record.bytes);
            }
        }
    }

    /// Marks the end of the event stream. Output that a surviving child still prints is
    /// added behind it, for the logs alone.
    pub(crate) fn finish(&self, ending: Ending) {
        let mut inner = locked(&self.inner);
        let end = inner.end;
        inner.ending = Some((end, Arc::new(ending)));
        inner.shrink();
        drop(inner);
        self.grown.notify_waiters();
    }

    /// Whether every attached reader is near enough for more to be added.
    pub(super) fn has_room(&self) -> bool {
        locked(&self.inner).has_room()
    }

    /// Bytes held in memory and in files.
    pub(crate) fn held(&self) -> HeldBytes {
        let inner = locked(&self.inner);
        let mut held = HeldBytes::default();
        for block in &inner.blocks {
            match &block.location {
                Location::Open(bytes) => held.memory += bytes.capacity() as u64,
                Location::Memory(bytes) => held.memory += bytes.len() as u64,
                Location::File(..) => held.file += block.length as u64,
            }
        }
        held
    }

    /// Drops all output; its numbers and offsets stay taken.
    pub(crate) fn discard(&self) {
        let mut inner = locked(&self.inner);
        inner.blocks = VecDeque::new();
        inner.file = None;
    }

    /// Moves closed blocks from memory to a file when there are too many, and drops the
    /// oldest at the limit. May be dropped halfway and called again: the move itself goes
    /// on, and the next call waits for it.
    pub(super) async fn settle(self: &Arc<Self>) {
        loop {
            let settled = self.settled.notified();
            {
                let mut inner = locked(&self.inner);
                if !inner.is_crowded() {
                    return;
                }
                if !inner.is_spilling {
                    inner.is_spilling = true;
                    let journal = Arc::clone(self);
                    tokio::task::spawn_blocking(move || journal.spill());
                }
            }
            settled.await;
        }
    }

    fn spill(&self) {
        let mut inner = locked(&self.inner);
        let moved: Vec<Bytes> = inner
            .blocks
            .iter()
            .filter_map(|block| match &block.location {
                Location::Memory(bytes) => Some(bytes.clone()),
                Location::Open(_) | Location::File(..) => None,
            })
            .collect();
        let file = inner.file.take();
        drop(inner);
        let written = self.write(file, &moved);
        let mut inner = locked(&self.inner);
        match written {
            Ok((file, locations)) => {
                inner.set_locations(locations);
                inner.file = Some(file);
            }
            Err(error) => {
                tracing::warn!(error = %api::error_chain(&error), "older output could not be moved to a file and is dropped");
                inner
                    .blocks
                    .retain(|block| !matches!(block.location, Location::Memory(_)));
            }
        }
        inner.drop_oldest();
        inner.is_spilling = false;
        drop(inner);
        self.settled.notify_waiters();
    }

    /// Writes the blocks to the end of the current file, and begins another when that is
    /// half as large as the limit: the space of dropped blocks comes back with the last of
    /// a file.
    fn write(
        &self,
        current: Option<FileLocation>,
        blocks: &[Bytes],
    ) -> std::io::Result<(FileLocation, Vec<FileLocation>)> {
        let mut locations = Vec::with_capacity(blocks.len());
        let (mut file, mut used) = match current {
            Some(current) => current,
            None => (Arc::new(self.spool.create()?), 0),
        };
        for block in blocks {
            if used >= limits::OUTPUT_BYTES / 2 {
                (file, used) = (Arc::new(self.spool.create()?), 0);
            }
            file.write_all_at(block, used)?;
            locations.push((Arc::clone(&file), used));
            used += block.len() as u64;
        }
        Ok(((file, used), locations))
    }

    /// What lies at `cursor`, which is at the start of a record.
    pub(super) fn find(&self, cursor: Cursor) -> Lookup {
        let inner = locked(&self.inner);
        let found = inner.find_records(cursor);
        let Some((end, ending)) = &inner.ending else {
            return found;
        };
        if cursor.position >= end.position {
            return Lookup::End(Arc::clone(ending), end.seq);
        }
        match found {
            Lookup::Records { start, bytes } => Lookup::Records {
                start,
                bytes: bytes.up_to(end.position - start.position),
            },
            other => other,
        }
    }

    /// As [`Self::find`], going on behind the end of the event stream.
    pub(super) fn find_raw(&self, cursor: Cursor) -> Lookup {
        locked(&self.inner).find_records(cursor)
    }

    /// Where to start reading to meet the event with this number. An event that is not
    /// kept any more gives the cursor of the oldest that is.
    pub(super) fn seek_event(&self, seq: u64) -> Result<Cursor, Cursor> {
        let inner = locked(&self.inner);
        inner.seek(|cursor| cursor.seq <= seq)
    }

    /// Where to start reading to meet the byte at this offset; as [`Self::seek_event`].
    pub(super) fn seek_raw(&self, offset: u64) -> Result<Cursor, Cursor> {
        locked(&self.inner).seek(|cursor| cursor.raw <= offset)
    }

    /// Where the next record will go.
    pub(super) fn end(&self) -> Cursor {
        locked(&self.inner).end
    }

    /// Keeps the journal from running away from a reader until it is dropped.
    pub(super) fn attach(self: &Arc<Self>, cursor: Cursor) -> AttachedReader {
        let mut inner = locked(&self.inner);
        let id = inner.next_reader;
        inner.next_reader += 1;
        inner.readers.push((id, cursor.position));
        AttachedReader {
            journal: Arc::clone(self),
            id,
        }
    }
}

/// Bytes that a journal holds.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct HeldBytes {
    pub(crate) memory: u64,
    pub(crate) file: u64,
}

/// A reader's place in the window; gone when dropped.
pub(super) struct AttachedReader {
    journal: Arc<Journal>,
    id: u64,
}

impl AttachedReader {
    pub(super) fn advance(&self, cursor: Cursor) {
        let mut inner = locked(&self.journal.inner);
        if let Some(reader) = inner.readers.iter_mut().find(|(id, _)| *id == self.id) {
            reader.1 = cursor.position;
        }
        drop(inner);
        self.journal.room.notify_waiters();
    }
}

impl Drop for AttachedReader {
    fn drop(&mut self) {
        locked(&self.journal.inner)
            .readers
            .retain(|(id, _)| *id != self.id);
        self.journal.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::FIRST_OUTPUT_SEQ;
    use super::*;

    fn journal() -> Arc<Journal> {
        Journal::new(Arc::default())
    }

    async fn all(journal: &Journal, mut cursor: Cursor) -> Vec<u8> {
        let mut out = Vec::new();
        while let Lookup::Records { bytes, .. } = journal.find(cursor) {
            let mut bytes = bytes.load().await.unwrap();
            while let Some(record) = next_record(&mut bytes) {
                out.extend_from_slice(&record.bytes);
                cursor = cursor.past(&record);
            }
        }
        out
    }

    #[tokio::test]
    async fn what_goes_in_comes_out_from_memory_and_files_alike() {
        let journal = journal();
        let mut expected = Vec::new();
        for number in 0..100_000 {
            let line = format!("line {number}\n");
            journal.append(Channel::Stdout, 1, line.as_bytes());
            expected.extend_from_slice(line.as_bytes());
            journal.settle().await;
        }
        assert!(journal.held().file > 0 && journal.held().memory > 0);
        let start = journal.seek_event(FIRST_OUTPUT_SEQ).unwrap();
        assert!(all(&journal, start).await == expected);
        let middle = journal.seek_event(50_000).unwrap();
        assert!(middle.seq <= 50_000 && middle.seq > 40_000, "{middle:?}");
        let rest = all(&journal, middle).await;
        assert!(expected.ends_with(&rest));
        assert_eq!(rest.len() as u64, journal.end().raw - middle.raw);
    }

    #[tokio::test]
    async fn the_oldest_goes_at_the_limit_and_is_said_to_be_gone() {
        let journal = journal();
        let block = vec![b'x'; 60_000];
        for _ in 0..limits::OUTPUT_BYTES / 60_000 * 2 {
            journal.append(Channel::Stderr, 1, &block);
            journal.settle().await;
        }
        let held = journal.held();
        assert!(held.memory + held.file <= limits::OUTPUT_BYTES);
        assert!(held.memory + held.file > limits::OUTPUT_BYTES - 200_000);
        let oldest = journal.seek_event(FIRST_OUTPUT_SEQ).unwrap_err();
        assert!(oldest.seq > FIRST_OUTPUT_SEQ);
        let kept = all(&journal, oldest).await;
        assert_eq!(kept.len() as u64, journal.end().raw - oldest.raw);
    }

    #[tokio::test]
    async fn output_behind_the_end_is_for_the_logs_alone() {
        let journal = journal();
        journal.append(Channel::Stdout, 1, b"before\n");
        journal.finish(Ending::TimedOut { time_ms: 2 });
        journal.append(Channel::Stdout, 3, b"behind\n");
        let start = journal.seek_event(FIRST_OUTPUT_SEQ).unwrap();
        assert_eq!(all(&journal, start).await, b"before\n");
        let logs = super::super::read_logs(&journal, 0);
        let body = axum::body::to_bytes(logs.body, 100).await.unwrap();
        assert_eq!(&body[..], b"before\nbehind\n");
    }

    #[test]
    fn a_reader_that_lags_leaves_no_room_until_it_goes() {
        let journal = journal();
        let attached = journal.attach(journal.end());
        let block = vec![b'x'; 60_000];
        journal.append(Channel::Stdout, 1, &block);
        assert!(journal.has_room());
        journal.append(Channel::Stdout, 1, &block);
        assert!(!journal.has_room());
        attached.advance(journal.end());
        assert!(journal.has_room());
        journal.append(Channel::Stdout, 1, &block);
        journal.append(Channel::Stdout, 1, &block);
        assert!(!journal.has_room());
        drop(attached);
        assert!(journal.has_room());
    }
}
