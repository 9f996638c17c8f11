//! What can go wrong with a file request, in the words that the client is told.
//!
//! Their statuses and codes stand in `http/problem.rs`. Nothing here logs.

use std::{io, path::PathBuf};

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use rustix::io::Errno;

use crate::http::Problem;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("query parameter '{0}' is missing")]
    MissingQuery(&'static str),
    #[error("query parameter '{name}' is invalid: {why}")]
    BadQuery { name: &'static str, why: String },
    #[error("the request body is not what this route takes: {0}")]
    BadBody(String),
    #[error("invalid path '{path}': {why}")]
    BadPath { path: String, why: String },
    #[error("{0}")]
    BadForm(String),
    #[error("{0}")]
    BadMetadata(String),
    #[error("{0}")]
    BadContent(String),
    #[error("'{}' does not exist", .0.display())]
    NotFound(PathBuf),
    #[error("'{}' {what}", path.display())]
    WrongKind { path: PathBuf, what: &'static str },
    #[error("'{}' exists already; delete it first or choose another destination", .0.display())]
    Exists(PathBuf),
    #[error("range '{range}' cannot be served from {size} bytes")]
    Range { range: String, size: u64 },
    #[error(
        "no such user or group: '{0}'; give a name from the sandbox's passwd and group files, or a number"
    )]
    UnknownAccount(String),
    #[error(
        "execd runs as uid {own} and may not act as uid {uid} gid {gid}; start it as root to use this route"
    )]
    Identity { own: u32, uid: u32, gid: u32 },
    #[error("more than {limit} {what} (limit {name}); {advice}")]
    Limit {
        name: &'static str,
        limit: u64,
        what: &'static str,
        advice: &'static str,
    },
    #[error(
        "limit {name} = {limit} is reached: so many {what} are in work; try again when one is done"
    )]
    Busy {
        name: &'static str,
        limit: usize,
        what: &'static str,
    },
    #[error("{doing} '{}' failed: {}", path.display(), describe(reason))]
    Io {
        doing: &'static str,
        path: PathBuf,
        /// In the message and so not also the source: the client gets nothing but the message.
        reason: io::Error,
    },
    #[error("the upload ended early: {0}")]
    Interrupted(String),
    #[error("internal error: {0}")]
    Internal(String),
}

/// The kernel's own words without Rust's "(os error N)" tail.
fn describe(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_string(),
        None => text,
    }
}

impl Error {
    /// Turns an I/O error on `path` into the answer it deserves.
    pub(crate) fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
        reason: impl Into<io::Error>,
    ) -> Self {
        let path = path.into();
        let reason = reason.into();
        match reason.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => Self::NotFound(path),
            Some(Errno::NOTDIR) => Self::WrongKind {
                path,
                what: "has a parent that is not a directory",
            },
            Some(Errno::ISDIR) => Self::WrongKind {
                path,
                what: "is a directory",
            },
            Some(Errno::NAMETOOLONG) => Self::BadPath {
                path: path.to_string_lossy().chars().take(80).collect(),
                why: "a component is longer than 255 bytes or the whole longer than 4095".into(),
            },
            Some(Errno::LOOP) => Self::BadPath {
                path: path.to_string_lossy().into_owned(),
                why: "too many symbolic links".into(),
            },
            _ => Self::Io {
                doing,
                path,
                reason,
            },
        }
    }

    pub(crate) fn errno(&self) -> Option<Errno> {
        match self {
            Self::Io { reason, .. } => reason.raw_os_error().map(Errno::from_raw_os_error),
            _ => None,
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut response = Problem::from(&self).into_response();
        if let Self::Range { size, .. } = self
            && let Ok(value) = HeaderValue::from_str(&format!("bytes */{size}"))
        {
            response.headers_mut().insert(header::CONTENT_RANGE, value);
        }
        response
    }
}
