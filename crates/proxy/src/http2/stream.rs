//! One stream of HTTP/2 as a connection of HTTP/1.1 with one request: what is read from it is the request, what is
//! written to it becomes the response.
//!
//! Heads are translated by `head`; bodies are framed anew in both directions, so that no byte of one can be taken
//! for framing of the other.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::head::response_from_http1;
use crate::body::{BodyFraming, Length};
use crate::connection::Io;
use crate::message::{HeadParser, head_end};

/// Bytes of a response that are framed at once: a frame of the usual size (RFC 9113 4.2).
const PIECE: usize = 16 * 1024;

/// The stream.
pub(super) struct AsHttp1 {
    /// Bytes of the request as HTTP/1.1 has them that were not read yet.
    unread: VecDeque<Bytes>,
    request: RequestBody,
    response: ResponsePart,
    is_head: bool,
}

struct RequestBody {
    stream: RecvStream,
    is_chunked: bool,
    has_ended: bool,
}

/// Which part of the response is written next.
enum ResponsePart {
    Head {
        respond: SendResponse<Bytes>,
        /// What was written of it.
        written: Vec<u8>,
    },
    Body {
        stream: SendStream<Bytes>,
        framing: BodyFraming,
        /// What was written and not yet taken by the library.
        pending: Bytes,
    },
    Nothing,
}

impl AsHttp1 {
    /// A stream with the head of its request in HTTP/1.1.
    pub(super) fn new(
        head: Vec<u8>,
        stream: RecvStream,
        respond: SendResponse<Bytes>,
        is_head: bool,
    ) -> Self {
        let has_ended = stream.is_end_stream();
        let is_chunked = !has_ended && states_chunks(&head);
        Self {
            unread: VecDeque::from([Bytes::from(head)]),
            request: RequestBody {
                stream,
                is_chunked,
                has_ended,
            },
            response: ResponsePart::Head {
                respond,
                written: Vec::new(),
            },
            is_head,
        }
    }

    /// Receives the next piece of the request's body.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let RequestBody {
            stream,
            is_chunked,
            has_ended,
        } = &mut self.request;
        loop {
            let Some(data) = ready!(stream.poll_data(context)) else {
                *has_ended = true;
                if *is_chunked {
                    self.unread.push_back(Bytes::from_static(b"0\r\n\r\n"));
                }
                return Poll::Ready(Ok(()));
            };
            let data = data.map_err(gone)?;
            let _ = stream.flow_control().release_capacity(data.len());
            // A chunk of no bytes would be the last one (RFC 9112 7.1).
            if data.is_empty() {
                continue;
            }
            if *is_chunked {
                self.unread
                    .push_back(format!("{:x}\r\n", data.len()).into());
                self.unread.push_back(data);
                self.unread.push_back(Bytes::from_static(b"\r\n"));
            } else {
                self.unread.push_back(data);
            }
            return Poll::Ready(Ok(()));
        }
    }

    /// Waits until the client gives the stream up.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let reset = match &mut self.response {
            ResponsePart::Head { respond, .. } => ready!(respond.poll_reset(context)),
            ResponsePart::Body { stream, .. } => ready!(stream.poll_reset(context)),
            ResponsePart::Nothing => return Poll::Ready(Ok(())),
        };
        Poll::Ready(Err(match reset {
            Ok(reason) => io::Error::new(io::ErrorKind::ConnectionReset, reason.description()),
            Err(error) => gone(error),
        }))
    }

    /// Takes bytes of the head of the response; returns how many belong to it.
    fn take_head(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let ResponsePart::Head { respond, written } = &mut self.response else {
            return Err(invalid("the response has begun"));
        };
        let before = written.len();
        written.extend_from_slice(bytes);
        let Some(end) = head_end(written, before) else {
            return Ok(bytes.len());
        };
        let mut parser = HeadParser::default();
        let parsed = parser.parse_response(&written[..end]);
        if !parsed.is_ok_and(|is_whole| is_whole) {
            return Err(invalid("the head of the response cannot be read"));
        }
        let head = parser.head(written);
        let response = response_from_http1(head).map_err(io::Error::other)?;
        let length = head
            .response_length(self.is_head)
            .map_err(io::Error::other)?;
        if response.status().is_informational() {
            respond.send_informational(response).map_err(gone)?;
            written.clear();
            return Ok(end - before);
        }
        let is_whole = length == Length::Exactly(0);
        let stream = respond.send_response(response, is_whole).map_err(gone)?;
        self.response = if is_whole {
            ResponsePart::Nothing
        } else {
            ResponsePart::Body {
                stream,
                framing: BodyFraming::new(length),
                pending: Bytes::new(),
            }
        };
        Ok(end - before)
    }

    /// Hands what is pending to the library as far as the client's window allows, and the end of the stream with
    /// the end of the body.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ResponsePart::Body {
            stream,
            framing,
            pending,
        } = &mut self.response
        else {
            return Poll::Ready(Ok(()));
        };
        while pending.has_remaining() {
            let room = ready!(poll_capacity(stream, pending.len(), context)).map_err(gone)?;
            let piece = pending.split_to(room.min(pending.len()));
            let is_last = pending.is_empty() && framing.is_done();
            stream.send_data(piece, is_last).map_err(gone)?;
            if is_last {
                self.response = ResponsePart::Nothing;
                return Poll::Ready(Ok(()));
            }
        }
        if framing.is_done() {
            stream.send_data(Bytes::new(), true).map_err(gone)?;
            self.response = ResponsePart::Nothing;
        }
        Poll::Ready(Ok(()))
    }
}

/// How many bytes, at most `wanted`, the client takes now; at least one.
pub(super) fn poll_capacity(
    stream: &mut SendStream<Bytes>,
    wanted: usize,
    context: &mut Context<'_>,
) -> Poll<Result<usize, h2::Error>> {
    stream.reserve_capacity(wanted);
    loop {
        match stream.capacity() {
            0 => match ready!(stream.poll_capacity(context)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Err(Reason::CANCEL.into())),
            },
            room => return Poll::Ready(Ok(room.min(wanted))),
        }
    }
}

fn states_chunks(head: &[u8]) -> bool {
    let mut parser = HeadParser::default();
    let is_parsed = parser.parse_request(head).is_ok_and(|is_whole| is_whole);
    is_parsed && parser.head(head).request_length() == Ok(Length::Chunked)
}

fn gone(error: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Io for AsHttp1 {
    fn reset_on_close(&mut self) {
        match &mut self.response {
            ResponsePart::Head { respond, .. } => respond.send_reset(Reason::CANCEL),
            ResponsePart::Body { stream, .. } => stream.send_reset(Reason::CANCEL),
            ResponsePart::Nothing => {}
        }
        self.response = ResponsePart::Nothing;
    }
}

impl AsyncRead for AsHttp1 {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            if self.request.has_ended {
                return self.poll_gone(context);
            }
            ready!(self.poll_receive(context))?;
        }
        while let Some(first) = self.unread.front_mut() {
            let count = first.len().min(room.remaining());
            room.put_slice(&first.split_to(count));
            if !first.is_empty() {
                break;
            }
            self.unread.pop_front();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for AsHttp1 {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let ResponsePart::Head { .. } = self.response {
            return Poll::Ready(self.take_head(bytes));
        }
        ready!(self.poll_send(context))?;
        let ResponsePart::Body {
            framing, pending, ..
        } = &mut self.response
        else {
            return Poll::Ready(Err(invalid("the response has ended")));
        };
        let mut data = BytesMut::new();
        let bytes = &bytes[..bytes.len().min(PIECE)];
        let used = framing.decode(bytes, &mut data).map_err(io::Error::other)?;
        *pending = data.freeze();
        // What the client does not take yet is sent with what is written next, or when it is flushed.
        match self.poll_send(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(used)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        if let ResponsePart::Body { framing, .. } = &mut self.response
            && framing.end_of_stream().is_ok()
        {
            return self.poll_send(context);
        }
        // Not whole: the client must not take it for that.
        self.reset_on_close();
        Poll::Ready(Ok(()))
    }
}
