//! Settings of the Kubernetes backend: names and meanings follow the published server where it has them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use daemon::config::Problems;
use daemon::section;
use serde::Deserialize;

use super::values::leaf;
use super::{Config, RuntimeKind, SecureRuntime};

/// The service gives a creation a minute, in which the reason of one that fails must be known.
const CREATE_SECONDS_MAX: u64 = 55;

section! {
    /// A Kubernetes cluster as the runtime. Sandboxes are pods; the server must be able to reach them by
    /// their addresses, and limits no network of theirs.
    pub struct Kubernetes {
        /// A kubeconfig. Default: KUBECONFIG, then ~/.kube/config, then the service account of the pod
        /// that this server runs in.
        kubeconfig_path: Option<PathBuf> = None,
        /// The namespace of sandboxes. Default: the kubeconfig's, or the server's own.
        namespace: Option<String> = None,
        /// Where the database is kept by default.
        data_dir: PathBuf = PathBuf::from("/var/lib/opensandbox/kubernetes"),
        /// Seconds from the creation of a pod until it must answer; at most 55.
        sandbox_create_timeout_seconds: u64 = 55,
        /// A pod template in YAML that is merged under every sandbox: what it adds is kept, and what a
        /// sandbox needs wins. A BatchSandbox as the published server takes it will do.
        batchsandbox_template_file: Option<PathBuf> = None,
        /// When nodes fetch the image of a sandbox: IfNotPresent, Always or Never.
        image_pull_policy: PullPolicy = PullPolicy::IfNotPresent,
        /// baseline (the image's user, few capabilities) or restricted (run_as_user, no capability), as
        /// the Pod Security Standards of these names.
        security: PodSecurity = PodSecurity::Baseline,
        /// The user and group of everything in a sandbox, with security = "restricted".
        run_as_user: u32 = 1000,
        /// The StorageClass of named volumes that are made. Default: the cluster's.
        storage_class: Option<String> = None,
        /// What the init container that brings execd may use.
        execd_init_resources: InitResources = InitResources::default(),
    }

    /// What the init container that brings execd may use.
    pub struct InitResources {
        /// As in { memory = "64Mi" }.
        limits: BTreeMap<String, String> = BTreeMap::new(),
        /// As in { cpu = "50m" }.
        requests: BTreeMap<String, String> = BTreeMap::new(),
    }
}

/// When nodes fetch an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum PullPolicy {
    /// When they do not have it.
    IfNotPresent,
    /// For every sandbox.
    Always,
    /// Never.
    Never,
}

/// What a pod may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodSecurity {
    /// What any image works with.
    Baseline,
    /// No root.
    Restricted,
}

leaf!(
    PullPolicy,
    "IfNotPresent, Always or Never",
    |policy| match policy {
        PullPolicy::IfNotPresent => "IfNotPresent".into(),
        PullPolicy::Always => "Always".into(),
        PullPolicy::Never => "Never".into(),
    }
);
leaf!(
    PodSecurity,
    "baseline or restricted",
    |security| match security {
        PodSecurity::Baseline => "baseline".into(),
        PodSecurity::Restricted => "restricted".into(),
    }
);

impl SecureRuntime {
    /// The RuntimeClass that sandboxes run in, with the published server's names.
    pub(crate) fn class(&self) -> Option<String> {
        let usual = match self.kind.as_str() {
            "" => return None,
            "gvisor" => Some("gvisor"),
            "kata" => Some("kata-qemu"),
            "firecracker" => Some("kata-fc"),
            _ => None,
        };
        self.k8s_runtime_class.clone().or(usual.map(str::to_owned))
    }
}

/// What is wrong with these settings.
pub(crate) fn check(config: &Config, problems: &mut Problems) {
    let ours = &config.kubernetes;
    if ours.security == PodSecurity::Restricted && ours.run_as_user == 0 {
        problems.add("kubernetes.run_as_user must not be root's with security = \"restricted\"");
    }
    let seconds = ours.sandbox_create_timeout_seconds;
    if !(1..=CREATE_SECONDS_MAX).contains(&seconds) {
        problems.add(format!(
            "kubernetes.sandbox_create_timeout_seconds must be 1 to {CREATE_SECONDS_MAX}, not {seconds}; images are \
             fetched before, for up to an hour"
        ));
    }
    let secure = &config.secure_runtime;
    if secure.kind.is_empty() && secure.k8s_runtime_class.is_some() {
        problems.add("secure_runtime.k8s_runtime_class has no effect without secure_runtime.type");
    }
    if config.runtime.kind != RuntimeKind::Kubernetes {
        return;
    }
    if config
        .runtime
        .execd_image
        .as_deref()
        .unwrap_or_default()
        .is_empty()
    {
        problems.add(
            "runtime.type = \"kubernetes\" needs runtime.execd_image: an image whose entrypoint is the execd of this \
             version, which the nodes can get",
        );
    }
    if !secure.kind.is_empty() && secure.class().is_none() {
        problems.add(format!(
            "secure_runtime.type = {:?} is none of gvisor, kata and firecracker; name the RuntimeClass in \
             secure_runtime.k8s_runtime_class",
            secure.kind
        ));
    }
}
