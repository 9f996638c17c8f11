//! Copying a body from one connection to another, and the buffer that it passes through.
//!
//! Knows how a body is framed (`body`), not whose it is: requests and responses use the same.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::body::{BodyFraming, Length};
use crate::message::Malformed;

/// The first size of a buffer: a request or a response of the usual size fits, and thousands of idle
/// connections can have one.
pub(crate) const BUFFER_START: usize = 8 * 1024;

/// What a buffer may grow to while a large body passes: beyond this, fewer system calls save less
/// than the cache misses cost.
const BUFFER_MAX: usize = 256 * 1024;

/// Bytes that are read of the next request while one is being served: as many as a head may have.
const READ_AHEAD_MAX: usize = 64 * 1024;

/// Bytes of chunk framing that are looked at, each by itself, before other connections of the thread have
/// their turn. Chunks of a kilobyte have so much in two megabytes, chunks of a byte in three kilobytes; tokio
/// looks for new events after 61 turns (`event_interval`), so this bounds how long all others wait.
const FRAMING_BYTES_PER_TURN: usize = 16 * 1024;

/// The factor by which a buffer grows when a read has filled it.
const BUFFER_GROWTH: usize = 4;

/// Bytes that were read from a connection and not yet used.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// The bytes.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The bytes, to be changed in place.
    pub(crate) fn unread_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Removes bytes at the front.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start, "only bytes that are there");
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads more behind the bytes that are there, and returns how many. 0 is the end of the stream,
    /// or a buffer of its largest size that is full.
    pub(crate) fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin + ?Sized),
    ) -> Poll<io::Result<usize>> {
        self.make_room();
        let mut room = ReadBuf::new(&mut self.bytes[self.end..]);
        ready!(Pin::new(from).poll_read(context, &mut room))?;
        let count = room.filled().len();
        self.end += count;
        Poll::Ready(Ok(count))
    }

    /// Reads what a client sends ahead of its turn, and so notices that it hangs up. Of a client that
    /// sends more than [`READ_AHEAD_MAX`] it is noticed when its turn comes.
    pub(crate) fn poll_read_ahead(
        &mut self,
        context: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin + ?Sized),
    ) -> Poll<io::Result<usize>> {
        if self.unread().len() >= READ_AHEAD_MAX {
            return Poll::Pending;
        }
        self.poll_fill(context, from)
    }

    fn make_room(&mut self) {
        if self.end < self.bytes.len() {
            return;
        }
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        } else {
            let size = (self.bytes.len() * BUFFER_GROWTH).clamp(BUFFER_START, BUFFER_MAX);
            self.bytes.resize(size, 0);
        }
    }

    /// Makes room for a larger read, after one that filled the buffer.
    pub(crate) fn grow(&mut self) {
        if self.end == self.bytes.len() && self.start == 0 {
            self.make_room();
        }
    }

    /// Frees memory that only a large body needed.
    pub(crate) fn shrink(&mut self) {
        if self.bytes.len() > BUFFER_START && self.is_empty() {
            *self = Self::default();
        }
    }
}

/// The copying of one body from one connection to another.
#[derive(Debug)]
pub(crate) struct Transfer {
    body: BodyFraming,
    /// Bytes at the front of the buffer that are to be written.
    ready: usize,
    /// Bytes behind `ready` that are dropped once those are written.
    gap: usize,
}

/// Why a body could not be copied to its end.
#[derive(Debug)]
pub(crate) enum TransferError {
    /// The source failed.
    Reading(io::Error),
    /// The body is not framed as its head said.
    Malformed(Malformed),
    /// The destination failed.
    Writing,
}

impl Transfer {
    /// A transfer of which nothing is done.
    pub(crate) fn new(length: Length) -> Self {
        Self {
            body: BodyFraming::new(length),
            ready: 0,
            gap: 0,
        }
    }

    /// Whether the whole body was written.
    pub(crate) fn is_done(&self) -> bool {
        self.ready == 0 && self.body.is_done()
    }

    /// The body is to end behind the present chunk (`BodyFraming::end_at_chunk`).
    pub(crate) fn end_at_chunk(&mut self) {
        self.body.end_at_chunk();
    }

    /// Whether the body was ended before its sender did.
    pub(crate) fn is_ended_early(&self) -> bool {
        self.body.is_ended_early()
    }

    /// Appends what was read of the body already to `out`, which grows to at most `max` bytes, so that
    /// both are written with one system call.
    pub(crate) fn take_buffered(
        &mut self,
        buffer: &mut Buffer,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Result<(), Malformed> {
        while out.len() < max && !buffer.is_empty() && !self.body.is_done() {
            let bytes = buffer.unread_mut();
            let count = bytes.len().min(max - out.len());
            let filtered = self.body.filter(&mut bytes[..count], count)?;
            out.extend_from_slice(&bytes[..filtered.kept]);
            buffer.consume(filtered.used);
        }
        Ok(())
    }

    /// Copies up to the end of the body.
    pub(crate) fn poll_copy(
        &mut self,
        context: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin + ?Sized),
        buffer: &mut Buffer,
        to: &mut (impl AsyncWrite + Unpin + ?Sized),
    ) -> Poll<Result<(), TransferError>> {
        let mut framing = 0;
        loop {
            while self.ready > 0 {
                let ready = &buffer.unread()[..self.ready];
                let written = ready!(Pin::new(&mut *to).poll_write(context, ready));
                match written.map_err(|_| TransferError::Writing)? {
                    0 => return Poll::Ready(Err(TransferError::Writing)),
                    count => {
                        buffer.consume(count);
                        self.ready -= count;
                    }
                }
            }
            buffer.consume(std::mem::take(&mut self.gap));
            if self.body.is_done() {
                return Poll::Ready(Ok(()));
            }
            if framing >= FRAMING_BYTES_PER_TURN {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if buffer.is_empty() {
                let filled =
                    ready!(buffer.poll_fill(context, from)).map_err(TransferError::Reading)?;
                if filled == 0 {
                    self.body
                        .end_of_stream()
                        .map_err(TransferError::Malformed)?;
                    return Poll::Ready(Ok(()));
                }
                buffer.grow();
            }
            let filtered = self
                .body
                .filter(buffer.unread_mut(), FRAMING_BYTES_PER_TURN - framing)
                .map_err(TransferError::Malformed)?;
            (self.ready, self.gap) = (filtered.kept, filtered.used - filtered.kept);
            framing += filtered.framing;
        }
    }
}
