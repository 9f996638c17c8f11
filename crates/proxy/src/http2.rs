//! Connections of clients that speak HTTP/2 (RFC 9113), whose requests all go into sandboxes.
//!
//! Each stream is served as if it were an HTTP/1.1 connection with one request (`stream`), so that all rules about
//! what may go where, and what is taken out of heads, hold here without being written twice. Requests of gRPC, which
//! needs trailers and frames from one end to the other, are forwarded as HTTP/2 (`service`).
//!
//! All streams of a connection are driven by its one task. WebSockets over HTTP/2 (RFC 8441) are not offered, so
//! that clients open connections of their own for them, which become plain tunnels.

mod head;
mod read_again;
mod service;
mod stream;

use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h2::RecvStream;
use h2::server::SendResponse;
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use read_again::ReadAgain;
pub(crate) use service::Services;

use crate::accept::within;
use crate::connection::{Client, Connection, Received};
use crate::connection_limit::ConnectionPermit;
use crate::dispatch::Dispatch;
use crate::idle::IdleTimer;
use crate::message::Malformed;
use crate::{Api, Error, Sandboxes};

/// Requests of one connection at a time; browsers and gRPC clients queue what is more. RFC 9113 6.5.2 asks for at
/// least 100.
const STREAMS_MAX: u32 = 128;

/// Requests of one connection that are served at a time, also where their streams are gone: the library counts a
/// stream no more once it was reset, and what serves it may still be connecting to its service (CVE-2023-44487).
const SERVED_MAX: usize = 2 * STREAMS_MAX as usize;

/// Bytes of one stream, and of all streams of a connection, that a client may send before they were read: enough for
/// 100 MB/s over a way of 10 ms.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 2 * 1024 * 1024;

/// Bytes of one stream that wait in memory until the client takes them.
const SEND_BUFFER: usize = 256 * 1024;

type Accepted = (Request<RecvStream>, SendResponse<Bytes>);

/// What a connection is woken for.
#[expect(
    clippy::large_enum_variant,
    reason = "it is matched at once and never kept"
)]
enum Event {
    Accepted(Accepted),
    /// A stream is over.
    Done,
    Closed,
}

async fn next_event(
    streams: &mut FuturesUnordered<impl Future<Output = ()>>,
    connection: &mut h2::server::Connection<impl AsyncRead + AsyncWrite + Unpin, Bytes>,
) -> Event {
    let next = std::future::poll_fn(|context| {
        if let Poll::Ready(Some(())) = streams.poll_next_unpin(context) {
            // The connection has to send what the stream left, too.
            context.waker().wake_by_ref();
            return Poll::Ready(Event::Done);
        }
        connection
            .poll_accept(context)
            .map(|accepted| match accepted {
                Some(Ok(accepted)) => Event::Accepted(accepted),
                Some(Err(_)) | None => Event::Closed,
            })
    });
    next.await
}

impl<A: Api, S: Sandboxes> Dispatch<A, S> {
    /// Serves a connection on which HTTP/2 is spoken, to its end.
    pub(crate) async fn serve_http2(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        client: Client,
        permit: ConnectionPermit,
    ) {
        let mut stopped = pin!(permit.closing().cancelled());
        let handshake = within(self.limits.head, self.http2().handshake(stream));
        let mut connection = tokio::select! {
            () = stopped.as_mut() => return,
            connection = handshake => match connection {
                Some(Ok(connection)) => connection,
                _ => return,
            },
        };
        let services = Services::default();
        let mut streams = FuturesUnordered::new();
        let mut idle = IdleTimer::new(self.limits.idle);
        let (mut is_ending, mut has_stopped) = (false, false);
        loop {
            let is_idle = streams.is_empty();
            let event = tokio::select! {
                biased;
                event = next_event(&mut streams, &mut connection) => event,
                // Also where a goodbye was said: until a client has heard it, it may send requests.
                () = stopped.as_mut(), if !has_stopped => {
                    has_stopped = true;
                    // Whoever has to give way may be one who does not read the responses.
                    if permit.is_evicted() {
                        return;
                    }
                    if !is_ending {
                        is_ending = true;
                        idle.restart();
                        connection.graceful_shutdown();
                    }
                    continue;
                }
                () = idle.expired(), if is_idle => {
                    // A client that does not even take the goodbye is not waited for.
                    if is_ending {
                        return;
                    }
                    is_ending = true;
                    idle.restart();
                    connection.graceful_shutdown();
                    continue;
                }
            };
            match event {
                Event::Accepted((_, mut respond)) if streams.len() >= SERVED_MAX => {
                    respond.send_reset(h2::Reason::REFUSED_STREAM);
                }
                Event::Accepted((request, respond)) => {
                    streams.push(self.serve_stream(request, respond, client, &permit, &services));
                }
                Event::Done => idle.restart(),
                Event::Closed => return,
            }
        }
    }

    fn http2(&self) -> h2::server::Builder {
        let mut http = h2::server::Builder::new();
        http.max_concurrent_streams(STREAMS_MAX)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(u32::try_from(self.limits.head_bytes).unwrap_or(u32::MAX));
        http
    }

    async fn serve_stream(
        &self,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        client: Client,
        permit: &ConnectionPermit,
        services: &Services,
    ) {
        let (parts, body) = request.into_parts();
        let head = match head::request_as_http1(&parts, body.is_end_stream()) {
            Ok(head) => head,
            // A stream error (RFC 9113 8.1.1): what is not a request gets no response.
            Err(reason) => {
                tracing::debug!(reason, "a request over HTTP/2 is malformed");
                return respond.send_reset(h2::Reason::PROTOCOL_ERROR);
            }
        };
        if service::is_grpc(&parts.headers) {
            let call = service::Call {
                head,
                body,
                respond,
                client,
            };
            return self.relay.forward_http2(call, permit, services).await;
        }
        let is_head = parts.method == http::Method::HEAD;
        let stream = stream::AsHttp1::new(head, body, respond, is_head);
        let mut connection = Connection::new(Box::new(stream), client, permit.clone());
        match connection.receive(self.limits.head_bytes, |_| true).await {
            Received::Proxied => drop(self.relay.forward(&mut connection).await),
            Received::Closed => return,
            Received::Api(_) | Received::Malformed => {
                let error = Malformed::Head(httparse::Error::TooManyHeaders);
                let id = connection.request_id();
                let response = self.relay.sandboxes.refuse(Error::Malformed(error), id);
                // A client that is gone misses nothing.
                let _ = connection.respond(&response, true).await;
            }
        }
        connection.finish().await;
    }
}
