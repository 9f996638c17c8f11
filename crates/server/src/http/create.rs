//! What a request to make a sandbox asks of the control plane, and what this server refuses in
//! one: everything that it could not honour.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use api::error::ErrorCode;
use api::network_policy::PolicyMode;
use api::problem::{Problem, Problems};
use api::quantity::Quantity;
use api::resource::{Gpus, Resources};
use api::sandbox::{CreateSandboxRequest, ECHOED_EXTENSION_PREFIX, EXTENSION_RENEW_SECONDS};
use api::validate::{CreateRules, renew_seconds};
use api::volume;
use http::StatusCode;
use lifecycle::CreateRequest;
use lifecycle::backend::{Limits, Network, Platform, RegistryAuth, Source, Volume, VolumeSource};

use super::{Error, Rules, not_supported};

/// Reads a request to make a sandbox.
pub(super) fn request(body: &CreateSandboxRequest, rules: &Rules) -> Result<CreateRequest, Error> {
    let timeout_seconds_max = rules.timeout_max.map(|max| max.as_secs());
    body.validate(CreateRules {
        timeout_seconds_max,
    })
    .map_err(Error::body)?;
    refuse_unsupported(body, rules)?;
    let limits = body
        .resource_limits
        .as_ref()
        .map(|map| Resources::parse("resourceLimits", map));
    let limits = limits.transpose().map_err(Error::body)?.unwrap_or_default();
    Ok(CreateRequest {
        source: source(body)?,
        platform: body.platform.as_ref().map(|platform| {
            let platform = platform.normalized();
            Platform {
                os: platform.os,
                arch: platform.arch,
            }
        }),
        timeout: body
            .timeout
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map(Duration::from_secs),
        entrypoint: body.entrypoint.clone(),
        env: body.env_given(),
        metadata: body.metadata.clone().unwrap_or_default(),
        extensions: echoed(body),
        limits: to_limits(limits),
        volumes: volumes(body, rules)?,
        network: network(body)?,
        renew_on_access: renew_on_access(body)?,
    })
}

/// What the contract has and this server has not.
fn refuse_unsupported(body: &CreateSandboxRequest, rules: &Rules) -> Result<(), Error> {
    use ErrorCode::{FsbApiNotSupported, SandboxApiNotSupported, SandboxUnsupportedPoolRef};
    let refuse = |code, message: &str| Error::Refused {
        status: StatusCode::BAD_REQUEST,
        code,
        message: message.to_owned(),
    };
    if body.template_id.is_some() {
        return Err(not_supported(
            FsbApiNotSupported,
            "templateId: this server has no templates",
        ));
    }
    if body.pool_ref().is_some() {
        let message = "extensions.poolRef: this server has no pools";
        return Err(refuse(SandboxUnsupportedPoolRef, message));
    }
    let refused = [
        (
            body.lifecycle.is_some(),
            "lifecycle: hooks are not run by this server",
        ),
        (
            body.credential_proxy.is_some_and(|proxy| proxy.enabled),
            "credentialProxy: the credential vault is not supported by this server",
        ),
        (
            body.resource_requests
                .as_ref()
                .is_some_and(|map| !map.is_empty()),
            "resourceRequests: this server cannot reserve resources; use resourceLimits",
        ),
        (
            !rules.renews_on_access && body.extension(EXTENSION_RENEW_SECONDS).is_some(),
            "extensions.access.renew.extend.seconds: renewal on access is switched off on this \
             server (renew_intent.enabled)",
        ),
    ];
    match refused.iter().find(|(is_asked, _)| *is_asked) {
        Some((_, message)) => Err(refuse(SandboxApiNotSupported, message)),
        None => Ok(()),
    }
}

fn source(body: &CreateSandboxRequest) -> Result<Source, Error> {
    if let Some(id) = body.snapshot_id_given() {
        return id
            .parse()
            .map(Source::Snapshot)
            .map_err(|_| Error::Refused {
                status: StatusCode::NOT_FOUND,
                code: ErrorCode::SnapshotNotFound,
                message: "snapshotId: there is no such snapshot".to_owned(),
            });
    }
    let Some(image) = &body.image else {
        return Err(Error::body(vec![Problem::new("image", "is missing")]));
    };
    let auth = image.auth.as_ref().map(|auth| RegistryAuth {
        username: auth.username.clone(),
        password: auth.password.expose().into(),
    });
    Ok(Source::Image {
        reference: image.uri.clone(),
        auth,
    })
}

/// Only extensions that the contract calls so come back in answers.
fn echoed(body: &CreateSandboxRequest) -> BTreeMap<String, String> {
    let all = body.extensions.iter().flatten();
    all.filter(|(key, _)| key.starts_with(ECHOED_EXTENSION_PREFIX))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn to_limits(resources: Resources) -> Limits {
    Limits {
        cpu_millis: resources.cpu_millis,
        memory_bytes: resources.memory_bytes,
        pids: resources.pids,
        open_files: None,
        disk_bytes: resources.disk_bytes,
        gpus: resources.gpus.map(|gpus| match gpus {
            Gpus::Count(count) => count,
            Gpus::All => u64::MAX,
        }),
    }
}

/// A policy that lets everything or nothing out can be kept without one; any other would not be
/// enforced, and a policy that is not enforced is worse than none.
fn network(body: &CreateSandboxRequest) -> Result<Network, Error> {
    match body.network_policy.as_ref().map(|policy| policy.mode()) {
        None | Some(PolicyMode::AllowAll) => Ok(Network::Outside),
        Some(PolicyMode::DenyAll) => Ok(Network::None),
        Some(_) => Err(Error::Refused {
            status: StatusCode::BAD_REQUEST,
            code: ErrorCode::SandboxApiNotSupported,
            message: "networkPolicy: rules by target are not enforced by this server yet; allow \
                      or deny everything, or leave it out"
                .to_owned(),
        }),
    }
}

fn renew_on_access(body: &CreateSandboxRequest) -> Result<Option<Duration>, Error> {
    let Some(text) = body.extension(EXTENSION_RENEW_SECONDS) else {
        return Ok(None);
    };
    let seconds = renew_seconds(text).map_err(|problem| Error::body(vec![problem]))?;
    Ok(Some(Duration::from_secs(seconds)))
}

fn volumes(body: &CreateSandboxRequest, rules: &Rules) -> Result<Vec<Volume>, Error> {
    let mut problems = Problems::new();
    let given = body.volumes.as_deref().unwrap_or_default();
    let volumes = given
        .iter()
        .enumerate()
        .filter_map(|(index, volume)| one_volume(index, volume, rules, &mut problems))
        .collect();
    problems.into_result(volumes).map_err(Error::body)
}

fn one_volume(
    index: usize,
    volume: &volume::Volume,
    rules: &Rules,
    problems: &mut Problems,
) -> Option<Volume> {
    let source = match (&volume.host, &volume.pvc, &volume.ossfs) {
        (Some(host), None, None) => host_path(index, &host.path, rules, problems)?,
        (None, Some(pvc), None) => named(index, pvc, rules, problems)?,
        _ => {
            let field = format!("volumes[{index}].ossfs");
            let message = "this server mounts host paths and named volumes only";
            problems.add_code(ErrorCode::VolumeUnsupportedBackend, field, message);
            return None;
        }
    };
    Some(Volume {
        name: volume.name.clone(),
        source,
        mount_path: volume.mount_path.clone(),
        read_only: volume.read_only,
        sub_path: volume.sub_path.clone(),
    })
}

/// The longest allowed directory above the path, so that links cannot lead out of the narrowest.
fn host_path(
    index: usize,
    path: &str,
    rules: &Rules,
    problems: &mut Problems,
) -> Option<VolumeSource> {
    let above = rules
        .allowed_host_paths
        .iter()
        .filter(|root| Path::new(path).starts_with(root));
    let Some(root) = above.max_by_key(|root| root.components().count()) else {
        let field = format!("volumes[{index}].host.path");
        let message = "is not below a directory of storage.allowed_host_paths";
        problems.add_code(ErrorCode::VolumeHostPathNotAllowed, field, message);
        return None;
    };
    Some(VolumeSource::HostPath {
        path: path.to_owned(),
        allowed_root: root.to_string_lossy().into_owned(),
    })
}

fn named(
    index: usize,
    pvc: &volume::Pvc,
    rules: &Rules,
    problems: &mut Problems,
) -> Option<VolumeSource> {
    if pvc.storage_class.is_some() {
        let field = format!("volumes[{index}].pvc.storageClass");
        let message = "this server has no storage classes; leave it out";
        problems.add_code(ErrorCode::VolumeUnsupportedBackend, field, message);
        return None;
    }
    let field = format!("volumes[{index}].pvc.storage");
    let asked = pvc.storage.as_ref().map(|text| text.parse::<Quantity>());
    let asked = match asked {
        Some(size) => Some(
            problems
                .check(ErrorCode::SandboxInvalidParameter, field, size)?
                .whole(),
        ),
        None => rules.volume_size_default,
    };
    Some(VolumeSource::Named {
        claim: pvc.claim_name.clone(),
        create: pvc.create_if_not_exists,
        delete_with_sandbox: pvc.delete_on_sandbox_termination,
        size_bytes: asked,
    })
}
