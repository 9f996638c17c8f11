//! A client's connection: the stream, the bytes that were read from it and not yet used, and the head
//! of the request that is being served.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection_limit::ConnectionPermit;
use crate::message::{self, Head, HeadParser, head_end, peek_target, put_header};
use crate::transfer::{BUFFER_START, Buffer};
use crate::{REQUEST_ID, RequestId};

/// What HTTP/2 begins with (RFC 9113 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long a client that is still sending may take to notice that it has its response.
const LINGER: Duration = Duration::from_secs(2);

/// Bytes of an empty line. As long as fewer have arrived, they may be one.
const EMPTY_LINE_BYTES: usize = 2;

/// Both directions of a connection.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {
    /// Makes the close that follows a reset, so that the other side does not take it for the end of a
    /// response.
    fn reset_on_close(&mut self) {}
}

impl Io for TcpStream {
    fn reset_on_close(&mut self) {
        // Closing with a linger time of zero sends RST (socket(7), SO_LINGER). Where that fails the
        // connection is closed without.
        let _ = self.set_zero_linger();
    }
}

/// There is no reset on a unix socket: a response that ends with its connection, which only services in
/// sandboxes that speak HTTP/1.0 send, cannot be told from half of one.
impl Io for UnixStream {}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    /// The address that the connection came from; over a unix socket, that of this machine.
    pub(crate) address: IpAddr,
    /// Whether it is encrypted.
    pub(crate) is_tls: bool,
    /// The user of this machine who opened the unix socket that it came over, if it did.
    pub(crate) user: Option<u32>,
}

/// What a connection received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The whole head of a request that goes into a sandbox; it is parsed.
    Proxied,
    /// The whole head of a request to the API, which has this many bytes; it is not parsed.
    Api(usize),
    /// Bytes that are not the head of a request, or of one that is too large.
    Malformed,
    /// The end of the connection.
    Closed,
}

/// Whether a connection is used again after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// Another request may follow.
    KeepAlive,
    /// The connection is closed.
    Close,
}

/// A client's connection.
pub(crate) struct Connection {
    stream: Box<dyn Io>,
    buffer: Buffer,
    parser: HeadParser,
    client: Client,
    permit: ConnectionPermit,
    request: RequestFacts,
    response: Option<(u16, Instant)>,
    is_reset: bool,
    /// Bytes of empty lines before the request.
    skipped: usize,
}

/// What the response to a request depends on.
struct RequestFacts {
    id: RequestId,
    is_head: bool,
    keeps_alive: bool,
}

impl Connection {
    pub(crate) fn new(stream: Box<dyn Io>, client: Client, permit: ConnectionPermit) -> Self {
        Self {
            stream,
            buffer: Buffer::default(),
            parser: HeadParser::default(),
            client,
            permit,
            request: RequestFacts {
                id: RequestId::from_header(None),
                is_head: false,
                keeps_alive: false,
            },
            response: None,
            is_reset: false,
            skipped: 0,
        }
    }

    /// Waits until something of the next request is there. `false` at the end of the connection.
    pub(crate) async fn wait_for_request(&mut self, head_bytes: usize) -> bool {
        self.response = None;
        self.buffer.shrink();
        self.skipped = 0;
        loop {
            self.skip_empty_lines();
            if !self.buffer.is_empty() || self.skipped > head_bytes {
                return true;
            }
            if !self.fill().await {
                return false;
            }
        }
    }

    /// Whether the client speaks HTTP/2 from the beginning, without having been asked (RFC 9113 3.3). Waits until
    /// that is clear; nothing is removed.
    pub(crate) async fn is_http2(&mut self) -> bool {
        loop {
            let seen = self.buffer.unread();
            let compared = seen.len().min(HTTP2_PREFACE.len());
            if seen[..compared] != HTTP2_PREFACE[..compared] {
                return false;
            }
            if compared == HTTP2_PREFACE.len() {
                return true;
            }
            if !self.fill().await {
                return false;
            }
        }
    }

    /// The stream, and what was read from it.
    pub(crate) fn into_parts(self) -> (Box<dyn Io>, Buffer) {
        (self.stream, self.buffer)
    }

    async fn fill(&mut self) -> bool {
        let (stream, buffer) = (&mut self.stream, &mut self.buffer);
        let filled = std::future::poll_fn(|context| buffer.poll_fill(context, stream)).await;
        filled.is_ok_and(|count| count > 0)
    }

    /// Removes empty lines before a request (RFC 9112 2.2), each as it comes: a search for the end of the
    /// head would begin behind them again and again.
    fn skip_empty_lines(&mut self) {
        loop {
            let count = match self.buffer.unread() {
                [b'\n', ..] => 1,
                [b'\r', b'\n', ..] => 2,
                _ => return,
            };
            self.buffer.consume(count);
            self.skipped += count;
        }
    }

    /// Waits for the whole head of the request, which may have `head_bytes`, and looks at its target: only
    /// the head of a request that is proxied is parsed here.
    pub(crate) async fn receive(
        &mut self,
        head_bytes: usize,
        is_proxied: impl Fn(&str) -> bool,
    ) -> Received {
        let mut seen = 0;
        loop {
            if seen < EMPTY_LINE_BYTES {
                self.skip_empty_lines();
            }
            let bytes = self.buffer.unread();
            match head_end(bytes, seen) {
                Some(len) if len > head_bytes => return Received::Malformed,
                Some(len) => return self.classify(len, is_proxied),
                // The first bytes are parsed even if they are not a whole head: a client that speaks
                // another protocol, such as TLS, waits for an answer to them.
                None if seen == 0 && self.parser.parse_request(bytes).is_err() => {
                    return Received::Malformed;
                }
                None => {}
            }
            seen = bytes.len();
            if seen + self.skipped > head_bytes {
                return Received::Malformed;
            }
            if !self.fill().await {
                return Received::Closed;
            }
        }
    }

    fn classify(&mut self, len: usize, is_proxied: impl Fn(&str) -> bool) -> Received {
        let bytes = &self.buffer.unread()[..len];
        if !peek_target(bytes).is_some_and(is_proxied) {
            return Received::Api(len);
        }
        if self.parser.parse_request(bytes) != Ok(true) {
            return Received::Malformed;
        }
        let head = self.head();
        let id = head.values(REQUEST_ID.as_str()).next();
        self.request = RequestFacts {
            id: RequestId::from_header(id),
            is_head: head.method() == "HEAD",
            keeps_alive: head.keeps_alive(),
        };
        Received::Proxied
    }

    /// The head of the request that is being served, until it was removed.
    pub(crate) fn head(&self) -> Head<'_> {
        self.parser.head(self.buffer.unread())
    }

    /// Removes the head from the buffer, which begins with the body then.
    pub(crate) fn remove_head(&mut self) {
        self.buffer.consume(self.head().byte_len());
    }

    /// The id of the request that is being served.
    pub(crate) fn request_id(&self) -> &RequestId {
        &self.request.id
    }

    /// Whether the request is HEAD, the response to which has no body.
    pub(crate) fn is_head_request(&self) -> bool {
        self.request.is_head
    }

    /// Whether another request may follow on this connection.
    pub(crate) fn keeps_alive(&self) -> bool {
        self.request.keeps_alive && !self.stopping().is_cancelled()
    }

    /// Who is at the other end.
    pub(crate) fn client(&self) -> Client {
        self.client
    }

    /// Notes that the client has shown a key or token.
    pub(crate) fn mark_known(&self) {
        self.permit.mark_known();
    }

    /// Cancelled when the server stops, or the connection has to give way to others.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        self.permit.closing()
    }

    /// Cancelled when the server stops, and not when the connection has to give way.
    pub(crate) fn server_stopping(&self) -> &CancellationToken {
        self.permit.server_stopping()
    }

    /// The stream, and the bytes that were read from it.
    pub(crate) fn parts(&mut self) -> (&mut dyn Io, &mut Buffer) {
        (&mut *self.stream, &mut self.buffer)
    }

    /// Notes that a response with this status has begun.
    pub(crate) fn begin_response(&mut self, status: u16) {
        self.response = Some((status, Instant::now()));
    }

    /// The status of the response, and when it began.
    pub(crate) fn response(&self) -> Option<(u16, Instant)> {
        self.response
    }

    /// Notes that the response will never be complete. The connection is then reset, because for a
    /// response that ends with the connection a close would look like its end.
    pub(crate) fn reset(&mut self) {
        self.stream.reset_on_close();
        self.is_reset = true;
    }

    /// Sends a response that was not forwarded. The connection cannot be used again if more of the
    /// request is to come (`is_request_read`). Nothing is sent where another response has begun, since
    /// this one would land in the middle of it.
    pub(crate) async fn respond(
        &mut self,
        response: &Response<Bytes>,
        is_request_read: bool,
    ) -> io::Result<Persistence> {
        if self.response.is_some() {
            return Ok(Persistence::Close);
        }
        let keeps_alive = is_request_read && self.keeps_alive();
        let (status, body) = (response.status(), response.body());
        let mut out = Vec::with_capacity(BUFFER_START);
        let reason = status.canonical_reason().unwrap_or_default();
        let line = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16());
        out.extend_from_slice(line.as_bytes());
        for (name, value) in response.headers() {
            if !matches!(name.as_str(), "content-length" | "x-request-id" | "date") {
                put_header(&mut out, name.as_str(), value.as_bytes());
            }
        }
        let (id, length) = (self.request.id.as_str(), body.len().to_string());
        put_header(&mut out, REQUEST_ID.as_str(), id.as_bytes());
        put_header(&mut out, "date", message::date().as_bytes());
        put_header(&mut out, "content-length", length.as_bytes());
        if !keeps_alive {
            put_header(&mut out, "connection", b"close");
        }
        out.extend_from_slice(b"\r\n");
        if !self.request.is_head {
            out.extend_from_slice(body);
        }
        self.begin_response(status.as_u16());
        self.stream.write_all(&out).await?;
        self.stream.flush().await?;
        Ok(if keeps_alive {
            Persistence::KeepAlive
        } else {
            Persistence::Close
        })
    }

    /// Ends the response. For streams of which each carries one request.
    pub(crate) async fn finish(mut self) {
        if !self.is_reset {
            // A client that is gone does not miss the end.
            let _ = self.stream.shutdown().await;
        }
    }

    /// Closes the connection so that the client can read the response to its end, even if it is still
    /// sending: a close with unread bytes resets the connection, and the response would be lost
    /// (RFC 9112 9.6).
    pub(crate) async fn close(mut self) {
        if self.is_reset || self.stream.shutdown().await.is_err() {
            return;
        }
        let stopping = self.stopping().clone();
        let mut discarded = [0; 4096];
        let drain = async {
            while matches!(self.stream.read(&mut discarded).await, Ok(count) if count > 0) {}
        };
        let bounded = tokio::time::timeout(LINGER, drain);
        let _ = stopping.run_until_cancelled(bounded).await;
    }
}
