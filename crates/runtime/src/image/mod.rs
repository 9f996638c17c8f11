//! Images: what a sandbox's filesystem starts as.
//!
//! [`Store`] holds unpacked layers, shared by every sandbox, and knows how to fill itself from a
//! registry, an archive, a directory, or this machine (the image `host`). It hands out
//! [`Prepared`]: directories to stack with overlayfs, and the image's configuration.
//!
//! It mounts nothing and knows nothing of sandboxes but their leases.
//!
//! On disk, under the store's directory:
//!
//! ```text
//! layers/<hex>/fs      one unpacked layer, by the digest of its uncompressed tar
//! images/<hex>.json    one record per image: its layers and configuration
//! names.json           which reference and platform means which image
//! snapshots/<id>/fs    one sealed writable layer, with record.json beside it
//! host/<hash>/fs       the small tree under the image `host`
//! downloads/           blobs on their way; kept over a crash so that a pull resumes
//! work/                trees on their way; emptied when the store is opened
//! lock                 held by the one process that has the store open
//! ```
//!
//! Layers hold files with the owners that the image names (root is 0), so a sandbox must mount
//! them idmapped. Deletions are overlayfs's own, as a mount by the host's root reads them: a
//! whiteout is a character device 0:0, an opaque directory carries `trusted.overlay.opaque`.
//!
//! An image that is here is here for everyone who may use this store: credentials decide about
//! pulling it, not about using it.
//!
//! Compressed layers are not kept once unpacked: they would double the disk a store needs, and
//! nothing but export could use them. Export packs the layers anew; the digests it writes are
//! therefore its own, the files are the same.

mod aliases;
mod digest;
mod disk;
mod error;
mod export;
mod host;
mod import;
mod index;
mod manifest;
mod pack;
mod pull;
mod records;
mod registry;
mod shared_pull;
mod store;
mod tar;
mod tree;
mod unpack;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use lifecycle::backend::Platform;
use serde::{Deserialize, Serialize};

pub use error::Error;
pub(crate) use host::mask as host_mask;
pub use store::{Lease, Store};

/// The reference of the image that is this machine's own programs.
pub const HOST: &str = "host";

/// How a store behaves. Every field has a default, so `[images]` may be left out of a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The registry of references that name none, such as `python:3.11`.
    pub default_registry: String,
    /// For a registry (`docker.io`), the hosts to ask before it, in order; each is `host[:port]`
    /// or a URL with a scheme and a path prefix.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Registries spoken to without TLS, as `host` or `host:port`. Loopback addresses always are.
    pub insecure_registries: Vec<String>,
    /// Names of images that mean another that is here, each exactly: neither name is ever asked a registry for.
    pub aliases: BTreeMap<String, String>,
    /// What one layer may be and how hard a pull tries.
    pub limits: Limits,
    /// Directories of this machine, besides `/usr`, that the image `host` shows; each must be
    /// readable by everyone.
    pub host_directories: Vec<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            default_registry: "docker.io".to_owned(),
            mirrors: BTreeMap::new(),
            insecure_registries: Vec::new(),
            aliases: BTreeMap::new(),
            limits: Limits::default(),
            host_directories: Vec::new(),
        }
    }
}

/// What a layer may be and how much a pull does at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of one layer once unpacked, holes of sparse files not counted.
    pub layer_bytes: u64,
    /// Files, directories and links in one layer.
    pub layer_entries: u64,
    /// Layers downloaded and unpacked at once, over all pulls.
    pub concurrent_layers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // The largest layers in public use (GPU toolkits, model weights) are 10 to 20 GiB.
            layer_bytes: 64 << 30,
            // A whole distribution with every package has some 1.5 million files.
            layer_entries: 4_000_000,
            // Enough to overlap downloading with unpacking on few cores.
            concurrent_layers: 3,
        }
    }
}

/// An image in the store: `sha256:…` (the digest of its manifest), `host`, or `snapshot:<id>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageId(pub(super) Arc<str>);

impl ImageId {
    /// The id as text, fit for a record that outlives this process.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The digest of the image's configuration; nothing for the image `host` and for snapshots.
    pub fn digest(&self) -> Option<String> {
        self.0.starts_with("sha256:").then(|| self.0.to_string())
    }

    /// Takes an id back from a record. An id that names nothing is found out on its first use.
    pub fn from_record(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Everything needed to mount an image's filesystem and to run its command.
#[derive(Debug)]
pub struct Prepared {
    /// Which image this is; keep it with the sandbox for [`Store::lease_for`].
    pub id: ImageId,
    /// Lower directories, topmost first, files owned as in the image (root is 0). Never empty.
    pub layers: Vec<PathBuf>,
    /// Directories of the host to bind over the mounted root, in this order. Only the image
    /// `host` has any.
    pub binds: Vec<Bind>,
    /// What the image says about running it.
    pub config: Arc<ImageConfig>,
    /// Keeps the layers from being removed. WriteGuard it as long as anything stands on them.
    pub lease: Lease,
}

/// A directory of the host that is part of an image.
///
/// Mount it read-only, `nosuid`, `nodev`, and **not idmapped**: in a plain bind the sandbox's
/// root is nobody, so a file that only the host's root may read stays unreadable; in an idmapped
/// one it would own that file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// Absolute path on the host: a directory.
    pub source: PathBuf,
    /// Absolute path in the sandbox: a directory that exists in the image's layers.
    pub target: PathBuf,
}

/// What an image says about running it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// The fixed part of the command.
    pub entrypoint: Vec<String>,
    /// Its default arguments, or the command where there is no entrypoint.
    pub cmd: Vec<String>,
    /// Environment, in the image's order; a later entry of one name wins.
    pub env: Vec<(String, String)>,
    /// Working directory; empty is `/`.
    pub workdir: String,
    /// `user`, `uid`, `user:group` or `uid:gid`; empty is root.
    pub user: String,
    /// Ports the image declares, such as `8080/tcp`.
    pub exposed_ports: Vec<String>,
    /// Free-form labels.
    pub labels: BTreeMap<String, String>,
    /// The signal that asks the command to end, such as `SIGQUIT`.
    pub stop_signal: Option<String>,
    /// The platform it was built for.
    pub platform: ImagePlatform,
}

impl ImageConfig {
    /// Entrypoint and arguments in one; empty where the image has no command of its own.
    pub fn command(&self) -> Vec<String> {
        self.entrypoint.iter().chain(&self.cmd).cloned().collect()
    }
}

/// The platform an image was built for, in Go's names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePlatform {
    /// Operating system: `linux`.
    pub os: String,
    /// Processor: `amd64`, `arm64`.
    #[serde(rename = "architecture")]
    pub arch: String,
    /// Processor variant: `v7`; often empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
}

impl fmt::Display for ImagePlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.arch)?;
        if self.variant.is_empty() {
            Ok(())
        } else {
            write!(f, "/{}", self.variant)
        }
    }
}

impl Default for ImagePlatform {
    fn default() -> Self {
        let Platform { os, arch } = this_platform();
        Self {
            os,
            arch,
            variant: String::new(),
        }
    }
}

/// The platform of this machine.
pub fn this_platform() -> Platform {
    Platform {
        os: api::platform::OS.to_owned(),
        arch: api::platform::go_arch(std::env::consts::ARCH).to_owned(),
    }
}

/// An image in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Image {
    pub id: ImageId,
    /// The references that mean it, in full (`docker.io/library/python:3.11`).
    pub references: Vec<String>,
    /// What it was built for.
    pub platform: ImagePlatform,
    /// Bytes on disk of all its layers; a layer shared with other images counts in each.
    pub size_bytes: u64,
    /// When it came here.
    pub created_at: Timestamp,
    /// Leases held on it now, snapshots that stand on it included.
    pub users: usize,
    /// What it says about running it.
    pub config: Arc<ImageConfig>,
}

/// A snapshot in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The image that stands for it.
    pub image: ImageId,
    pub id: api::id::SnapshotId,
    /// What it stands on.
    pub parent: ImageId,
    /// Bytes its own layer holds.
    pub size_bytes: u64,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Where to import an image from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Import {
    /// A directory in OCI image layout.
    OciLayout(PathBuf),
    /// A tar of an OCI image layout (`oci-archive`).
    OciArchive(PathBuf),
    /// A tar as `docker save` writes it (`docker-archive`).
    DockerArchive(PathBuf),
    /// A tar of a root filesystem; gzip and zstd are recognised.
    RootfsTar(PathBuf),
    /// A directory that is a root filesystem. It is copied.
    Directory(PathBuf),
    /// A file or directory whose kind is found out by looking into it.
    Detect(PathBuf),
}

/// What garbage collection removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Collected {
    pub images: usize,
    pub layers: usize,
    pub bytes: u64,
}

/// What the store takes on disk, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Unpacked layers of images.
    pub layers_bytes: u64,
    /// Snapshots.
    pub snapshots_bytes: u64,
    /// Manifests, configurations and unfinished downloads.
    pub other_bytes: u64,
    /// Of `layers_bytes`, what garbage collection would free now.
    pub reclaimable_bytes: u64,
}
