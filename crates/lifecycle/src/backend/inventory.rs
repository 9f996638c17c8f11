//! What a backend keeps for sandboxes to come, where it lets operators look after it: images and
//! named volumes.

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::io::AsyncRead;
use tokio::sync::mpsc;

use super::{Error, Platform, PullProgress, RegistryAuth};
use api::id::SandboxId;

/// An archive on its way in or out.
pub type Archive = Box<dyn AsyncRead + Send + Unpin>;

/// Images and named volumes of a backend.
#[async_trait]
pub trait Inventory: Send + Sync {
    /// Images that are here, by id; neither `host` nor snapshots.
    async fn images(&self) -> Result<Vec<Image>, Error>;

    /// What images take on disk; `None` where that cannot be told.
    async fn image_usage(&self) -> Result<Option<ImageUsage>, Error>;

    /// Brings an image here, or its newest state, and answers its id. A caller that goes away
    /// ends the download unless others wait for it. A full `progress` drops reports.
    async fn pull_image(
        &self,
        reference: &str,
        auth: Option<&RegistryAuth>,
        platform: Option<&Platform>,
        progress: mpsc::Sender<PullProgress>,
    ) -> Result<String, Error>;

    /// Brings images here from an archive (of OCI, of `docker save`, or a root filesystem, which
    /// needs a name) and answers their ids.
    async fn import_images(
        &self,
        archive: Archive,
        name: Option<&str>,
    ) -> Result<Vec<String>, Error>;

    /// An image, by name or id, as an archive.
    async fn export_image(&self, reference: &str) -> Result<Archive, Error>;

    /// Gives an image that is here, by name or id, another name, and answers the image. A name that another
    /// image has moves. Nothing but the name itself ever means the image by this.
    async fn tag_image(&self, reference: &str, name: &str) -> Result<Image, Error>;

    /// Takes a name from an image, or, given an id, all of them.
    async fn remove_image(&self, reference: &str) -> Result<(), Error>;

    /// Removes what neither a name, a sandbox nor a snapshot needs.
    async fn prune_images(&self) -> Result<Pruned, Error>;

    /// Named volumes, by name.
    async fn volumes(&self) -> Result<Vec<NamedVolume>, Error>;

    /// Makes a named volume; one that exists is answered as it is.
    async fn create_volume(&self, name: &str) -> Result<NamedVolume, Error>;

    /// Removes a named volume with all it holds. [`Error::InUse`] while a sandbox has it mounted,
    /// unless forced. No sandbox that is made at the same time can lose it.
    async fn remove_volume(&self, name: &str, is_forced: bool) -> Result<(), Error>;
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// By which it is named where it has no reference.
    pub id: String,
    /// The references that mean it.
    pub references: Vec<String>,
    /// As `linux/amd64`.
    pub platform: String,
    /// Bytes on disk of all its layers.
    pub size_bytes: u64,
    /// When it came here.
    pub created_at: Timestamp,
    /// Sandboxes and snapshots on it, where known.
    pub users: Option<u64>,
    /// The fixed part of its command, where known.
    pub entrypoint: Option<Vec<String>>,
    /// The arguments of that, or the command where there is none, where known.
    pub cmd: Option<Vec<String>>,
}

/// What images take on disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageUsage {
    /// Layers of images.
    pub layers_bytes: u64,
    /// Snapshots.
    pub snapshots_bytes: u64,
    /// Everything else.
    pub other_bytes: u64,
    /// What pruning would free.
    pub reclaimable_bytes: u64,
}

/// What pruning removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pruned {
    /// Images without a name.
    pub images: u64,
    /// Layers that no image has any more.
    pub layers: u64,
    /// Bytes that are free again.
    pub bytes: u64,
}

/// A named volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedVolume {
    /// The claim by which requests name it.
    pub name: String,
    /// When it was made, where known.
    pub created_at: Option<Timestamp>,
    /// The sandboxes that have it mounted.
    pub users: Vec<SandboxId>,
}
