//! What a sandbox is made from.

use std::collections::BTreeMap;

use api::egress::policy::EgressPolicy;
use api::id::{SandboxId, SnapshotId};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// Everything needed to make one sandbox.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The sandbox's id, minted by the service.
    pub id: SandboxId,
    /// What its filesystem starts as.
    pub source: Source,
    /// The platform asked for; `None` is this machine's.
    pub platform: Option<Platform>,
    /// The command that PID 1 supervises; `None` is the image's own, or a wait for ever where
    /// the image has none.
    pub entrypoint: Option<Vec<String>>,
    /// Environment of the entrypoint and of every command, over the image's own.
    pub env: BTreeMap<String, String>,
    /// What it may use.
    pub limits: Limits,
    /// What is mounted into it.
    pub volumes: Vec<Volume>,
    /// What it may reach. Of what lies outside only: never other sandboxes, the host's services or
    /// link-local addresses, whatever the policy says. A backend that does not enforce its rules refuses it.
    pub network: EgressPolicy,
    /// The token its daemon asks for in `X-EXECD-ACCESS-TOKEN`.
    pub access_token: SecretString,
    /// Opaque to the backend, kept with the sandbox and returned in [`SandboxDetails::labels`](super::SandboxDetails::labels), so
    /// that a server that lost its store can adopt the sandbox.
    pub labels: BTreeMap<String, String>,
}

/// What a sandbox's filesystem starts as.
#[derive(Debug, Clone)]
pub enum Source {
    /// An image by reference, or the name `host`.
    Image {
        /// As the user wrote it, for example `python:3.11`.
        reference: String,
        /// For a private registry.
        auth: Option<RegistryAuth>,
    },
    /// A snapshot made by this backend.
    Snapshot(SnapshotId),
}

/// Credentials for a private registry.
#[derive(Debug, Clone)]
pub struct RegistryAuth {
    /// As the registry knows the user.
    pub username: String,
    /// The password, or a token that stands for one.
    pub password: SecretString,
}

/// Operating system and processor, in Go's names (`linux`, `amd64`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// `linux`.
    pub os: String,
    /// `amd64`, `arm64` and so on.
    pub arch: String,
}

/// What a sandbox may use; `None` is the backend's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Thousandths of a processor.
    pub cpu_millis: Option<u64>,
    /// Memory, swap included.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Open files per process.
    pub open_files: Option<u64>,
    /// Size of the writable layer.
    pub disk_bytes: Option<u64>,
    /// Number of GPUs; `u64::MAX` is all of them.
    pub gpus: Option<u64>,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Unique within the sandbox.
    pub name: String,
    /// What is mounted.
    pub source: VolumeSource,
    /// Absolute path inside the sandbox.
    pub mount_path: String,
    /// Mount read-only.
    pub read_only: bool,
    /// Relative path inside the volume to mount instead of its root. Must never lead outside it.
    pub sub_path: Option<String>,
}

/// What a volume is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeSource {
    /// A path on the host. The service has checked it against the allow-list; the backend must
    /// resolve it without being led elsewhere by links.
    HostPath {
        /// Absolute, and not resolved yet.
        path: String,
        /// The allow-list entry that admits it: resolution must not leave this directory.
        allowed_root: String,
    },
    /// A named volume of the backend.
    Named {
        /// The volume's name, the same for every sandbox that shares it.
        claim: String,
        /// Make it when it does not exist.
        create: bool,
        /// Remove it with the sandbox, if this request made it.
        delete_with_sandbox: bool,
        /// Size asked for on creation, where the backend can enforce one.
        size_bytes: Option<u64>,
    },
}
