//! The listener, a TCP port or a unix socket: accepts connections, deals them out to threads, and lets them
//! end in order.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use daemon::TaskSpawner;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use crate::accept::{self, Begun};
use crate::connection::{Client, Connection};
use crate::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::dispatch::Dispatch;
use crate::relay::Relay;
use crate::threads::ConnectionThreads;
use crate::{Api, Error, RequestId, Sandboxes, Tls, TrustedProxies};

/// After `accept` failed for want of a resource it is tried again when a connection has closed, and
/// at the latest after this long: the resource may have been freed by another process.
const ACCEPT_RETRY: Duration = Duration::from_millis(250);

/// What a connection may use before a request of it is served.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a request's line and headers. 64 KiB carries any real cookie jar; a client that
    /// sends more gets 431.
    pub head_bytes: usize,
    /// Headers of a request to the API. One that is forwarded has at most
    /// [`HEADERS_MAX`](crate::message::HEADERS_MAX).
    pub headers: usize,
    /// From the moment a connection could take a request to that request's first byte. `None` waits for
    /// ever.
    pub idle: Option<Duration>,
    /// From a request's first byte to the end of its head, for clients that send it drop by drop. `None`
    /// waits for ever.
    pub head: Option<Duration>,
    /// Connections at once. Half of them may be of clients that have shown no key or token yet.
    pub connections: usize,
    /// Threads that connections are dealt out to; with 0 they are served by the runtime that
    /// everything else runs on.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // Idle: longer than the 30 s for which the published clients keep a connection, so that
        // it is they who close it and never race with us.
        Self {
            head_bytes: 64 * 1024,
            headers: 100,
            idle: Some(Duration::from_secs(75)),
            // A head is a few packets; ten seconds carry it over any network that is of use.
            head: Some(Duration::from_secs(10)),
            connections: 4096,
            threads: 0,
        }
    }
}

/// Where connections come from, and what is spoken there besides HTTP/1.1.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: Socket,
    /// The certificate, where TLS is spoken. Then nothing else is. Never over a unix socket.
    pub tls: Option<Arc<Tls>>,
    /// HTTP/2, too: as chosen in TLS, or from the first byte on. For TCP listeners without an API.
    pub has_http2: bool,
}

/// A socket that listens.
#[derive(Debug)]
pub enum Socket {
    /// A TCP port.
    Tcp(TcpListener),
    /// A unix socket. Whoever may open its file is known to the API by their user (`Peer::user`).
    Unix(UnixListener),
}

impl From<TcpListener> for Listener {
    /// Nothing besides.
    fn from(socket: TcpListener) -> Self {
        Self {
            socket: Socket::Tcp(socket),
            tls: None,
            has_http2: false,
        }
    }
}

impl From<UnixListener> for Listener {
    /// Nothing besides.
    fn from(socket: UnixListener) -> Self {
        Self {
            socket: Socket::Unix(socket),
            tls: None,
            has_http2: false,
        }
    }
}

impl Socket {
    async fn accept(&self) -> io::Result<(Stream, Client)> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // A response is written in one piece; waiting for more to send only delays it.
                let _ = stream.set_nodelay(true);
                let client = Client {
                    address: address.ip().to_canonical(),
                    is_tls: false,
                    user: None,
                };
                (Stream::Tcp(stream), client)
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let client = Client {
                    address: Ipv4Addr::LOCALHOST.into(),
                    is_tls: false,
                    user: Some(stream.peer_cred()?.uid()),
                };
                (Stream::Unix(stream), client)
            }
        })
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Registers it with the event loop of this thread instead of the one that accepted it.
    fn onto_this_thread(self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(TcpStream::from_std(stream.into_std()?)?),
            Self::Unix(stream) => Self::Unix(UnixStream::from_std(stream.into_std()?)?),
        })
    }
}

/// Serves a listener until the tasks of `spawner` are asked to stop. Then no connection is accepted
/// any more, idle ones are closed, and requests that are being served have until the end of the
/// spawner's grace period.
pub fn serve(
    spawner: &TaskSpawner,
    listener: impl Into<Listener>,
    api: impl Api,
    sandboxes: impl Sandboxes,
    trusted: TrustedProxies,
    limits: Limits,
) -> io::Result<()> {
    let threads = ConnectionThreads::start(limits.threads)?;
    let listener = listener.into();
    let has_http2 = listener.has_http2;
    let tls = listener.tls.map(|tls| tls.acceptor(has_http2));
    let server = Arc::new(Server {
        tls,
        has_http2,
        dispatch: Dispatch::new(api, Relay::new(sandboxes, trusted, spawner), limits),
        spawner: spawner.clone(),
        threads,
        limit: Arc::new(ConnectionLimit::new(limits.connections)),
    });
    spawner.spawn("accept", accept(server, listener.socket));
    Ok(())
}

/// Shared by all connections: the threads end with the last of them.
struct Server<A, S: Sandboxes> {
    tls: Option<TlsAcceptor>,
    has_http2: bool,
    dispatch: Dispatch<A, S>,
    spawner: TaskSpawner,
    threads: ConnectionThreads,
    limit: Arc<ConnectionLimit>,
}

async fn accept<A: Api, S: Sandboxes>(server: Arc<Server<A, S>>, socket: Socket) {
    let stopping = server.spawner.stopping();
    loop {
        let accepted = async {
            server.limit.room().await;
            socket.accept().await
        };
        let accepted = tokio::select! {
            () = stopping.cancelled() => return,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, client)) => {
                let address = client.address;
                // Behind a proxy, or on this machine, there may be any number of clients.
                let trusted = &server.dispatch.relay.trusted;
                let is_counted = !address.is_loopback() && !trusted.contains(address);
                if let Some(permit) = server.limit.open(address, is_counted, &stopping) {
                    start_connection(&server, stream, client, permit);
                }
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(error = %api::error_chain(&error), "cannot accept a connection");
                let freed = server.limit.closed(ACCEPT_RETRY);
                tokio::select! { () = stopping.cancelled() => return, () = freed => {} }
            }
        }
    }
}

fn start_connection<A: Api, S: Sandboxes>(
    server: &Arc<Server<A, S>>,
    stream: Stream,
    client: Client,
    permit: ConnectionPermit,
) {
    let thread = server.threads.next();
    let is_moved = thread.is_some();
    let connection = {
        let server = Arc::clone(server);
        async move {
            let stream = if is_moved {
                stream.onto_this_thread()
            } else {
                Ok(stream)
            };
            match stream {
                Ok(stream) => server.serve(stream, client, permit).await,
                Err(error) => {
                    tracing::warn!(error = %api::error_chain(&error), "a connection could not be served");
                }
            }
        }
    };
    match thread {
        Some(thread) => drop(server.spawner.spawn_on(thread, "connection", connection)),
        None => drop(server.spawner.spawn("connection", connection)),
    }
}

impl<A: Api, S: Sandboxes> Server<A, S> {
    async fn serve(&self, stream: Stream, client: Client, permit: ConnectionPermit) {
        let dispatch = &self.dispatch;
        let begun = match (stream, &self.tls) {
            (Stream::Unix(stream), _) => {
                let stream = Box::new(stream);
                return dispatch.serve(stream, client, permit, false).await;
            }
            (Stream::Tcp(stream), None) => Begun::Plain(stream),
            (Stream::Tcp(stream), Some(acceptor)) => {
                let limits = (dispatch.limits.idle, dispatch.limits.head);
                accept::begin(stream, acceptor, limits, permit.closing()).await
            }
        };
        let over_tls = Client {
            is_tls: true,
            ..client
        };
        match begun {
            Begun::Closed => {}
            Begun::Plain(stream) => {
                let has_http2 = self.has_http2;
                dispatch
                    .serve(Box::new(stream), client, permit, has_http2)
                    .await;
            }
            Begun::Tls { stream, is_http2 } if is_http2 => {
                dispatch.serve_http2(stream, over_tls, permit).await;
            }
            Begun::Tls { stream, .. } => {
                dispatch.serve(stream, over_tls, permit, false).await;
            }
            Begun::NotTls(stream) => {
                let mut connection = Connection::new(Box::new(stream), client, permit);
                let id = RequestId::random();
                let response = dispatch.relay.sandboxes.refuse(Error::NotTls, &id);
                if connection.respond(&response, false).await.is_ok() {
                    connection.close().await;
                }
            }
        }
    }
}

/// `accept` also reports errors of the one connection it would have returned (accept(2)); the
/// next one may be fine.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

#[cfg(test)]
mod tests;
