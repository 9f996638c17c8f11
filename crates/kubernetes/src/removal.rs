//! Ending sandboxes, and everything they consisted of.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::error_chain;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use lifecycle::backend::Error;

use crate::backend::Shared;
use crate::call::{CallError, unavailable};
use crate::sandbox::Sandbox;
use crate::status::State;
use crate::{secret, volume};

/// The shortest time that a kubelet grants. Zero would mean that the API server forgets the pod while its programs
/// still run (API conventions, gracePeriodSeconds).
const GRACE_SECONDS_MIN: u32 = 1;

/// How long a kubelet may take beyond the grace period until it has removed everything. The service gives a deletion
/// twenty seconds.
const GONE_MAX: Duration = Duration::from_secs(18);

/// Ends a sandbox, with TERM and `grace` first.
pub(crate) async fn delete(
    shared: &Arc<Shared>,
    sandbox: &Arc<Sandbox>,
    grace: Duration,
) -> Result<(), Error> {
    let _change = sandbox.change.lock().await;
    sandbox.is_leaving.store(true, Ordering::Relaxed);
    if let Err(error) = end(shared, sandbox, grace).await {
        sandbox.is_leaving.store(false, Ordering::Relaxed);
        return Err(error);
    }
    shared.sandboxes.remove(&sandbox.id);
    forget(shared, &sandbox.name, &sandbox.leaving_volumes).await;
    Ok(())
}

/// Removes the pod and waits until the cluster has told that it is gone.
pub(crate) async fn end(shared: &Shared, sandbox: &Sandbox, grace: Duration) -> Result<(), Error> {
    if sandbox.state() == State::Gone {
        return Ok(());
    }
    let whole = grace.as_secs() + u64::from(grace.subsec_nanos() > 0);
    let seconds = u32::try_from(whole).unwrap_or(u32::MAX);
    let params = DeleteParams {
        grace_period_seconds: Some(seconds.max(GRACE_SECONDS_MIN)),
        preconditions: sandbox.uid.get().map(|uid| Preconditions {
            uid: Some(uid.clone()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let api: Api<Pod> = shared.cluster.api();
    let call = api.delete(&sandbox.name, &params);
    match shared.cluster.call("removing a pod", call).await {
        Ok(_) => {}
        // Gone, or another pod has its name.
        Err(failure) if matches!(failure.status(), Some(404 | 409)) => {
            sandbox.see_gone();
            return Ok(());
        }
        Err(failure) => return Err(failure.into_error()),
    }
    let is_gone = |seen: &crate::status::Seen| seen.state == State::Gone;
    match sandbox.until(grace + GONE_MAX, is_gone).await {
        Ok(_) => Ok(()),
        Err(seen) => Err(unavailable(format!(
            "pod {} is being removed, but its node {} has not confirmed it; look at the node, and if it is lost, use \
             kubectl delete pod --force",
            sandbox.name,
            seen.node.as_deref().unwrap_or("(none)")
        ))),
    }
}

/// Removes what a pod that is gone leaves: its Secret and the volumes that go with it.
pub(crate) async fn forget(shared: &Arc<Shared>, name: &str, volumes: &[String]) {
    for claim in volumes {
        forget_volume(shared, claim).await;
    }
    // Last, because by it the rest is found again.
    if let Err(failure) = secret::remove(&shared.cluster, name).await {
        remains(name, &failure);
    }
}

/// Removes a volume that nobody else uses.
pub(crate) async fn forget_volume(shared: &Arc<Shared>, claim: &str) {
    let users = shared.sandboxes.with_users(claim, |users| users.len());
    if users > 0 {
        tracing::info!(volume = claim, "kept: another sandbox uses it");
        return;
    }
    if let Err(failure) = volume::remove(&shared.cluster, claim).await {
        remains(claim, &failure);
    }
}

fn remains(name: &str, failure: &CallError) {
    tracing::warn!(name, error = %error_chain(failure), "something of a deleted sandbox remains until the server starts again");
}
