//! From a container that the engine lists to a sandbox: of ours, or of the published server.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use bollard::models::{ContainerSummary, ContainerSummaryStateEnum as Listed, EndpointSettings};
use bollard::query_parameters::InspectContainerOptions;
use jiff::Timestamp;
use lifecycle::backend::Exit;

use crate::directory;
use crate::engine::{Engine, EngineError};
use crate::labels::Labels;
use crate::sandbox::{Known, Reach, Sandbox, State};

/// The sandbox that a listed container is; `None` when it is none.
pub(crate) async fn adopt(
    engine: &Engine,
    listed: &ContainerSummary,
) -> Result<Option<Arc<Sandbox>>, EngineError> {
    let (Some(container), Some(labels)) = (&listed.id, &listed.labels) else {
        return Ok(None);
    };
    let Some(mut labels) = Labels::read(labels) else {
        return Ok(None);
    };
    let Ok(id) = labels.id.parse() else {
        return Ok(None);
    };
    let kept = match labels.directory.as_str() {
        "" => None,
        path => directory::read(Path::new(path)).unwrap_or_else(|error| {
            tracing::warn!(sandbox_id = %id, error = %api::error_chain(&error), "what was kept of a sandbox cannot be read");
            None
        }),
    };
    let is_published = labels.directory.is_empty();
    if is_published {
        labels.given = published(listed);
    }
    let state = state(engine, container, listed).await?;
    // One that was being made when its server died never got what it needs.
    let is_incomplete =
        state == State::Made || kept.as_ref().is_some_and(|kept| kept.started_at.is_none());
    let mut started_at = kept.as_ref().and_then(|kept| kept.started_at);
    if started_at.is_none() && !is_incomplete {
        started_at = inspect(engine, container).await?.started_at;
    }
    let networks = listed
        .network_settings
        .as_ref()
        .and_then(|it| it.networks.as_ref());
    let (token, control) = match kept {
        Some(kept) => (Some(kept.token), kept.control),
        None => (None, None),
    };
    let reach = match (control, address(networks)) {
        (Some(control), _) => Reach::Socket(control),
        // With the host's network there is no address of its own.
        (None, None) if is_published => Reach::Address(IpAddr::from([127, 0, 0, 1])),
        (None, Some(ip)) => Reach::Address(ip),
        (None, None) => {
            Reach::Nowhere("its control socket is lost with the server's data directory")
        }
    };
    let sandbox = Sandbox::new(Known {
        id,
        container: container.clone(),
        image: listed.image_id.clone().unwrap_or_default(),
        labels: labels.given,
        execd: labels.execd,
        volumes: labels.volumes,
        token,
        is_incomplete,
        state,
    });
    let _ = sandbox.reach.set(reach);
    if let Some(started_at) = started_at {
        let _ = sandbox.started_at.set(started_at);
    }
    Ok(Some(Arc::new(sandbox)))
}

/// The labels of a container that the published server made, in the form in which the control
/// plane adopts it.
fn published(listed: &ContainerSummary) -> BTreeMap<String, String> {
    let labels = listed
        .labels
        .clone()
        .unwrap_or_default()
        .into_iter()
        .collect();
    let created_at = listed
        .created
        .and_then(|at| Timestamp::from_second(at).ok());
    let image = listed.image.as_deref().unwrap_or_default();
    lifecycle::labels::published(&labels, image, created_at.unwrap_or_default())
}

/// The first address a container has.
pub(crate) fn address(networks: Option<&HashMap<String, EndpointSettings>>) -> Option<IpAddr> {
    networks?.values().find_map(|endpoint| {
        let parse = |text: &Option<String>| text.as_deref()?.parse().ok();
        parse(&endpoint.ip_address).or_else(|| parse(&endpoint.global_ipv6_address))
    })
}

/// What a listed container is doing. The list is a copy that may be older than the event of a
/// container's end, which then nobody would hear of; looking at the container itself waits for it.
pub(crate) async fn state(
    engine: &Engine,
    container: &str,
    listed: &ContainerSummary,
) -> Result<State, EngineError> {
    match listed.state {
        Some(Listed::REMOVING) => Ok(State::Gone),
        _ => Ok(inspect(engine, container).await?.state),
    }
}

/// What the engine says about one container.
pub(crate) struct Inspected {
    pub(crate) state: State,
    pub(crate) started_at: Option<Timestamp>,
}

pub(crate) async fn inspect(engine: &Engine, container: &str) -> Result<Inspected, EngineError> {
    let none = None::<InspectContainerOptions>;
    let call = engine.api.inspect_container(container, none);
    let found = match engine.call("looking at a container", call).await {
        Ok(found) => found.state.unwrap_or_default(),
        Err(failure) if failure.status() == Some(404) => {
            return Ok(Inspected {
                state: State::Gone,
                started_at: None,
            });
        }
        Err(failure) => return Err(failure),
    };
    // The engine's "never" is the year 1.
    let time = |text: Option<String>| {
        text?
            .parse::<Timestamp>()
            .ok()
            .filter(|at| at.as_second() > 0)
    };
    let started_at = time(found.started_at);
    let is_running = found.running == Some(true);
    let state = match (found.paused == Some(true), is_running, started_at) {
        (true, ..) => State::Paused,
        (_, true, _) => State::Running,
        (_, _, None) => State::Made,
        _ => State::Exited(Exit {
            code: found.exit_code.and_then(|code| i32::try_from(code).ok()),
            signal: None,
            oom_killed: found.oom_killed == Some(true),
            at: time(found.finished_at),
        }),
    };
    Ok(Inspected { state, started_at })
}

/// Whether a container was made with a way outside; `None` where it is gone.
pub(crate) async fn has_network(
    engine: &Engine,
    container: &str,
) -> Result<Option<bool>, EngineError> {
    let none = None::<InspectContainerOptions>;
    let call = engine.api.inspect_container(container, none);
    match engine.call("looking at a container's network", call).await {
        Ok(found) => {
            let mode = found.host_config.and_then(|config| config.network_mode);
            Ok(Some(mode.as_deref() != Some("none")))
        }
        Err(failure) if failure.status() == Some(404) => Ok(None),
        Err(failure) => Err(failure),
    }
}
