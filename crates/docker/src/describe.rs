//! A sandbox for people who look into a problem: what the engine says, without its secrets.

use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::InspectContainerOptions;
use lifecycle::backend::Error;

use crate::engine::{Engine, EngineError};
use crate::sandbox::{Reach, Sandbox, State};

pub(crate) async fn describe(engine: &Engine, sandbox: &Sandbox) -> Result<String, Error> {
    let none = None::<InspectContainerOptions>;
    let call = engine.api.inspect_container(&sandbox.container, none);
    let found = engine.call("looking at a container", call).await;
    let found = found.map_err(|failure| match failure.status() {
        Some(404) => Error::NotFound(sandbox.id.clone()),
        _ => EngineError::into_error(failure),
    })?;
    Ok(text(sandbox, found))
}

/// Chosen line by line: labels and environment hold secrets and are left out.
fn text(sandbox: &Sandbox, found: ContainerInspectResponse) -> String {
    let state = found.state.unwrap_or_default();
    let host = found.host_config.unwrap_or_default();
    let number = |n: Option<i64>| {
        n.filter(|n| *n > 0)
            .map_or("none".to_owned(), |n| n.to_string())
    };
    let word = |text: Option<String>| {
        text.filter(|text| !text.is_empty())
            .unwrap_or_else(|| "none".to_owned())
    };
    let reach = match sandbox.reach.get() {
        Some(Reach::Socket(_)) => "control socket".to_owned(),
        Some(Reach::Address(ip)) => format!("network, at {ip}"),
        Some(Reach::Nowhere(why)) => format!("not reachable: {why}"),
        None => "not started".to_owned(),
    };
    let mut lines = vec![
        ("Sandbox", sandbox.id.to_string()),
        ("Backend", "docker".to_owned()),
        (
            "Container",
            format!(
                "{} ({})",
                found.name.unwrap_or_default().trim_start_matches('/'),
                sandbox.container
            ),
        ),
        ("Image", sandbox.image.clone()),
        ("State", in_words(&sandbox.state())),
        (
            "Engine says",
            state
                .status
                .map_or("unknown".to_owned(), |status| status.to_string()),
        ),
        ("Process", number(state.pid)),
        (
            "Exit code",
            state
                .exit_code
                .map_or("none".to_owned(), |code| code.to_string()),
        ),
        (
            "Killed for memory",
            state.oom_killed.unwrap_or(false).to_string(),
        ),
        ("Engine's error", word(state.error)),
        ("Started", word(state.started_at)),
        ("Finished", word(state.finished_at)),
        ("Runtime", word(host.runtime)),
        ("Network", word(host.network_mode)),
        ("Reached by", reach),
        ("Memory limit", number(host.memory)),
        ("CPU limit (billionths)", number(host.nano_cpus)),
        ("Process limit", number(host.pids_limit)),
        (
            "Dropped capabilities",
            host.cap_drop.unwrap_or_default().join(" "),
        ),
        (
            "Security",
            host.security_opt
                .unwrap_or_default()
                .iter()
                .map(|it| it.split('=').next().unwrap_or(it))
                .collect::<Vec<_>>()
                .join(" "),
        ),
    ];
    for mount in found.mounts.unwrap_or_default() {
        let access = if mount.rw == Some(false) {
            "read-only"
        } else {
            "writable"
        };
        lines.push((
            "Mount",
            format!("{} ({access})", mount.destination.unwrap_or_default()),
        ));
    }
    lines
        .iter()
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect()
}

fn in_words(state: &State) -> String {
    match state {
        State::Made => "made, not started".to_owned(),
        State::Running => "running".to_owned(),
        State::Paused => "paused".to_owned(),
        State::Gone => "removed".to_owned(),
        State::Exited(exit) => match (exit.code, exit.signal) {
            (Some(code), _) => format!("ended with code {code}"),
            (None, Some(signal)) => format!("ended by signal {signal}"),
            (None, None) => "ended".to_owned(),
        },
    }
}
