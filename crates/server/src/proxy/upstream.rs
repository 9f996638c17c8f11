//! One HTTP connection into a sandbox, carried along by whoever waits for its answer.
//!
//! The usual way is a task for each connection, to which requests are sent and which sends answers
//! back: two wake-ups of other tasks for each request, often on other cores, which cost more than
//! all the rest of proxying one. Here the task that serves the client drives the connection into
//! the sandbox as well. While nobody waits for an answer nobody drives it, so whether it is still
//! open is looked at when it is taken up again.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use lifecycle::backend::Stream;

use super::pool::{Place, Pool};

/// Bytes of an answer that may be held for a client that reads slowly. A large file is read and
/// written in pieces of this size at most: beyond it fewer system calls are gained than cache lost.
const BUFFER_BYTES: usize = 256 * 1024;

/// A connection.
pub(super) struct Upstream {
    sender: SendRequest<Incoming>,
    /// `None` once it has ended.
    connection: Option<Connection<TokioIo<Box<dyn Stream>>, Incoming>>,
}

/// Why a request got no answer.
pub(super) enum Failure {
    /// Nothing of it was sent: the connection had ended. Here it is again.
    Unsent(Box<Request<Incoming>>),
    /// It may have been seen.
    Broken(hyper::Error),
}

/// The settings of every connection into a sandbox.
pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.max_buf_size(BUFFER_BYTES);
    builder
}

impl Upstream {
    /// Speaks HTTP on a stream.
    pub(super) async fn open(stream: Box<dyn Stream>) -> Result<Self, hyper::Error> {
        let (sender, connection) = builder().handshake(TokioIo::new(stream)).await?;
        Ok(Self {
            sender,
            connection: Some(connection),
        })
    }

    /// Reads and writes what can be. How the connection ends is heard by whoever waits for an
    /// answer on it.
    fn drive(&mut self, context: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(context).is_ready()
        {
            self.connection = None;
        }
    }

    /// Whether it is open and could take a request now.
    pub(super) fn is_ready(&mut self, context: &mut Context<'_>) -> bool {
        self.drive(context);
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Sends a request and waits for the head of its answer. When the answer has been read to its
    /// end the connection goes back into the pool.
    pub(super) async fn send(
        mut self,
        request: Request<Incoming>,
        pool: &Arc<Pool>,
        place: Place,
    ) -> Result<Response<Answer>, Failure> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let answered = poll_fn(|context| {
            self.drive(context);
            answer.as_mut().poll(context)
        });
        match answered.await {
            Ok(response) => {
                let origin = Origin {
                    upstream: self,
                    pool: Arc::clone(pool),
                    place,
                };
                let mut response = response.map(|body| Answer {
                    body,
                    origin: Some(origin),
                });
                // An answer without a body is never asked for its end.
                if response.body().body.is_end_stream() {
                    let finish = |context: &mut Context<'_>| {
                        response.body_mut().finish(context);
                        Poll::Ready(())
                    };
                    poll_fn(finish).await;
                }
                Ok(response)
            }
            Err(mut error) => Err(match error.take_message() {
                Some(request) => Failure::Unsent(Box::new(request)),
                None => Failure::Broken(error.into_error()),
            }),
        }
    }
}

/// Where an answer comes from.
struct Origin {
    upstream: Upstream,
    pool: Arc<Pool>,
    place: Place,
}

/// The body of an answer. Dropped before its end, it closes the connection, which is how the
/// service inside learns that its client has gone.
pub(super) struct Answer {
    body: Incoming,
    /// `None` once the answer has ended.
    origin: Option<Origin>,
}

impl Answer {
    /// Gives the connection back if it can be used again.
    fn finish(&mut self, context: &mut Context<'_>) {
        if let Some(Origin {
            mut upstream,
            pool,
            place,
        }) = self.origin.take()
            && upstream.is_ready(context)
        {
            pool.put(place, upstream);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let mut polled = Pin::new(&mut this.body).poll_frame(context);
        if polled.is_pending()
            && let Some(origin) = &mut this.origin
        {
            origin.upstream.drive(context);
            polled = Pin::new(&mut this.body).poll_frame(context);
        }
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) || this.body.is_end_stream() {
            this.finish(context);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        // Not before the connection was given back, which is done when the end is asked for.
        self.origin.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
