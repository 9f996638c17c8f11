//! Why one request to a registry failed, and whether another attempt may help. What that means for an image is
//! said where it is known what was asked for.

use reqwest::StatusCode;

use super::Error;

/// Why one request failed, before it is known what was asked for.
pub(super) enum RequestError {
    Status(StatusCode, String),
    Broken(String),
    /// Nothing listens there, or the name is nobody's.
    Unreachable(String),
    Permanent(Error),
}

impl RequestError {
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Broken(_) | Self::Unreachable(_) => true,
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
        if error.is_connect() && !error.is_timeout() {
            Self::Unreachable(innermost(error))
        } else {
            Self::Broken(innermost(error))
        }
    }
}

/// The last cause: reqwest's own text only repeats the address.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
