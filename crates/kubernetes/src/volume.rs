//! Volumes of a sandbox: directories of its node, and named volumes, which are PersistentVolumeClaims.
//!
//! A directory of the node is mounted as the allowed directory with a path inside of it, and never by its whole path:
//! the kubelet then resolves each part without following links out of the volume (pkg/volume/util/subpath, since
//! CVE-2021-25741), which nobody else can do on that machine.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use api::id::SandboxId;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use lifecycle::backend::{Error, Volume, VolumeSource};
use serde_json::{Value, json};

use crate::backend::Shared;
use crate::call::{CallError, Cluster};
use crate::names::{self, VOLUME_MAKER};
use crate::pod::HOME;

/// What must not be covered.
const RESERVED: [&str; 4] = ["/proc", "/sys", "/dev", HOME];

/// What a new volume gets where the request names no size.
const SIZE_BYTES: u64 = 1 << 30;

/// The volumes of a pod, and where its container has them.
#[derive(Default)]
pub(crate) struct Mounts {
    pub(crate) volumes: Vec<Value>,
    pub(crate) inside: Vec<Value>,
    /// Claims that were made for this pod.
    pub(crate) made: Vec<String>,
    /// Of these, those that go with it.
    pub(crate) leaving: Vec<String>,
}

/// Names of the claims that a sandbox is made with.
pub(crate) fn claims(volumes: &[Volume]) -> Vec<String> {
    let named = volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Named { claim, .. } => Some(claim.clone()),
        VolumeSource::HostPath { .. } => None,
    });
    named.collect()
}

impl Mounts {
    /// Adds a volume of the request, and makes its claim where that was asked for.
    pub(crate) async fn add(
        &mut self,
        shared: &Shared,
        id: &SandboxId,
        volume: &Volume,
    ) -> Result<(), Error> {
        let target = target(&volume.mount_path)?;
        let sub_path = match &volume.sub_path {
            Some(path) => Some(inner(path, "volumes.subPath")?),
            None => None,
        };
        let name = format!("volume-{}", self.volumes.len());
        let (source, inside) = match &volume.source {
            VolumeSource::HostPath { path, allowed_root } => {
                let relative = Path::new(path).strip_prefix(allowed_root);
                let relative = relative.map_err(|_| Error::Invalid {
                    field: "volumes.host.path",
                    message: format!("{path} is not below {allowed_root}"),
                })?;
                let relative = relative.to_string_lossy();
                let relative = inner(&relative, "volumes.host.path")?;
                let parts = [relative, sub_path.unwrap_or_default()];
                let whole: Vec<&str> = parts
                    .iter()
                    .filter(|it| !it.is_empty())
                    .map(String::as_str)
                    .collect();
                let source = json!({ "hostPath": { "path": allowed_root, "type": "Directory" } });
                (source, Some(whole.join("/")))
            }
            VolumeSource::Named {
                claim,
                create,
                delete_with_sandbox,
                size_bytes,
            } => {
                if self
                    .named(
                        shared,
                        id,
                        claim,
                        *create,
                        *size_bytes,
                        *delete_with_sandbox,
                    )
                    .await?
                    && *delete_with_sandbox
                {
                    self.leaving.push(claim.clone());
                }
                let source = json!({ "persistentVolumeClaim": { "claimName": claim } });
                (source, sub_path)
            }
        };
        let mut described = source;
        described["name"] = json!(name);
        let mut mount = json!({ "name": name, "mountPath": target, "readOnly": volume.read_only });
        if let Some(inside) = inside.filter(|it| !it.is_empty()) {
            mount["subPath"] = json!(inside);
        }
        self.volumes.push(described);
        self.inside.push(mount);
        Ok(())
    }

    /// Whether the claim was made.
    async fn named(
        &mut self,
        shared: &Shared,
        id: &SandboxId,
        claim: &str,
        create: bool,
        size_bytes: Option<u64>,
        leaves: bool,
    ) -> Result<bool, Error> {
        let cluster = &shared.cluster;
        let api: Api<PersistentVolumeClaim> = cluster.api();
        let found = cluster
            .call("looking for a volume", api.get_opt(claim))
            .await;
        if found.map_err(refused)?.is_some() {
            return Ok(false);
        }
        if !create {
            return Err(wrong_claim(format!(
                "there is no PersistentVolumeClaim {claim} in namespace {}; ask for it to be created",
                cluster.namespace
            )));
        }
        let wanted = claim_of(shared, id, claim, size_bytes, leaves)?;
        let params = PostParams::default();
        match cluster
            .call("making a volume", api.create(&params, &wanted))
            .await
        {
            Ok(_) => {
                self.made.push(claim.to_owned());
                Ok(true)
            }
            // Somebody else made it meanwhile.
            Err(failure) if failure.status() == Some(409) => Ok(false),
            Err(failure) => Err(refused(failure)),
        }
    }
}

fn claim_of(
    shared: &Shared,
    id: &SandboxId,
    claim: &str,
    size_bytes: Option<u64>,
    leaves: bool,
) -> Result<PersistentVolumeClaim, Error> {
    let (maker, by) = VOLUME_MAKER;
    let mut labels = BTreeMap::from([(maker, by)]);
    if leaves {
        // By this it is found again when its sandbox went while no server looked.
        labels.insert(names::ID, id.as_str());
    }
    let size = size_bytes.unwrap_or(SIZE_BYTES).to_string();
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": size } },
    });
    if let Some(class) = &shared.config.storage_class {
        spec["storageClassName"] = json!(class);
    }
    let whole = json!({ "metadata": { "name": claim, "labels": labels }, "spec": spec });
    serde_json::from_value(whole)
        .map_err(|error| Error::Internal(format!("a volume claim of ours: {error}")))
}

fn refused(failure: CallError) -> Error {
    match failure {
        CallError::Refused {
            status: 400 | 422,
            message,
            ..
        } => wrong_claim(message),
        other => other.into_error(),
    }
}

fn wrong_claim(message: String) -> Error {
    Error::Invalid {
        field: "volumes.pvc.claimName",
        message,
    }
}

/// Removes a claim; `Ok` when there is none.
pub(crate) async fn remove(cluster: &Cluster, claim: &str) -> Result<(), CallError> {
    let api: Api<PersistentVolumeClaim> = cluster.api();
    let params = DeleteParams::default();
    match cluster
        .call("removing a volume", api.delete(claim, &params))
        .await
    {
        Err(failure) if failure.status() == Some(404) => Ok(()),
        other => other.map(drop),
    }
}

/// Claims that go with a sandbox, and which.
pub(crate) async fn leaving(cluster: &Cluster) -> Result<Vec<(SandboxId, String)>, CallError> {
    let api: Api<PersistentVolumeClaim> = cluster.api();
    let params = ListParams::default().labels(names::ID);
    let found = cluster
        .call("listing the volumes", api.list(&params))
        .await?;
    let pairs = found.items.into_iter().filter_map(|claim| {
        let id = claim.metadata.labels?.get(names::ID)?.parse().ok()?;
        Some((id, claim.metadata.name?))
    });
    Ok(pairs.collect())
}

/// A path inside of something, without the parts that could lead out.
fn inner(path: &str, field: &'static str) -> Result<String, Error> {
    let mut parts = Vec::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(Error::Invalid {
                    field,
                    message: format!("{path} must be a relative path without .."),
                });
            }
        }
    }
    Ok(parts.join("/"))
}

fn target(path: &str) -> Result<String, Error> {
    let wrong = |message: String| Error::Invalid {
        field: "volumes.mountPath",
        message,
    };
    let below = path
        .strip_prefix('/')
        .ok_or_else(|| wrong(format!("{path} must be an absolute path")))?;
    let plain = format!(
        "/{}",
        inner(below.trim_start_matches('/'), "volumes.mountPath")?
    );
    let covers = |reserved: &&str| Path::new(&plain).starts_with(reserved);
    if plain == "/" || plain.contains(':') || RESERVED.iter().any(covers) {
        return Err(wrong(format!("a volume cannot be mounted at {path}")));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_covers_nothing_it_must_not() {
        assert_eq!(target("/data//x/./y/").unwrap(), "/data/x/y");
        for path in [
            "",
            "data",
            "/",
            "/proc",
            "/dev/shm",
            "/a/../b",
            "/a:b",
            "/opt/opensandbox/bin",
        ] {
            assert!(target(path).is_err(), "{path}");
        }
        target("/opt/opensandbox-data").unwrap();
    }

    #[test]
    fn a_path_inside_leads_nowhere_else() {
        assert_eq!(inner("a//b/./c/", "x").unwrap(), "a/b/c");
        assert_eq!(inner("", "x").unwrap(), "");
        for path in ["/a", "..", "a/../b"] {
            assert!(inner(path, "x").is_err(), "{path}");
        }
    }
}
