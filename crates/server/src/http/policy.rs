//! What a sandbox may reach: read and changed at `/sandboxes/{id}/networkpolicy`. The same at its egress API is in
//! `egress`.

use api::egress::policy::{
    EgressPolicy, EgressRule, NetworkPolicy, PolicyPatch, PolicyStatus, PolicyTargets, read_targets,
};
use api::id::SandboxId;
use api::json;
use api::problem::Problem;
use axum::Json;
use axum::extract::State;
use lifecycle::{PolicyChange, Service};

use super::audit::CallerService;
use super::extract::{OfSandbox, Whole};
use super::{App, Error};

/// How answers call the way in which policies are enforced: names are judged, and what is not a name's does not
/// pass either. The published sidecar has the same word for both of its halves.
const ENFORCEMENT: &str = "dns+nft";

/// `GET /sandboxes/{id}/networkpolicy`
pub(super) async fn get(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
) -> Result<Json<PolicyStatus>, Error> {
    Ok(Json(show(&service, &id).await?))
}

/// `PUT /sandboxes/{id}/networkpolicy`
pub(super) async fn replace(
    State(app): State<App>,
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    Whole(body): Whole,
) -> Result<Json<PolicyStatus>, Error> {
    Ok(Json(
        change(&service, &id, replacement(&app, &body)?).await?,
    ))
}

/// `PATCH /sandboxes/{id}/networkpolicy`
pub(super) async fn patch(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    Whole(body): Whole,
) -> Result<Json<PolicyStatus>, Error> {
    Ok(Json(change(&service, &id, merger(&body)?).await?))
}

/// `DELETE /sandboxes/{id}/networkpolicy`
pub(super) async fn delete(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    Whole(body): Whole,
) -> Result<Json<PolicyStatus>, Error> {
    Ok(Json(change(&service, &id, removal(&body)?).await?))
}

/// The policy with its name.
pub(super) async fn show(service: &Service, id: &SandboxId) -> Result<PolicyStatus, Error> {
    let policy = service.network_policy(id).await?;
    Ok(PolicyStatus {
        policy: Some(NetworkPolicy::from(&policy)),
        ..status(&policy)
    })
}

/// Answers when the change is in force.
pub(super) async fn change(
    service: &Service,
    id: &SandboxId,
    change: PolicyChange,
) -> Result<PolicyStatus, Error> {
    let is_removal = matches!(change, PolicyChange::Remove(_));
    let outcome = service.change_network_policy(id, change).await?;
    let found_none = is_removal && !outcome.is_changed;
    Ok(PolicyStatus {
        reason: found_none.then(|| "no matching targets found".to_owned()),
        ..status(&outcome.policy)
    })
}

fn status(policy: &EgressPolicy) -> PolicyStatus {
    PolicyStatus {
        status: Some("ok".to_owned()),
        mode: Some(policy.mode()),
        enforcement_mode: Some(ENFORCEMENT.to_owned()),
        reason: None,
        policy: None,
    }
}

/// A policy in place of the other. `null` stands for one without a word, as at the published sidecar.
pub(super) fn replacement(app: &App, body: &[u8]) -> Result<PolicyChange, Error> {
    let written: Option<NetworkPolicy> = read(body)?;
    let expanded = app.0.rules.egress.expand("", &written.unwrap_or_default());
    let policy = EgressPolicy::try_from(&expanded.map_err(Error::body)?);
    Ok(PolicyChange::Replace(policy.map_err(Error::body)?))
}

/// Rules before the others.
pub(super) fn merger(body: &[u8]) -> Result<PolicyChange, Error> {
    let written: PolicyPatch = not_empty(read(body)?)?;
    let rules = EgressRule::read("", &written);
    Ok(PolicyChange::Merge(rules.map_err(Error::body)?))
}

/// Targets whose rules go.
pub(super) fn removal(body: &[u8]) -> Result<PolicyChange, Error> {
    let written: PolicyTargets = not_empty(read(body)?)?;
    let targets = read_targets(&written);
    Ok(PolicyChange::Remove(targets.map_err(Error::body)?))
}

fn read<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    json::from_slice(body).map_err(|problem| Error::body(vec![problem]))
}

fn not_empty<T>(list: Vec<T>) -> Result<Vec<T>, Error> {
    if list.is_empty() {
        let problem = Problem::new("", "the list is empty, so that nothing would change");
        return Err(Error::body(vec![problem]));
    }
    Ok(list)
}
