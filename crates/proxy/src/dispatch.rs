//! The requests of one connection, one after the other as the client sends them: each is forwarded
//! into a sandbox or answered by the API.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::Poll;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;

use crate::accept;
use crate::connection::{Client, Connection, Io, Persistence, Received};
use crate::connection_limit::ConnectionPermit;
use crate::http2::ReadAgain;
use crate::hyper_io::{HyperIo, Remaining, ResponseBody};
use crate::idle::IdleTimer;
use crate::relay::Relay;
use crate::serve::Limits;
use crate::{Api, REQUEST_ID, RequestId, Sandboxes};

/// What the requests of every connection are served with.
pub(crate) struct Dispatch<A, S: Sandboxes> {
    pub(crate) api: A,
    pub(crate) relay: Relay<S>,
    pub(crate) limits: Limits,
    http: http1::Builder,
}

/// How long a connection waits for a request, and for the rest of its head.
struct Timers {
    idle: IdleTimer,
    head: IdleTimer,
}

impl<A: Api, S: Sandboxes> Dispatch<A, S> {
    pub(crate) fn new(api: A, relay: Relay<S>, limits: Limits) -> Self {
        let mut http = http1::Builder::new();
        // No time limit for heads: the library gets each in one piece, once it is whole.
        http.header_read_timeout(None)
            .max_header_size(limits.head_bytes)
            .max_headers(limits.headers);
        Self {
            api,
            relay,
            limits,
            http,
        }
    }

    /// Serves a connection to its end. `may_be_http2`: the client may speak that from the first byte on.
    pub(crate) async fn serve(
        &self,
        stream: Box<dyn Io>,
        client: Client,
        permit: ConnectionPermit,
        may_be_http2: bool,
    ) {
        let mut connection = Connection::new(stream, client, permit.clone());
        if may_be_http2 {
            match self.speaks_http2(&mut connection).await {
                Some(true) => {
                    let (stream, read) = connection.into_parts();
                    let stream = ReadAgain::new(stream, read);
                    return self.serve_http2(stream, client, permit).await;
                }
                Some(false) => {}
                None => return,
            }
        }
        self.serve_requests(connection, client, permit).await;
    }

    /// Serves the requests of a connection on which HTTP/1.1 is spoken.
    async fn serve_requests(
        &self,
        mut connection: Connection,
        client: Client,
        permit: ConnectionPermit,
    ) {
        let mut stopped = pin!(permit.closing().cancelled());
        let mut timers = Timers {
            idle: IdleTimer::new(self.limits.idle),
            head: IdleTimer::new(self.limits.head),
        };
        let mut io = HyperIo::default();
        // The library's connection. Made for the first request to the API and kept for all others.
        let mut library = pin!(None);
        loop {
            let received = self.receive(&mut connection, &mut timers);
            let received = tokio::select! {
                biased;
                received = received => received,
                () = stopped.as_mut() => return,
            };
            let remaining = match received {
                Received::Closed => return,
                Received::Proxied => match self.relay.forward(&mut connection).await {
                    Persistence::KeepAlive => continue,
                    Persistence::Close => return connection.close().await,
                },
                Received::Api(head_len) => Remaining::Head(head_len),
                Received::Malformed => Remaining::Everything,
            };
            let is_malformed = matches!(remaining, Remaining::Everything);
            io.lend(connection, remaining);
            if library.is_none() {
                let (api_io, api_permit) = (io.clone(), permit.clone());
                let service =
                    service_fn(move |request| self.respond(&api_io, request, client, &api_permit));
                library.set(Some(self.http.serve_connection(io.clone(), service)));
            }
            let mut driven = library.as_mut().as_pin_mut().expect("it was just made");
            let ended = tokio::select! {
                biased;
                ended = until_done(driven.as_mut(), &io) => ended,
                () = stopped.as_mut() => {
                    // Whoever has to give way may be one who does not read the response.
                    if permit.is_evicted() {
                        return;
                    }
                    driven.as_mut().graceful_shutdown();
                    Some(driven.await)
                }
                () = timers.head.expired(), if is_malformed => return,
            };
            let Some(returned) = io.take_back() else {
                return;
            };
            if let Some(ended) = ended {
                if let Err(error) = ended {
                    tracing::debug!(error = %api::error_chain(&error), "a connection ended early");
                }
                return returned.connection.close().await;
            }
            connection = returned.connection;
            if !returned.is_library_idle {
                // The library holds a part of the request that the handler did not read.
                library.set(None);
                io = HyperIo::default();
            }
        }
    }

    /// Whether a client begins with HTTP/2; `None` if it does not begin in time.
    async fn speaks_http2(&self, connection: &mut Connection) -> Option<bool> {
        let stopping = connection.stopping().clone();
        let begin = async {
            let head_bytes = self.limits.head_bytes;
            let is_open =
                accept::within(self.limits.idle, connection.wait_for_request(head_bytes)).await?;
            // The end of the connection is seen again by who reads next.
            match is_open {
                true => accept::within(self.limits.head, connection.is_http2()).await,
                false => None,
            }
        };
        stopping.run_until_cancelled(begin).await.flatten()
    }

    /// Waits for the next request, and for the whole head of it.
    async fn receive(&self, connection: &mut Connection, timers: &mut Timers) -> Received {
        let head_bytes = self.limits.head_bytes;
        timers.idle.restart();
        let is_open = tokio::select! {
            biased;
            is_open = connection.wait_for_request(head_bytes) => is_open,
            () = timers.idle.expired() => false,
        };
        if !is_open {
            return Received::Closed;
        }
        timers.head.restart();
        let is_proxied = |target: &str| self.relay.sandboxes.is_proxied(target);
        tokio::select! {
            biased;
            received = connection.receive(head_bytes, is_proxied) => received,
            () = timers.head.expired() => Received::Closed,
        }
    }

    /// A request to the API.
    fn respond(
        &self,
        io: &HyperIo,
        request: Request<Incoming>,
        client: Client,
        permit: &ConnectionPermit,
    ) -> impl Future<Output = Result<Response<ResponseBody<A::Body>>, Infallible>> + use<'_, A, S>
    {
        let io = io.clone();
        let mut request = request.map(|body| io.begin_request(body));
        let peer = self.relay.trusted.peer_of_parsed(client, request.headers());
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(permit.clone());
        async move {
            let id = RequestId::of(request.headers());
            request.extensions_mut().insert(id.clone());
            let mut response = self.api.respond(request).await;
            response.headers_mut().insert(REQUEST_ID, id.header());
            Ok(response.map(|body| io.begin_response(body)))
        }
    }
}

/// Drives the library until the request that it was lent the connection for is over, or with its result
/// until it ends.
async fn until_done<F: Future>(mut library: Pin<&mut F>, io: &HyperIo) -> Option<F::Output> {
    std::future::poll_fn(|context| match library.as_mut().poll(context) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending if io.is_done() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

#[cfg(test)]
mod tests;
