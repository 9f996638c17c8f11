//! What may be asked for: every rule about callers and requests, in one place.
//!
//! The service calls it on every path, so that no API in front of it can pass by a rule:
//! `Admitted` has no other maker than [`admit`], and nothing but an `Admitted` becomes a sandbox.
//! Rules are the operator's ([`Rules`]), the backend's (its capabilities) and the contract's
//! between states and connections. How a refusal is told to a client is the API's business.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::egress::policy::{EgressRule, PolicyAction, PolicyMode, Protocol};
use api::id::SnapshotId;

use crate::backend::{Capabilities, ConnectError, Platform, Source, Volume, VolumeSource};
use crate::caller::{Caller, Tenant};
use crate::error::{Error, Feature, Violation};
use crate::policy::PolicyChange;
use crate::rights::{Right, Role};
use crate::sandbox::{
    CreateRequest, Sandbox, Snapshot, SnapshotState, State, VolumeRequest, VolumeRequestSource,
};
use crate::tenant_volumes;

/// What the operator allows in requests.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Directories of the host below which paths may be mounted. None: no host path may be.
    pub host_paths: Vec<PathBuf>,
    /// The longest lifetime that may be asked for.
    pub lifetime_max: Option<Duration>,
    /// Sandboxes may ask to be renewed by access.
    pub renew_on_access: bool,
    /// The size of a named volume for which the request gives none.
    pub volume_size_default: Option<u64>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            host_paths: Vec::new(),
            lifetime_max: None,
            renew_on_access: true,
            volume_size_default: None,
        }
    }
}

/// A request that keeps every rule, with what admission decided about it.
#[derive(Debug, Clone)]
pub(crate) struct Admitted {
    request: CreateRequest,
    volumes: Vec<Volume>,
    tenant: Tenant,
}

impl Admitted {
    pub(crate) fn request(&self) -> &CreateRequest {
        &self.request
    }

    /// The volumes, each host path with the directory that admits it.
    pub(crate) fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        &self.tenant
    }
}

/// What admission looks at beside the request.
pub(crate) struct Limits<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) capabilities: Capabilities,
    pub(crate) backend: &'static str,
    /// A snapshot as the caller sees it.
    pub(crate) snapshot: &'a dyn Fn(&SnapshotId) -> Result<Arc<Snapshot>, Error>,
}

/// Admits a request to make a sandbox, or says every rule of a kind that it breaks.
pub(crate) fn admit(
    caller: &Caller,
    request: CreateRequest,
    limits: &Limits<'_>,
) -> Result<Admitted, Error> {
    allow(caller, Right::Create)?;
    let request = scope(caller, request)?;
    lifetime(&request, limits.rules)?;
    let volumes = volumes(&request, &caller.tenant, limits.rules)?;
    network(&request, limits)?;
    capabilities(&request, limits)?;
    snapshot(&request, limits)?;
    // Quotas of `caller.tenant` belong here: last, so that a request that could never be admitted
    // is told its own fault first, and before anything of it exists.
    Ok(Admitted {
        request,
        volumes,
        tenant: caller.tenant.clone(),
    })
}

/// Lets pass who has a right.
pub(crate) fn allow(caller: &Caller, right: Right) -> Result<(), Error> {
    if caller.has(right) {
        return Ok(());
    }
    let name = &caller.name;
    Err(Error::Forbidden(match caller.role {
        Role::Visitor => {
            "the token of a sandbox leads into that sandbox and nowhere else".to_owned()
        }
        role if role.has(right) => {
            let right = right.as_str();
            format!("the scope of the key {name:?} leaves out the right {right:?}")
        }
        role => format!(
            "the key {name:?} has the role {:?}, which lacks the right {:?}",
            role.as_str(),
            right.as_str()
        ),
    }))
}

/// Lets pass who has a right, and who may read and change what the one sandbox that it sees may reach.
pub(crate) fn hold_policy(caller: &Caller, right: Right) -> Result<(), Error> {
    match caller.role {
        Role::PolicyHolder => Ok(()),
        _ => allow(caller, right),
    }
}

/// Whether a sandbox exists for a caller.
pub(crate) fn sees(caller: &Caller, sandbox: &Sandbox) -> bool {
    match caller.role {
        // The proxy, or the egress API, compared the token of the very sandbox; the server acts for all.
        Role::Visitor | Role::PolicyHolder | Role::Server => true,
        _ => caller.tenant == sandbox.tenant && caller.scope.covers(sandbox),
    }
}

/// Whether what belongs to the whole of this tenant exists for a caller.
pub(crate) fn sees_all_of(caller: &Caller, tenant: &Tenant) -> bool {
    match caller.role {
        Role::Visitor | Role::Server => true,
        _ => caller.tenant == *tenant && !caller.scope.is_part(),
    }
}

/// What the scope of a caller's key makes of a request.
fn scope(caller: &Caller, mut request: CreateRequest) -> Result<CreateRequest, Error> {
    let scope = &caller.scope;
    let forbidden = |why: String| Err(Error::Forbidden(why));
    match &request.source {
        Source::Image { reference, .. } if !scope.admits_image(reference) => {
            return forbidden(format!(
                "the key {:?} makes sandboxes of these images only: {}",
                caller.name,
                scope.images.join(", ")
            ));
        }
        // Of which image a snapshot once was is not known.
        Source::Snapshot(_) if !scope.images.is_empty() => {
            return forbidden(format!(
                "the key {:?} makes sandboxes of some images only, and of no snapshots",
                caller.name
            ));
        }
        _ => {}
    }
    let is_named = |it: &VolumeRequest| matches!(it.source, VolumeRequestSource::Named { .. });
    if scope.is_part() && request.volumes.iter().any(is_named) {
        return forbidden(
            "named volumes belong to the whole tenant, of which this key sees a part".to_owned(),
        );
    }
    for (key, value) in &scope.labels {
        let given = request.metadata.entry(key.clone());
        let given = given.or_insert_with(|| value.clone());
        if given != value {
            return forbidden(labels_only(caller));
        }
    }
    Ok(request)
}

/// Refuses a change of labels that would take a sandbox away from whom its labels show it to.
pub(crate) fn keeps_labels(
    caller: &Caller,
    patch: &BTreeMap<String, Option<String>>,
) -> Result<(), Error> {
    let loses = |(key, value): (&String, &String)| {
        patch
            .get(key)
            .is_some_and(|new| new.as_ref() != Some(value))
    };
    match caller.scope.labels.iter().any(loses) {
        true => Err(Error::Forbidden(labels_only(caller))),
        false => Ok(()),
    }
}

fn labels_only(caller: &Caller) -> String {
    let labels = caller.scope.labels.iter();
    let labels: Vec<_> = labels
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    format!(
        "the key {:?} has sandboxes with these labels only: {}",
        caller.name,
        labels.join(", ")
    )
}

/// Whether a sandbox that has left `Pending` and `Resuming` can be connected to.
pub(crate) fn reachable(sandbox: &Sandbox) -> Result<(), Error> {
    match sandbox.status.state {
        State::Running => Ok(()),
        State::Pausing | State::Paused => Err(ConnectError::Paused.into()),
        state => Err(Error::WrongState {
            id: sandbox.id.clone(),
            action: "connect to",
            state,
            why: sandbox.status.why_ended(),
            wanted: "Running",
        }),
    }
}

fn lifetime(request: &CreateRequest, rules: &Rules) -> Result<(), Error> {
    if let (Some(asked), Some(max)) = (request.timeout, rules.lifetime_max)
        && asked > max
    {
        let violation = Violation::LifetimeTooLong { asked, max };
        return Err(Error::NotAdmitted(vec![violation]));
    }
    if request.renew_on_access.is_some() && !rules.renew_on_access {
        return Err(Error::Unsupported {
            feature: Feature::RenewOnAccess,
            message: "renewal on access is switched off on this server (renew_intent.enabled)"
                .to_owned(),
        });
    }
    Ok(())
}

fn volumes(request: &CreateRequest, tenant: &Tenant, rules: &Rules) -> Result<Vec<Volume>, Error> {
    let mut violations = Vec::new();
    let mut admitted = Vec::with_capacity(request.volumes.len());
    for (index, volume) in request.volumes.iter().enumerate() {
        match volume_source(index, volume, tenant, rules) {
            Ok(source) => admitted.push(Volume {
                name: volume.name.clone(),
                source,
                mount_path: volume.mount_path.clone(),
                read_only: volume.read_only,
                sub_path: volume.sub_path.clone(),
            }),
            Err(violation) => violations.push(violation),
        }
    }
    if violations.is_empty() {
        Ok(admitted)
    } else {
        Err(Error::NotAdmitted(violations))
    }
}

fn volume_source(
    index: usize,
    volume: &VolumeRequest,
    tenant: &Tenant,
    rules: &Rules,
) -> Result<VolumeSource, Violation> {
    match &volume.source {
        // Directories of the machine belong to who runs it.
        VolumeRequestSource::HostPath(_) if !tenant.is_built_in() => {
            Err(Violation::HostPathNotAllowed { index })
        }
        VolumeRequestSource::HostPath(path) => {
            // The narrowest allowed directory above the path, so that links cannot lead out of it.
            let asked = Path::new(path);
            let above = rules
                .host_paths
                .iter()
                .filter(|root| asked.starts_with(root));
            let root = above
                .filter(|_| !asked.components().any(|part| part == Component::ParentDir))
                .max_by_key(|root| root.components().count())
                .ok_or(Violation::HostPathNotAllowed { index })?;
            Ok(VolumeSource::HostPath {
                path: path.clone(),
                allowed_root: root.to_string_lossy().into_owned(),
            })
        }
        VolumeRequestSource::Named {
            storage_class: Some(_),
            ..
        } => Err(Violation::StorageClass { index }),
        VolumeRequestSource::Named {
            claim,
            create,
            delete_with_sandbox,
            size_bytes,
            storage_class: None,
        } => Ok(VolumeSource::Named {
            claim: tenant_volumes::kept_name(tenant, claim)
                .ok_or(Violation::VolumeNameReserved { index })?,
            create: *create,
            delete_with_sandbox: *delete_with_sandbox,
            size_bytes: size_bytes.or(rules.volume_size_default),
        }),
        VolumeRequestSource::ObjectStore => Err(Violation::ObjectStore { index }),
    }
}

/// A policy that is not enforced is worse than none.
fn network(request: &CreateRequest, limits: &Limits<'_>) -> Result<(), Error> {
    let is_enforcing = request.network.mode() == PolicyMode::Enforcing;
    if is_enforcing && !limits.capabilities.network_rules {
        return Err(no_network_rules(Feature::NetworkRules, limits.backend));
    }
    datagrams(&request.network.rules)
}

/// What a policy can be changed to. That it can be changed at all comes with the rules.
pub(crate) fn policy_change(
    change: &PolicyChange,
    capabilities: Capabilities,
    backend: &'static str,
) -> Result<(), Error> {
    if !capabilities.network_rules {
        return Err(no_network_rules(Feature::PolicyChange, backend));
    }
    match change {
        PolicyChange::Replace(policy) => datagrams(&policy.rules),
        PolicyChange::Merge(rules) => datagrams(rules),
        PolicyChange::Remove(_) => Ok(()),
    }
}

fn no_network_rules(feature: Feature, backend: &str) -> Error {
    Error::Unsupported {
        feature,
        message: format!(
            "the {backend} backend does not enforce rules by target here, and cannot change what a \
             sandbox may reach; allow or deny everything when it is made"
        ),
    }
}

/// Whoever enforces rules carries TCP and answers for names; a rule that opens anything else would open
/// nothing, and its author believes that it does.
fn datagrams(rules: &[EgressRule]) -> Result<(), Error> {
    let opens_udp = |rule: &&EgressRule| {
        rule.action == PolicyAction::Allow && rule.protocol == Some(Protocol::Udp)
    };
    match rules.iter().find(opens_udp) {
        None => Ok(()),
        Some(rule) => Err(Error::Unsupported {
            feature: Feature::NetworkRules,
            message: format!(
                "the rule about {} allows UDP, which is not carried out of sandboxes that have rules; \
                 names are looked up without a rule for it",
                rule.target
            ),
        }),
    }
}

/// Refuses what the backend could not honour, before anything is made.
fn capabilities(request: &CreateRequest, limits: &Limits<'_>) -> Result<(), Error> {
    let can = limits.capabilities;
    let refuse = |feature, what: &str| {
        let message = format!(
            "the {} backend cannot {what} on this machine",
            limits.backend
        );
        Err(Error::Unsupported { feature, message })
    };
    let asks_gpus = request.limits.gpus.is_some_and(|count| count > 0);
    if asks_gpus && !can.gpu {
        return refuse(Feature::Gpu, "give GPUs to a sandbox");
    }
    if request.limits.disk_bytes.is_some() && !can.disk_limit {
        return refuse(Feature::DiskLimit, "limit the size of a sandbox's disk");
    }
    if request.network.mode() == PolicyMode::DenyAll && !can.network_none {
        return refuse(Feature::NoNetwork, "cut a sandbox off the network");
    }
    if matches!(request.source, Source::Snapshot(_)) && !can.snapshot {
        return refuse(Feature::FromSnapshot, "make sandboxes from snapshots");
    }
    match &request.platform {
        Some(platform) if !can.foreign_platform && !is_native(platform) => {
            let what = format!(
                "run {}/{}, another platform than its own,",
                platform.os, platform.arch
            );
            refuse(Feature::Platform, &what)
        }
        _ => Ok(()),
    }
}

/// A snapshot that sandboxes are made from is visible to the caller and ready.
fn snapshot(request: &CreateRequest, limits: &Limits<'_>) -> Result<(), Error> {
    let Source::Snapshot(id) = &request.source else {
        return Ok(());
    };
    let state = (limits.snapshot)(id)?.state;
    if state == SnapshotState::Ready {
        return Ok(());
    }
    Err(Error::SnapshotWrongState {
        id: id.clone(),
        action: "create a sandbox from it",
        state,
        wanted: "Ready",
    })
}

/// Whether the platform is the server's own.
fn is_native(platform: &Platform) -> bool {
    platform.os == api::platform::OS
        && platform.arch == api::platform::go_arch(std::env::consts::ARCH)
}

#[cfg(test)]
mod tests;
