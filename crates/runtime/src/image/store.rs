//! The store's front door: what to mount for a name, who holds it, what may go.
//!
//! Preparing a local image looks at memory only. Everything that touches the disk runs on
//! blocking threads. Two locks: `index` for memory, held for moments and never across I/O that
//! waits for the disk; `records` for the files that say what the store holds, taken before it.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use api::id::SnapshotId;
use api::image_reference::ImageReference;
use lifecycle::backend::{Platform, PullProgress, RegistryAuth, Source};
use tokio::sync::{Semaphore, mpsc};

use super::aliases::Aliases;
use super::digest::Digest;
use super::index::{self, ImageName, Index};
use super::registry::Client;
use super::shared_pull::SharedPulls;
use super::{
    Collected, Config, Error, HOST, Image, ImageId, Import, Prepared, Snapshot, Usage, disk, host,
    this_platform,
};

/// Images and snapshots of one directory. Cheap to clone; all clones are one store.
#[derive(Clone)]
pub struct Store {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) directory: PathBuf,
    pub(super) config: Config,
    pub(super) aliases: Aliases,
    pub(super) client: Client,
    pub(super) pulls: SharedPulls,
    /// Layers being downloaded and unpacked at once.
    pub(super) layer_slots: Semaphore,
    index: Mutex<Index>,
    /// Whether every lease of an earlier process has been taken again, so that the store may
    /// collect by itself.
    pub(super) may_collect: AtomicBool,
    /// Held by whoever changes the files that say what the store holds.
    pub(super) records: Mutex<()>,
    layer_locks: Mutex<HashMap<Digest, Weak<tokio::sync::Mutex<()>>>>,
    _lock: File,
}

/// Keeps an image's layers from being removed until dropped.
pub struct Lease {
    pub(super) image: ImageId,
    pub(super) store: Arc<Inner>,
}

impl Lease {
    /// The image this lease keeps.
    pub fn image(&self) -> &ImageId {
        &self.image
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.store.index().drop_lease(&self.image);
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lease").field(&self.image).finish()
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("directory", &self.inner.directory)
            .finish()
    }
}

/// Keeps a layer for a pull or import whose image is not recorded yet.
pub(super) struct Pin {
    pub(super) layer: Digest,
    pub(super) store: Arc<Inner>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.store.index().unpin(&self.layer);
    }
}

impl Store {
    /// Opens the store under `dir`, making it if need be, and removes what a crash left half
    /// made. One process at a time may have it open. Blocks on the disk.
    pub fn open(dir: &Path, config: Config) -> Result<Self, Error> {
        let lock = disk::open(dir)?;
        let directory = dir
            .canonicalize()
            .map_err(|e| Error::io("finding", dir, e))?;
        let mut index = disk::load(&directory)?;
        host::install(&directory, &config.host_directories, &mut index)?;
        let inner = Inner {
            layer_slots: Semaphore::new(config.limits.concurrent_layers.max(1)),
            directory,
            client: Client::new(&config),
            aliases: Aliases::new(&config.aliases, &config.default_registry)?,
            config,
            pulls: SharedPulls::default(),
            index: Mutex::new(index),
            may_collect: AtomicBool::new(false),
            records: Mutex::new(()),
            layer_locks: Mutex::new(HashMap::new()),
            _lock: lock,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Whether [`Store::prepare`] needs no download. Looks at memory only.
    pub fn is_local(&self, source: &Source, platform: Option<&Platform>) -> bool {
        let lookup = self.inner.lookup(source, platform);
        lookup.is_ok_and(|lookup| lookup.find(&self.inner.index()).is_some())
    }

    /// What to mount for `source`, pulling it first where it is not local. For a local image it
    /// does no I/O and takes microseconds.
    pub async fn prepare(
        &self,
        source: &Source,
        platform: Option<&Platform>,
    ) -> Result<Prepared, Error> {
        if let Some(lease) = self.inner.find_leased(source, platform)? {
            return self.prepare_image(lease.image());
        }
        match source {
            Source::Image { reference, auth } => {
                let image = self
                    .pull_leased(reference, auth.as_ref(), platform, None)
                    .await?;
                self.prepare_image(image.image())
            }
            Source::Snapshot(id) => Err(Error::UnknownImage(index::snapshot_image(id))),
        }
    }

    /// What to mount for an image by its id, as kept in a sandbox's record.
    pub fn prepare_image(&self, image: &ImageId) -> Result<Prepared, Error> {
        let mut index = self.inner.index();
        let stack = index.stack(&self.inner.directory, image)?;
        index.take_lease(image)?;
        drop(index);
        Ok(Prepared {
            id: image.clone(),
            layers: stack.layers,
            binds: stack.binds,
            config: stack.config,
            lease: Lease {
                image: image.clone(),
                store: Arc::clone(&self.inner),
            },
        })
    }

    /// A lease on an image that a sandbox of an earlier process stands on. After a restart take
    /// these for every sandbox before the first [`Store::gc`].
    pub fn lease_for(&self, image: &ImageId) -> Result<Lease, Error> {
        self.inner.index().take_lease(image)?;
        Ok(Lease {
            image: image.clone(),
            store: Arc::clone(&self.inner),
        })
    }

    /// Brings an image here, asking its registry for the newest state of the reference. Layers
    /// that are here are not downloaded again. Callers with the same reference, platform and
    /// credentials share one download; it stops when the last of them has gone.
    pub async fn pull(
        &self,
        reference: &str,
        auth: Option<&RegistryAuth>,
        platform: Option<&Platform>,
        progress: Option<mpsc::Sender<PullProgress>>,
    ) -> Result<ImageId, Error> {
        let lease = self
            .pull_leased(reference, auth, platform, progress)
            .await?;
        Ok(lease.image().clone())
    }

    /// Brings images here from a file or directory, named `reference`. Without a name the names
    /// that an archive itself carries are used; a root filesystem needs one.
    pub async fn import(
        &self,
        import: &Import,
        reference: Option<&str>,
    ) -> Result<Vec<ImageId>, Error> {
        let name = reference
            .map(|reference| self.inner.parse_new(reference))
            .transpose()?;
        let (store, import) = (self.clone(), import.clone());
        // A caller who goes away takes the work along.
        let cancel = tokio_util::sync::CancellationToken::new();
        let _guard = cancel.clone().drop_guard();
        run_blocking(move || super::import::import(&store.inner, &import, name.as_ref(), cancel))
            .await
    }

    /// Writes an image, by reference or id, or a snapshot, by the id of its image, as an
    /// `oci-archive` tar to `destination`, which appears only when it is complete.
    pub async fn export(&self, reference: &str, destination: &Path) -> Result<(), Error> {
        let image = self.inner.find_exact(reference)?;
        let lease = self.lease_for(&image)?;
        let (store, destination) = (self.clone(), destination.to_owned());
        let name = reference.to_owned();
        run_blocking(move || {
            super::export::export(&store.inner, lease.image(), &name, &destination)
        })
        .await
    }

    /// Images, by id; without `host` and snapshots.
    pub fn list(&self) -> Vec<Image> {
        self.inner.index().list()
    }

    /// Gives a local image, by reference or id, another name for its own platform. The name means exactly this
    /// image until it is taken away or pulled anew; no registry is asked.
    pub async fn tag(&self, reference: &str, name: &str) -> Result<ImageId, Error> {
        let full = self.inner.parse_new(name)?;
        if full.digest().is_some() {
            return Err(Error::InvalidReference {
                reference: name.to_owned(),
                message: "a digest names its content alone; give a name with a tag".to_owned(),
            });
        }
        let image = self.inner.find_exact(reference)?;
        // Kept while the name is written: garbage collection may run beside it.
        let lease = self.lease_for(&image)?;
        let record = self.inner.index().images.get(&image).cloned();
        let Some(record) = record else {
            return Err(Error::InvalidReference {
                reference: reference.to_owned(),
                message: "only images that were pulled, imported or built can have other names, not host or a snapshot"
                    .to_owned(),
            });
        };
        let platform = Platform {
            os: record.config.platform.os.clone(),
            arch: record.config.platform.arch.clone(),
        };
        let name = ImageName::new(full.to_string(), &platform);
        let store = self.clone();
        run_blocking(move || {
            store.inner.change_names(|names| {
                names.insert(name, lease.image().clone());
                Ok(())
            })
        })
        .await?;
        Ok(image)
    }

    /// Takes a name (or, given an id, every name) from an image. Its layers go with the next
    /// [`Store::gc`] that finds nobody using them.
    pub async fn remove(&self, reference: &str) -> Result<(), Error> {
        if reference == HOST {
            return Err(Error::InUse {
                what: "the image host".to_owned(),
                by: "this machine: it is a view, there is nothing to remove".to_owned(),
            });
        }
        let as_name = self
            .inner
            .parse(reference)
            .map(|reference| reference.to_string())
            .ok();
        let as_id = ImageId::from_record(reference);
        let (store, asked) = (self.clone(), reference.to_owned());
        run_blocking(move || {
            store.inner.change_names(|names| {
                let before = names.len();
                names.retain(|name, id| Some(&name.reference) != as_name.as_ref() && *id != as_id);
                if names.len() < before {
                    Ok(())
                } else {
                    Err(not_found(&asked))
                }
            })
        })
        .await
    }

    /// Removes images without a name, layers without an image and downloads without a pull;
    /// never what a lease, a name or a snapshot needs. From the first call on the store does so
    /// by itself whenever a pull takes a name from another image.
    pub async fn gc(&self) -> Result<Collected, Error> {
        let store = self.clone();
        store.inner.may_collect.store(true, Ordering::Release);
        run_blocking(move || store.inner.collect()).await
    }

    /// What the store takes on disk.
    pub async fn usage(&self) -> Result<Usage, Error> {
        let store = self.clone();
        run_blocking(move || store.inner.usage()).await
    }

    /// Makes an image of a sealed writable layer on top of `parent`: `upper` is renamed into the
    /// store, whatever its size, so it must be on the store's filesystem, must no longer be
    /// written by anyone, and must hold owners as in an image (root is 0). `size_bytes` is what
    /// it holds, for listings. The rename is the last step: killed before it, the process leaves
    /// `upper` where it is.
    ///
    /// Does not wait for the disk: after a power failure within the next seconds the snapshot
    /// may lack what the kernel had not written.
    pub fn add_snapshot(
        &self,
        snapshot: &SnapshotId,
        parent: &ImageId,
        upper: &Path,
        size_bytes: u64,
    ) -> Result<ImageId, Error> {
        self.inner.add_snapshot(snapshot, parent, upper, size_bytes)
    }

    /// Removes a snapshot; `Ok` when there is none. [`Error::InUse`] while a lease or another
    /// snapshot needs it.
    pub async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<(), Error> {
        let (store, id) = (self.clone(), snapshot.clone());
        run_blocking(move || store.inner.remove_snapshot(&id)).await
    }

    /// Snapshots, by id.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.inner.index().list_snapshots()
    }
}

/// Runs what waits for the disk where it holds nobody up.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .expect("the work does not panic")
}

/// What a source means, before it is known whether it is here.
enum Lookup {
    Host,
    Id(ImageId),
    ImageName(ImageName),
}

impl Lookup {
    fn find(&self, index: &Index) -> Option<ImageId> {
        match self {
            Self::Host => index.host.clone(),
            Self::Id(id) => index.contains(id).then(|| id.clone()),
            Self::ImageName(name) => index.names.get(name).cloned(),
        }
    }
}

fn not_found(reference: &str) -> Error {
    Error::NotFound {
        reference: reference.to_owned(),
        message: "it is not in this store; list the images to see what is".to_owned(),
    }
}

impl Inner {
    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().expect("no panic while held")
    }

    /// The image that a text means, if this store can check it.
    pub(super) fn parse(&self, reference: &str) -> Result<ImageReference, Error> {
        if reference == HOST {
            return Err(Error::InvalidReference {
                reference: reference.to_owned(),
                message: "host is this machine's own image and can neither be pulled nor replaced"
                    .to_owned(),
            });
        }
        let parsed = ImageReference::parse_with_registry(reference, &self.config.default_registry)
            .map_err(|error| Error::InvalidReference {
                reference: reference.to_owned(),
                message: error.reason().to_owned(),
            })?;
        Digest::of_reference(&parsed)?;
        Ok(parsed.with_default_tag())
    }

    /// The local image that a source means, kept from the moment it was found.
    pub(super) fn find_leased(
        self: &Arc<Self>,
        source: &Source,
        platform: Option<&Platform>,
    ) -> Result<Option<Lease>, Error> {
        let lookup = self.lookup(source, platform)?;
        let mut index = self.index();
        let Some(image) = lookup.find(&index) else {
            return Ok(None);
        };
        index.take_lease(&image)?;
        Ok(Some(Lease {
            image,
            store: Arc::clone(self),
        }))
    }

    /// What to look for in the index.
    fn lookup(&self, source: &Source, platform: Option<&Platform>) -> Result<Lookup, Error> {
        let platform = platform.cloned().unwrap_or_else(this_platform);
        match source {
            Source::Snapshot(id) => Ok(Lookup::Id(index::snapshot_image(id))),
            Source::Image { reference, .. } if reference == HOST => {
                let here = this_platform();
                if platform == here {
                    return Ok(Lookup::Host);
                }
                Err(Error::WrongPlatform {
                    reference: HOST.to_owned(),
                    wanted: format!("{}/{}", platform.os, platform.arch),
                    available: format!("{}/{}", here.os, here.arch),
                })
            }
            Source::Image { reference, .. } => {
                let name = self.parse(reference)?;
                let name = self.aliases.target(&name).unwrap_or(&name).to_string();
                Ok(Lookup::ImageName(ImageName::new(name, &platform)))
            }
        }
    }

    /// The local image with this reference on any platform, or with this id.
    fn find_exact(&self, reference: &str) -> Result<ImageId, Error> {
        let source = Source::Image {
            reference: reference.to_owned(),
            auth: None,
        };
        let lookup = self.lookup(&source, None);
        let id = ImageId::from_record(reference);
        let index = self.index();
        if let Some(image) = lookup.ok().and_then(|lookup| lookup.find(&index)) {
            return Ok(image);
        }
        if index.contains(&id) {
            return Ok(id);
        }
        let full = self.parse(reference)?.to_string();
        let mut names = index.names.iter();
        let found = names
            .find(|(name, _)| name.reference == full)
            .map(|(_, id)| id.clone());
        found.ok_or_else(|| not_found(reference))
    }

    /// The lock that makes one layer come here once.
    pub(super) fn layer_lock(&self, layer: &Digest) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.layer_locks.lock().expect("no panic while held");
        if let Some(lock) = locks.get(layer).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        locks.insert(*layer, Arc::downgrade(&lock));
        lock
    }

    /// A layer that is here, kept until the pin is dropped.
    pub(super) fn pin(self: &Arc<Self>, layer: &Digest) -> Option<Pin> {
        let is_here = self.index().pin(layer);
        is_here.then(|| Pin {
            layer: *layer,
            store: Arc::clone(self),
        })
    }
}
