//! A connection that has switched protocols (RFC 9110 7.8): bytes both ways until both sides end.

use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::transfer::Buffer;

/// Bytes held per direction. Terminals and browsers send less at once, and there may be thousands
/// of tunnels that carry nothing for hours.
const BUFFER_BYTES: usize = 16 * 1024;

/// How long a client may take to read what its service wrote before it closed. Those bytes are in
/// memory, so only a client that does not read needs longer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The name of a plain byte stream in a request's `Upgrade`, an extension of ours. The service in the
/// sandbox sees an ordinary connection and nothing of the HTTP request.
const RAW_PROTOCOL: &str = "tcp";

/// Whether this protocol of an `Upgrade` is the plain byte stream.
pub(crate) fn is_raw(protocol: &[u8]) -> bool {
    protocol.eq_ignore_ascii_case(RAW_PROTOCOL.as_bytes())
}

/// The response to a request whose connection becomes a plain byte stream.
pub(crate) fn raw_response(request_id: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {RAW_PROTOCOL}\r\n\
         x-request-id: {request_id}\r\n\r\n"
    )
}

/// Copies bytes until both sides have ended, one has failed, or the server stops; first those that
/// were read from either side already.
pub(crate) async fn run(
    connection: &mut Connection,
    mut upstream: impl AsyncRead + AsyncWrite + Unpin,
    from_upstream: &Buffer,
) {
    let stopping = connection.stopping().clone();
    let (client, from_client) = connection.parts();
    let tunnel = async {
        client.write_all(from_upstream.unread()).await?;
        client.flush().await?;
        upstream.write_all(from_client.unread()).await?;
        from_client.consume(from_client.unread().len());
        copy_both_ways(client, upstream).await
    };
    until_stopped(tunnel, stopping).await;
}

async fn until_stopped(tunnel: impl Future<Output = io::Result<()>>, stopping: CancellationToken) {
    tokio::select! {
        () = stopping.cancelled() => {}
        outcome = tunnel => match outcome {
            Ok(()) => tracing::debug!("a tunnel has ended"),
            Err(error) => {
                tracing::debug!(error = %api::error_chain(&error), "a tunnel broke off");
            },
        }
    }
}

/// Copies in both directions. When a service closes, as a terminal does whose command has ended,
/// writes of what the client still sends fail, and what the service wrote last must reach the client
/// all the same.
async fn copy_both_ways(
    client: impl AsyncRead + AsyncWrite,
    upstream: impl AsyncRead + AsyncWrite,
) -> io::Result<()> {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_upstream, to_upstream) = tokio::io::split(upstream);
    let mut up = pin!(one_way(from_client, to_upstream));
    let mut down = pin!(one_way(from_upstream, to_client));
    tokio::select! {
        ended = &mut down => {
            ended?;
            up.await
        }
        ended = &mut up => match ended {
            Ok(()) => down.await,
            Err(error) => match tokio::time::timeout(DRAIN_TIMEOUT, down).await {
                Ok(ended) => ended,
                Err(_) => Err(error),
            },
        },
    }
}

async fn one_way(from: impl AsyncRead, to: impl AsyncWrite) -> io::Result<()> {
    let (from, mut to) = (BufReader::with_capacity(BUFFER_BYTES, from), pin!(to));
    let mut from = pin!(from);
    tokio::io::copy_buf(&mut from, &mut to).await?;
    to.shutdown().await
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn what_a_service_wrote_last_reaches_a_client_that_is_still_sending() {
        let (mut client, client_side) = tokio::io::duplex(1024);
        let (upstream_side, mut upstream) = tokio::io::duplex(1024);
        upstream.write_all(b"goodbye").await.unwrap();
        drop(upstream);
        client.write_all(b"are you there?").await.unwrap();
        let tunnel = tokio::spawn(copy_both_ways(client_side, upstream_side));
        let mut heard = [0; 7];
        tokio::time::timeout(DRAIN_TIMEOUT, client.read_exact(&mut heard))
            .await
            .expect("in time")
            .unwrap();
        assert_eq!(&heard, b"goodbye");
        drop(client);
        let ended = tokio::time::timeout(DRAIN_TIMEOUT, tunnel).await;
        ended.expect("the tunnel ends").unwrap().ok();
    }
}
