//! A client's connection, for whoever carries its requests on: the stream, what was read from it
//! and not yet used, and the head of the request that is due.

use std::io;
use std::time::Duration;

use axum::body::Body;
use http::Response;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::flow::{BUFFER_START, Buffer};
use super::wire::{self, Head, Message, put_header};
use super::{Next, Peer, REQUEST_ID, RequestId};

/// An answer that is not carried on but made here is a message for people.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// How long a client that is still sending may take to notice that it has its answer.
const LINGER: Duration = Duration::from_secs(2);

/// Both directions of a connection.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {
    /// Lets the other side see, when this one is closed, that it broke off and did not end.
    fn break_off(&self) {}
}

impl Io for TcpStream {
    fn break_off(&self) {
        // Closed like this it is reset. Where that cannot be, it is only closed.
        let _ = self.set_zero_linger();
    }
}

impl Io for UnixStream {}

/// What comes next on a connection.
pub(super) enum Arrived {
    /// A request whose head is whole.
    Request,
    /// Something that is not a request that could be read here.
    Odd,
    /// Nothing any more.
    End,
}

/// A client's connection.
pub struct Line {
    stream: Box<dyn Io>,
    buffer: Buffer,
    head: Head,
    peer: Peer,
    stopping: CancellationToken,
    due: Due,
    answered: Option<(u16, Instant)>,
    is_broken: bool,
}

/// What the answer to a request must know of it.
struct Due {
    id: RequestId,
    is_for_head: bool,
    keeps_open: bool,
}

impl Line {
    pub(super) fn new(stream: Box<dyn Io>, peer: Peer, stopping: CancellationToken) -> Self {
        Self {
            stream,
            buffer: Buffer::default(),
            head: Head::default(),
            peer,
            stopping,
            due: Due {
                id: RequestId::named(None),
                is_for_head: false,
                keeps_open: false,
            },
            answered: None,
            is_broken: false,
        }
    }

    /// Waits for the head of the next request, at most `head_bytes` long.
    pub(super) async fn arrive(&mut self, head_bytes: usize) -> Arrived {
        self.answered = None;
        self.buffer.shrink();
        let mut seen = 0;
        loop {
            // The first bytes are looked at even if more must come: what speaks another protocol
            // waits for an answer to them.
            if seen == 0 || wire::may_end(self.buffer.unread(), seen) {
                match self.head.read_request(self.buffer.unread()) {
                    Ok(true) if self.request().head_len() <= head_bytes => return Arrived::Request,
                    Ok(false) => {}
                    Ok(true) | Err(_) => return Arrived::Odd,
                }
            }
            seen = self.buffer.unread().len();
            if seen > head_bytes {
                return Arrived::Odd;
            }
            let (stream, buffer) = (&mut self.stream, &mut self.buffer);
            match std::future::poll_fn(|context| buffer.poll_fill(context, stream)).await {
                Ok(0) | Err(_) => return Arrived::End,
                Ok(_) => {}
            }
        }
    }

    /// The request that is due, until its head was taken.
    pub fn request(&self) -> Message<'_> {
        self.head.of(self.buffer.unread())
    }

    /// Forgets the head: what was read begins with the body then.
    pub fn take_head(&mut self) {
        self.buffer.consume(self.request().head_len());
    }

    /// Notes what the answer to the request must know of it.
    pub(super) fn begin(&mut self) {
        let request = self.request();
        let id = RequestId::named(request.values(REQUEST_ID.as_str()).next());
        self.due = Due {
            id,
            is_for_head: request.method() == "HEAD",
            keeps_open: request.keeps_open(),
        };
    }

    /// The name of the request that is due.
    pub fn request_id(&self) -> &RequestId {
        &self.due.id
    }

    /// Whether the answer to it has no body, whatever its head says.
    pub fn is_for_head(&self) -> bool {
        self.due.is_for_head
    }

    /// Whether another request may follow on this connection.
    pub fn keeps_open(&self) -> bool {
        self.due.keeps_open && !self.stopping.is_cancelled()
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Told when the server stops.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// The stream and what was read from it.
    pub fn parts(&mut self) -> (&mut dyn Io, &mut Buffer) {
        (&mut *self.stream, &mut self.buffer)
    }

    /// Takes note that an answer with this status to the request that is due has begun.
    pub fn begin_answer(&mut self, status: u16) {
        self.answered = Some((status, Instant::now()));
    }

    /// The status of the answer to the request that is due, and when it began.
    pub fn answered(&self) -> Option<(u16, Instant)> {
        self.answered
    }

    /// Takes note that the answer will never be whole. If it is one that ends with the connection,
    /// the client would take the end of this one for that.
    pub fn break_off(&mut self) {
        self.stream.break_off();
        self.is_broken = true;
    }

    /// Answers the request that is due here instead of carrying it on. Answers whether the
    /// connection can be used again: not if there is more of the request to come, nor if an answer
    /// has begun already, inside which this one would be.
    pub async fn answer(
        &mut self,
        response: Response<Body>,
        is_all_read: bool,
    ) -> io::Result<Next> {
        if self.answered.is_some() {
            return Ok(Next::Close);
        }
        let keeps_open = is_all_read && self.keeps_open();
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, ANSWER_BYTES_MAX);
        let body = body.await.map_err(io::Error::other)?;
        let mut out = Vec::with_capacity(BUFFER_START);
        let reason = parts.status.canonical_reason().unwrap_or_default();
        let status = format!("HTTP/1.1 {} {reason}\r\n", parts.status.as_u16());
        out.extend_from_slice(status.as_bytes());
        for (name, value) in &parts.headers {
            if !matches!(name.as_str(), "content-length" | "x-request-id" | "date") {
                put_header(&mut out, name.as_str(), value.as_bytes());
            }
        }
        put_header(
            &mut out,
            REQUEST_ID.as_str(),
            self.due.id.as_str().as_bytes(),
        );
        put_header(&mut out, "date", wire::date().as_bytes());
        put_header(
            &mut out,
            "content-length",
            body.len().to_string().as_bytes(),
        );
        if !keeps_open {
            put_header(&mut out, "connection", b"close");
        }
        out.extend_from_slice(b"\r\n");
        if !self.due.is_for_head {
            out.extend_from_slice(&body);
        }
        self.begin_answer(parts.status.as_u16());
        self.stream.write_all(&out).await?;
        Ok(if keeps_open {
            Next::Request
        } else {
            Next::Close
        })
    }

    /// Ends the connection so that the client reads the answer to its end, even if it is still
    /// sending: a connection closed while bytes arrive would be reset, and the answer lost.
    pub(super) async fn close(mut self) {
        if self.is_broken || self.stream.shutdown().await.is_err() {
            return;
        }
        let mut waste = [0; 4096];
        let drain =
            async { while matches!(self.stream.read(&mut waste).await, Ok(count) if count > 0) {} };
        let stopping = self.stopping.clone();
        let bounded = tokio::time::timeout(LINGER, drain);
        let _ = stopping.run_until_cancelled(bounded).await;
    }
}
