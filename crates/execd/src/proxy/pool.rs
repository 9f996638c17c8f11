//! Connections to the services inside the sandbox, kept for the next request.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{body::Body, extract::Request};
use http::Response;
use http_body::Body as _;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Connections kept per port. More than that at once are opened and closed as needed.
const IDLE_MAX: usize = 32;

/// How long an unused connection is kept. Below the keep-alive time of common servers, which close
/// first otherwise and make the next request race with that.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// How long a service may take to accept. Loopback answers at once; only a service whose queue is
/// full does not.
const CONNECT_TIME: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    /// The most recently used last.
    connections: HashMap<u16, Vec<(Instant, SendRequest<Body>)>>,
    is_swept: bool,
}

/// Why there is no answer from the service.
#[derive(Debug)]
pub(crate) enum DialError {
    Refused(io::Error),
    TimedOut,
    Broken(hyper::Error),
}

impl Pool {
    /// Sends a request to the service on `port`, over a kept connection if there is one.
    pub(super) async fn send(
        self: &Arc<Self>,
        port: u16,
        mut request: Request,
    ) -> Result<Response<Incoming>, DialError> {
        while let Some(mut connection) = self.take(port) {
            let again = repeated(&request);
            match connection.try_send_request(request).await {
                Ok(response) => return Ok(self.keep_later(port, connection, response)),
                // The service closed the connection meanwhile. If nothing was sent nothing is lost;
                // what was sent is sent once more only if twice is as good as once.
                Err(mut error) => match error.take_message().or(again) {
                    Some(unsent) => request = unsent,
                    None => return Err(DialError::Broken(error.into_error())),
                },
            }
        }
        let mut connection = connect(port).await?;
        let response = connection
            .send_request(request)
            .await
            .map_err(DialError::Broken)?;
        Ok(self.keep_later(port, connection, response))
    }

    fn take(&self, port: u16) -> Option<SendRequest<Body>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.connections.get_mut(&port)?;
        std::iter::from_fn(|| kept.pop())
            .map(|(_, connection)| connection)
            .find(|connection| connection.is_ready())
    }

    /// Puts the connection back once the answer has been read to its end.
    fn keep_later(
        self: &Arc<Self>,
        port: u16,
        mut connection: SendRequest<Body>,
        response: Response<Incoming>,
    ) -> Response<Incoming> {
        let pool = self.clone();
        tokio::spawn(async move {
            if connection.ready().await.is_ok() {
                pool.keep(port, connection);
            }
        });
        response
    }

    fn keep(self: &Arc<Self>, port: u16, connection: SendRequest<Body>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.connections.entry(port).or_default();
        if kept.len() == IDLE_MAX {
            kept.remove(0);
        }
        kept.push((Instant::now(), connection));
        if !std::mem::replace(&mut idle.is_swept, true) {
            tokio::spawn(Self::sweep(self.clone()));
        }
    }

    /// Closes what has not been used for long, until nothing is kept.
    async fn sweep(self: Arc<Self>) {
        let mut next = Instant::now() + IDLE_TIME;
        loop {
            tokio::time::sleep_until(next.into()).await;
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            idle.connections.retain(|_, kept| {
                kept.retain(|(since, connection)| {
                    now.duration_since(*since) < IDLE_TIME && !connection.is_closed()
                });
                !kept.is_empty()
            });
            match idle
                .connections
                .values()
                .flatten()
                .map(|(since, _)| *since)
                .min()
            {
                Some(oldest) => next = oldest + IDLE_TIME,
                None => {
                    idle.is_swept = false;
                    return;
                }
            }
        }
    }
}

/// The same request, if it can be sent twice without harm.
fn repeated(request: &Request) -> Option<Request> {
    if !request.method().is_safe() || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(Body::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// A new HTTP connection to whatever listens on `port`.
async fn connect(port: u16) -> Result<SendRequest<Body>, DialError> {
    let stream = dial(port).await?;
    let (sender, connection) = http1::Builder::new()
        // Servers that compare names by case exist; none wants them in lower case.
        .title_case_headers(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(DialError::Broken)?;
    tokio::spawn(async move {
        // Its end shows in the request that was using it, or in the pool.
        let _ = connection.with_upgrades().await;
    });
    Ok(sender)
}

/// A byte stream to whatever listens on `port`, of either address family.
pub(crate) async fn dial(port: u16) -> Result<TcpStream, DialError> {
    let stream = match open((Ipv4Addr::LOCALHOST, port).into()).await {
        Err(DialError::Refused(first)) => match open((Ipv6Addr::LOCALHOST, port).into()).await {
            // The first says more: a sandbox without IPv6 fails the second in its own way.
            Err(DialError::Refused(_)) => return Err(DialError::Refused(first)),
            other => other?,
        },
        other => other?,
    };
    // Small messages of a WebSocket must not wait for more.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

async fn open(address: SocketAddr) -> Result<TcpStream, DialError> {
    match tokio::time::timeout(CONNECT_TIME, TcpStream::connect(address)).await {
        Ok(stream) => stream.map_err(DialError::Refused),
        Err(_) => Err(DialError::TimedOut),
    }
}
