//! A body on its way from one connection to another, and the buffer that it passes through.
//!
//! Knows how a body is framed (`wire`), not whose it is: both directions of both sides use the same.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::wire::{self, Malformed};

/// What a buffer begins with: a request or an answer of the usual size, and little enough for
/// thousands of idle connections.
pub(super) const BUFFER_START: usize = 8 * 1024;

/// What it may grow to while a large body passes: beyond this fewer system calls are gained than
/// cache is lost.
const BUFFER_MAX: usize = 256 * 1024;

/// By how much it grows when a read has filled it.
const BUFFER_GROWTH: usize = 4;

/// Bytes that were read and not yet used.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// What is there.
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The same, to be changed in place.
    pub fn unread_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Forgets bytes at the front.
    pub fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start, "only what is there");
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads more, behind what is there; answers how much. Nothing is the end of the stream, or
    /// that as much is there as a buffer holds.
    pub fn poll_fill(
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

    /// Lets the next read take more, after one that filled all there was room for.
    pub fn grow(&mut self) {
        if self.end == self.bytes.len() && self.start == 0 {
            self.make_room();
        }
    }

    /// Gives memory back that only a large body needed.
    pub fn shrink(&mut self) {
        if self.bytes.len() > BUFFER_START && self.is_empty() {
            *self = Self::default();
        }
    }
}

/// How a body moves from one connection to another.
#[derive(Debug)]
pub struct Flow {
    body: wire::Body,
    /// Bytes at the front of the buffer that are to be written,
    ready: usize,
    /// and those behind them that are to be forgotten.
    gap: usize,
}

/// Why a body does not move on.
#[derive(Debug)]
pub enum Stuck {
    /// It cannot be read.
    Reading(io::Error),
    /// It is not what its head said.
    Malformed(Malformed),
    /// It cannot be written.
    Writing(io::Error),
}

impl Flow {
    /// A body of this length, of which nothing has moved.
    pub fn new(length: wire::Length) -> Self {
        Self {
            body: wire::Body::new(length),
            ready: 0,
            gap: 0,
        }
    }

    /// Whether all of it has moved.
    pub fn is_done(&self) -> bool {
        self.ready == 0 && self.body.is_done()
    }

    /// Moves what was read already behind `out`, to be written with it: no more than `max` bytes.
    pub fn take(
        &mut self,
        buffer: &mut Buffer,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Result<(), Malformed> {
        while out.len() < max && !buffer.is_empty() && !self.body.is_done() {
            let bytes = buffer.unread_mut();
            let count = bytes.len().min(max - out.len());
            let passed = self.body.pass(&mut bytes[..count])?;
            out.extend_from_slice(&bytes[..passed.kept]);
            buffer.consume(passed.used);
        }
        Ok(())
    }

    /// Moves it on, to its end.
    pub fn poll_move(
        &mut self,
        context: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin + ?Sized),
        buffer: &mut Buffer,
        to: &mut (impl AsyncWrite + Unpin + ?Sized),
    ) -> Poll<Result<(), Stuck>> {
        loop {
            while self.ready > 0 {
                let ready = &buffer.unread()[..self.ready];
                let written = ready!(Pin::new(&mut *to).poll_write(context, ready));
                match written.map_err(Stuck::Writing)? {
                    0 => return Poll::Ready(Err(Stuck::Writing(io::ErrorKind::WriteZero.into()))),
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
            if buffer.is_empty() {
                let filled = ready!(buffer.poll_fill(context, from)).map_err(Stuck::Reading)?;
                if filled == 0 {
                    self.body.close().map_err(Stuck::Malformed)?;
                    return Poll::Ready(Ok(()));
                }
                buffer.grow();
            }
            let passed = self
                .body
                .pass(buffer.unread_mut())
                .map_err(Stuck::Malformed)?;
            (self.ready, self.gap) = (passed.kept, passed.used - passed.kept);
        }
    }
}
