//! A stream some of whose bytes were read already to see what is spoken there: they are read once more, first.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::Io;
use crate::transfer::Buffer;

/// The stream.
pub(crate) struct ReadAgain {
    stream: Box<dyn Io>,
    read: Buffer,
}

impl ReadAgain {
    pub(crate) fn new(stream: Box<dyn Io>, read: Buffer) -> Self {
        Self { stream, read }
    }
}

impl AsyncRead for ReadAgain {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, read } = &mut *self;
        if read.is_empty() {
            return Pin::new(stream).poll_read(context, room);
        }
        let count = read.unread().len().min(room.remaining());
        room.put_slice(&read.unread()[..count]);
        read.consume(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ReadAgain {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }
}
