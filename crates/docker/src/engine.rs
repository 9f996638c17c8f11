//! The engine's API: one place that connects, bounds every call and sorts what can go wrong.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::error_chain;
use bollard::errors::Error as Cause;
use bollard::models::{SystemInfo, SystemVersion};
use bollard::{API_DEFAULT_VERSION, ClientVersion};
use lifecycle::backend::Error;

/// The oldest API that has all we ask for: Docker 19.03's, and Podman's since 3.
const OLDEST_API: ClientVersion = ClientVersion {
    major_version: 1,
    minor_version: 40,
};

/// The engine answers this from memory; one that does not cannot make sandboxes either.
const HEALTH: Duration = Duration::from_secs(5);

/// A connection to the engine. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) api: bollard::Docker,
    pub(crate) timeout: Duration,
    socket: PathBuf,
}

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum EngineError {
    /// The engine said no.
    #[error("{action}: {message}")]
    Refused {
        action: &'static str,
        status: u16,
        message: String,
    },
    /// The engine did not answer.
    #[error("{action}: the engine did not answer within {} s", after.as_secs())]
    Silent {
        action: &'static str,
        after: Duration,
    },
    /// The engine could not be reached, or spoke nonsense.
    #[error("{action}: {message}")]
    Broken {
        action: &'static str,
        message: String,
    },
}

impl EngineError {
    fn new(action: &'static str, cause: &Cause, after: Duration) -> Self {
        match cause {
            Cause::DockerResponseServerError {
                status_code,
                message,
            } => Self::Refused {
                action,
                status: *status_code,
                message: message.trim().to_owned(),
            },
            Cause::RequestTimeoutError => Self::Silent { action, after },
            other => Self::Broken {
                action,
                message: error_chain(other).to_string(),
            },
        }
    }

    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// What the engine said.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Refused { message, .. } | Self::Broken { message, .. } => message,
            Self::Silent { .. } => "",
        }
    }

    /// As the caller of the backend sees it, where nothing more is known.
    pub(crate) fn into_error(self) -> Error {
        if let Self::Refused { status: 507, .. } = self {
            return exhausted(&self.to_string());
        }
        if is_full(self.message()) {
            return exhausted(self.message());
        }
        unavailable(self.to_string())
    }
}

/// The disk under the engine is full.
pub(crate) fn is_full(message: &str) -> bool {
    message.contains("no space left on device") || message.contains("disk quota exceeded")
}

pub(crate) fn exhausted(message: &str) -> Error {
    Error::Exhausted {
        what: "disk",
        message: format!("{message}; free space where the engine keeps its data"),
    }
}

pub(crate) fn unavailable(message: impl Into<String>) -> Error {
    Error::Unavailable {
        backend: "docker",
        message: message.into(),
    }
}

impl Engine {
    /// Connects and agrees on a version of the API.
    pub(crate) async fn connect(socket: &Path, timeout: Duration) -> Result<Self, Error> {
        let name = socket
            .to_str()
            .ok_or_else(|| unavailable("the engine's socket has a name that is no text"))?;
        let api = bollard::Docker::connect_with_unix(name, timeout.as_secs(), API_DEFAULT_VERSION)
            .map_err(|error| unreachable_engine(socket, &error_chain(&error).to_string()))?;
        let mut engine = Self {
            api,
            timeout,
            socket: socket.to_owned(),
        };
        let asked = engine.api.clone().negotiate_version();
        let agreed = tokio::time::timeout(HEALTH, asked).await;
        engine.api = agreed
            .map_err(|_| unreachable_engine(socket, "it does not answer"))?
            .map_err(|error| unreachable_engine(socket, &error_chain(&error).to_string()))?;
        if engine.api.client_version() < OLDEST_API {
            return Err(unavailable(format!(
                "the engine at {name} speaks API {}, which is too old; {OLDEST_API} is needed \
                 (Docker 19.03 or newer, Podman 3 or newer)",
                engine.api.client_version()
            )));
        }
        Ok(engine)
    }

    /// Waits for one call, for as long as the configuration allows.
    pub(crate) async fn call<T>(
        &self,
        action: &'static str,
        call: impl Future<Output = Result<T, Cause>>,
    ) -> Result<T, EngineError> {
        self.call_within(self.timeout, action, call).await
    }

    async fn call_within<T>(
        &self,
        after: Duration,
        action: &'static str,
        call: impl Future<Output = Result<T, Cause>>,
    ) -> Result<T, EngineError> {
        match tokio::time::timeout(after, call).await {
            Err(_) => Err(EngineError::Silent { action, after }),
            Ok(answer) => answer.map_err(|cause| EngineError::new(action, &cause, after)),
        }
    }

    /// Whether the engine answers.
    pub(crate) async fn ping(&self) -> Result<(), Error> {
        self.call_within(HEALTH, "asking the engine how it is", self.api.ping())
            .await
            .map(drop)
            .map_err(|failure| unreachable_engine(&self.socket, &failure.to_string()))
    }

    pub(crate) async fn info(&self) -> Result<SystemInfo, Error> {
        self.call("asking what the engine can do", self.api.info())
            .await
            .map_err(EngineError::into_error)
    }

    pub(crate) async fn version(&self) -> Result<SystemVersion, Error> {
        self.call("asking the engine's version", self.api.version())
            .await
            .map_err(EngineError::into_error)
    }
}

fn unreachable_engine(socket: &Path, why: &str) -> Error {
    let path = socket.display();
    let what_to_do = match std::os::unix::net::UnixStream::connect(socket) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "there is no such socket; start the engine (systemctl start docker), or set docker.host"
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            "this user may not use it; run the server as root or as a member of the group docker"
        }
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            "nothing listens there; start the engine (systemctl start docker)"
        }
        _ => "see the engine's own log",
    };
    unavailable(format!(
        "the engine at {path} cannot be used: {why}; {what_to_do}"
    ))
}
