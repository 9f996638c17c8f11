//! Waiting for a sandbox to be usable, and connecting to one that exists.

use std::future::IntoFuture;
use std::time::Duration;

use api::error::ErrorCode;
use api::sandbox::SandboxState;
use http::StatusCode;
use tokio::time::Instant;

use crate::client::Client;
use crate::commands::Boxed;
use crate::error::{Error, Result};
use crate::sandbox::Sandbox;

/// How long a sandbox may take to be ready, as in the other SDKs.
pub const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait before asking again. Our server holds the first request until the sandbox is
/// ready; the published one tells nobody, so that asking again is all there is.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(200);

/// A connection to a sandbox that exists, about to be made: `.await` it.
#[derive(Debug, Clone)]
#[must_use = "it connects when it is awaited"]
pub struct Connect {
    id: String,
    client: Option<Client>,
    timeout: Duration,
    interval: Duration,
    skip_check: bool,
    is_resuming: bool,
}

impl Connect {
    pub(crate) fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            client: None,
            timeout: READY_TIMEOUT,
            interval: ASK_AGAIN,
            skip_check: false,
            is_resuming: false,
        }
    }

    pub(crate) fn resuming(mut self) -> Self {
        self.is_resuming = true;
        self
    }

    /// Which client to reach it by; without one, one from the environment and the file.
    pub fn client(mut self, client: &Client) -> Self {
        self.client = Some(client.clone());
        self
    }

    /// How long it may take to answer.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long to wait before asking again whether it answers.
    pub fn health_check_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Do not wait until it answers.
    pub fn skip_health_check(mut self) -> Self {
        self.skip_check = true;
        self
    }
}

impl IntoFuture for Connect {
    type Output = Result<Sandbox>;
    type IntoFuture = Boxed<Sandbox>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let client = match self.client {
                Some(client) => client,
                None => Client::from_env()?,
            };
            if self.is_resuming {
                client.resume(&self.id).await?;
            }
            let sandbox = Sandbox::handle(client, self.id);
            if !self.skip_check {
                ready(&sandbox, self.timeout, self.interval).await?;
            }
            Ok(sandbox)
        })
    }
}

/// Waits until the daemon in the sandbox answers.
pub(crate) async fn ready(sandbox: &Sandbox, timeout: Duration, interval: Duration) -> Result<()> {
    let deadline = Instant::now() + timeout;
    let mut last = None;
    loop {
        match tokio::time::timeout_at(deadline, sandbox.ping()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if error.is_unauthorized() => return Err(error),
            Ok(Err(error)) => {
                if !may_pass(&error) {
                    return Err(error);
                }
                last = Some(Box::new(error));
            }
            Err(_) => {
                return Err(Error::NotReady {
                    id: sandbox.id().to_owned(),
                    waited: timeout,
                    source: last,
                });
            }
        }
        hopeless(sandbox).await?;
        tokio::time::sleep_until((Instant::now() + interval).min(deadline)).await;
    }
}

/// Whether the same question may be answered otherwise in a moment.
fn may_pass(error: &Error) -> bool {
    match error.status() {
        // The sandbox itself is not known, as opposed to having no address yet.
        Some(StatusCode::NOT_FOUND) => {
            error.code() == Some(ErrorCode::KubernetesPodIpNotAvailable.as_str())
                || !error.code().is_some_and(|code| code.ends_with("NOT_FOUND"))
        }
        Some(status) => !matches!(status, StatusCode::BAD_REQUEST | StatusCode::GONE),
        None => matches!(error, Error::Connection { .. } | Error::Timeout { .. }),
    }
}

/// An error, if the sandbox is in a state from which it never becomes ready.
async fn hopeless(sandbox: &Sandbox) -> Result<()> {
    let Ok(info) = sandbox.info().await else {
        return Ok(());
    };
    match info.status.state {
        SandboxState::Failed | SandboxState::Terminated | SandboxState::Stopping => {
            Err(Error::Failed {
                id: format!("sandbox {}", sandbox.id()),
                state: info.status.state.to_string(),
                message: info
                    .status
                    .message
                    .unwrap_or_else(|| "the server does not say why".to_owned()),
            })
        }
        SandboxState::Paused | SandboxState::Pausing => Err(Error::Failed {
            id: format!("sandbox {}", sandbox.id()),
            state: info.status.state.to_string(),
            message: "resume it first".to_owned(),
        }),
        _ => Ok(()),
    }
}
