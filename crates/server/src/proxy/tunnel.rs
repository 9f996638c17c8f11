//! A connection that has switched protocols: bytes both ways until both sides are done.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_util::sync::CancellationToken;

/// Bytes held per direction. Terminals and browsers send less at once, and there may be thousands
/// of tunnels that carry nothing for hours.
const BUFFER_BYTES: usize = 16 * 1024;

/// Carries bytes until both sides have ended, one has failed, or the server stops.
pub(super) async fn run(client: OnUpgrade, upstream: OnUpgrade, stopping: CancellationToken) {
    let carry = async {
        let (client, upstream) =
            tokio::try_join!(client, upstream).map_err(std::io::Error::other)?;
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        let size = BUFFER_BYTES;
        tokio::io::copy_bidirectional_with_sizes(&mut client, &mut upstream, size, size).await
    };
    tokio::select! {
        () = stopping.cancelled() => {}
        outcome = carry => match outcome {
            Ok((sent, received)) => tracing::debug!(sent, received, "a tunnel has ended"),
            Err(error) => tracing::debug!(%error, "a tunnel broke off"),
        }
    }
}
