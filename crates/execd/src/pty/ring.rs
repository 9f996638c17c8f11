//! The newest output of a terminal, by byte offset.
//!
//! Writing never waits: at the limit the oldest goes. Readers come with their own offset
//! and learn when what they wanted is gone.

use std::collections::VecDeque;

use crate::limits;
use crate::output::Channel;

/// Pieces are filled up to this size, so that a program that prints single characters does
/// not cost a piece for each.
const PIECE_BYTES: usize = 4096;

#[derive(Default)]
pub(super) struct Ring {
    pieces: VecDeque<Piece>,
    /// The offset behind the newest byte.
    end: u64,
    held: usize,
}

struct Piece {
    start: u64,
    channel: Channel,
    bytes: Vec<u8>,
}

/// Consecutive bytes of one channel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) start: u64,
    pub(super) channel: Channel,
    pub(super) bytes: Vec<u8>,
}

impl Ring {
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn push(&mut self, channel: Channel, bytes: &[u8]) {
        for part in bytes.chunks(PIECE_BYTES) {
            match self.pieces.back_mut() {
                Some(last)
                    if last.channel == channel && last.bytes.len() + part.len() <= PIECE_BYTES =>
                {
                    last.bytes.extend_from_slice(part);
                }
                _ => self.pieces.push_back(Piece {
                    start: self.end,
                    channel,
                    bytes: part.to_vec(),
                }),
            }
            self.end += part.len() as u64;
            self.held += part.len();
        }
        while self.held > limits::PTY_REPLAY_BYTES
            && let Some(oldest) = self.pieces.pop_front()
        {
            self.held -= oldest.bytes.len();
        }
    }

    /// Up to `most` bytes at `offset`, or at the oldest that is kept when that is later;
    /// `None` when there is nothing newer.
    pub(super) fn read(&self, offset: u64, most: usize) -> Option<Slice> {
        let after = self.pieces.partition_point(|piece| piece.start <= offset);
        let first = after.saturating_sub(1);
        let piece = self
            .pieces
            .range(first..)
            .find(|piece| piece.start + piece.bytes.len() as u64 > offset)?;
        let skipped = usize::try_from(offset.saturating_sub(piece.start)).unwrap_or(0);
        let end = piece.bytes.len().min(skipped.saturating_add(most));
        Some(Slice {
            start: piece.start + skipped as u64,
            channel: piece.channel,
            bytes: piece.bytes[skipped..end].to_vec(),
        })
    }

    /// Everything from `offset` on, both channels mixed, with the offset it begins at.
    pub(super) fn replay(&self, offset: u64) -> Option<(u64, Vec<u8>)> {
        let first = self.read(offset, usize::MAX)?;
        let (start, mut bytes) = (first.start, first.bytes);
        while let Some(next) = self.read(start + bytes.len() as u64, usize::MAX) {
            bytes.extend_from_slice(&next.bytes);
        }
        Some((start, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_by_offset_and_channel() {
        let mut ring = Ring::default();
        ring.push(Channel::Stdout, b"hello ");
        ring.push(Channel::Stdout, b"world");
        ring.push(Channel::Stderr, b"!");
        assert_eq!(ring.end(), 12);
        let read = ring.read(6, 3).unwrap();
        assert_eq!((read.start, read.bytes.as_slice()), (6, b"wor".as_slice()));
        assert_eq!(ring.read(11, 9).unwrap().channel, Channel::Stderr);
        assert_eq!(ring.read(12, 9), None);
        assert_eq!(ring.read(99, 9), None);
        assert_eq!(ring.replay(3), Some((3, b"lo world!".to_vec())));
    }

    #[test]
    fn keeps_the_newest_at_the_limit() {
        let mut ring = Ring::default();
        let block = vec![b'x'; 100_000];
        for _ in 0..30 {
            ring.push(Channel::Stdout, &block);
        }
        assert_eq!(ring.end(), 3_000_000);
        let (start, bytes) = ring.replay(0).unwrap();
        assert_eq!(start + bytes.len() as u64, 3_000_000);
        assert!(bytes.len() <= limits::PTY_REPLAY_BYTES);
        assert!(bytes.len() > limits::PTY_REPLAY_BYTES - 2 * PIECE_BYTES);
    }
}
