//! The pod of a sandbox.
//!
//! Its init container has nothing but execd: it copies itself, and the handoff out of the Secret, into volumes of the
//! pod. The sandbox's own container starts execd from there, so any image will do, also one without a shell. The
//! Secret itself is never mounted where the sandbox's code runs.

use k8s_openapi::api::core::v1::Pod;
use lifecycle::backend::{Error, Limits, Source, Spec, all_or_nothing};
use serde_json::{Map, Value, json};

use crate::config::{Config, Security};
use crate::names::{self, CONTAINER, INSTALLER};
use crate::secret::{self, HANDOFF};
use crate::volume::Mounts;

/// Where execd lies inside. The published server's place.
pub(crate) const HOME: &str = "/opt/opensandbox";
const SECRET: &str = "/run/opensandbox";

/// More than any handoff has.
const HANDOFF_SPACE: &str = "4Mi";

/// What sandboxes may not do in any case: the Docker backend's list.
const DROPPED: [&str; 9] = [
    "AUDIT_WRITE",
    "MKNOD",
    "NET_ADMIN",
    "NET_RAW",
    "SYS_ADMIN",
    "SYS_MODULE",
    "SYS_PTRACE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
];

/// What a pod cannot be asked for. Refused before anything is made.
pub(crate) fn check(spec: &Spec) -> Result<(), Error> {
    let invalid = |field, message: &str| {
        Err(Error::Invalid {
            field,
            message: message.to_owned(),
        })
    };
    if !all_or_nothing("kubernetes", &spec.network)? {
        return invalid(
            "networkPolicy",
            "the kubernetes backend limits no network; use a NetworkPolicy of the cluster",
        );
    }
    if let Source::Snapshot(id) = &spec.source {
        return Err(Error::SnapshotNotFound(id.clone()));
    }
    // What an image would run is in its registry, and only the node asks there.
    if spec.entrypoint.as_ref().is_none_or(Vec::is_empty) {
        return invalid(
            "entrypoint",
            "a sandbox on Kubernetes needs an entrypoint, such as [\"sleep\", \"infinity\"]: its server does not \
             know the image's own",
        );
    }
    if spec.limits.pids.is_some() {
        return invalid(
            "resourceLimits.pids",
            "a pod cannot ask for it; set podPidsLimit of the kubelet",
        );
    }
    if spec.limits.disk_bytes.is_some() {
        return invalid(
            "resourceLimits.disk",
            "a pod that uses more than it asked for is evicted, not limited, so it is refused",
        );
    }
    if spec.limits.gpus == Some(u64::MAX) {
        return invalid("resourceLimits.gpu", "a pod must ask for a number of GPUs");
    }
    Ok(())
}

/// The pod as the cluster is asked for it, without the operator's template.
pub(crate) fn of(config: &Config, spec: &Spec, mounts: Mounts) -> Result<Pod, Error> {
    let name = names::of(&spec.id);
    let auth = secret::credentials(&spec.source).is_some();
    let Mounts {
        mut volumes,
        mut inside,
        leaving,
        ..
    } = mounts;
    volumes.extend([
        json!({ "name": "opensandbox-bin", "emptyDir": {} }),
        json!({ "name": "opensandbox-handoff", "emptyDir": { "medium": "Memory", "sizeLimit": HANDOFF_SPACE } }),
        json!({ "name": "opensandbox-secret", "secret": {
            "secretName": name, "items": [{ "key": HANDOFF, "path": HANDOFF }] } }),
    ]);
    inside.extend([
        json!({ "name": "opensandbox-bin", "mountPath": format!("{HOME}/bin"), "readOnly": true }),
        json!({ "name": "opensandbox-handoff", "mountPath": format!("{HOME}/handoff") }),
    ]);
    let mut pod_spec = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "initContainers": [installer(config)],
        "containers": [main(config, spec, &inside)],
        "volumes": volumes,
        "securityContext": pod_security(config.security),
    });
    if let Some(class) = &config.runtime_class {
        pod_spec["runtimeClassName"] = json!(class);
    }
    if auth {
        pod_spec["imagePullSecrets"] = json!([{ "name": name }]);
    }
    if let Some(platform) = &spec.platform {
        pod_spec["nodeSelector"] =
            json!({ "kubernetes.io/os": platform.os, "kubernetes.io/arch": platform.arch });
    }
    let (maker, by) = names::MAKER;
    let pod = json!({
        "metadata": {
            "name": name,
            "labels": { names::ID: spec.id.as_str(), maker: by },
            "annotations": { names::VOLUMES: json!(leaving).to_string() },
        },
        "spec": pod_spec,
    });
    serde_json::from_value(pod).map_err(|error| Error::Internal(format!("a pod of ours: {error}")))
}

fn installer(config: &Config) -> Value {
    let mut container = json!({
        "name": INSTALLER,
        "image": config.execd_image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["--install", HOME, "--handoff", format!("{SECRET}/{HANDOFF}")],
        "securityContext": container_security(config.security, true),
        "volumeMounts": [
            { "name": "opensandbox-bin", "mountPath": format!("{HOME}/bin") },
            { "name": "opensandbox-handoff", "mountPath": format!("{HOME}/handoff") },
            { "name": "opensandbox-secret", "mountPath": SECRET, "readOnly": true },
        ],
    });
    if !config.init_limits.is_empty() || !config.init_requests.is_empty() {
        container["resources"] =
            json!({ "limits": config.init_limits, "requests": config.init_requests });
    }
    container
}

fn main(config: &Config, spec: &Spec, mounts: &[Value]) -> Value {
    let mut command = vec![
        format!("{HOME}/bin/execd"),
        "--init".to_owned(),
        "--handoff".to_owned(),
        format!("{HOME}/handoff/handoff"),
        "--".to_owned(),
    ];
    command.extend(spec.entrypoint.iter().flatten().cloned());
    // Kubernetes expands $(NAME) in commands, and makes one $ of $$ (third_party/forked/golang/expansion).
    let command: Vec<String> = command.iter().map(|it| it.replace('$', "$$")).collect();
    let resources = resources(&spec.limits);
    json!({
        "name": CONTAINER,
        "image": image(&spec.source),
        "imagePullPolicy": config.pull_policy.name(),
        "command": command,
        // What is asked for is what it gets: a sandbox that may use more than its node keeps for it is killed first.
        "resources": { "limits": resources, "requests": resources },
        "securityContext": container_security(config.security, false),
        "volumeMounts": mounts,
    })
}

/// The image as the request names it.
pub(crate) fn image(source: &Source) -> &str {
    match source {
        Source::Image { reference, .. } => reference,
        Source::Snapshot(_) => "",
    }
}

fn resources(limits: &Limits) -> Map<String, Value> {
    let mut resources = Map::new();
    if let Some(millis) = limits.cpu_millis {
        resources.insert("cpu".to_owned(), json!(format!("{millis}m")));
    }
    if let Some(bytes) = limits.memory_bytes {
        resources.insert("memory".to_owned(), json!(bytes.to_string()));
    }
    if let Some(gpus) = limits.gpus {
        resources.insert("nvidia.com/gpu".to_owned(), json!(gpus.to_string()));
    }
    resources
}

pub(crate) fn pod_security(security: Security) -> Value {
    let seccomp = json!({ "type": "RuntimeDefault" });
    match security {
        Security::Baseline => json!({ "seccompProfile": seccomp }),
        Security::Restricted { user } => json!({
            "seccompProfile": seccomp, "runAsNonRoot": true, "runAsUser": user, "runAsGroup": user, "fsGroup": user,
        }),
    }
}

/// `is_ours`: nothing but execd runs in it, and nothing that a user asked for.
pub(crate) fn container_security(security: Security, is_ours: bool) -> Value {
    let dropped = match security {
        Security::Restricted { .. } => json!(["ALL"]),
        Security::Baseline if is_ours => json!(["ALL"]),
        Security::Baseline => json!(DROPPED),
    };
    json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": dropped } })
}

#[cfg(test)]
mod tests;
