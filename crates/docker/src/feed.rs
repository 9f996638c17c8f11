//! The engine's events, turned into states of sandboxes, and the whole list after every gap.
//!
//! The stream is asked for from an instant before the list is read, so nothing falls between the
//! two; what is told twice changes nothing. While the engine is away sandboxes are shown as of the
//! last event, and images are asked for anew.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::id::SandboxId;
use bollard::models::{EventMessage, EventMessageTypeEnum as Kind};
use bollard::query_parameters::{EventsOptionsBuilder, ListContainersOptionsBuilder};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use lifecycle::backend::{Event, Exit};
use tokio_util::sync::CancellationToken;

use crate::adopt;
use crate::backend::Shared;
use crate::engine::{Engine, EngineError};
use crate::sandbox::{Sandbox, State, of_container};
use crate::{labels, removal};

/// Waits between attempts to reach an engine that is away: soon at first, because a restart takes
/// a second, then seldom enough to cost nothing.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// What an engine that was killed for memory makes its containers' programs exit with.
const KILLED: i32 = 137;

type Events = BoxStream<'static, Result<EventMessage, bollard::errors::Error>>;

/// Events from `since` on.
pub(crate) fn events(engine: &Engine, since: Timestamp) -> Events {
    let filters = HashMap::from([("type", vec!["container", "image"])]);
    let since = format!("{}.{:09}", since.as_second(), since.subsec_nanosecond());
    let options = EventsOptionsBuilder::default()
        .since(&since)
        .filters(&filters)
        .build();
    engine.api.events(Some(options)).boxed()
}

/// Follows the engine until `stop`, beginning with a stream that is open.
pub(crate) async fn follow(
    shared: Weak<Shared>,
    mut stream: Events,
    engine: Engine,
    stop: CancellationToken,
) {
    loop {
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = drain(&shared, &mut stream) => ended,
        };
        let Some(held) = shared.upgrade() else {
            return;
        };
        held.images.fed(false);
        drop(held);
        tracing::warn!(
            reason = ended,
            "the engine's events ended; waiting for it to come back"
        );
        match reconnect(&shared, &engine, &stop).await {
            Some(again) => stream = again,
            None => return,
        }
    }
}

/// Takes in events until there are no more, and says why.
async fn drain(shared: &Weak<Shared>, stream: &mut Events) -> String {
    loop {
        match stream.next().await {
            None => return "the engine closed the connection".to_owned(),
            Some(Err(error)) => return api::error_chain(&error).to_string(),
            Some(Ok(event)) => match shared.upgrade() {
                Some(shared) => take(&shared, &event),
                None => return "the backend is closed".to_owned(),
            },
        }
    }
}

async fn reconnect(
    shared: &Weak<Shared>,
    engine: &Engine,
    stop: &CancellationToken,
) -> Option<Events> {
    let mut wait = RETRY_MIN;
    loop {
        if tokio::time::timeout(wait, stop.cancelled()).await.is_ok() {
            return None;
        }
        wait = (wait * 2).min(RETRY_MAX);
        let stream = events(engine, Timestamp::now());
        let held = shared.upgrade()?;
        match sync(&held).await {
            Ok(()) => {
                tracing::info!("the engine is back");
                held.images.fed(true);
                held.sandboxes.tell(Event::Resync);
                return Some(stream);
            }
            Err(failure) => {
                tracing::debug!(error = %api::error_chain(&failure), "the engine is still away");
            }
        }
    }
}

/// Makes the registry agree with the engine's own list.
pub(crate) async fn sync(shared: &Arc<Shared>) -> Result<(), EngineError> {
    let filters = HashMap::from([("label", vec![labels::ID])]);
    let options = ListContainersOptionsBuilder::default()
        .all(true)
        .filters(&filters)
        .build();
    let engine = &shared.engine;
    let call = engine.api.list_containers(Some(options));
    let listed = engine.call("listing the containers", call).await?;
    let mut seen = Vec::new();
    for container in &listed {
        let Some(found) = adopt::adopt(engine, container).await? else {
            continue;
        };
        seen.push(found.container.clone());
        let known = of_container(&shared.sandboxes, &found.id, &found.container);
        match known {
            Some(known) => see(shared, &known, found.state()),
            None if shared.sandboxes.is_being_created(&found.id) => {}
            None => shared.sandboxes.insert(found),
        }
    }
    for sandbox in shared.sandboxes.all() {
        if !seen.contains(&sandbox.container) {
            see(shared, &sandbox, State::Gone);
        }
    }
    Ok(())
}

/// Takes in one event.
fn take(shared: &Arc<Shared>, event: &EventMessage) {
    if event.typ == Some(Kind::IMAGE) {
        // Whatever happened, what was known may be old.
        return shared.images.changed();
    }
    let (Some(actor), Some(action)) = (&event.actor, event.action.as_deref()) else {
        return;
    };
    let (Some(container), Some(attributes)) = (&actor.id, &actor.attributes) else {
        return;
    };
    let id = attributes
        .get(labels::ID)
        .and_then(|id| id.parse::<SandboxId>().ok());
    let Some(id) = id else { return };
    let at = event
        .time_nano
        .and_then(|nanos| Timestamp::from_nanosecond(nanos.into()).ok());
    let Some(sandbox) = of_container(&shared.sandboxes, &id, container) else {
        if action == "create" {
            appeared(shared, id, container.clone());
        }
        return;
    };
    match action {
        "start" => {
            if let Some(at) = at {
                let _ = sandbox.started_at.set(at);
            }
            if sandbox.state() == State::Made {
                sandbox.set(State::Running);
            }
        }
        "pause" => see(shared, &sandbox, State::Paused),
        "unpause" => see(shared, &sandbox, State::Running),
        "oom" => {
            sandbox.note_oom();
            shared.sandboxes.tell(Event::OutOfMemory { id });
        }
        "die" => {
            let code = attributes
                .get("exitCode")
                .and_then(|code| code.parse().ok());
            let exit = Exit {
                code,
                signal: None,
                oom_killed: sandbox.was_oom() && code == Some(KILLED),
                at,
            };
            see(shared, &sandbox, State::Exited(exit));
        }
        "destroy" => see(shared, &sandbox, State::Gone),
        _ => {}
    }
}

/// A container that nobody here knows: of a creation that was given up because the engine did not
/// answer, or of another server.
fn appeared(shared: &Arc<Shared>, id: SandboxId, container: String) {
    if !shared.is_abandoned(&id) {
        return;
    }
    let shared = shared.clone();
    tokio::spawn(async move {
        match removal::remove_container(&shared, &container, None).await {
            Ok(()) => removal::forget_directory(&shared, &id).await,
            Err(failure) => {
                tracing::warn!(sandbox_id = %id, error = %api::error_chain(&failure), "an abandoned container remains");
            }
        }
    });
}

/// Notes a state and tells what nobody asked for.
fn see(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, now: State) {
    let before = sandbox.state();
    if before == now || before == State::Gone {
        return;
    }
    // An end is told once, with what was known first.
    if matches!((&before, &now), (State::Exited(_), State::Exited(_))) {
        return;
    }
    sandbox.set(now.clone());
    let id = sandbox.id.clone();
    match now {
        State::Exited(exit) => shared.sandboxes.tell(Event::Exited { id, exit }),
        State::Gone if !sandbox.is_leaving.load(Ordering::Relaxed) => {
            shared.sandboxes.tell(Event::Vanished { id: id.clone() });
            if shared.sandboxes.is_being_created(&id) {
                return;
            }
            shared.sandboxes.remove(&id);
            let shared = shared.clone();
            tokio::spawn(async move { removal::forget_directory(&shared, &id).await });
        }
        _ => {}
    }
}
