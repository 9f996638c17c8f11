//! How the Kubernetes backend is set up.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How the Kubernetes backend is set up. [`Config::new`] gives the defaults for an image of execd.
#[derive(Debug, Clone)]
pub struct Config {
    /// A kubeconfig. `None` is `KUBECONFIG`, then `~/.kube/config`, then the pod's own service account.
    pub kubeconfig: Option<PathBuf>,
    /// Where pods are made. `None` is the kubeconfig's, or the namespace of the pod that this runs in.
    pub namespace: Option<String>,
    /// An image whose entrypoint is execd and which needs nothing else; nodes must be able to get it.
    pub execd_image: String,
    /// When nodes fetch the image of a sandbox.
    pub pull_policy: PullPolicy,
    /// How long a pod may take from its creation until execd answers.
    pub create_timeout: Duration,
    /// How long one call of the API server may take.
    pub call_timeout: Duration,
    /// What the init container that brings execd may use: `limits` and `requests`.
    pub init_limits: BTreeMap<String, String>,
    /// See `init_limits`.
    pub init_requests: BTreeMap<String, String>,
    /// A pod template that is merged under every sandbox.
    pub template: Option<PathBuf>,
    /// The RuntimeClass that sandboxes run in.
    pub runtime_class: Option<String>,
    /// What sandboxes may do on their node.
    pub security: Security,
    /// The StorageClass of volumes that are made; the cluster's default where there is none.
    pub storage_class: Option<String>,
}

/// When nodes fetch an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    /// When a node does not have it.
    IfNotPresent,
    /// For every sandbox.
    Always,
    /// Never: nodes have it already.
    Never,
}

impl PullPolicy {
    /// As Kubernetes writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::IfNotPresent => "IfNotPresent",
            Self::Always => "Always",
            Self::Never => "Never",
        }
    }
}

/// What sandboxes may do on their node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// The image's user, without the capabilities that reach beyond the sandbox, no new privileges, the runtime's
    /// seccomp profile: the Pod Security Standard "baseline".
    Baseline,
    /// In addition a user other than root, and no capability at all: the Pod Security Standard "restricted".
    Restricted {
        /// The user and group that everything in the sandbox runs as.
        user: u32,
    },
}

impl Config {
    /// The defaults.
    pub fn new(execd_image: impl Into<String>) -> Self {
        Self {
            kubeconfig: None,
            namespace: None,
            execd_image: execd_image.into(),
            pull_policy: PullPolicy::IfNotPresent,
            // Within the minute that the service gives a creation, so that the reason is this crate's.
            create_timeout: Duration::from_secs(55),
            call_timeout: Duration::from_secs(15),
            init_limits: BTreeMap::new(),
            init_requests: BTreeMap::new(),
            template: None,
            runtime_class: None,
            security: Security::Baseline,
            storage_class: None,
        }
    }
}
