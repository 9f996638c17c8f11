//! Ending sandboxes, and everything they consisted of.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::id::SandboxId;
use bollard::query_parameters::{KillContainerOptionsBuilder, RemoveContainerOptionsBuilder};
use lifecycle::backend::Error;

use crate::backend::Shared;
use crate::engine::EngineError;
use crate::sandbox::{Sandbox, State};
use crate::volume;

/// Ends a sandbox, with TERM and `grace` first where there is any.
pub(crate) async fn delete(
    shared: &Arc<Shared>,
    sandbox: &Arc<Sandbox>,
    grace: Duration,
) -> Result<(), Error> {
    let _change = sandbox.change.lock().await;
    sandbox.is_leaving.store(true, Ordering::Relaxed);
    let removed = end(shared, sandbox, grace).await;
    if removed.is_err() {
        sandbox.is_leaving.store(false, Ordering::Relaxed);
    }
    removed.map_err(EngineError::into_error)?;
    shared.sandboxes.remove(&sandbox.id);
    sandbox.set(State::Gone);
    for claim in &sandbox.volumes {
        if let Err(failure) = volume::remove(&shared.engine, claim).await {
            tracing::warn!(volume = claim, error = %api::error_chain(&failure), "a volume of a deleted sandbox remains");
        }
    }
    forget_directory(shared, &sandbox.id).await;
    Ok(())
}

async fn end(shared: &Shared, sandbox: &Sandbox, grace: Duration) -> Result<(), EngineError> {
    if !grace.is_zero() && sandbox.state() == State::Running {
        let options = KillContainerOptionsBuilder::default()
            .signal("TERM")
            .build();
        let call = shared
            .engine
            .api
            .kill_container(&sandbox.container, Some(options));
        // One that ended meanwhile needs no signal.
        if shared
            .engine
            .call("signalling a container", call)
            .await
            .is_ok()
        {
            let is_over = |state: &State| matches!(state, State::Exited(_) | State::Gone);
            let _ = sandbox.until(grace, is_over).await;
        }
    }
    if shared.is_secure() && sandbox.state() == State::Paused {
        // The engine kills a paused container with its ordinary runtime; one with a kernel of its
        // own stays frozen, and the engine gives up after seconds.
        let call = shared.engine.api.unpause_container(&sandbox.container);
        let thawed = shared.engine.call("resuming a container", call).await;
        if let Err(failure) = thawed {
            tracing::debug!(error = %api::error_chain(&failure), "a sandbox is removed as it is");
        }
    }
    remove_container(shared, &sandbox.container, None).await
}

/// Removes a container and its anonymous volumes; `Ok` when there is none. With `only`, one that
/// carries the name but is another's stays.
pub(crate) async fn remove_container(
    shared: &Shared,
    container: &str,
    only: Option<&SandboxId>,
) -> Result<(), EngineError> {
    if let Some(id) = only
        && !is_ours(shared, container, id).await?
    {
        return Ok(());
    }
    let options = RemoveContainerOptionsBuilder::default()
        .force(true)
        .v(true)
        .build();
    let call = shared.engine.api.remove_container(container, Some(options));
    match shared.engine.call("removing a container", call).await {
        Err(failure) if failure.status() == Some(404) => Ok(()),
        // Somebody else is at it; its end is told by an event.
        Err(failure)
            if failure.status() == Some(409)
                && failure.message().contains("already in progress") =>
        {
            Ok(())
        }
        other => other,
    }
}

/// Whether the container of this name is the one that this server was making.
async fn is_ours(shared: &Shared, container: &str, id: &SandboxId) -> Result<bool, EngineError> {
    let none = None::<bollard::query_parameters::InspectContainerOptions>;
    let call = shared.engine.api.inspect_container(container, none);
    let found = match shared.engine.call("looking at a container", call).await {
        Ok(found) => found,
        Err(failure) if failure.status() == Some(404) => return Ok(false),
        Err(failure) => return Err(failure),
    };
    let labels = found
        .config
        .and_then(|config| config.labels)
        .unwrap_or_default();
    let ours = shared.layout.of(id).display().to_string();
    Ok(labels.get(crate::labels::DIRECTORY) == Some(&ours))
}

/// Removes what is kept of a sandbox on the host.
pub(crate) async fn forget_directory(shared: &Arc<Shared>, id: &SandboxId) {
    let (held, of) = (shared.clone(), id.clone());
    let removed = tokio::task::spawn_blocking(move || held.layout.remove(&of)).await;
    if let Ok(Err(error)) = removed {
        tracing::warn!(sandbox_id = %id, error = %api::error_chain(&error), "the directory of a deleted sandbox remains");
    }
}
