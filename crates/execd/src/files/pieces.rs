//! A part of a file as a stream of pieces, at the pace of the connection.
//!
//! What the kernel has in memory is read right here, between two writes to the socket, which is the
//! shortest way there is; only what would have to wait for a disk is read on the blocking pool. On
//! filesystems that cannot say which it is (overlay among them) every piece is read there, one
//! ahead of the connection. A client that reads slowly holds a descriptor and a few buffers and no
//! thread.

use std::{
    fs::File,
    io::{self, IoSliceMut},
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures_util::{Stream, stream};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tokio::task::{JoinHandle, spawn_blocking};

/// One read. Small enough that a piece is still in the processor's cache when it is written, and
/// that reading it does not keep other connections waiting.
pub(super) const PIECE: usize = 128 * 1024;

/// One read ahead: large enough to pay for the hand-over between threads.
const PIECE_AHEAD: usize = 512 * 1024;

pub(super) struct Pieces {
    file: Arc<File>,
    at: u64,
    end: u64,
    buffers: Arc<Buffers>,
    source: Source,
}

enum Source {
    /// The kernel tells what it has in memory.
    Memory,
    /// It does not; what is being read ahead, if anything.
    Ahead(Option<JoinHandle<io::Result<Buffer>>>),
}

impl Pieces {
    pub(super) fn new(file: File, start: u64, length: u64) -> Self {
        Self {
            file: Arc::new(file),
            at: start,
            end: start + length,
            buffers: Arc::default(),
            source: Source::Memory,
        }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> {
        stream::try_unfold(self, async |mut pieces| {
            if pieces.at == pieces.end {
                return Ok(None);
            }
            let piece = pieces.next().await?;
            pieces.at += piece.filled as u64;
            Ok(Some((Bytes::from_owner(piece), pieces)))
        })
    }

    async fn next(&mut self) -> io::Result<Buffer> {
        if let Source::Memory = self.source {
            let mut buffer = self.buffers.take(PIECE);
            let size = self.size_at(self.at, PIECE);
            let mut slices = [IoSliceMut::new(&mut buffer.bytes[..size])];
            match preadv2(&*self.file, &mut slices, self.at, ReadWriteFlags::NOWAIT) {
                // The promised length cannot be kept: the connection ends instead.
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    buffer.filled = read;
                    return Ok(buffer);
                }
                Err(Errno::AGAIN) => return lost(self.read(self.at, PIECE).await),
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.source = Source::Ahead(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let current = match &mut self.source {
            Source::Ahead(ahead) => ahead.take(),
            Source::Memory => None,
        };
        let current = current.unwrap_or_else(|| self.read(self.at, PIECE_AHEAD));
        let next = self.at + self.size_at(self.at, PIECE_AHEAD) as u64;
        if next < self.end {
            self.source = Source::Ahead(Some(self.read(next, PIECE_AHEAD)));
        }
        lost(current.await)
    }

    fn size_at(&self, at: u64, most: usize) -> usize {
        usize::try_from(self.end - at).map_or(most, |left| left.min(most))
    }

    /// Reads a whole piece on the blocking pool.
    fn read(&self, at: u64, most: usize) -> JoinHandle<io::Result<Buffer>> {
        let (file, mut buffer) = (self.file.clone(), self.buffers.take(most));
        let size = self.size_at(at, most);
        spawn_blocking(move || {
            file.read_exact_at(&mut buffer.bytes[..size], at)?;
            buffer.filled = size;
            Ok(buffer)
        })
    }
}

fn lost<T>(joined: Result<io::Result<T>, tokio::task::JoinError>) -> io::Result<T> {
    joined.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Buffers that go round between the reader and the connection: fresh memory for each piece would
/// cost as much as reading it.
#[derive(Default)]
struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    fn take(self: &Arc<Self>, size: usize) -> Buffer {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = free
            .filter(|bytes| bytes.len() >= size)
            .unwrap_or_else(|| vec![0; size]);
        Buffer {
            bytes,
            filled: 0,
            home: self.clone(),
        }
    }
}

struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut free = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt;
    use proptest::prelude::*;

    use super::*;

    fn all(content: &[u8], start: u64, length: u64, source: Source) -> io::Result<Vec<u8>> {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, content).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut pieces = Pieces::new(file, start, length);
            pieces.source = source;
            let parts: Vec<Bytes> = pieces.into_stream().try_collect().await?;
            Ok(parts.concat())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn both_ways_give_the_part_asked_for(size in 1usize..2_000_000, a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>()) {
            let content: Vec<u8> = (0..size).map(|n| (n % 253) as u8).collect();
            let (start, end) = (a.index(size).min(b.index(size)), a.index(size).max(b.index(size)) + 1);
            for source in [Source::Memory, Source::Ahead(None)] {
                let got = all(&content, start as u64, (end - start) as u64, source).unwrap();
                prop_assert!(got == content[start..end]);
            }
        }
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error_and_not_a_short_answer() {
        for source in [Source::Memory, Source::Ahead(None)] {
            let error = all(&[1; 300_000], 0, 2_000_000, source).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
