//! The store's front door.

use std::path::Path;

use api::id::SnapshotId;
use lifecycle::backend::{Platform, PullProgress, RegistryAuth, Source};
use tokio::sync::mpsc;

use super::{Collected, Config, Error, Image, ImageId, Import, Prepared, Snapshot, Usage};

/// Images and snapshots of one directory. Cheap to clone; all clones are one store.
#[derive(Debug, Clone)]
pub struct Store {}

/// Keeps an image's layers from being removed until dropped.
#[derive(Debug)]
pub struct Lease {
    image: ImageId,
}

impl Lease {
    /// The image this lease keeps.
    pub fn image(&self) -> &ImageId {
        &self.image
    }
}

impl Store {
    /// Opens the store under `dir`, making it if need be, and removes what a crash left half
    /// made. One process at a time may have it open. Must be called within a tokio runtime.
    pub fn open(dir: &Path, _config: Config) -> Result<Self, Error> {
        Err(Error::io("opening", dir, rustix::io::Errno::NOSYS))
    }

    /// Whether [`Store::prepare`] needs no download. Looks at memory only.
    pub fn is_local(&self, _source: &Source, _platform: Option<&Platform>) -> bool {
        false
    }

    /// What to mount for `source`, pulling it first where it is not local. For a local image it
    /// does no I/O and takes microseconds.
    pub async fn prepare(
        &self,
        _source: &Source,
        _platform: Option<&Platform>,
    ) -> Result<Prepared, Error> {
        Err(Error::Cancelled)
    }

    /// What to mount for an image by its id, as kept in a sandbox's record.
    pub fn prepare_image(&self, image: &ImageId) -> Result<Prepared, Error> {
        Err(Error::UnknownImage(image.clone()))
    }

    /// A lease on an image that a sandbox of an earlier process stands on. After a restart take
    /// these for every sandbox before the first [`Store::gc`].
    pub fn lease_for(&self, image: &ImageId) -> Result<Lease, Error> {
        Err(Error::UnknownImage(image.clone()))
    }

    /// Brings an image here, asking its registry for the newest state of the reference. Layers
    /// that are here are not downloaded again. Callers with the same reference, platform and
    /// credentials share one download; it stops when the last of them has gone.
    pub async fn pull(
        &self,
        _reference: &str,
        _auth: Option<&RegistryAuth>,
        _platform: Option<&Platform>,
        _progress: Option<mpsc::Sender<PullProgress>>,
    ) -> Result<ImageId, Error> {
        Err(Error::Cancelled)
    }

    /// Brings an image here from a file or directory and names it `reference`. Without a name
    /// the archive's own names are used.
    pub async fn import(
        &self,
        _import: &Import,
        _reference: Option<&str>,
    ) -> Result<Vec<ImageId>, Error> {
        Err(Error::Cancelled)
    }

    /// Writes an image, or a snapshot by its image id, as an `oci-archive` tar to `destination`.
    pub async fn export(&self, _reference: &str, _destination: &Path) -> Result<(), Error> {
        Err(Error::Cancelled)
    }

    /// Images, by id.
    pub fn list(&self) -> Vec<Image> {
        Vec::new()
    }

    /// Takes the name (or, given an id, every name) from an image. Its layers go with the next
    /// [`Store::gc`] that finds nobody using them.
    pub async fn remove(&self, _reference: &str) -> Result<(), Error> {
        Err(Error::Cancelled)
    }

    /// Removes images without a name, layers without an image and downloads without a pull;
    /// never what a lease, a name or a snapshot needs.
    pub async fn gc(&self) -> Result<Collected, Error> {
        Err(Error::Cancelled)
    }

    /// What the store takes on disk.
    pub async fn usage(&self) -> Result<Usage, Error> {
        Err(Error::Cancelled)
    }

    /// Makes an image of a sealed writable layer on top of `parent`: `upper` is renamed into the
    /// store, whatever its size, so it must be on the store's filesystem, must no longer be
    /// written by anyone, and must hold owners as in an image (root is 0). `size_bytes` is what
    /// it holds, for listings.
    pub fn add_snapshot(
        &self,
        snapshot: &SnapshotId,
        _parent: &ImageId,
        _upper: &Path,
        _size_bytes: u64,
    ) -> Result<ImageId, Error> {
        Err(Error::UnknownImage(ImageId(
            format!("snapshot:{snapshot}").into(),
        )))
    }

    /// Removes a snapshot; `Ok` when there is none. [`Error::InUse`] while a lease or another
    /// snapshot needs it.
    pub async fn remove_snapshot(&self, _snapshot: &SnapshotId) -> Result<(), Error> {
        Err(Error::Cancelled)
    }

    /// Snapshots, by id.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        Vec::new()
    }
}
