//! Fetching an image onto a node before a sandbox is made of it, so that minutes of downloading are not minutes of a
//! creation, and a missing image is known for what it is.
//!
//! The cluster has no call for that. A pod of the image is made whose command does not exist: when its container
//! cannot be started, the image is there. Which node has it then is the scheduler's choice, which prefers that node
//! for pods of the image (plugin ImageLocality).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::error_chain;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::watcher::watch_object;
use lifecycle::backend::{Error, Platform, RegistryAuth};
use serde_json::json;

use crate::backend::Shared;
use crate::call::{CallError, unavailable};
use crate::names::{self, CONTAINER};
use crate::secret;
use crate::status::{State, Trouble, seen};
use crate::{pod, template};

/// What no image has.
const NO_PROGRAM: &str = "/opensandbox-only-fetches-this-image";

/// Tens of gigabytes over a slow line. The service waits no longer either.
const PULL_SECONDS_MAX: u64 = 3600;

/// Waits between attempts to watch while the API server is away.
const AGAIN_MIN: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(2);

/// Those who wait for the same image wait for one download.
#[derive(Default)]
pub(crate) struct Pulls {
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Pulls {
    fn turn(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(name.to_owned()).or_default().clone()
    }
}

pub(crate) async fn pull(
    shared: &Shared,
    reference: &str,
    auth: Option<&RegistryAuth>,
    platform: Option<&Platform>,
) -> Result<(), Error> {
    let user = auth.map_or("", |auth| &auth.username);
    let about = format!("{reference} {user} {platform:?}");
    let name = format!("pull-{}", names::short_hash(&about));
    let turn = shared.pulls.turn(&name);
    let _mine = turn.lock().await;
    if shared.nodes.have(reference, platform) {
        return Ok(());
    }
    // Of a server that was killed.
    remove(shared, &name).await;
    let fetched = fetch(shared, &name, reference, auth, platform).await;
    remove(shared, &name).await;
    if fetched.is_ok() {
        shared.nodes.remember(reference);
    }
    fetched
}

async fn fetch(
    shared: &Shared,
    name: &str,
    reference: &str,
    auth: Option<&RegistryAuth>,
    platform: Option<&Platform>,
) -> Result<(), Error> {
    let cluster = &shared.cluster;
    if let Some(auth) = auth {
        let made = secret::for_pull(name, reference, auth)?;
        let made = secret::create(cluster, &made).await;
        made.map_err(CallError::into_error)?;
    }
    let wanted = of(shared, name, reference, auth.is_some(), platform)?;
    let api: Api<Pod> = cluster.api();
    let params = PostParams::default();
    let made = cluster
        .call(
            "making a pod that fetches an image",
            api.create(&params, &wanted),
        )
        .await;
    let uid = made.map_err(CallError::into_error)?.metadata.uid;
    let mut changes = std::pin::pin!(watch_object(api, name));
    let mut wait = AGAIN_MIN;
    while let Some(change) = changes.next().await {
        let pod = match change {
            Ok(Some(pod)) if pod.metadata.uid == uid => pod,
            Ok(Some(_)) => continue,
            Ok(None) => {
                return Err(unavailable(
                    "somebody removed a pod that was fetching an image",
                ));
            }
            Err(error) => {
                tracing::debug!(error = %error_chain(&error), "the watch of a pod that fetches an image broke");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(AGAIN_MAX);
                continue;
            }
        };
        let seen = seen(&pod);
        match seen.trouble {
            Some(
                trouble @ (Trouble::Image { .. }
                | Trouble::Unschedulable { .. }
                | Trouble::Rejected { .. }),
            ) => {
                return Err(trouble.into_error(reference));
            }
            // It is there, and the program is not.
            Some(_) => return Ok(()),
            None if seen.state != State::Pending => return Ok(()),
            None => {}
        }
    }
    Err(unavailable(
        "the watch of a pod that fetches an image ended",
    ))
}

fn of(
    shared: &Shared,
    name: &str,
    reference: &str,
    has_auth: bool,
    platform: Option<&Platform>,
) -> Result<Pod, Error> {
    let config = &shared.config;
    let mut spec = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": PULL_SECONDS_MAX,
        "securityContext": pod::pod_security(config.security),
        "containers": [{
            "name": CONTAINER,
            "image": reference,
            "imagePullPolicy": config.pull_policy.name(),
            "command": [NO_PROGRAM],
            "securityContext": pod::container_security(config.security, true),
        }],
    });
    if has_auth {
        spec["imagePullSecrets"] = json!([{ "name": name }]);
    }
    if let Some(platform) = platform {
        spec["nodeSelector"] =
            json!({ "kubernetes.io/os": platform.os, "kubernetes.io/arch": platform.arch });
    }
    let (maker, by) = names::MAKER;
    let pod = json!({
        "metadata": { "name": name, "labels": { names::PULL: "true", maker: by } },
        "spec": spec,
    });
    let pod = serde_json::from_value(pod)
        .map_err(|error| Error::Internal(format!("a pod of ours: {error}")))?;
    // Where sandboxes may run is said by the template, and so is who may fetch.
    Ok(match &shared.template {
        Some(under) => template::under(under, pod),
        None => pod,
    })
}

async fn remove(shared: &Shared, name: &str) {
    let api: Api<Pod> = shared.cluster.api();
    let params = DeleteParams::default().grace_period(0);
    // Nothing has run in it, so nobody need wait for its end.
    let removed = shared.cluster.call(
        "removing a pod that fetched an image",
        api.delete(name, &params),
    );
    match removed.await {
        Err(failure) if failure.status() != Some(404) => {
            tracing::warn!(pod = name, error = %error_chain(&failure), "a pod that fetched an image remains");
        }
        _ => {}
    }
    if let Err(failure) = secret::remove(&shared.cluster, name).await {
        tracing::warn!(secret = name, error = %error_chain(&failure), "credentials of an image remain");
    }
}

/// Removes what a killed server left of its downloads.
pub(crate) async fn tidy(shared: &Shared) -> Result<(), CallError> {
    let api: Api<Pod> = shared.cluster.api();
    let params = ListParams::default().labels(names::PULL);
    let found = shared
        .cluster
        .call("listing pods that fetch images", api.list(&params))
        .await?;
    for pod in found.items {
        // Others may be at work on it.
        if seen(&pod).trouble.is_some()
            && let Some(name) = pod.metadata.name
        {
            remove(shared, &name).await;
        }
    }
    Ok(())
}
