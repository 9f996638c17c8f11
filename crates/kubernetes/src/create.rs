//! Making a sandbox: a Secret, a pod, and everything undone if one of them fails or execd does not answer.

use std::sync::Arc;
use std::time::Duration;

use api::error_chain;
use api::platform::{OS, go_arch};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as Told, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use lifecycle::backend::{Created, Error, LogQuery, Platform, Spec};
use lifecycle::execd::SERVING;
use tokio::time::Instant;

use crate::backend::Shared;
use crate::call::{CallError, unavailable};
use crate::sandbox::{Known, Sandbox, is_over};
use crate::status::{Seen, State, Trouble};
use crate::volume::{self, Mounts};
use crate::{dial, logs, names, pod, removal, secret, template};

/// Lines of a container that died at once that go into the error.
const LAST_WORDS: LogQuery = LogQuery {
    tail_lines: 5,
    since: None,
    max_bytes: 2048,
};

/// The newest events of a pod that say why nothing happens.
const EVENTS_MAX: usize = 3;

pub(crate) async fn create(
    shared: &Arc<Shared>,
    spec: &Spec,
) -> Result<(Arc<Sandbox>, Created), Error> {
    pod::check(spec)?;
    let secret = secret::of(spec)?;
    let mut mounts = Mounts::default();
    for volume in &spec.volumes {
        if let Err(error) = mounts.add(shared, &spec.id, volume).await {
            undo_volumes(shared, &mounts.made).await;
            return Err(error);
        }
    }
    let made = mounts.made.clone();
    if let Err(failure) = secret::create(&shared.cluster, &secret).await {
        undo_volumes(shared, &made).await;
        return Err(sort(failure, spec));
    }
    let sandbox = Arc::new(Sandbox::new(Known {
        id: spec.id.clone(),
        name: names::of(&spec.id),
        labels: spec.labels.clone(),
        token: Some(spec.access_token.clone()),
        volumes: volume::claims(&spec.volumes),
        leaving_volumes: mounts.leaving.clone(),
    }));
    let begun = make(shared, spec, mounts, &sandbox).await;
    if let Err(error) = &begun {
        let is_anothers = matches!(error, Error::Invalid { field: "id", .. });
        undo(shared, &sandbox, is_anothers).await;
        undo_volumes(shared, &made).await;
    }
    begun.map(|created| (sandbox, created))
}

async fn make(
    shared: &Arc<Shared>,
    spec: &Spec,
    mounts: Mounts,
    sandbox: &Arc<Sandbox>,
) -> Result<Created, Error> {
    let deadline = Instant::now() + shared.config.create_timeout;
    let mut wanted = pod::of(&shared.config, spec, mounts)?;
    if let Some(template) = &shared.template {
        wanted = template::under(template, wanted);
    }
    // Before the pod is made, so that nothing that the watch shows of it is missed.
    shared.sandboxes.attach(sandbox);
    let api: Api<Pod> = shared.cluster.api();
    let params = PostParams::default();
    let call = api.create(&params, &wanted);
    let pod = shared.cluster.call("making a pod", call).await;
    let pod = pod.map_err(|failure| sort(failure, spec))?;
    let _ = sandbox.uid.set(pod.metadata.uid.unwrap_or_default());
    let seen = started(shared, spec, sandbox, deadline).await?;
    shared.nodes.remember(pod::image(&spec.source));
    let node = seen.node.as_deref().unwrap_or_default();
    let platform = shared
        .nodes
        .platform(node)
        .or_else(|| spec.platform.clone());
    Ok(Created {
        started_at: seen.started_at.unwrap_or_else(Timestamp::now),
        entrypoint: spec.entrypoint.clone().unwrap_or_default(),
        platform: platform.unwrap_or_else(|| Platform {
            os: OS.to_owned(),
            arch: go_arch(std::env::consts::ARCH).to_owned(),
        }),
        image_digest: None,
    })
}

/// Waits until execd answers, or has answered and ended.
async fn started(
    shared: &Shared,
    spec: &Spec,
    sandbox: &Arc<Sandbox>,
    deadline: Instant,
) -> Result<Seen, Error> {
    let left = || deadline.saturating_duration_since(Instant::now());
    let is_decided = |seen: &Seen| match seen.state {
        State::Pending => seen.trouble.is_some(),
        State::Running => seen.address.is_some(),
        State::Exited(_) | State::Gone => true,
    };
    let seen = sandbox.until(left(), is_decided).await;
    let seen = match seen {
        Ok(seen) => seen,
        Err(seen) => return Err(too_late(shared, sandbox, &seen).await),
    };
    if let Some(trouble) = seen.trouble {
        return Err(failed(shared, spec, sandbox, trouble).await);
    }
    let served = tokio::time::timeout(left(), async {
        tokio::select! {
            biased;
            served = dial::until_served(sandbox) => served,
            _ = sandbox.until(Duration::MAX, is_over) => false,
        }
    });
    match served.await {
        Ok(true) => Ok(sandbox.seen()),
        Ok(false) => ended_early(shared, sandbox).await,
        Err(_) => Err(too_late(shared, sandbox, &sandbox.seen()).await),
    }
}

/// The container has ended: it may have done its work, or have never come so far.
async fn ended_early(shared: &Shared, sandbox: &Arc<Sandbox>) -> Result<Seen, Error> {
    let seen = sandbox.seen();
    if seen.state == State::Gone {
        return Err(Error::Start {
            message: "somebody removed its pod while it was being made".to_owned(),
        });
    }
    if logs::has_line(&shared.cluster, &sandbox.name, SERVING).await? {
        return Ok(seen);
    }
    let said = logs::read(&shared.cluster, sandbox, LAST_WORDS).await;
    let said = said.map(|logs| logs.text).unwrap_or_default();
    let message = format!("it ended before it served: {}", said.trim());
    Err(Error::Start {
        message: message.trim_end_matches([':', ' ']).to_owned(),
    })
}

async fn failed(shared: &Shared, spec: &Spec, sandbox: &Sandbox, trouble: Trouble) -> Error {
    let image = pod::image(&spec.source);
    if let Trouble::Image { .. } = trouble {
        shared.nodes.forget(image);
    }
    let trouble = match trouble {
        Trouble::Start { message } => {
            // What its program said is more than the kubelet knows.
            let said = logs::read(&shared.cluster, sandbox, LAST_WORDS).await;
            let said = said.map(|logs| logs.text).unwrap_or_default();
            let message = format!("{message}: {}", said.trim());
            Trouble::Start {
                message: message.trim_end_matches([':', ' ']).to_owned(),
            }
        }
        other => other,
    };
    trouble.into_error(image)
}

async fn too_late(shared: &Shared, sandbox: &Sandbox, seen: &Seen) -> Error {
    let limit = shared.config.create_timeout.as_secs();
    let doing = match seen.state {
        State::Running => "execd does not answer at the pod's address; can this server reach pods?",
        _ if seen.node.is_none() => "no node has taken it",
        _ => "its node has not started it",
    };
    let told = events(shared, sandbox).await.unwrap_or_default();
    let told = told.join("; ");
    unavailable(format!(
        "the sandbox did not come up within {limit} s: {doing}. {told}"
    ))
}

/// What the cluster warned of about a pod, newest last.
pub(crate) async fn events(shared: &Shared, sandbox: &Sandbox) -> Result<Vec<String>, CallError> {
    let api: Api<Told> = shared.cluster.api();
    let fields = format!("involvedObject.name={},type=Warning", sandbox.name);
    let params = ListParams::default().fields(&fields);
    let found = shared
        .cluster
        .call("reading events", api.list(&params))
        .await?;
    let texts = found.items.into_iter().map(|event| {
        let reason = event.reason.unwrap_or_default();
        format!("{reason}: {}", event.message.unwrap_or_default())
    });
    let mut texts: Vec<String> = texts.collect();
    let surplus = texts.len().saturating_sub(EVENTS_MAX);
    texts.drain(..surplus);
    Ok(texts)
}

/// The API server's refusals, by their code and words.
fn sort(failure: CallError, spec: &Spec) -> Error {
    let CallError::Refused {
        status, message, ..
    } = &failure
    else {
        return failure.into_error();
    };
    let invalid = |field| Error::Invalid {
        field,
        message: message.clone(),
    };
    match status {
        409 => Error::Invalid {
            field: "id",
            message: format!("sandbox {} exists already", spec.id),
        },
        // Of admission: Pod Security Standards, LimitRanges and webhooks.
        403 if message.contains("violates PodSecurity") => Error::Start {
            message: format!("{message}; see kubernetes.security and the pod template"),
        },
        403 if message.contains("maximum") || message.contains("minimum") => {
            invalid("resourceLimits")
        }
        422 | 400 if message.contains("mountPath") || message.contains("volume") => {
            invalid("volumes")
        }
        422 | 400 if message.contains("resources") => invalid("resourceLimits"),
        422 | 400 => invalid("sandbox"),
        _ => failure.into_error(),
    }
}

/// Removes what a failed creation made. Also where the answer to its last call was lost; but a pod that was there
/// before is another's.
async fn undo(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, is_anothers: bool) {
    if !is_anothers && let Err(error) = removal::end(shared, sandbox, Duration::ZERO).await {
        tracing::warn!(sandbox_id = %sandbox.id, error = %error_chain(&error), "a failed creation is not undone yet");
        return;
    }
    removal::forget(shared, &sandbox.name, &[]).await;
}

async fn undo_volumes(shared: &Arc<Shared>, made: &[String]) {
    for claim in made {
        if let Err(failure) = volume::remove(&shared.cluster, claim).await {
            tracing::warn!(volume = claim, error = %error_chain(&failure), "a volume of a failed creation remains");
        }
    }
}
