//! What may be asked for: every rule about callers and requests, in one place.
//!
//! The service calls it on every path, so that no API in front of it can pass by a rule:
//! `Admitted` has no other maker than [`admit`], and nothing but an `Admitted` becomes a sandbox.
//! Rules are the operator's ([`Rules`]), the backend's (its capabilities) and the contract's
//! between states and connections. How a refusal is told to a client is the API's business.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use api::egress::policy::PolicyMode;

use crate::backend::{Capabilities, ConnectError, Platform, Source, Volume, VolumeSource};
use crate::caller::{Caller, Role, Tenant};
use crate::error::{Error, Feature, Violation};
use crate::sandbox::{
    CreateRequest, Sandbox, SnapshotState, State, VolumeRequest, VolumeRequestSource,
};
use crate::snapshots::Snapshots;

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
    pub(crate) snapshots: &'a Snapshots,
}

/// Admits a request to make a sandbox, or says every rule of a kind that it breaks.
pub(crate) fn admit(
    caller: &Caller,
    request: CreateRequest,
    limits: &Limits<'_>,
) -> Result<Admitted, Error> {
    operate(caller)?;
    lifetime(&request, limits.rules)?;
    let volumes = volumes(&request, limits.rules)?;
    network(&request, limits)?;
    capabilities(&request, limits)?;
    snapshot(&request, caller, limits.snapshots)?;
    // Quotas of `caller.tenant` belong here: last, so that a request that could never be admitted
    // is told its own fault first, and before anything of it exists.
    Ok(Admitted {
        request,
        volumes,
        tenant: caller.tenant.clone(),
    })
}

/// Lets pass who may use more than the way into one sandbox.
pub(crate) fn operate(caller: &Caller) -> Result<(), Error> {
    match caller.role {
        Role::Operator | Role::Server => Ok(()),
        Role::Visitor => Err(Error::Forbidden),
    }
}

/// Whether a caller sees what belongs to this tenant. What it does not see does not exist for it.
pub(crate) fn sees(caller: &Caller, tenant: &Tenant) -> bool {
    match caller.role {
        Role::Operator => caller.tenant == *tenant,
        // The proxy compared the token of the very sandbox; the server acts for all.
        Role::Visitor | Role::Server => true,
    }
}

/// Whether what belongs to this tenant is in the caller's listings.
pub(crate) fn lists(caller: &Caller, tenant: &Tenant) -> bool {
    operate(caller).is_ok() && sees(caller, tenant)
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

fn volumes(request: &CreateRequest, rules: &Rules) -> Result<Vec<Volume>, Error> {
    let mut violations = Vec::new();
    let mut admitted = Vec::with_capacity(request.volumes.len());
    for (index, volume) in request.volumes.iter().enumerate() {
        match volume_source(index, volume, rules) {
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
    rules: &Rules,
) -> Result<VolumeSource, Violation> {
    match &volume.source {
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
            claim: claim.clone(),
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
        return Err(Error::Unsupported {
            feature: Feature::NetworkRules,
            message: "rules by target are not enforced by this server yet; allow or deny \
                      everything, or leave it out"
                .to_owned(),
        });
    }
    Ok(())
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
fn snapshot(request: &CreateRequest, caller: &Caller, snapshots: &Snapshots) -> Result<(), Error> {
    let Source::Snapshot(id) = &request.source else {
        return Ok(());
    };
    let state = snapshots.of(caller, id)?.state;
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
