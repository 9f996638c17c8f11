//! Everything that can go wrong, as one type that says what happened and what to do next.
//!
//! Exit codes of commands and exceptions of code are not errors of the SDK: they are in the
//! [`Output`](crate::Output) of the execution.

use std::time::Duration;

use http::StatusCode;

/// What every method returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server or the daemon in the sandbox answered with an error.
    #[error(transparent)]
    Api(Box<ApiError>),
    /// No answer came: the other side cannot be reached, or the connection broke.
    #[error("{url} cannot be reached; check the domain and that the server runs")]
    Connection {
        /// Where the request went, without its query.
        url: String,
        /// Whether the request certainly did not arrive, so that repeating it is safe.
        is_unsent: bool,
        /// What the network said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer came in time.
    #[error("{what} took longer than {after:?}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// For how long.
        after: Duration,
    },
    /// An answer is not what the protocol says.
    #[error("the answer of {what} is not readable: {message}; is this an OpenSandbox server?")]
    Unreadable {
        /// Whose answer.
        what: String,
        /// What is wrong with it.
        message: String,
    },
    /// A stream of events ended before its last event and could not be taken up again.
    #[error("the stream of {what} broke off: {message}")]
    StreamBroken {
        /// The command, session or context.
        what: String,
        /// Why it broke, and why it was not taken up again.
        message: String,
        /// The error that broke it, or that the attempt to go on ended with.
        #[source]
        source: Option<Box<Error>>,
    },
    /// A sandbox was not ready in time.
    #[error("sandbox {id} was not ready after {waited:?}; look at its diagnostics, or wait longer")]
    NotReady {
        /// The sandbox.
        id: String,
        /// How long was waited.
        waited: Duration,
        /// What the last attempt said.
        #[source]
        source: Option<Box<Error>>,
    },
    /// A sandbox or snapshot got into a state from which what was waited for never comes.
    #[error("{id} is {state}: {message}")]
    Failed {
        /// The sandbox or snapshot.
        id: String,
        /// Its state.
        state: String,
        /// What the server said about it.
        message: String,
    },
    /// The connection's settings are not usable.
    #[error("{origin}: {message}")]
    Config {
        /// Where the setting stands: a variable, a file, a field.
        origin: String,
        /// What is wrong and what would be right.
        message: String,
    },
    /// A call makes no sense, and nothing was sent.
    #[error("{0}")]
    InvalidArgument(String),
    /// Something that was to be sent could not be read.
    #[error("what was to be sent could not be read")]
    Source(#[source] std::io::Error),
    /// A terminal's connection failed.
    #[error("the terminal's connection failed: {message}")]
    Terminal {
        /// What happened.
        message: String,
    },
    /// The pool has no idle sandbox and its policy is not to make one.
    #[error("the pool has no idle sandbox; wait, make it larger, or let it create on demand")]
    PoolEmpty,
    /// The pool was shut down.
    #[error("the pool is shut down; start another")]
    PoolClosed,
}

/// The class of an [`Error`], the same in every SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`Error::Api`].
    Api,
    /// [`Error::Connection`].
    Connection,
    /// [`Error::Timeout`].
    Timeout,
    /// [`Error::Unreadable`].
    Unreadable,
    /// [`Error::StreamBroken`].
    StreamBroken,
    /// [`Error::NotReady`].
    NotReady,
    /// [`Error::Failed`].
    Failed,
    /// [`Error::Config`].
    Config,
    /// [`Error::InvalidArgument`].
    InvalidArgument,
    /// [`Error::Source`].
    Source,
    /// [`Error::Terminal`].
    Terminal,
    /// [`Error::PoolEmpty`].
    PoolEmpty,
    /// [`Error::PoolClosed`].
    PoolClosed,
}

impl ErrorKind {
    /// As the other SDKs and the conformance scenarios write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Connection => "connection",
            Self::Timeout => "timeout",
            Self::Unreadable => "unreadable",
            Self::StreamBroken => "stream_broken",
            Self::NotReady => "not_ready",
            Self::Failed => "failed",
            Self::Config => "config",
            Self::InvalidArgument => "invalid_argument",
            Self::Source => "source",
            Self::Terminal => "terminal",
            Self::PoolEmpty => "pool_empty",
            Self::PoolClosed => "pool_closed",
        }
    }
}

/// An error that came over the wire.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "{message} ({what}: {status}{}{})",
    code_suffix(code),
    request_suffix(request_id)
)]
pub struct ApiError {
    /// The request: method and path.
    pub what: String,
    /// The HTTP status.
    pub status: StatusCode,
    /// The error's code, for programs; empty when the answer had none.
    pub code: String,
    /// What happened, for people.
    pub message: String,
    /// The request's id, to find it in the server's log.
    pub request_id: Option<String>,
    /// When to try again, if the server said so.
    pub retry_after: Option<Duration>,
    /// Every problem of a request that failed validation.
    pub details: Vec<String>,
}

fn code_suffix(code: &str) -> String {
    if code.is_empty() {
        String::new()
    } else {
        format!(", {code}")
    }
}

fn request_suffix(id: &Option<String>) -> String {
    id.as_ref()
        .map_or_else(String::new, |id| format!(", request {id}"))
}

impl Error {
    /// Its class, for programs.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Api(_) => ErrorKind::Api,
            Self::Connection { .. } => ErrorKind::Connection,
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::Unreadable { .. } => ErrorKind::Unreadable,
            Self::StreamBroken { .. } => ErrorKind::StreamBroken,
            Self::NotReady { .. } => ErrorKind::NotReady,
            Self::Failed { .. } => ErrorKind::Failed,
            Self::Config { .. } => ErrorKind::Config,
            Self::InvalidArgument(_) => ErrorKind::InvalidArgument,
            Self::Source(_) => ErrorKind::Source,
            Self::Terminal { .. } => ErrorKind::Terminal,
            Self::PoolEmpty => ErrorKind::PoolEmpty,
            Self::PoolClosed => ErrorKind::PoolClosed,
        }
    }

    /// What to do next, for people.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Api(error) => remedy_of(error.status),
            Self::Connection { .. } => "check the domain and that the server runs",
            Self::Timeout { .. } => {
                "allow more time, or look at what keeps the server or the sandbox busy"
            }
            Self::Unreadable { .. } => "check that the domain leads to an OpenSandbox server",
            Self::StreamBroken { .. } => {
                "ask for the status of the command; run in the background what must outlive a \
                 connection"
            }
            Self::NotReady { .. } => "look at its diagnostics, or wait longer with ready_timeout",
            Self::Failed { state, .. } if state == "Paused" || state == "Pausing" => {
                "resume it first"
            }
            Self::Failed { .. } => "look at its diagnostics and make another",
            Self::Config { .. } => "correct the setting that the message names",
            Self::InvalidArgument(_) => "correct the argument",
            Self::Source(_) => "check that what was to be sent can be read",
            Self::Terminal { .. } => "connect again; `since` replays what was missed",
            Self::PoolEmpty => "wait, make it larger, or let it create on demand",
            Self::PoolClosed => "start another",
        }
    }

    /// The error that came over the wire, if it is one.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) => Some(error),
            Self::StreamBroken { source, .. } | Self::NotReady { source, .. } => {
                source.as_ref()?.api()
            }
            _ => None,
        }
    }

    /// The HTTP status, if an answer came.
    pub fn status(&self) -> Option<StatusCode> {
        self.api().map(|error| error.status)
    }

    /// The error's code, if it has one.
    pub fn code(&self) -> Option<&str> {
        self.api()
            .map(|error| error.code.as_str())
            .filter(|code| !code.is_empty())
    }

    /// The id under which the server logged the request.
    pub fn request_id(&self) -> Option<&str> {
        self.api()?.request_id.as_deref()
    }

    /// Whether what was asked for does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND)
    }

    /// Whether the key is missing, wrong, or may not do this.
    pub fn is_unauthorized(&self) -> bool {
        matches!(
            self.status(),
            Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
        )
    }

    /// Whether the same call may succeed later. Says nothing about whether repeating it is
    /// safe: the SDK repeats by itself what is.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connection { .. } | Self::Timeout { .. } | Self::PoolEmpty => true,
            _ => self.status().is_some_and(is_passing),
        }
    }

    /// The server is there but does not know the route: an extension that it lacks.
    pub(crate) fn is_unknown_route(&self) -> bool {
        matches!(
            self.status(),
            Some(
                StatusCode::NOT_FOUND
                    | StatusCode::METHOD_NOT_ALLOWED
                    | StatusCode::NOT_IMPLEMENTED
            )
        )
    }
}

fn remedy_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 | 422 => "correct the request as the message says",
        401 | 403 => "check the API key: OPEN_SANDBOX_API_KEY, or api_key of the ConnectionConfig",
        404 => "check the id or path; a sandbox is gone when its lifetime is over",
        409 => "look at the state of what this is about, which does not allow it now",
        410 => "begin again: what was asked for is no longer kept",
        429 | 502 | 503 | 504 => "try again later",
        501 => "use another server or backend: this one does not do that",
        _ => "look for the request id in the server's log",
    }
}

/// Statuses that say "not now".
pub(crate) fn is_passing(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE
    )
}

impl From<ApiError> for Error {
    fn from(error: ApiError) -> Self {
        Self::Api(Box::new(error))
    }
}
