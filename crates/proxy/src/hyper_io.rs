//! A client's connection as the HTTP library sees it, which gets the bytes of one request at a time.
//!
//! One connection of the library serves all API requests of a client's connection, and is left alone
//! while other requests of the same connection are forwarded. So it must never read into a request that
//! may not be for it. It gets the head, which ends at the first empty line, and then as much body as the
//! library itself found in that head: the two cannot disagree about where a request ends.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::rt::ReadBufCursor;

use crate::body::{BodyFraming, Length};
use crate::connection::{Connection, Io};

/// What a connection of the library reads from and writes to. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct HyperIo(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// `None` while the connection is not lent to the library.
    connection: Option<Connection>,
    remaining: Remaining,
    /// Whether the handler has read the request's body to its end.
    is_body_read: bool,
    /// Whether the library has dropped the body of the response, and so has all of it.
    is_response_complete: bool,
    /// Whether all of the response was written.
    is_response_sent: bool,
}

/// What the library may still read.
#[derive(Default)]
pub(crate) enum Remaining {
    /// Nothing: the request has ended.
    #[default]
    Nothing,
    /// So many bytes of the head.
    Head(usize),
    /// What the library finds in the head, which it has.
    Unknown,
    /// The body.
    Body(BodyFraming),
    /// Everything, to the end of the connection: it is not a request, and the library refuses it.
    Everything,
}

impl Remaining {
    fn is_nothing(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Body(framing) => framing.is_done(),
            Self::Head(_) | Self::Unknown | Self::Everything => false,
        }
    }

    /// How many of these bytes the library may read, at most `max`; they count as read.
    fn take(&mut self, bytes: &[u8], max: usize) -> io::Result<usize> {
        let max = max.min(bytes.len());
        match self {
            Self::Nothing => Ok(0),
            Self::Everything => Ok(max),
            Self::Body(framing) => framing.measure(&bytes[..max]).map_err(invalid_data),
            // `message::head_end` and the library's parser, which is httparse, agree on where a head
            // ends. If they ever do not, the connection is not safe to go on with.
            Self::Unknown => Err(invalid_data("the end of a head is not clear")),
            Self::Head(left) => {
                let count = max.min(*left);
                *left -= count;
                if *left == 0 {
                    *self = Self::Unknown;
                }
                Ok(count)
            }
        }
    }
}

fn invalid_data(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A connection that the library has given back.
pub(crate) struct Returned {
    pub(crate) connection: Connection,
    /// Whether the library has nothing left of the last request, and so can take another one.
    pub(crate) is_library_idle: bool,
}

impl HyperIo {
    // A panic while the lock is held cannot leave the state half changed, so poison is no danger.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends the connection to the library for one request.
    pub(crate) fn lend(&self, connection: Connection, remaining: Remaining) {
        *self.lock() = State {
            connection: Some(connection),
            remaining,
            ..State::default()
        };
    }

    /// Takes the connection back.
    pub(crate) fn take_back(&self) -> Option<Returned> {
        let mut state = self.lock();
        Some(Returned {
            connection: state.connection.take()?,
            is_library_idle: state.is_body_read,
        })
    }

    /// Whether the request was read and its response written, both to the end.
    pub(crate) fn is_done(&self) -> bool {
        let state = self.lock();
        state.is_response_sent && state.remaining.is_nothing()
    }

    /// Notes how long the library takes the body of the request to be, and wraps it.
    pub(crate) fn begin_request(&self, body: Incoming) -> RequestBody {
        let mut state = self.lock();
        state.is_body_read = body.is_end_stream();
        if let Remaining::Unknown = state.remaining {
            let length = match body.size_hint().exact() {
                Some(bytes) => Length::Exactly(bytes),
                None => Length::Chunked,
            };
            state.remaining = Remaining::Body(BodyFraming::new(length));
        }
        let is_read = state.is_body_read;
        drop(state);
        RequestBody {
            body,
            is_read,
            io: self.clone(),
        }
    }

    /// Wraps the body of the response.
    pub(crate) fn begin_response<B>(&self, body: B) -> ResponseBody<B> {
        ResponseBody {
            body,
            _complete: Complete(self.clone()),
        }
    }

    fn with_stream<T>(
        &self,
        write: impl FnOnce(Pin<&mut dyn Io>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut self.lock().connection {
            Some(connection) => write(Pin::new(connection.parts().0)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl hyper::rt::Read for HyperIo {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut room: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.lock();
        let State {
            connection,
            remaining,
            ..
        } = &mut *state;
        let Some(connection) = connection else {
            return Poll::Pending;
        };
        let (stream, buffer) = connection.parts();
        // Behind the end of a request the library only watches whether the client hangs up. What arrives is
        // the next request.
        if remaining.is_nothing() {
            while ready!(buffer.poll_read_ahead(context, stream))? > 0 {}
            return Poll::Ready(Ok(()));
        }
        if buffer.is_empty() && ready!(buffer.poll_fill(context, stream))? == 0 {
            return Poll::Ready(Ok(()));
        }
        let count = remaining.take(buffer.unread(), room.remaining())?;
        room.put_slice(&buffer.unread()[..count]);
        buffer.consume(count);
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for HyperIo {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with_stream(|stream| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.with_stream(|stream| stream.poll_flush(context)))?;
        let mut state = self.lock();
        state.is_response_sent = state.is_response_complete;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with_stream(|stream| stream.poll_shutdown(context))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with_stream(|stream| stream.poll_write_vectored(context, parts))
    }
}

/// The body of a request to the API.
pub struct RequestBody {
    body: Incoming,
    /// Whether its end was seen. Noted once: a handler may hold it beyond its own request.
    is_read: bool,
    io: HyperIo,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if !self.is_read && (matches!(polled, Poll::Ready(None)) || self.body.is_end_stream()) {
            self.is_read = true;
            self.io.lock().is_body_read = true;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Notes, when the library drops the body of a response, that the library has all of it.
struct Complete(HyperIo);

impl Drop for Complete {
    fn drop(&mut self) {
        self.0.lock().is_response_complete = true;
    }
}

/// The body of a response of the API.
pub(crate) struct ResponseBody<B> {
    body: B,
    _complete: Complete,
}

impl<B: Body<Data = Bytes> + Unpin> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
