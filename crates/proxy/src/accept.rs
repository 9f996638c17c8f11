//! The beginning of a connection: TLS, where the listener speaks it.
//!
//! What HTTP is spoken inside is the business of `dispatch`.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::connection::Io;
use crate::tls::{ALPN_HTTP2, HANDSHAKE};

/// How a connection turned out to begin.
pub(crate) enum Begun {
    /// Without TLS, as the listener wants it.
    Plain(TcpStream),
    /// With TLS.
    Tls {
        stream: Box<TlsStream<TcpStream>>,
        /// Whether both sides chose HTTP/2.
        is_http2: bool,
    },
    /// With something else than TLS, where the listener speaks nothing else.
    NotTls(TcpStream),
    /// Not at all.
    Closed,
}

impl Io for TlsStream<TcpStream> {
    fn reset_on_close(&mut self) {
        self.get_mut().0.reset_on_close();
    }
}

/// Waits for a client's first bytes, at most for `idle`, and agrees with it on keys, at most for `handshake`.
pub(crate) async fn begin(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    (idle, handshake): (Option<Duration>, Option<Duration>),
    closing: &CancellationToken,
) -> Begun {
    let begin = async {
        let mut first = [0];
        match within(idle, stream.peek(&mut first)).await {
            Some(Ok(1)) if first[0] == HANDSHAKE => {}
            Some(Ok(1)) => return Begun::NotTls(stream),
            _ => return Begun::Closed,
        }
        match within(handshake, acceptor.accept(stream)).await {
            Some(Ok(stream)) => Begun::Tls {
                is_http2: stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2),
                stream: Box::new(stream),
            },
            Some(Err(error)) => {
                tracing::debug!(error = %api::error_chain(&error), "a client and this server do not agree on TLS");
                Begun::Closed
            }
            None => Begun::Closed,
        }
    };
    closing
        .run_until_cancelled(begin)
        .await
        .unwrap_or(Begun::Closed)
}

pub(crate) async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}
