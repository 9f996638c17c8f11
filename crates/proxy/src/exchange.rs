//! One request and its response between a client and a service in a sandbox.
//!
//! Heads are parsed and written anew; bodies are copied as they are, both ways at once, with as few
//! system calls as possible. The task of the client's connection also drives the connection into the
//! sandbox, so no other task is woken for a request. Nothing watches an idle connection into a sandbox:
//! whether it is still open is checked when it is used again.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::body::Length;
use crate::connection::{Connection, Io, Persistence};
use crate::message::{Head, HeadParser, Malformed, head_end};
use crate::response_head::{ForwardedResponse, write_response};
use crate::transfer::{Buffer, Transfer, TransferError};
use crate::{PageOrigin, StreamEnd};

/// Bytes of the head of a response: as much as a request may have.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Interim responses before the final one. A service that says 102 every 20 seconds so that its client
/// goes on waiting may do so for more than an hour; one that says nothing else keeps nobody busy.
const INTERIM_MAX: u32 = 256;

const TOO_MANY_INTERIM: &str = "it sent interim answers without end";
const TOO_LARGE: &str = "the head of its answer is too large";

/// Bytes of a head with the beginning of its body, which are written together. A small message then
/// needs one system call; for more, copying costs more than a second call.
pub(crate) const WRITTEN_TOGETHER_MAX: usize = 16 * 1024;

/// A connection into a sandbox.
pub(crate) struct Upstream<S> {
    stream: S,
    buffer: Buffer,
    parser: HeadParser,
    /// Whether it has served a request already.
    is_used: bool,
}

impl<S: AsyncRead + Unpin> Upstream<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            buffer: Buffer::default(),
            parser: HeadParser::default(),
            is_used: false,
        }
    }

    /// Whether it is open, and has received nothing since its last response.
    pub(crate) fn is_open(&mut self, context: &mut Context<'_>) -> bool {
        let Self { stream, buffer, .. } = self;
        buffer.is_empty() && buffer.poll_fill(context, stream).is_pending()
    }

    fn response(&self) -> Head<'_> {
        self.parser.head(self.buffer.unread())
    }

    /// The stream, and what was read from it behind the last response.
    pub(crate) fn into_parts(self) -> (S, Buffer) {
        (self.stream, self.buffer)
    }
}

/// A request that is being forwarded.
pub(crate) struct Outgoing {
    /// The head as the service gets it, and the beginning of the body.
    pub(crate) bytes: Vec<u8>,
    /// The rest of the body.
    pub(crate) rest: Transfer,
}

/// Why a request got no complete response.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// The service closed the connection, or sent something that is not a response.
    Closed {
        message: String,
        /// The connection had served a request before and was closed before anything of this response
        /// came: it may have been closed before this request was sent.
        was_stale: bool,
    },
    /// The client's request is not framed as its head said.
    Request(Malformed),
    /// The client has gone, or has got a part of a response that cannot be completed.
    ClientGone,
}

/// How a response was forwarded.
pub(crate) enum Exchanged<S> {
    /// To its end.
    Complete {
        persistence: Persistence,
        /// The connection into the sandbox, if it can be used again.
        upstream: Option<Upstream<S>>,
    },
    /// It was 101, and both sides speak another protocol from now on.
    Switched(Upstream<S>),
}

/// What an exchange depends on besides its messages.
pub(crate) struct Terms<'a> {
    /// The part of the path that belongs to the proxy.
    pub(crate) prefix: &'a str,
    /// Whether the client asked for another protocol.
    pub(crate) may_switch: bool,
    /// Whose origin the pages of the service have in a browser.
    pub(crate) origin: PageOrigin,
    /// A header that the response gets.
    pub(crate) header: Option<(&'static str, &'static str)>,
    /// How the response is ended when the server stops, if it is a stream of events.
    pub(crate) stream_end: Option<StreamEnd>,
}

/// Forwards a request and its response.
pub(crate) async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Connection,
    upstream: Upstream<S>,
    outgoing: &mut Outgoing,
    terms: &Terms<'_>,
) -> Result<Exchanged<S>, ExchangeError> {
    let mut exchange = Exchange {
        upstream,
        outgoing,
        sent: 0,
        sending: Sending::Open,
        searched: 0,
        interim: 0,
    };
    poll_fn(|context| exchange.poll_head(context, connection)).await?;
    let response = exchange.upstream.response();
    let (status, is_to_head) = (response.status(), connection.is_head_request());
    if status == 101 && !terms.may_switch {
        return Err(ExchangeError::closed(
            "it switched to a protocol that nobody asked for",
        ));
    }
    let length = response
        .response_length(is_to_head)
        .map_err(|error| ExchangeError::closed(&error.to_string()))?;
    let is_delimited = length != Length::UntilClosed;
    let is_reusable = is_delimited && response.keeps_alive();
    let forwarded = ForwardedResponse {
        prefix: terms.prefix,
        length,
        is_to_head,
        keeps_alive: is_delimited && connection.keeps_alive() && exchange.is_all_read(),
        request_id: connection.request_id().as_str(),
        origin: terms.origin,
        header: terms.header,
    };
    let mut bytes = Vec::with_capacity(1024);
    write_response(&mut bytes, response, &forwarded);
    let mut keeps_alive = forwarded.keeps_alive;
    let is_stream = length == Length::Chunked && is_event_stream(response);
    let head_len = response.byte_len();
    exchange.upstream.buffer.consume(head_len);
    let mut incoming = Incoming {
        bytes,
        sent: 0,
        rest: Transfer::new(length),
    };
    let Incoming { bytes, rest, .. } = &mut incoming;
    rest.take_buffered(&mut exchange.upstream.buffer, bytes, WRITTEN_TOGETHER_MAX)
        .map_err(|error| ExchangeError::closed(&error.to_string()))?;
    connection.begin_response(status);
    let end = terms.stream_end.filter(|_| is_stream);
    let is_whole = forward_body(&mut exchange, connection, &mut incoming, end).await?;
    keeps_alive &= is_whole;
    if status == 101 {
        return Ok(Exchanged::Switched(exchange.upstream));
    }
    let (is_sent, mut upstream) = (exchange.is_all_sent(), exchange.upstream);
    let is_reusable = is_reusable && is_whole && is_sent && upstream.buffer.is_empty();
    upstream.buffer.shrink();
    upstream.is_used = true;
    Ok(Exchanged::Complete {
        persistence: if keeps_alive {
            Persistence::KeepAlive
        } else {
            Persistence::Close
        },
        upstream: is_reusable.then_some(upstream),
    })
}

/// Forwards the body of a response. `false` where it is a stream that was ended because the server stops.
async fn forward_body<S: AsyncRead + AsyncWrite + Unpin>(
    exchange: &mut Exchange<'_, S>,
    connection: &mut Connection,
    incoming: &mut Incoming,
    end: Option<StreamEnd>,
) -> Result<bool, ExchangeError> {
    let Some(end) = end else {
        poll_fn(|context| exchange.poll_body(context, connection, incoming)).await?;
        return Ok(true);
    };
    let stopping = connection.server_stopping().clone();
    tokio::select! {
        biased;
        forwarded = poll_fn(|context| exchange.poll_body(context, connection, incoming)) => {
            return forwarded.map(|()| true);
        }
        () = stopping.cancelled() => {}
    }
    incoming.rest.end_at_chunk();
    poll_fn(|context| exchange.poll_body(context, connection, incoming)).await?;
    if !incoming.rest.is_ended_early() {
        return Ok(true);
    }
    let mut last = Vec::new();
    if let StreamEnd::Event(event) = end {
        let event = event();
        last.extend_from_slice(format!("{:x}\r\n", event.len()).as_bytes());
        last.extend_from_slice(&event);
        last.extend_from_slice(b"\r\n");
    }
    last.extend_from_slice(b"0\r\n\r\n");
    let (client, _) = connection.parts();
    let written = client.write_all(&last).await;
    written.map_err(|_| ExchangeError::ClientGone)?;
    let flushed = client.flush().await;
    flushed.map_err(|_| ExchangeError::ClientGone)?;
    Ok(false)
}

/// Whether a response is a stream of events (HTML, 9.2).
fn is_event_stream(response: Head<'_>) -> bool {
    response.values("content-type").any(|value| {
        let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
        essence
            .trim_ascii()
            .eq_ignore_ascii_case(b"text/event-stream")
    })
}

impl ExchangeError {
    fn closed(message: &str) -> Self {
        Self::Closed {
            message: message.to_owned(),
            was_stale: false,
        }
    }
}

/// How far the forwarding of a request's body has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    Open,
    Done,
    /// The service takes no more of it. It may still send a response.
    Broken,
}

struct Exchange<'a, S> {
    upstream: Upstream<S>,
    outgoing: &'a mut Outgoing,
    sent: usize,
    sending: Sending,
    /// Bytes received in which the head of the response does not end.
    searched: usize,
    /// How many interim responses (RFC 9110 15.2) the service has sent.
    interim: u32,
}

/// A response that is being forwarded.
struct Incoming {
    /// The head as the client gets it, and the beginning of the body.
    bytes: Vec<u8>,
    sent: usize,
    /// The rest of the body.
    rest: Transfer,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Exchange<'_, S> {
    /// Whether all of the request was read from the client.
    fn is_all_read(&self) -> bool {
        self.outgoing.rest.is_done()
    }

    fn is_all_sent(&self) -> bool {
        self.sending == Sending::Done
    }

    /// Forwards what has arrived of the request. Once all of it is forwarded, watches whether the client
    /// hangs up, so that the service learns of it.
    fn poll_client(
        &mut self,
        context: &mut Context<'_>,
        connection: &mut Connection,
    ) -> Result<(), ExchangeError> {
        let (client, buffer) = connection.parts();
        if self.sending == Sending::Open {
            match self.poll_send(context, client, buffer) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(())) => self.sending = Sending::Done,
                Poll::Ready(Err(TransferError::Writing)) => self.sending = Sending::Broken,
                Poll::Ready(Err(
                    TransferError::Malformed(Malformed::Cut) | TransferError::Reading(_),
                )) => return Err(ExchangeError::ClientGone),
                Poll::Ready(Err(TransferError::Malformed(error))) => {
                    return Err(ExchangeError::Request(error));
                }
            }
        }
        // Whatever arrives now is the next request, which stays in the buffer, or the rest of a body that
        // the service no longer reads, which is discarded.
        let is_discarded = !self.outgoing.rest.is_done();
        loop {
            if is_discarded {
                buffer.consume(buffer.unread().len());
            }
            match buffer.poll_read_ahead(context, client) {
                Poll::Ready(Ok(0) | Err(_)) => return Err(ExchangeError::ClientGone),
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => return Ok(()),
            }
        }
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        client: &mut dyn Io,
        buffer: &mut Buffer,
    ) -> Poll<Result<(), TransferError>> {
        let stream = &mut self.upstream.stream;
        while self.sent < self.outgoing.bytes.len() {
            let rest = &self.outgoing.bytes[self.sent..];
            let written = ready!(Pin::new(&mut *stream).poll_write(context, rest));
            self.sent += nonzero(written).map_err(|_| TransferError::Writing)?;
        }
        self.outgoing
            .rest
            .poll_copy(context, client, buffer, stream)
    }

    /// Waits for the head of the response.
    fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        connection: &mut Connection,
    ) -> Poll<Result<(), ExchangeError>> {
        self.poll_client(context, connection)?;
        loop {
            let Upstream {
                stream,
                buffer,
                parser,
                ..
            } = &mut self.upstream;
            if head_end(buffer.unread(), self.searched).is_some() {
                let parsed = parser.parse_response(buffer.unread());
                if parsed.map_err(|error| ExchangeError::closed(&error.to_string()))? {
                    let len = self.upstream.response().byte_len();
                    match self.upstream.response().status() {
                        _ if len > HEAD_BYTES_MAX => {
                            return Poll::Ready(Err(ExchangeError::closed(TOO_LARGE)));
                        }
                        100 | 102..=199 => {
                            self.upstream.buffer.consume(len);
                            self.searched = 0;
                            self.interim += 1;
                            if self.interim > INTERIM_MAX {
                                return Poll::Ready(Err(ExchangeError::closed(TOO_MANY_INTERIM)));
                            }
                            continue;
                        }
                        _ => return Poll::Ready(Ok(())),
                    }
                }
            }
            self.searched = buffer.unread().len();
            if self.searched > HEAD_BYTES_MAX {
                return Poll::Ready(Err(ExchangeError::closed(TOO_LARGE)));
            }
            let message = match ready!(buffer.poll_fill(context, stream)) {
                Ok(0) => "it closed the connection".to_owned(),
                Err(error) => error.to_string(),
                Ok(_) => continue,
            };
            let is_silent = self.searched == 0 && self.interim == 0;
            let was_stale = is_silent && self.upstream.is_used;
            return Poll::Ready(Err(ExchangeError::Closed { message, was_stale }));
        }
    }

    /// Forwards the response to its end. A request that turns out to be malformed meanwhile gets no other
    /// response.
    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        connection: &mut Connection,
        incoming: &mut Incoming,
    ) -> Poll<Result<(), ExchangeError>> {
        let (client, _) = connection.parts();
        while incoming.sent < incoming.bytes.len() {
            let rest = &incoming.bytes[incoming.sent..];
            let Poll::Ready(written) = Pin::new(&mut *client).poll_write(context, rest) else {
                // The service may wait for more of the request before it sends more of its response.
                self.poll_client(context, connection)
                    .map_err(|_| ExchangeError::ClientGone)?;
                return Poll::Pending;
            };
            incoming.sent += nonzero(written).map_err(|_| ExchangeError::ClientGone)?;
        }
        let Upstream { stream, buffer, .. } = &mut self.upstream;
        let copied = incoming.rest.poll_copy(context, stream, buffer, client);
        // What is encrypted or framed on its way may still lie in memory of ours.
        let flushed = Pin::new(client).poll_flush(context);
        let Poll::Ready(copied) = copied else {
            self.poll_client(context, connection)
                .map_err(|_| ExchangeError::ClientGone)?;
            return Poll::Pending;
        };
        if copied.is_ok() {
            ready!(flushed).map_err(|_| ExchangeError::ClientGone)?;
        }
        if let Err(TransferError::Reading(error)) = &copied {
            tracing::debug!(error = %api::error_chain(error), "a service broke off in the middle of its answer");
            connection.reset();
        }
        Poll::Ready(copied.map_err(|_| ExchangeError::ClientGone))
    }
}

/// A write of no bytes is an error: the stream takes no more.
fn nonzero(written: io::Result<usize>) -> io::Result<usize> {
    match written? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}
