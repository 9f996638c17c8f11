//! Output by byte offset, both channels in the order in which they were read.

use std::sync::Arc;

use axum::body::{Body, Bytes};

use super::blocks::{Cursor, Lookup, Record, next_record};
use super::journal::Journal;

/// A piece of the raw output.
pub(crate) struct Logs {
    /// The offset of the first byte: later than asked for when that part is dropped.
    pub(crate) start: u64,
    /// The offset to go on from.
    pub(crate) end: u64,
    pub(crate) body: Body,
}

/// The output from `offset` up to what there is now. Streamed, because it may be as large
/// as the limit.
pub(crate) fn read(journal: &Arc<Journal>, offset: u64) -> Logs {
    let end = journal.end().raw;
    let (cursor, start) = match journal.seek_raw(offset.min(end)) {
        Ok(cursor) => (cursor, offset.min(end)),
        Err(oldest) => (oldest, oldest.raw.min(end)),
    };
    let reader = Reader {
        journal: Arc::clone(journal),
        cursor,
        start,
        end,
    };
    let stream = futures_util::stream::try_unfold(reader, Reader::next);
    Logs {
        start,
        end,
        body: Body::from_stream(stream),
    }
}

struct Reader {
    journal: Arc<Journal>,
    cursor: Cursor,
    start: u64,
    end: u64,
}

impl Reader {
    async fn next(mut self) -> std::io::Result<Option<(Bytes, Self)>> {
        while self.cursor.raw < self.end {
            let mut stored = match self.journal.find_raw(self.cursor) {
                Lookup::Records { bytes, .. } => bytes.load().await?,
                Lookup::Dropped(oldest) => {
                    self.cursor = oldest;
                    continue;
                }
                Lookup::Nothing | Lookup::End(..) => return Ok(None),
            };
            let mut piece = Vec::with_capacity(stored.len());
            while let Some(record) = next_record(&mut stored) {
                piece.extend_from_slice(self.wanted(&record));
                self.cursor = self.cursor.past(&record);
            }
            if !piece.is_empty() {
                return Ok(Some((piece.into(), self)));
            }
        }
        Ok(None)
    }

    /// The part of a record, which begins at the cursor, that lies between start and end.
    fn wanted<'r>(&self, record: &'r Record) -> &'r [u8] {
        let length = record.bytes.len();
        let within = |offset: u64| {
            usize::try_from(offset.saturating_sub(self.cursor.raw))
                .map_or(length, |at| at.min(length))
        };
        &record.bytes[within(self.start)..within(self.end)]
    }
}
