//! The records of a journal, in blocks: where each block lies, and how a position, an event's number
//! or an offset is found in them.
//!
//! Does no waiting and touches no file but to read a stored block; `journal` decides when blocks move.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;

use super::journal::{Channel, Ending};
use crate::limits;

/// A block is closed when it has this many bytes: large enough that one read gives a
/// client hundreds of events, small enough that a command holds little memory.
const BLOCK_BYTES: usize = 32 * 1024;

/// Closed blocks a journal keeps in memory before it moves them to a file.
const MEMORY_BLOCKS: usize = 4;

/// How far an attached reader may lag. Less than what memory holds, so that a reader that
/// keeps up never waits for a file.
const WINDOW_BYTES: u64 = 96 * 1024;

/// The number of the first event after `init`.
pub(super) const FIRST_OUTPUT_SEQ: u64 = 2;

/// channel, length, time.
const HEADER_BYTES: usize = 1 + 4 + 8;

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

/// Everything a journal holds, behind its lock.
pub(super) struct Blocks {
    pub(super) blocks: VecDeque<Block>,
    pub(super) end: Cursor,
    pub(super) ending: Option<(Cursor, Arc<Ending>)>,
    pub(super) readers: Vec<(u64, u64)>,
    pub(super) next_reader: u64,
    pub(super) file: Option<FileLocation>,
    pub(super) is_spilling: bool,
}

pub(super) struct Block {
    pub(super) start: Cursor,
    pub(super) length: usize,
    pub(super) location: Location,
}

#[derive(Clone)]
pub(super) enum Location {
    Open(Vec<u8>),
    Memory(Bytes),
    File(Arc<File>, u64),
}

/// A file and an offset in it.
pub(super) type FileLocation = (Arc<File>, u64);

/// What a reader finds at its cursor.
pub(super) enum Lookup {
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

impl Blocks {
    pub(super) fn new() -> Self {
        Self {
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
        }
    }

    pub(super) fn append(&mut self, channel: Channel, time_ms: i64, bytes: &[u8]) {
        if !matches!(
            self.blocks.back(),
            Some(Block {
                location: Location::Open(_),
                ..
            })
        ) {
            let location = Location::Open(Vec::new());
            self.blocks.push_back(Block {
                start: self.end,
                length: 0,
                location,
            });
        }
        let Some(block) = self.blocks.back_mut() else {
            return;
        };
        let Location::Open(open) = &mut block.location else {
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
            block.location = Location::Memory(Bytes::from(std::mem::take(open)));
            self.drop_oldest();
        }
    }

    pub(super) fn recent(&self) -> Vec<Bytes> {
        let in_memory = |block: &Block| match &block.location {
            Location::Open(bytes) => Some(Bytes::copy_from_slice(bytes)),
            Location::Memory(bytes) => Some(bytes.clone()),
            Location::File(..) => None,
        };
        self.blocks.iter().filter_map(in_memory).collect()
    }

    pub(super) fn has_room(&self) -> bool {
        let slowest = self.readers.iter().map(|&(_, position)| position).min();
        slowest.is_none_or(|position| position + WINDOW_BYTES > self.end.position)
    }

    pub(super) fn is_crowded(&self) -> bool {
        let in_memory = self
            .blocks
            .iter()
            .rev()
            .take_while(|b| !matches!(b.location, Location::File(..)))
            .count();
        in_memory > MEMORY_BLOCKS
    }

    pub(super) fn set_locations(&mut self, locations: Vec<FileLocation>) {
        let in_memory = self
            .blocks
            .iter_mut()
            .filter(|block| matches!(block.location, Location::Memory(_)));
        for (block, (file, offset)) in in_memory.zip(locations) {
            block.location = Location::File(file, offset);
        }
    }

    pub(super) fn drop_oldest(&mut self) {
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
    pub(super) fn shrink(&mut self) {
        if let Some(Block {
            location: Location::Open(open),
            ..
        }) = self.blocks.back_mut()
        {
            open.shrink_to_fit();
        }
        self.blocks.shrink_to_fit();
    }

    pub(super) fn find_records(&self, cursor: Cursor) -> Lookup {
        if cursor.position >= self.end.position {
            return Lookup::Nothing;
        }
        let after = self
            .blocks
            .partition_point(|b| b.start.position <= cursor.position);
        let Some(block) = after
            .checked_sub(1)
            .and_then(|index| self.blocks.get(index))
        else {
            return Lookup::Dropped(self.oldest());
        };
        let skipped = usize::try_from(cursor.position - block.start.position).unwrap_or(usize::MAX);
        if skipped >= block.length {
            // A gap: blocks were dropped between this one and the next.
            return Lookup::Dropped(self.blocks.get(after).map_or(self.end, |next| next.start));
        }
        let bytes = match &block.location {
            Location::Open(bytes) => Stored::Memory(Bytes::copy_from_slice(&bytes[skipped..])),
            Location::Memory(bytes) => Stored::Memory(bytes.slice(skipped..)),
            Location::File(file, offset) => Stored::File {
                file: Arc::clone(file),
                offset: offset + skipped as u64,
                length: block.length - skipped,
            },
        };
        Lookup::Records {
            start: cursor,
            bytes,
        }
    }

    /// The start of the last block that is not past the place looked for.
    pub(super) fn seek(&self, is_not_past: impl Fn(&Cursor) -> bool) -> Result<Cursor, Cursor> {
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

impl Stored {
    /// Without what lies behind this many bytes.
    pub(super) fn up_to(self, most: u64) -> Self {
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
