//! Reads a request to make a sandbox into what the control plane is asked for, and refuses what
//! the contract has and the control plane has no word for.
//!
//! Holds no rule: what may be asked for is decided by the control plane's admission.

use std::collections::BTreeMap;
use std::time::Duration;

use api::egress::policy::EgressPolicy;
use api::error::ErrorCode;
use api::problem::Problem;
use api::quantity::Quantity;
use api::resource::{Gpus, Resources};
use api::sandbox::{CreateSandboxRequest, ECHOED_EXTENSION_PREFIX, EXTENSION_RENEW_SECONDS};
use api::validate::renew_seconds;
use api::volume;
use lifecycle::backend::{Limits, Platform, RegistryAuth, Source};
use lifecycle::{CreateRequest, VolumeRequest, VolumeRequestSource};

use super::{Error, not_supported};
use crate::config::Egress;

/// Reads a request to make a sandbox.
pub(super) fn request(
    body: &CreateSandboxRequest,
    egress: &Egress,
) -> Result<CreateRequest, Error> {
    body.validate().map_err(Error::body)?;
    refuse_unsupported(body)?;
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
        entrypoint: body.entrypoint_words(),
        env: body.env_given(),
        metadata: body.metadata.clone().unwrap_or_default(),
        extensions: echoed(body),
        limits: to_limits(limits),
        volumes: body.volumes.iter().flatten().map(volume).collect(),
        network: match &body.network_policy {
            Some(policy) => {
                let policy = egress.expand("networkPolicy.", policy);
                EgressPolicy::try_from(&policy.map_err(Error::body)?).map_err(Error::body)?
            }
            None => EgressPolicy::ALLOW_ALL,
        },
        renew_on_access: renew_on_access(body)?,
        secure_access: body.secure_access,
    })
}

/// What the contract has and this server has not.
fn refuse_unsupported(body: &CreateSandboxRequest) -> Result<(), Error> {
    use ErrorCode::{FsbApiNotSupported, SandboxApiNotSupported, SandboxUnsupportedPoolRef};
    let refuse = |code, message: &str| Error::BadRequest {
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
    ];
    match refused.iter().find(|(is_asked, _)| *is_asked) {
        Some((_, message)) => Err(refuse(SandboxApiNotSupported, message)),
        None => Ok(()),
    }
}

fn source(body: &CreateSandboxRequest) -> Result<Source, Error> {
    if let Some(id) = body.snapshot_id_given() {
        return id.parse().map(Source::Snapshot).map_err(|_| Error::NoSuch {
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

fn renew_on_access(body: &CreateSandboxRequest) -> Result<Option<Duration>, Error> {
    let Some(text) = body.extension(EXTENSION_RENEW_SECONDS) else {
        return Ok(None);
    };
    let seconds = renew_seconds(text).map_err(|problem| Error::body(vec![problem]))?;
    Ok(Some(Duration::from_secs(seconds)))
}

/// A volume as it stands in a request that keeps the contract.
fn volume(volume: &volume::Volume) -> VolumeRequest {
    let source = match (&volume.host, &volume.pvc) {
        (Some(host), _) => VolumeRequestSource::HostPath(host.path.clone()),
        (None, Some(pvc)) => VolumeRequestSource::Named {
            claim: pvc.claim_name.clone(),
            create: pvc.create_if_not_exists,
            delete_with_sandbox: pvc.delete_on_sandbox_termination,
            size_bytes: pvc.storage.as_ref().and_then(|text| {
                let size = text.parse::<Quantity>();
                size.ok().map(Quantity::whole)
            }),
            storage_class: pvc.storage_class.clone(),
        },
        (None, None) => VolumeRequestSource::ObjectStore,
    };
    VolumeRequest {
        name: volume.name.clone(),
        source,
        mount_path: volume.mount_path.clone(),
        read_only: volume.read_only,
        sub_path: volume.sub_path.clone(),
    }
}
