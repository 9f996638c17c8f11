//! A connection whose requests are answered by a handler or carried on by it, one after the other
//! as the client sends them.
//!
//! The head of each request is read here. Those that are carried on never meet the HTTP library:
//! taking a message apart and putting it together again, twice, costs more than everything else
//! that is done to it. All others are handed to the library, for which each is a connection of its own.

use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse as _;
use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::body::{Frame, SizeHint};
use hyper::rt::ReadBufCursor;
use hyper::service::service_fn;
use tokio::time::{Instant, Sleep};

use super::line::{Arrived, Io, Line};
use super::{Failure, Handler, Next, Peer, Shell, answer, panic_message, wire};

/// Serves a connection to its end.
pub(super) async fn serve<H: Handler>(shell: &Shell<H>, stream: Box<dyn Io>, peer: Peer) {
    let app = &shell.app;
    let stopping = shell.spawner.stopping();
    let mut stopped = pin!(stopping.cancelled());
    let mut patience = Patience::new(shell.limits.idle);
    let mut line = Line::new(stream, peer, stopping.clone());
    let seat = Seat::default();
    let service = service_fn(|request| {
        let end = End(seat.clone());
        async move {
            let response = answer(app, request, peer).await;
            response.map(|response| response.map(|body| Watched { body, _end: end }))
        }
    });
    loop {
        patience.renew();
        let arrived = tokio::select! {
            biased;
            arrived = line.arrive(shell.limits.head_bytes) => arrived,
            () = stopped.as_mut() => return,
            () = patience.ended() => return,
        };
        let left = match arrived {
            Arrived::End => return,
            Arrived::Odd => Left::Everything,
            Arrived::Request if app.carries(line.request().target()) => {
                match carry(app, &mut line).await {
                    Next::Request => continue,
                    Next::Close => return line.close().await,
                }
            }
            Arrived::Request => Left::of(&line),
        };
        seat.take_place(line, left);
        // A new one for each request: it may hold a part of the last one that its handler did not
        // read, and whoever only waits needs none.
        let mut library = pin!(shell.http.serve_connection(seat.clone(), service));
        let mut turn = pin!(std::future::poll_fn(|context| {
            match library.as_mut().poll(context) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                Poll::Pending if seat.is_done() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        }));
        let ended = tokio::select! {
            biased;
            ended = turn.as_mut() => ended,
            () = stopped.as_mut() => {
                library.as_mut().graceful_shutdown();
                Some(library.as_mut().await)
            }
        };
        match (ended, seat.leave_place()) {
            (None, Some(again)) => line = again,
            (ended, line) => {
                if let Some(Err(error)) = ended {
                    let error = api::error_chain(&error);
                    tracing::debug!(%error, "a connection ended early");
                }
                if let Some(line) = line {
                    line.close().await;
                }
                return;
            }
        }
    }
}

/// One request that is carried on; a carrier that panics is answered for.
async fn carry<H: Handler>(app: &H, line: &mut Line) -> Next {
    line.begin();
    let panic = match AssertUnwindSafe(app.carry(line)).catch_unwind().await {
        Ok(next) => return next,
        Err(panic) => panic,
    };
    let (id, error) = (line.request_id().clone(), panic_message(&*panic));
    tracing::error!(request_id = %id, error, "a carrier panicked");
    let response = Failure::panicked(&id).into_response();
    let _ = line.answer(response, false).await;
    Next::Close
}

/// Ends connections on which no request comes. Armed anew only when it has run out, for most
/// connections are used again long before.
struct Patience {
    idle: Option<Duration>,
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Patience {
    fn new(idle: Option<Duration>) -> Self {
        let since = Instant::now();
        let timer = Box::pin(tokio::time::sleep_until(since + idle.unwrap_or_default()));
        Self { idle, since, timer }
    }

    fn renew(&mut self) {
        self.since = Instant::now();
    }

    async fn ended(&mut self) {
        let Some(idle) = self.idle else {
            return std::future::pending().await;
        };
        loop {
            self.timer.as_mut().await;
            let end = self.since + idle;
            if end <= Instant::now() {
                return;
            }
            self.timer.as_mut().reset(end);
        }
    }
}

/// The connection as the library has it: it reads one request, and nothing behind it.
#[derive(Clone, Default)]
struct Seat(Arc<Mutex<Place>>);

#[derive(Default)]
struct Place {
    line: Option<Line>,
    left: Left,
    /// The answer was made to its end,
    has_ended: bool,
    /// and everything of it was sent.
    is_sent: bool,
}

/// What is left of the request that the library reads.
#[derive(Default)]
enum Left {
    #[default]
    Nothing,
    Message {
        head: usize,
        body: wire::Body,
    },
    /// Where it ends is not known here, so the library has the connection from now on.
    Everything,
}

impl Left {
    fn of(line: &Line) -> Self {
        let request = line.request();
        match request.request_length() {
            Ok(length) => Self::Message {
                head: request.head_len(),
                body: wire::Body::new(length),
            },
            Err(_) => Self::Everything,
        }
    }

    fn is_nothing(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Message { head, body } => *head == 0 && body.is_done(),
            Self::Everything => false,
        }
    }

    /// How many of these bytes belong to it, at most `max`; they count as read.
    fn take(&mut self, bytes: &[u8], max: usize) -> io::Result<usize> {
        let max = max.min(bytes.len());
        match self {
            Self::Nothing => Ok(0),
            Self::Everything => Ok(max),
            Self::Message { head: 0, body } => body
                .measure(&bytes[..max])
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
            Self::Message { head, .. } => {
                let count = max.min(*head);
                *head -= count;
                Ok(count)
            }
        }
    }
}

impl Seat {
    // A panic while the lock is held cannot leave the place half changed, so poison is no danger.
    fn lock(&self) -> MutexGuard<'_, Place> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_place(&self, line: Line, left: Left) {
        *self.lock() = Place {
            line: Some(line),
            left,
            has_ended: false,
            is_sent: false,
        };
    }

    fn leave_place(&self) -> Option<Line> {
        self.lock().line.take()
    }

    /// Whether the request was read and its answer sent, both to the end.
    fn is_done(&self) -> bool {
        let place = self.lock();
        place.is_sent && place.left.is_nothing()
    }
}

impl hyper::rt::Read for Seat {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut room: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut place = self.lock();
        let Place { line, left, .. } = &mut *place;
        let Some(line) = line else {
            return Poll::Pending;
        };
        let (stream, buffer) = line.parts();
        if buffer.is_empty() && ready!(buffer.poll_fill(context, stream))? == 0 {
            return Poll::Ready(Ok(()));
        }
        if left.is_nothing() {
            // What came is the next request, and its turn comes later.
            return Poll::Pending;
        }
        let count = left.take(buffer.unread(), room.remaining())?;
        room.put_slice(&buffer.unread()[..count]);
        buffer.consume(count);
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Seat {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with_stream(|stream| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.with_stream(|stream| stream.poll_flush(context)))?;
        let mut place = self.lock();
        place.is_sent = place.has_ended;
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

impl Seat {
    fn with_stream<T>(
        &self,
        write: impl FnOnce(Pin<&mut dyn Io>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut self.lock().line {
            Some(line) => write(Pin::new(line.parts().0)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

/// Tells the seat when the library has let go of an answer's body: then it has all of it.
struct End(Seat);

impl Drop for End {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
    }
}

/// A body that tells when it is let go of.
struct Watched {
    body: Body,
    _end: End,
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
