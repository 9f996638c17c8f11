//! What can go wrong, and how it is told: a stable code, a status, a sentence that says what to do.
//!
//! The codes are this program's own (`DESKTOP::...`); the envelope is that of every other contract.

use api::error::ErrorBody;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use x11rb::errors::{ConnectError, ConnectionError, ReplyError, ReplyOrIdError};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the X server {display} cannot be reached: {why}. It may be starting; ask again")]
    NoDisplay { display: String, why: String },
    #[error("the X server did not answer within {0} s; it may be stopped or overloaded. Ask again")]
    DisplaySilent(u64),
    #[error("the X server went away in the middle of this request ({0}). Ask again")]
    DisplayLost(String),
    #[error("the X server refused: {0}")]
    DisplayRefused(String),
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Limit(String),
    #[error("{0}")]
    Unsupported(String),
    #[error("{0}")]
    Timeout(String),
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    Failed(String),
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The code and status of an error.
    pub(crate) fn code(&self) -> (&'static str, StatusCode) {
        match self {
            Self::NoDisplay { .. } | Self::DisplayLost(_) => {
                ("DESKTOP::UNAVAILABLE", StatusCode::SERVICE_UNAVAILABLE)
            }
            Self::DisplaySilent(_) => ("DESKTOP::UNAVAILABLE", StatusCode::GATEWAY_TIMEOUT),
            Self::DisplayRefused(_) => ("DESKTOP::REFUSED", StatusCode::BAD_GATEWAY),
            Self::Invalid(_) => ("DESKTOP::INVALID_PARAMETER", StatusCode::BAD_REQUEST),
            Self::NotFound(_) => ("DESKTOP::NOT_FOUND", StatusCode::NOT_FOUND),
            Self::Limit(_) => ("DESKTOP::LIMIT_REACHED", StatusCode::TOO_MANY_REQUESTS),
            Self::Unsupported(_) => ("DESKTOP::NOT_SUPPORTED", StatusCode::NOT_IMPLEMENTED),
            Self::Timeout(_) => ("DESKTOP::TIMEOUT", StatusCode::GATEWAY_TIMEOUT),
            Self::Unavailable(_) => ("DESKTOP::UNAVAILABLE", StatusCode::SERVICE_UNAVAILABLE),
            Self::Forbidden(_) => ("DESKTOP::FORBIDDEN", StatusCode::FORBIDDEN),
            Self::Failed(_) => ("DESKTOP::FAILED", StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    /// Whether the connection to the X server is of no more use.
    pub(crate) fn is_connection_lost(&self) -> bool {
        matches!(self, Self::DisplayLost(_))
    }

    /// The same error, with what was being done in front.
    pub(crate) fn within(self, what: &str) -> Self {
        match self {
            Self::Invalid(message) => Self::Invalid(format!("{what}: {message}")),
            Self::Timeout(message) => Self::Timeout(format!("{what}: {message}")),
            other => other,
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (code, status) = self.code();
        let body = ErrorBody {
            code: code.to_owned(),
            message: self.to_string(),
            request_id: None,
            detail: None,
        };
        (status, Json(body)).into_response()
    }
}

impl From<ConnectionError> for Error {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::UnsupportedExtension => Self::Unsupported(
                "the X server lacks an extension that this needs; the images' Xtigervnc has it"
                    .to_owned(),
            ),
            other => Self::DisplayLost(other.to_string()),
        }
    }
}

impl From<ReplyError> for Error {
    fn from(error: ReplyError) -> Self {
        match error {
            ReplyError::ConnectionError(error) => error.into(),
            ReplyError::X11Error(error) => Self::DisplayRefused(format!("{:?}", error.error_kind)),
        }
    }
}

impl From<ReplyOrIdError> for Error {
    fn from(error: ReplyOrIdError) -> Self {
        match error {
            ReplyOrIdError::ConnectionError(error) => error.into(),
            ReplyOrIdError::X11Error(error) => {
                Self::DisplayRefused(format!("{:?}", error.error_kind))
            }
            ReplyOrIdError::IdsExhausted => Self::DisplayLost("its ids are used up".to_owned()),
        }
    }
}

/// A connection that could not be made.
pub(crate) fn no_display(display: &str, error: &ConnectError) -> Error {
    Error::NoDisplay {
        display: display.to_owned(),
        why: error.to_string(),
    }
}
