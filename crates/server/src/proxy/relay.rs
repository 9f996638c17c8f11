//! One request and its answer, carried between a client and a service in a sandbox.
//!
//! Heads are read and written anew; bodies pass as they are, both ways at once, in as few system
//! calls as they can. Whoever serves the client also drives the connection into the sandbox, so no
//! other task is woken for a request. While nobody uses a connection nobody watches it either:
//! whether it is still open is looked at when it is taken up again.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use daemon::http::flow::{Buffer, Flow, Stuck};
use daemon::http::line::Io;
use daemon::http::wire::{Head, Length, Malformed, Message, may_end};
use daemon::http::{Line, Next};
use lifecycle::backend::Stream;
use tokio::io::AsyncWrite as _;

use super::headers::{Inbound, write_answer};

/// Bytes of the head of an answer: as much as a request may have.
const HEAD_BYTES_MAX: usize = 64 * 1024;

const TOO_LARGE: &str = "the head of its answer is too large";

/// Bytes that are copied to go out together with the head before them. A whole small message then
/// needs one system call; more is not worth the copying.
pub(super) const TOGETHER_BYTES: usize = 16 * 1024;

/// A connection into a sandbox.
pub(super) struct Upstream {
    stream: Box<dyn Stream>,
    buffer: Buffer,
    head: Head,
    /// Whether it has carried a request already.
    is_used: bool,
}

impl Upstream {
    pub(super) fn new(stream: Box<dyn Stream>) -> Self {
        Self {
            stream,
            buffer: Buffer::default(),
            head: Head::default(),
            is_used: false,
        }
    }

    /// Whether it is open and silent, as one is that waits for a request.
    pub(super) fn is_open(&mut self, context: &mut Context<'_>) -> bool {
        let Self { stream, buffer, .. } = self;
        buffer.is_empty() && buffer.poll_fill(context, stream).is_pending()
    }

    fn answer(&self) -> Message<'_> {
        self.head.of(self.buffer.unread())
    }

    /// The stream, and what was read from it behind the last answer.
    pub(super) fn into_parts(self) -> (Box<dyn Stream>, Buffer) {
        (self.stream, self.buffer)
    }
}

/// A request on its way: its head and the beginning of its body as they are sent, and the rest.
pub(super) struct Outgoing {
    pub(super) bytes: Vec<u8>,
    pub(super) rest: Flow,
}

/// Why a request got no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The service closed the connection, or said what is no answer.
    Closed {
        message: String,
        /// It was closed before anything came, and had been open for another request: it may have
        /// been closed before this one was sent.
        was_stale: bool,
    },
    /// The client's request is not what its head said.
    Request(Malformed),
    /// The client has gone, or has got a part of an answer that nobody can complete.
    Gone,
}

/// How an answer was carried.
pub(super) enum Carried {
    /// To its end.
    Whole {
        next: Next,
        /// To be used again.
        upstream: Option<Upstream>,
    },
    /// It was a switch to another protocol, which both sides speak from now on.
    Switched(Upstream),
}

/// Carries a request and its answer.
pub(super) async fn carry(
    line: &mut Line,
    upstream: Upstream,
    outgoing: &mut Outgoing,
    prefix: &str,
    may_switch: bool,
) -> Result<Carried, Failure> {
    let mut exchange = Exchange {
        upstream,
        outgoing,
        sent: 0,
        sending: Sending::On,
        has_heard: false,
    };
    poll_fn(|context| exchange.poll_head(context, line)).await?;
    let answer = exchange.upstream.answer();
    let (status, is_for_head) = (answer.status(), line.is_for_head());
    if status == 101 && !may_switch {
        return Err(Failure::closed(
            "it switched to a protocol that nobody asked for",
        ));
    }
    let length = answer
        .answer_length(is_for_head)
        .map_err(|error| Failure::closed(&error.to_string()))?;
    let is_delimited = length != Length::UntilClosed;
    let is_reusable = is_delimited && answer.keeps_open();
    let inbound = Inbound {
        prefix,
        length,
        is_for_head,
        keeps_open: is_delimited && line.keeps_open() && exchange.is_all_read(),
        request_id: line.request_id().as_str(),
    };
    let mut bytes = Vec::with_capacity(1024);
    write_answer(&mut bytes, answer, &inbound);
    let keeps_open = inbound.keeps_open;
    let head_len = answer.head_len();
    exchange.upstream.buffer.consume(head_len);
    let mut incoming = Incoming {
        bytes,
        sent: 0,
        rest: Flow::new(length),
    };
    let Incoming { bytes, rest, .. } = &mut incoming;
    rest.take(&mut exchange.upstream.buffer, bytes, TOGETHER_BYTES)
        .map_err(|error| Failure::closed(&error.to_string()))?;
    line.begin_answer(status);
    poll_fn(|context| exchange.poll_body(context, line, &mut incoming)).await?;
    if status == 101 {
        return Ok(Carried::Switched(exchange.upstream));
    }
    let (is_sent, mut upstream) = (exchange.is_all_sent(), exchange.upstream);
    let is_reusable = is_reusable && is_sent && upstream.buffer.is_empty();
    upstream.buffer.shrink();
    upstream.is_used = true;
    Ok(Carried::Whole {
        next: if keeps_open {
            Next::Request
        } else {
            Next::Close
        },
        upstream: is_reusable.then_some(upstream),
    })
}

impl Failure {
    fn closed(message: &str) -> Self {
        Self::Closed {
            message: message.to_owned(),
            was_stale: false,
        }
    }
}

/// How far the sending of a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    On,
    Done,
    /// The service takes no more of it. It may still answer.
    Broken,
}

struct Exchange<'a> {
    upstream: Upstream,
    outgoing: &'a mut Outgoing,
    sent: usize,
    sending: Sending,
    /// The service has said something, if only that it goes on.
    has_heard: bool,
}

/// An answer on its way.
struct Incoming {
    bytes: Vec<u8>,
    sent: usize,
    rest: Flow,
}

impl Exchange<'_> {
    /// Whether nothing of the request is left to be read from the client.
    fn is_all_read(&self) -> bool {
        self.outgoing.rest.is_done()
    }

    fn is_all_sent(&self) -> bool {
        self.sending == Sending::Done
    }

    /// Sends what can be sent of the request, then until there is an answer watches the client,
    /// which may hang up: the service must learn of it.
    fn poll_client(&mut self, context: &mut Context<'_>, line: &mut Line) -> Result<(), Failure> {
        let (client, buffer) = line.parts();
        if self.sending == Sending::On {
            match self.poll_send(context, client, buffer) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(())) => self.sending = Sending::Done,
                Poll::Ready(Err(Stuck::Writing(_))) => self.sending = Sending::Broken,
                Poll::Ready(Err(Stuck::Malformed(Malformed::Cut) | Stuck::Reading(_))) => {
                    return Err(Failure::Gone);
                }
                Poll::Ready(Err(Stuck::Malformed(error))) => return Err(Failure::Request(error)),
            }
        }
        // More is the next request, whose turn comes later, or the rest of one that nobody takes.
        let is_waste = !self.outgoing.rest.is_done();
        loop {
            if is_waste {
                buffer.consume(buffer.unread().len());
            }
            let is_watched = buffer.is_empty();
            match is_watched.then(|| buffer.poll_fill(context, client)) {
                Some(Poll::Ready(Ok(0) | Err(_))) => return Err(Failure::Gone),
                Some(Poll::Ready(Ok(_))) => {}
                Some(Poll::Pending) | None => return Ok(()),
            }
        }
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        client: &mut dyn Io,
        buffer: &mut Buffer,
    ) -> Poll<Result<(), Stuck>> {
        let stream = &mut self.upstream.stream;
        while self.sent < self.outgoing.bytes.len() {
            let rest = &self.outgoing.bytes[self.sent..];
            let written = ready!(Pin::new(&mut *stream).poll_write(context, rest));
            self.sent += some(written).map_err(Stuck::Writing)?;
        }
        self.outgoing
            .rest
            .poll_move(context, client, buffer, &mut **stream)
    }

    /// Waits for the head of the answer.
    fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        line: &mut Line,
    ) -> Poll<Result<(), Failure>> {
        self.poll_client(context, line)?;
        let mut seen = 0;
        loop {
            let Upstream {
                stream,
                buffer,
                head,
                ..
            } = &mut self.upstream;
            if may_end(buffer.unread(), seen) {
                let read = head.read_answer(buffer.unread());
                if read.map_err(|error| Failure::closed(&error.to_string()))? {
                    let len = self.upstream.answer().head_len();
                    match self.upstream.answer().status() {
                        _ if len > HEAD_BYTES_MAX => {
                            return Poll::Ready(Err(Failure::closed(TOO_LARGE)));
                        }
                        100 | 102..=199 => {
                            self.upstream.buffer.consume(len);
                            self.has_heard = true;
                            seen = 0;
                            continue;
                        }
                        _ => return Poll::Ready(Ok(())),
                    }
                }
            }
            seen = buffer.unread().len();
            if seen > HEAD_BYTES_MAX {
                return Poll::Ready(Err(Failure::closed(TOO_LARGE)));
            }
            let message = match ready!(buffer.poll_fill(context, stream)) {
                Ok(0) => "it closed the connection".to_owned(),
                Err(error) => error.to_string(),
                Ok(_) => continue,
            };
            let was_stale = seen == 0 && !self.has_heard && self.upstream.is_used;
            return Poll::Ready(Err(Failure::Closed { message, was_stale }));
        }
    }

    /// Carries the answer to its end. A request that goes wrong meanwhile can have no other.
    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        line: &mut Line,
        incoming: &mut Incoming,
    ) -> Poll<Result<(), Failure>> {
        let (client, _) = line.parts();
        while incoming.sent < incoming.bytes.len() {
            let rest = &incoming.bytes[incoming.sent..];
            let Poll::Ready(written) = Pin::new(&mut *client).poll_write(context, rest) else {
                // The request may be what the service waits for before it reads on.
                self.poll_client(context, line).map_err(|_| Failure::Gone)?;
                return Poll::Pending;
            };
            incoming.sent += some(written).map_err(|_| Failure::Gone)?;
        }
        let Upstream { stream, buffer, .. } = &mut self.upstream;
        let moved = incoming
            .rest
            .poll_move(context, &mut **stream, buffer, client);
        let Poll::Ready(moved) = moved else {
            self.poll_client(context, line).map_err(|_| Failure::Gone)?;
            return Poll::Pending;
        };
        if let Err(Stuck::Reading(error)) = &moved {
            tracing::debug!(%error, "a service broke off in the middle of its answer");
            line.break_off();
        }
        Poll::Ready(moved.map_err(|_| Failure::Gone))
    }
}

fn some(written: io::Result<usize>) -> io::Result<usize> {
    match written? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}
