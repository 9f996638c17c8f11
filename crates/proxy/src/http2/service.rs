//! Requests that are forwarded as HTTP/2: those of gRPC, which has no other way (gRPC over HTTP2, "Requests").
//!
//! A connection of a client has connections of its own to the services that it calls, so that no client waits for
//! another's, and all end together. What heads become is what they become in HTTP/1.1. Trailers of responses pass,
//! those of requests do not.

use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::ready;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::FusedFuture;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, Method, Response, header};
use tokio::time::Instant;

use super::head::{request_from_http1, response_as_http1, response_from_http1};
use super::stream::poll_capacity;
use super::{CONNECTION_WINDOW, SEND_BUFFER, STREAM_WINDOW};
use crate::body::Length;
use crate::confine;
use crate::connection::Client;
use crate::connection_limit::ConnectionPermit;
use crate::message::{Head, HeadParser, Malformed};
use crate::pool::PoolKey;
use crate::relay::{Relay, RoutedRequest, outcome_of, panic_message, path_for_log};
use crate::response_head::{ForwardedResponse, write_response};
use crate::{Error, PageOrigin, REQUEST_ID, RequestId, RequestRecord, Sandboxes};

/// Bytes of the heads of responses and of their trailers.
const HEAD_BYTES_MAX: u32 = 64 * 1024;

/// Services that one connection of a client is connected to at once. gRPC clients have a connection for each.
const SERVICES_MAX: usize = 16;

/// Whether a request is one of gRPC. Not gRPC-Web, which is HTTP/1.1 to most services.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let rest = kind.and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// The connections of one client to services.
#[derive(Default)]
pub(crate) struct Services(Mutex<HashMap<PoolKey, SendRequest<Bytes>>>);

impl Services {
    fn get(&self, key: &PoolKey) -> Option<SendRequest<Bytes>> {
        let services = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        services.get(key).cloned()
    }

    fn put(&self, key: PoolKey, sender: SendRequest<Bytes>) {
        let mut services = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if services.len() >= SERVICES_MAX && !services.contains_key(&key) {
            // Calls that are under way there go on.
            services.clear();
        }
        services.insert(key, sender);
    }
}

/// A request as it came.
pub(super) struct Call {
    /// As HTTP/1.1 has it.
    pub(super) head: Vec<u8>,
    pub(super) body: RecvStream,
    pub(super) respond: SendResponse<Bytes>,
    pub(super) client: Client,
}

/// What a request came to.
enum Called {
    /// Its response was forwarded to its end.
    Forwarded,
    /// The client gets this response.
    Respond(Response<Bytes>),
    /// It ended early.
    Reset(Reason),
}

/// The client's side of a request that is being forwarded.
struct Caller<'a> {
    respond: &'a mut SendResponse<Bytes>,
    response: Option<(u16, Instant)>,
    id: RequestId,
}

type Result<T, S> = std::result::Result<T, Error<<S as Sandboxes>::Error>>;

impl<S: Sandboxes> Relay<S> {
    /// Forwards a request to a service that speaks HTTP/2. A panic is answered for.
    pub(super) async fn forward_http2(
        &self,
        call: Call,
        permit: &ConnectionPermit,
        services: &Services,
    ) {
        let began = Instant::now();
        let Call {
            head,
            body,
            mut respond,
            client,
        } = call;
        let mut parser = HeadParser::default();
        let is_parsed = parser.parse_request(&head).is_ok_and(|is_whole| is_whole);
        let head = parser.head(&head);
        let id = head
            .values(REQUEST_ID.as_str())
            .next()
            .filter(|_| is_parsed);
        let mut caller = Caller {
            respond: &mut respond,
            response: None,
            id: RequestId::from_header(id),
        };
        let served = async {
            if !is_parsed {
                let error = Malformed::Head(httparse::Error::TooManyHeaders);
                return Err(Error::Malformed(error));
            }
            self.call(head, body, client, permit, services, &mut caller)
                .await
        };
        let served = AssertUnwindSafe(served).catch_unwind().await;
        let done = served.unwrap_or_else(|panic| {
            let error = panic_message(&*panic);
            tracing::error!(request_id = %caller.id, error, "the proxy panicked");
            Err(Error::Panicked)
        });
        let outcome = outcome_of::<_, S>(&done);
        match done {
            Ok(Called::Forwarded) => {}
            Ok(Called::Reset(reason)) => caller.respond.send_reset(reason),
            Ok(Called::Respond(response)) => caller.answer(response),
            Err(error) => {
                let response = self.sandboxes.refuse(error, &caller.id);
                caller.answer(response);
            }
        }
        let response = caller.response;
        self.sandboxes.observe(&RequestRecord {
            method: Method::from_bytes(head.method().as_bytes()).unwrap_or_default(),
            path: path_for_log(head.target()),
            response: response.map(|(status, at)| (status, at - began)),
            outcome,
        });
    }

    /// Routes a request, and forwards it for as long as its sender's right holds.
    async fn call(
        &self,
        head: Head<'_>,
        body: RecvStream,
        client: Client,
        permit: &ConnectionPermit,
        services: &Services,
        caller: &mut Caller<'_>,
    ) -> Result<Called, S> {
        let routed = match self.route(head, self.trusted.peer_of(client, head))? {
            Ok(routed) => routed,
            Err(response) => return Ok(Called::Respond(response)),
        };
        permit.mark_known();
        let exchanged = self.exchange_http2(&routed, body, services, caller);
        let Some(over) = routed.right_end() else {
            return exchanged.await;
        };
        tokio::select! {
            done = exchanged => done,
            () = over => Ok(Called::Reset(Reason::CANCEL)),
        }
    }

    async fn exchange_http2(
        &self,
        routed: &RoutedRequest<S::Sandbox>,
        body: RecvStream,
        services: &Services,
        caller: &mut Caller<'_>,
    ) -> Result<Called, S> {
        let ready = self.sandboxes.ready(&routed.sandbox).await;
        ready.map_err(Error::Sandbox)?;
        let mut parser = HeadParser::default();
        let request = match parser.parse_request(&routed.head) {
            Ok(_) => request_from_http1(parser.head(&routed.head)),
            Err(error) => return Err(Error::Malformed(error)),
        };
        let unreadable = |_| Error::Malformed(Malformed::Head(httparse::Error::Token));
        let request = request.map_err(unreadable)?;
        let mut service = self.service(routed, services).await?;
        let is_whole = body.is_end_stream();
        let closed = |error: h2::Error| closed::<S>(routed.route.port, &error);
        let sent = service.send_request(request, is_whole);
        let (response, upload) = sent.map_err(closed)?;
        let upload = async {
            match is_whole {
                true => Ok(()),
                false => pump(body, upload, None).await,
            }
        };
        let mut upload = pin!(upload.fuse());
        let received = caller.receive(response, upload.as_mut()).await;
        let response = match received {
            Ok(response) => response,
            Err(Broken::From(error)) => return Err(closed(error)),
            Err(Broken::To) => return Ok(Called::Reset(Reason::CANCEL)),
        };
        let (parts, body) = response.into_parts();
        let head = response_head(&parts, routed, &caller.id, S::RESPONSE_HEADER);
        let head = head.map_err(|message| upstream_closed::<S>(routed.route.port, message))?;
        caller.response = Some((head.status().as_u16(), Instant::now()));
        let is_whole = body.is_end_stream();
        let Ok(to) = caller.respond.send_response(head, is_whole) else {
            return Ok(Called::Reset(Reason::CANCEL));
        };
        if is_whole {
            return Ok(Called::Forwarded);
        }
        let mut download = pin!(pump(body, to, Some(routed.origin)));
        loop {
            tokio::select! {
                biased;
                done = download.as_mut() => return Ok(match done {
                    Ok(()) => Called::Forwarded,
                    Err(Broken::From(error)) => {
                        Called::Reset(error.reason().unwrap_or(Reason::INTERNAL_ERROR))
                    }
                    Err(Broken::To) => Called::Reset(Reason::CANCEL),
                }),
                sent = upload.as_mut(), if !upload.is_terminated() => {
                    if let Err(Broken::From(_)) = sent {
                        return Ok(Called::Reset(Reason::CANCEL));
                    }
                }
            }
        }
    }

    /// The connection of this client to the service, which is made where there is none.
    async fn service(
        &self,
        routed: &RoutedRequest<S::Sandbox>,
        services: &Services,
    ) -> Result<SendRequest<Bytes>, S> {
        let key = PoolKey::of(&routed.route);
        if let Some(service) = services.get(&key)
            && let Ok(service) = service.ready().await
        {
            return Ok(service);
        }
        let closed = |error: h2::Error| closed::<S>(routed.route.port, &error);
        let stream = self.connect(routed).await?;
        let mut http = h2::client::Builder::new();
        http.enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(HEAD_BYTES_MAX);
        let (service, connection) = http.handshake(stream).await.map_err(closed)?;
        // Ends when the client's connection and all its calls have.
        self.spawner.spawn("service", async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = %api::error_chain(&error), "a connection to a service broke off");
            }
        });
        services.put(key, service.clone());
        service.ready().await.map_err(closed)
    }
}

impl Caller<'_> {
    /// Waits for the head of the response, and sends the request meanwhile. `Broken::To`: the client has gone.
    async fn receive(
        &mut self,
        mut response: ResponseFuture,
        mut upload: std::pin::Pin<
            &mut (impl FusedFuture<Output = std::result::Result<(), Broken>> + Send),
        >,
    ) -> std::result::Result<Response<RecvStream>, Broken> {
        loop {
            tokio::select! {
                biased;
                _ = poll_fn(|context| self.respond.poll_reset(context)) => return Err(Broken::To),
                response = &mut response => return response.map_err(Broken::From),
                sent = upload.as_mut(), if !upload.is_terminated() => {
                    if let Err(Broken::From(_)) = sent {
                        return Err(Broken::To);
                    }
                }
            }
        }
    }

    /// Sends a response that was not forwarded, unless one has begun.
    fn answer(&mut self, response: Response<Bytes>) {
        if self.response.is_some() {
            return self.respond.send_reset(Reason::INTERNAL_ERROR);
        }
        let (mut parts, body) = response.into_parts();
        parts.headers.insert(REQUEST_ID, self.id.header());
        self.response = Some((parts.status.as_u16(), Instant::now()));
        let head = Response::from_parts(parts, ());
        // A client that is gone misses nothing.
        if let Ok(mut stream) = self.respond.send_response(head, body.is_empty())
            && !body.is_empty()
        {
            let _ = stream.send_data(body, true);
        }
    }
}

/// Why bytes of one side did not reach the other.
enum Broken {
    /// Who sent them gave up.
    From(h2::Error),
    /// Nobody takes them any more.
    To,
}

/// Copies a body and, where an origin is told, the trailers behind it.
async fn pump(
    mut from: RecvStream,
    mut to: SendStream<Bytes>,
    trailers_of: Option<PageOrigin>,
) -> std::result::Result<(), Broken> {
    loop {
        let received = poll_fn(|context| {
            if to.poll_reset(context).is_ready() {
                return std::task::Poll::Ready(Err(Broken::To));
            }
            let received = ready!(from.poll_data(context)).transpose();
            std::task::Poll::Ready(received.map_err(Broken::From))
        });
        let Some(mut data) = received.await? else {
            break;
        };
        let count = data.len();
        while !data.is_empty() {
            let room = poll_fn(|context| poll_capacity(&mut to, data.len(), context));
            let room = room.await.map_err(|_| Broken::To)?;
            let sent = to.send_data(data.split_to(room), false);
            sent.map_err(|_| Broken::To)?;
        }
        // Whoever sends gets more room when the other side has taken what was sent.
        let _ = from.flow_control().release_capacity(count);
    }
    let trailers = from.trailers().await.map_err(Broken::From)?;
    let ended = match (trailers, trailers_of) {
        (Some(trailers), Some(origin)) => to.send_trailers(passing(&trailers, origin)),
        _ => to.send_data(Bytes::new(), true),
    };
    ended.map_err(|_| Broken::To)
}

/// The trailers of a response that pass: none that say something of a connection, a cookie or an origin.
fn passing(trailers: &HeaderMap, origin: PageOrigin) -> HeaderMap {
    let mut passing = HeaderMap::with_capacity(trailers.len());
    for name in trailers.keys() {
        if may_be_trailer(name, origin) {
            for value in trailers.get_all(name) {
                passing.append(name.clone(), value.clone());
            }
        }
    }
    passing
}

fn may_be_trailer(name: &HeaderName, origin: PageOrigin) -> bool {
    let is_framing = [
        header::SET_COOKIE,
        header::LOCATION,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::UPGRADE,
        REQUEST_ID,
    ];
    !is_framing.contains(name) && !confine::is_origin_wide(name.as_str(), origin)
}

/// The head of a response as the client gets it; else what is wrong with it.
fn response_head<T>(
    parts: &http::response::Parts,
    routed: &RoutedRequest<T>,
    id: &RequestId,
    header: Option<(&'static str, &'static str)>,
) -> std::result::Result<Response<()>, String> {
    let received = response_as_http1(parts);
    let mut parser = HeadParser::default();
    let parsed = parser.parse_response(&received);
    parsed.map_err(|error| error.to_string())?;
    let head = parser.head(&received);
    let length = head.content_length().map_err(|error| error.to_string())?;
    let forwarded = ForwardedResponse {
        prefix: &routed.route.prefix,
        length: length.map_or(Length::UntilClosed, Length::Exactly),
        is_to_head: false,
        keeps_alive: true,
        request_id: id.as_str(),
        origin: routed.origin,
        header,
    };
    let mut written = Vec::with_capacity(1024);
    write_response(&mut written, head, &forwarded);
    let mut parser = HeadParser::default();
    let parsed = parser.parse_response(&written);
    parsed.map_err(|error| error.to_string())?;
    response_from_http1(parser.head(&written)).map_err(|error| error.to_string())
}

fn closed<S: Sandboxes>(port: u16, error: &h2::Error) -> Error<S::Error> {
    let error = api::error_chain(error);
    let message = format!("{error}; calls of gRPC need a service that speaks HTTP/2 without TLS");
    upstream_closed::<S>(port, message)
}

fn upstream_closed<S: Sandboxes>(port: u16, message: String) -> Error<S::Error> {
    Error::UpstreamClosed { port, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_is_known_by_its_type() {
        for (kind, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;x=1", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/json", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]);
            assert_eq!(is_grpc(&headers), expected, "{kind}");
        }
    }

    #[test]
    fn trailers_say_nothing_of_connections_cookies_or_origins() {
        let trailers = [
            "grpc-status",
            "x-own",
            "set-cookie",
            "connection",
            "clear-site-data",
        ];
        let trailers = trailers.map(|name| (HeaderName::from_static(name), "1".parse().unwrap()));
        let passed = passing(&HeaderMap::from_iter(trailers), PageOrigin::Own);
        let mut passed: Vec<_> = passed.keys().map(HeaderName::as_str).collect();
        passed.sort_unstable();
        assert_eq!(passed, ["grpc-status", "x-own"]);
    }
}
