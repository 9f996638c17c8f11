//! Reading a whole request body, with a limit on its size and on the time for it.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The body is too large.
    #[error("the request body is larger than {max} bytes")]
    TooLarge {
        /// The limit.
        max: usize,
    },
    /// The body arrives too slowly.
    #[error("the request body did not arrive within {} s", patience.as_secs())]
    TooSlow {
        /// The limit.
        patience: Duration,
    },
    /// The client went away or sent bad framing.
    #[error("the request body broke off: {0}")]
    Broken(String),
}

/// Reads a body to its end. A body whose declared length is too large is refused unread.
pub(super) async fn read(body: Body, max: usize, patience: Duration) -> Result<Bytes, Error> {
    let declared = body.size_hint().lower();
    if declared > max as u64 {
        return Err(Error::TooLarge { max });
    }
    match tokio::time::timeout(patience, Limited::new(body, max).collect()).await {
        Err(_) => Err(Error::TooSlow { patience }),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Error::TooLarge { max }),
        Ok(Err(error)) => Err(Error::Broken(api::error_chain(&*error).to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_body_is_limited_by_size_and_time() {
        let read = |body| read(body, 8, PATIENCE);
        assert_eq!(read(Body::from("abc")).await.unwrap(), "abc");
        let declared = read(Body::from("123456789")).await;
        assert!(matches!(declared, Err(Error::TooLarge { max: 8 })));
        let chunks = ["1234", "56789"].map(Ok::<_, std::io::Error>);
        let chunked = Body::from_stream(futures_util::stream::iter(chunks));
        let chunked = read(chunked).await;
        assert!(matches!(chunked, Err(Error::TooLarge { max: 8 })));
        let silent = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        let silent = read(Body::from_stream(silent)).await;
        assert!(matches!(silent, Err(Error::TooSlow { .. })));
    }
}
