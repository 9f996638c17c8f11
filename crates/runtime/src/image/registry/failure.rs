//! Why one request to a registry failed, and whether another attempt may help. What that means for an image is
//! said where it is known what was asked for.

use std::error::Error as _;

use reqwest::StatusCode;

use super::Error;

/// Why one request failed, before it is known what was asked for.
pub(super) enum RequestError {
    Status(StatusCode, String),
    Broken(String),
    /// Nothing listens there.
    Refused(String),
    Permanent(Error),
}

impl RequestError {
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Broken(_) | Self::Refused(_) => true,
            Self::Permanent(_) => false,
            Self::Status(status, _) => {
                status.is_server_error()
                    || matches!(
                        *status,
                        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
                    )
            }
        }
    }

    pub(super) fn from_reqwest(error: &reqwest::Error) -> Self {
        if is_refused(error) {
            Self::Refused(innermost(error))
        } else {
            Self::Broken(innermost(error))
        }
    }
}

fn is_refused(error: &reqwest::Error) -> bool {
    let mut next = error.source();
    while let Some(cause) = next {
        let io = cause.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        next = cause.source();
    }
    false
}

/// The last cause: reqwest's own text only repeats the address.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
