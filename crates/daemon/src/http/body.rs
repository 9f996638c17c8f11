//! Reading a whole request body, with a limit on its size and on the patience for it.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// 413.
    #[error("the request body is larger than {max} bytes")]
    TooLarge {
        /// The limit.
        max: usize,
    },
    /// 408.
    #[error("the request body did not arrive within {} s", patience.as_secs())]
    TooSlow {
        /// The limit.
        patience: Duration,
    },
    /// 400: the client went away or sent bad framing.
    #[error("the request body broke off: {0}")]
    Broken(String),
}

/// Reads a body to its end. A body whose declared length is too large is refused unread.
pub async fn read(body: Body, max: usize, patience: Duration) -> Result<Bytes, Error> {
    let declared = hyper::body::Body::size_hint(&body).lower();
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
