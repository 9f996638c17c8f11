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
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::Notify;

use super::spool::Spool;
use crate::limits;
use crate::process::{Exit, locked};

/// A block is closed when it has this many bytes: large enough that one read gives a
/// client hundreds of events, small enough that a command holds little memory.
const BLOCK_BYTES: usize = 32 * 1024;

/// Closed blocks a journal keeps in memory before it moves them to a file.
const MEMORY_BLOCKS: usize = 4;

/// How far an attached reader may lag. Less than what memory holds, so that a reader that
/// keeps up never waits for a file.
const WINDOW_BYTES: u64 = 96 * 1024;

/// The number of the first event after `init`.
const FIRST_OUTPUT_SEQ: u64 = 2;

/// channel, length, time.
const HEADER_BYTES: usize = 1 + 4 + 8;

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

/// A place in a journal: as a position among the stored bytes, as an event's number and as
/// an offset in the raw output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) position: u64,
    pub(super) seq: u64,
    pub(super) raw: u64,
}

/// Bytes of one channel that arrived together.
pub(super) struct Record {
    pub(super) channel: Channel,
    pub(super) time_ms: i64,
    pub(super) bytes: Bytes,
}

pub(crate) struct Journal {
    inner: Mutex<Inner>,
    spool: Arc<Spool>,
    /// Something was added, or the end was.
    pub(super) grown: Notify,
    /// A reader moved on or left.
    pub(super) room: Notify,
    /// A move to a file is over.
    settled: Notify,
}

struct Inner {
    blocks: VecDeque<Block>,
    end: Cursor,
    ending: Option<(Cursor, Arc<Ending>)>,
    readers: Vec<(u64, u64)>,
    next_reader: u64,
    file: Option<FilePlace>,
    is_spilling: bool,
}

struct Block {
    start: Cursor,
    length: usize,
    place: Place,
}

#[derive(Clone)]
enum Place {
    Open(Vec<u8>),
    Memory(Bytes),
    File(Arc<File>, u64),
}

/// A file and an offset in it.
type FilePlace = (Arc<File>, u64);

/// What a reader finds at its cursor.
pub(super) enum Found {
    Records {
        start: Cursor,
        bytes: Stored,
    },
    Nothing,
    /// The end of the event stream.
    End(Arc<Ending>, u64),
    /// The output here has been dropped; the oldest that is kept begins at this cursor.
    Dropped(Cursor),
}

/// Records as they lie in memory or in a file.
pub(super) enum Stored {
    Memory(Bytes),
    File {
        file: Arc<File>,
        offset: u64,
        length: usize,
    },
}

impl Journal {
    pub(crate) fn new(spool: Arc<Spool>) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                blocks: VecDeque::new(),
                end: Cursor {
                    position: 0,
                    seq: FIRST_OUTPUT_SEQ,
                    raw: 0,
                },
                ending: None,
                readers: Vec::new(),
                next_reader: 0,
                file: None,
                is_spilling: false,
            }),
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
    pub(crate) fn adopt(&self, other: &Journal) {
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
    pub(crate) fn held(&self) -> Held {
        let inner = locked(&self.inner);
        let mut held = Held::default();
        for block in &inner.blocks {
            match &block.place {
                Place::Open(bytes) => held.memory += bytes.capacity() as u64,
                Place::Memory(bytes) => held.memory += bytes.len() as u64,
                Place::File(..) => held.file += block.length as u64,
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
            .filter_map(|block| match &block.place {
                Place::Memory(bytes) => Some(bytes.clone()),
                Place::Open(_) | Place::File(..) => None,
            })
            .collect();
        let file = inner.file.take();
        drop(inner);
        let written = self.write(file, &moved);
        let mut inner = locked(&self.inner);
        match written {
            Ok((file, places)) => {
                inner.place(places);
                inner.file = Some(file);
            }
            Err(error) => {
                tracing::warn!(%error, "older output could not be moved to a file and is dropped");
                inner
                    .blocks
                    .retain(|block| !matches!(block.place, Place::Memory(_)));
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
        current: Option<FilePlace>,
        blocks: &[Bytes],
    ) -> std::io::Result<(FilePlace, Vec<FilePlace>)> {
        let mut places = Vec::with_capacity(blocks.len());
        let (mut file, mut used) = match current {
            Some(current) => current,
            None => (Arc::new(self.spool.create()?), 0),
        };
        for block in blocks {
            if used >= limits::OUTPUT_BYTES / 2 {
                (file, used) = (Arc::new(self.spool.create()?), 0);
            }
            file.write_all_at(block, used)?;
            places.push((Arc::clone(&file), used));
            used += block.len() as u64;
        }
        Ok(((file, used), places))
    }

    /// What lies at `cursor`, which is at the start of a record.
    pub(super) fn find(&self, cursor: Cursor) -> Found {
        let inner = locked(&self.inner);
        let found = inner.find_records(cursor);
        let Some((end, ending)) = &inner.ending else {
            return found;
        };
        if cursor.position >= end.position {
            return Found::End(Arc::clone(ending), end.seq);
        }
        match found {
            Found::Records { start, bytes } => Found::Records {
                start,
                bytes: bytes.up_to(end.position - start.position),
            },
            other => other,
        }
    }

    /// As [`Self::find`], going on behind the end of the event stream.
    pub(super) fn find_raw(&self, cursor: Cursor) -> Found {
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
    pub(super) fn attach(self: &Arc<Self>, cursor: Cursor) -> Attached {
        let mut inner = locked(&self.inner);
        let id = inner.next_reader;
        inner.next_reader += 1;
        inner.readers.push((id, cursor.position));
        Attached {
            journal: Arc::clone(self),
            id,
        }
    }
}

/// Bytes that a journal holds.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) memory: u64,
    pub(crate) file: u64,
}

impl Inner {
    fn append(&mut self, channel: Channel, time_ms: i64, bytes: &[u8]) {
        if !matches!(
            self.blocks.back(),
            Some(Block {
                place: Place::Open(_),
                ..
            })
        ) {
            let place = Place::Open(Vec::new());
            self.blocks.push_back(Block {
                start: self.end,
                length: 0,
                place,
            });
        }
        let Some(block) = self.blocks.back_mut() else {
            return;
        };
        let Place::Open(open) = &mut block.place else {
            return;
        };
        open.push(channel as u8);
        open.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        open.extend_from_slice(&time_ms.to_le_bytes());
        open.extend_from_slice(bytes);
        block.length = open.len();
        self.end.position += (HEADER_BYTES + bytes.len()) as u64;
        self.end.seq += count_events(bytes);
        self.end.raw += bytes.len() as u64;
        if block.length >= BLOCK_BYTES {
            block.place = Place::Memory(Bytes::from(std::mem::take(open)));
            self.drop_oldest();
        }
    }

    fn recent(&self) -> Vec<Bytes> {
        let in_memory = |block: &Block| match &block.place {
            Place::Open(bytes) => Some(Bytes::copy_from_slice(bytes)),
            Place::Memory(bytes) => Some(bytes.clone()),
            Place::File(..) => None,
        };
        self.blocks.iter().filter_map(in_memory).collect()
    }

    fn has_room(&self) -> bool {
        let slowest = self.readers.iter().map(|&(_, position)| position).min();
        slowest.is_none_or(|position| position + WINDOW_BYTES > self.end.position)
    }

    fn is_crowded(&self) -> bool {
        let in_memory = self
            .blocks
            .iter()
            .rev()
            .take_while(|b| !matches!(b.place, Place::File(..)))
            .count();
        in_memory > MEMORY_BLOCKS
    }

    fn place(&mut self, places: Vec<FilePlace>) {
        let in_memory = self
            .blocks
            .iter_mut()
            .filter(|block| matches!(block.place, Place::Memory(_)));
        for (block, (file, offset)) in in_memory.zip(places) {
            block.place = Place::File(file, offset);
        }
    }

    fn drop_oldest(&mut self) {
        let Some(newest) = self.blocks.back() else {
            return;
        };
        let end = newest.start.position + newest.length as u64;
        while let Some(oldest) = self.blocks.front()
            && end - oldest.start.position > limits::OUTPUT_BYTES
        {
            self.blocks.pop_front();
        }
    }

    /// Gives back what growing the open block reserved in excess.
    fn shrink(&mut self) {
        if let Some(Block {
            place: Place::Open(open),
            ..
        }) = self.blocks.back_mut()
        {
            open.shrink_to_fit();
        }
        self.blocks.shrink_to_fit();
    }

    fn find_records(&self, cursor: Cursor) -> Found {
        if cursor.position >= self.end.position {
            return Found::Nothing;
        }
        let after = self
            .blocks
            .partition_point(|b| b.start.position <= cursor.position);
        let Some(block) = after
            .checked_sub(1)
            .and_then(|index| self.blocks.get(index))
        else {
            return Found::Dropped(self.oldest());
        };
        let skipped = usize::try_from(cursor.position - block.start.position).unwrap_or(usize::MAX);
        if skipped >= block.length {
            // A gap: blocks were dropped between this one and the next.
            return Found::Dropped(self.blocks.get(after).map_or(self.end, |next| next.start));
        }
        let bytes = match &block.place {
            Place::Open(bytes) => Stored::Memory(Bytes::copy_from_slice(&bytes[skipped..])),
            Place::Memory(bytes) => Stored::Memory(bytes.slice(skipped..)),
            Place::File(file, offset) => Stored::File {
                file: Arc::clone(file),
                offset: offset + skipped as u64,
                length: block.length - skipped,
            },
        };
        Found::Records {
            start: cursor,
            bytes,
        }
    }

    /// The start of the last block that is not past the place looked for.
    fn seek(&self, is_not_past: impl Fn(&Cursor) -> bool) -> Result<Cursor, Cursor> {
        if self.blocks.is_empty() || is_not_past(&self.end) {
            return if is_not_past(&self.end) {
                Ok(self.end)
            } else {
                Err(self.end)
            };
        }
        let after = self
            .blocks
            .partition_point(|block| is_not_past(&block.start));
        match after
            .checked_sub(1)
            .and_then(|index| self.blocks.get(index))
        {
            Some(block) => Ok(block.start),
            None => Err(self.oldest()),
        }
    }

    fn oldest(&self) -> Cursor {
        self.blocks.front().map_or(self.end, |block| block.start)
    }
}

/// A reader's place in the window; gone when dropped.
pub(super) struct Attached {
    journal: Arc<Journal>,
    id: u64,
}

impl Attached {
    pub(super) fn advance(&self, cursor: Cursor) {
        let mut inner = locked(&self.journal.inner);
        if let Some(reader) = inner.readers.iter_mut().find(|(id, _)| *id == self.id) {
            reader.1 = cursor.position;
        }
        drop(inner);
        self.journal.room.notify_waiters();
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        locked(&self.journal.inner)
            .readers
            .retain(|(id, _)| *id != self.id);
        self.journal.room.notify_waiters();
    }
}

impl Stored {
    /// Without what lies behind this many bytes.
    fn up_to(self, most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        match self {
            Self::Memory(bytes) => Self::Memory(bytes.slice(..bytes.len().min(most))),
            Self::File {
                file,
                offset,
                length,
            } => Self::File {
                file,
                offset,
                length: length.min(most),
            },
        }
    }

    /// The bytes, from wherever they are. A file that cannot be read any more gives none.
    pub(super) async fn load(self) -> std::io::Result<Bytes> {
        match self {
            Self::Memory(bytes) => Ok(bytes),
            Self::File {
                file,
                offset,
                length,
            } => tokio::task::spawn_blocking(move || {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, offset)?;
                Ok(Bytes::from(bytes))
            })
            .await
            .expect("reading a spool file does not panic"),
        }
    }
}

/// Takes the next record off the front of stored bytes.
pub(super) fn next_record(stored: &mut Bytes) -> Option<Record> {
    if stored.len() < HEADER_BYTES {
        return None;
    }
    let header = stored.split_to(HEADER_BYTES);
    let channel = if header[0] == Channel::Stdout as u8 {
        Channel::Stdout
    } else {
        Channel::Stderr
    };
    let length = u32::from_le_bytes(header[1..5].try_into().expect("four bytes"));
    let time_ms = i64::from_le_bytes(header[5..].try_into().expect("eight bytes"));
    let length = usize::try_from(length)
        .expect("a record's length fits")
        .min(stored.len());
    Some(Record {
        channel,
        time_ms,
        bytes: stored.split_to(length),
    })
}

impl Cursor {
    /// The place behind a record that begins here.
    pub(super) fn past(self, record: &Record) -> Self {
        Self {
            position: self.position + (HEADER_BYTES + record.bytes.len()) as u64,
            seq: self.seq + count_events(&record.bytes),
            raw: self.raw + record.bytes.len() as u64,
        }
    }
}

/// The lines of a record, and the fragment that may follow them.
fn count_events(bytes: &[u8]) -> u64 {
    let lines = bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
    lines + u64::from(bytes.last().is_some_and(|&byte| byte != b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Arc<Journal> {
        Journal::new(Arc::default())
    }

    async fn all(journal: &Journal, mut cursor: Cursor) -> Vec<u8> {
        let mut out = Vec::new();
        while let Found::Records { bytes, .. } = journal.find(cursor) {
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
