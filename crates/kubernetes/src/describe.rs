//! A sandbox for people who look into a problem: what the cluster says, without its secrets.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use lifecycle::backend::Error;

use crate::backend::Shared;
use crate::call::CallError;
use crate::create;
use crate::names::CONTAINER;
use crate::sandbox::Sandbox;
use crate::status::State;

pub(crate) async fn describe(shared: &Shared, sandbox: &Sandbox) -> Result<String, Error> {
    let api: Api<Pod> = shared.cluster.api();
    let found = shared
        .cluster
        .call("looking at a pod", api.get_opt(&sandbox.name))
        .await;
    let found = found.map_err(CallError::into_error)?;
    let pod = found.ok_or_else(|| Error::NotFound(sandbox.id.clone()))?;
    let events = create::events(shared, sandbox).await;
    let mut text = text(sandbox, &shared.cluster.namespace, pod);
    match events {
        Ok(events) => text.extend(events.iter().map(|it| format!("Event: {it}\n"))),
        Err(failure) => text += &format!("Events: not readable: {failure}\n"),
    }
    Ok(text)
}

/// Chosen line by line: templates may put secrets into a pod's environment and annotations.
fn text(sandbox: &Sandbox, namespace: &str, pod: Pod) -> String {
    let seen = sandbox.seen();
    let spec = pod.spec.unwrap_or_default();
    let status = pod.status.unwrap_or_default();
    let word = |text: Option<String>| {
        text.filter(|it| !it.is_empty())
            .unwrap_or_else(|| "none".to_owned())
    };
    let mut lines = vec![
        ("Sandbox", sandbox.id.to_string()),
        ("Backend", "kubernetes".to_owned()),
        ("Pod", format!("{namespace}/{}", sandbox.name)),
        ("Node", word(spec.node_name)),
        ("Address", word(status.pod_ip)),
        ("State", in_words(&seen.state)),
        ("Phase", word(status.phase)),
        ("Reason", word(status.reason)),
        ("Message", word(status.message)),
        ("Runtime class", word(spec.runtime_class_name)),
        (
            "Started",
            seen.started_at.map_or("no".to_owned(), |at| at.to_string()),
        ),
    ];
    if let Some(trouble) = seen.trouble {
        lines.push(("Trouble", format!("{trouble:?}")));
    }
    for condition in status.conditions.unwrap_or_default() {
        let detail = [condition.reason, condition.message];
        let detail: Vec<String> = detail
            .into_iter()
            .flatten()
            .filter(|it| !it.is_empty())
            .collect();
        let line = format!(
            "{} {} {}",
            condition.type_,
            condition.status,
            detail.join(": ")
        );
        lines.push(("Condition", line.trim_end().to_owned()));
    }
    for container in &spec.containers {
        let image = container.image.clone().unwrap_or_default();
        lines.push(("Container", format!("{} of {image}", container.name)));
        if container.name != CONTAINER {
            continue;
        }
        let limits = container
            .resources
            .as_ref()
            .and_then(|it| it.limits.clone());
        for (name, quantity) in limits.unwrap_or_default() {
            lines.push(("Limit", format!("{name} {}", quantity.0)));
        }
        for mount in container.volume_mounts.iter().flatten() {
            let access = if mount.read_only == Some(true) {
                "read-only"
            } else {
                "writable"
            };
            lines.push(("Mount", format!("{} ({access})", mount.mount_path)));
        }
    }
    lines
        .iter()
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect()
}

fn in_words(state: &State) -> String {
    match state {
        State::Pending => "being made".to_owned(),
        State::Running => "running".to_owned(),
        State::Gone => "removed".to_owned(),
        State::Exited(exit) => match exit.code {
            Some(code) => format!("ended with code {code}"),
            None => "ended".to_owned(),
        },
    }
}
