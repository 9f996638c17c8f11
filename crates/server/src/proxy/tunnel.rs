//! A connection that has switched protocols: bytes both ways until both sides are done.

use std::io;
use std::pin::pin;
use std::time::Duration;

use daemon::http::Line;
use daemon::http::flow::Buffer;
use lifecycle::backend::Stream;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio_util::sync::CancellationToken;

/// Bytes held per direction. Terminals and browsers send less at once, and there may be thousands
/// of tunnels that carry nothing for hours.
const BUFFER_BYTES: usize = 16 * 1024;

/// What a service said before it closed is at hand; only a client that does not read takes longer.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The protocol of a plain byte stream, as a request's `Upgrade` names it. An extension: it ends
/// in front of the service in the sandbox, which sees an ordinary connection.
const RAW: &str = "tcp";

/// Whether a plain byte stream is asked for.
pub(super) fn is_raw(protocol: &[u8]) -> bool {
    protocol.eq_ignore_ascii_case(RAW.as_bytes())
}

/// What a client is told whose connection becomes a plain byte stream.
pub(super) fn raw_answer(request_id: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {RAW}\r\n\
         x-request-id: {request_id}\r\n\r\n"
    )
}

/// Carries bytes until both sides have ended, one has failed, or the server stops. First those
/// that were read from either side already.
pub(super) async fn run(line: &mut Line, mut upstream: Box<dyn Stream>, said: &Buffer) {
    let stopping = line.stopping().clone();
    let (client, asked) = line.parts();
    let tunnel = async {
        client.write_all(said.unread()).await?;
        upstream.write_all(asked.unread()).await?;
        asked.consume(asked.unread().len());
        carry(client, upstream).await
    };
    until_stopped(tunnel, stopping).await;
}

async fn until_stopped(tunnel: impl Future<Output = io::Result<()>>, stopping: CancellationToken) {
    tokio::select! {
        () = stopping.cancelled() => {}
        outcome = tunnel => match outcome {
            Ok(()) => tracing::debug!("a tunnel has ended"),
            Err(error) => tracing::debug!(%error, "a tunnel broke off"),
        }
    }
}

/// Bytes both ways. A service that says its last words and closes, as a terminal does whose
/// command has ended, takes nothing any more: what the client still sends fails, and the last
/// words must reach it all the same.
async fn carry(
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
            Err(error) => match tokio::time::timeout(LAST_WORDS, down).await {
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
    async fn last_words_reach_a_client_that_is_still_talking() {
        let (mut client, client_side) = tokio::io::duplex(1024);
        let (upstream_side, mut upstream) = tokio::io::duplex(1024);
        upstream.write_all(b"goodbye").await.unwrap();
        drop(upstream);
        client.write_all(b"are you there?").await.unwrap();
        let tunnel = tokio::spawn(carry(client_side, upstream_side));
        let mut heard = [0; 7];
        tokio::time::timeout(LAST_WORDS, client.read_exact(&mut heard))
            .await
            .expect("in time")
            .unwrap();
        assert_eq!(&heard, b"goodbye");
        drop(client);
        let ended = tokio::time::timeout(LAST_WORDS, tunnel).await;
        ended.expect("the tunnel ends").unwrap().ok();
    }
}
