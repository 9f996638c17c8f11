//! Making a sandbox and waiting until it can be used: with the progress of its image where that
//! must come first, for as long as that takes, and left without a trace at Ctrl-C.

use std::io::IsTerminal as _;
use std::pin::pin;
use std::time::Duration;

use api::inventory::PullImageRequest;
use api::sandbox::SandboxState;
use lifecycle::Reason;
use opensandbox::{Client, CreateSandbox, Sandbox};

use super::inventory;
use crate::app::App;
use crate::error::Error;
use crate::interrupts::Interrupts;
use crate::output::Message;

/// How long to wait for a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Until it answers; its image may take as long as its bytes move.
    WhileItMoves,
    /// Until its main program has been started, which may have ended by then.
    UntilStarted,
    /// This long, its image included.
    For(Duration),
    /// Not at all.
    None,
}

/// Makes a sandbox. One that does not become ready is removed, and so is one that an interrupt
/// stops.
pub(super) async fn make(
    app: &App,
    call: CreateSandbox,
    patience: Patience,
) -> Result<Sandbox, Error> {
    let mut interrupts = Interrupts::listen()?;
    let request = call.request().clone();
    let (sandbox, created) = {
        let mut creating = pin!(call.skip_health_check().create());
        tokio::select! {
            made = &mut creating => made?,
            code = interrupts.next() => {
                // Whoever goes now leaves a sandbox behind whose id nobody knows.
                tokio::select! {
                    made = &mut creating => if let Ok((sandbox, _)) = made {
                        let _ = sandbox.kill().await;
                    },
                    _ = interrupts.next() => {}
                }
                return Err(Error::Interrupted(code));
            }
        }
    };
    let is_pulling = created.status.state == SandboxState::Pending
        && created.status.reason.as_deref() == Some(Reason::ImagePulling.as_str());
    let pull = request.image.filter(|_| is_pulling);
    let pull = pull.map(|image| PullImageRequest {
        image,
        platform: request.platform,
    });
    let ready = async {
        let waiting = async {
            if let Some(pull) = &pull {
                pulled(app, &sandbox, pull).await?;
            }
            Ok(sandbox.client().connect(sandbox.id()).await?)
        };
        match patience {
            Patience::None => Ok(sandbox.clone()),
            Patience::WhileItMoves => waiting.await,
            Patience::UntilStarted => {
                if let Some(pull) = &pull {
                    pulled(app, &sandbox, pull).await?;
                }
                started(&sandbox).await
            }
            Patience::For(limit) => match tokio::time::timeout(limit, waiting).await {
                Ok(ready) => ready,
                Err(_) => Err(not_ready(&sandbox, limit)),
            },
        }
    };
    let ready = tokio::select! {
        ready = ready => ready,
        code = interrupts.next() => Err(Error::Interrupted(code)),
    };
    if ready.is_err() {
        // Why it is not ready says more than why it cannot be removed.
        let _ = sandbox.kill().await;
    }
    ready
}

/// Waits until the main program runs or has ended. One that could not be started has failed.
async fn started(sandbox: &Sandbox) -> Result<Sandbox, Error> {
    let client = sandbox.client();
    let waited = running(client, sandbox.id()).await;
    let Err(error) = waited else {
        return Ok(sandbox.clone());
    };
    match sandbox.info().await?.status.state {
        SandboxState::Terminated => Ok(sandbox.clone()),
        _ => Err(error),
    }
}

fn not_ready(sandbox: &Sandbox, waited: Duration) -> Error {
    Error::Remote(opensandbox::Error::NotReady {
        id: sandbox.id().to_owned(),
        waited,
        source: None,
    })
}

/// Waits until the image is here, showing how much of it has come. The download belongs to the
/// sandbox; asking for the same one joins it.
async fn pulled(app: &App, sandbox: &Sandbox, request: &PullImageRequest) -> Result<(), Error> {
    let image = &request.image.uri;
    if !std::io::stderr().is_terminal() {
        let text = format!("{image} is not here yet; pulling it");
        app.printer().note(Message::Info, &text)?;
    }
    let client = sandbox.client();
    let images = client.images();
    let watching = async {
        match inventory::pull(&images, request).await {
            // A server without this route, or a key that may not use it: the sandbox itself tells.
            Err(Error::Remote(error)) if is_refusal(&error) => std::future::pending().await,
            outcome => outcome.map(drop),
        }
    };
    tokio::select! {
        pulled = watching => pulled,
        running = running(client, sandbox.id()) => running,
    }
}

fn is_refusal(error: &opensandbox::Error) -> bool {
    let status = error.status().map(|status| status.as_u16());
    matches!(status, Some(401 | 403 | 404 | 405 | 501))
}

/// Waits until the sandbox runs, as long as what it says about itself changes.
async fn running(client: &Client, id: &str) -> Result<(), Error> {
    let mut said = None;
    loop {
        match client.wait_for_state(id, SandboxState::Running).await {
            Err(error @ opensandbox::Error::Timeout { .. }) => {
                let status = client.get(id).await?.status;
                if said == Some(status.message.clone()) {
                    return Err(error.into());
                }
                said = Some(status.message);
            }
            outcome => return Ok(outcome?),
        }
    }
}

/// How long to wait, as the command line says it.
pub(super) fn patience(skip: bool, limit: Option<Duration>) -> Patience {
    match (skip, limit) {
        (true, _) => Patience::None,
        (false, Some(limit)) => Patience::For(limit),
        (false, None) => Patience::WhileItMoves,
    }
}
