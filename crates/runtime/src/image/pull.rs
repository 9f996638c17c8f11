//! Pulls: from a reference to an image whose layers are all here.
//!
//! Each runs as a task of its own, shared by all who wait for it (see [`super::shared_pull`]). Layers
//! that two pulls share come once, by a lock per layer.

use std::fs::File;
use std::io::BufReader;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::image_reference::ImageReference;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use lifecycle::backend::{Platform, PullProgress, RegistryAuth};
use tokio::sync::mpsc;

use super::digest::Digest;
use super::disk::WorkDirectory;
use super::index::{ImageName, ImageRecord};
use super::manifest::{self, Configuration, Descriptor, Document, Manifest};
use super::registry::{Fetched, Session};
use super::shared_pull::{PullKey, PullOwner, SharedPull};
use super::store::{Inner, Lease, Pin, Store, run_blocking};
use super::unpack::{UnpackLimits, unpack};
use super::{Error, ImageId, this_platform};

/// Configurations are a few kilobytes; some builders put whole histories into them.
const CONFIGURATION_BYTES_MAX: u64 = 8 << 20;
/// An index may point to an index; nobody nests deeper.
const INDEX_DEPTH_MAX: usize = 3;
/// Progress is told in steps of at least this many bytes, so that a fast link does not drown
/// its listeners.
const PROGRESS_STEP_BYTES: u64 = 256 << 10;

impl Store {
    /// As [`Store::pull`]; the answer keeps the image until it is used.
    pub(super) async fn pull_leased(
        &self,
        reference: &str,
        auth: Option<&RegistryAuth>,
        platform: Option<&Platform>,
        progress: Option<mpsc::Sender<PullProgress>>,
    ) -> Result<Arc<Lease>, Error> {
        let reference = self.inner.parse(reference)?;
        let platform = platform.cloned().unwrap_or_else(this_platform);
        if let Some(found) = self.inner.find_alias(&reference, &platform) {
            return found.map(Arc::new);
        }
        let key = PullKey::new(&reference, &platform, auth);
        let (waiter, owner) = self.inner.pulls.join(key, progress);
        if let Some(owner) = owner {
            let pull = Pull {
                store: Arc::clone(&self.inner),
                reference,
                auth: auth.cloned(),
                platform,
                shared: Arc::clone(&owner.shared),
            };
            tokio::spawn(pull.run(owner));
        }
        waiter.outcome().await
    }
}

struct Pull {
    store: Arc<Inner>,
    reference: ImageReference,
    auth: Option<RegistryAuth>,
    platform: Platform,
    shared: Arc<SharedPull>,
}

impl Pull {
    async fn run(self, owner: PullOwner) {
        let outcome = tokio::select! {
            outcome = self.image() => outcome,
            () = self.shared.cancel.cancelled() => Err(Error::Cancelled),
        };
        owner.complete(&self.store.pulls, outcome);
    }

    async fn image(&self) -> Result<Lease, Error> {
        let store = &self.store;
        let session = store
            .client
            .session(&store.config, &self.reference, self.auth.as_ref())?;
        let (manifest, digest) = self.manifest(&session).await?;
        let what = format!("the configuration {}", manifest.config.digest);
        let document = session
            .blob(manifest.config.digest, CONFIGURATION_BYTES_MAX)
            .await?;
        let configuration = Configuration::parse(&what, &document)?;
        configuration.check_platform(&self.reference.to_string(), &self.platform)?;
        let layers = pair_layers(&what, &manifest, &configuration)?;
        let _pins = self.layers(&session, &layers).await?;
        let record = ImageRecord {
            id: ImageId(digest.to_string().into()),
            layers: configuration.diff_ids,
            config: Arc::new(configuration.config),
            document: String::from_utf8_lossy(&document).into(),
            created_at: Timestamp::now(),
        };
        let name = ImageName::new(self.reference.to_string(), &self.platform);
        let store = Arc::clone(store);
        run_blocking(move || store.add_image(record, &[name])).await
    }

    async fn manifest(&self, session: &Session<'_>) -> Result<(Manifest, Digest), Error> {
        let reference = self.reference.to_string();
        let mut fetched = session.root_manifest().await?;
        for _ in 0..INDEX_DEPTH_MAX {
            let Fetched { bytes, digest } = fetched;
            match Document::parse(&format!("the manifest {digest}"), &bytes)? {
                Document::Image(manifest) => return Ok((manifest, digest)),
                Document::Index(manifests) => {
                    let chosen = manifest::select(&reference, &manifests, &self.platform)?;
                    fetched = session.manifest_by_digest(chosen.digest).await?;
                }
            }
        }
        Err(manifest::corrupt(
            &reference,
            "its indexes point at each other",
        ))
    }

    /// Brings every layer here, several at once.
    async fn layers(
        &self,
        session: &Session<'_>,
        layers: &[(Descriptor, Digest)],
    ) -> Result<Vec<Pin>, Error> {
        let total_bytes = layers.iter().map(|(blob, _)| blob.size).sum();
        self.shared.tell(&PullProgress::Resolved {
            layers: layers.len(),
            total_bytes,
        });
        let received = &Progress {
            bytes: AtomicU64::new(0),
            told: AtomicU64::new(0),
        };
        let pins = stream::iter(layers.to_vec())
            .map(async |(blob, diff_id)| self.layer(session, &blob, diff_id, received).await)
            .buffer_unordered(self.store.config.limits.concurrent_layers.max(1))
            .try_collect()
            .await?;
        self.shared
            .tell(&PullProgress::Downloaded { bytes: total_bytes });
        Ok(pins)
    }

    async fn layer(
        &self,
        session: &Session<'_>,
        blob: &Descriptor,
        diff_id: Digest,
        received: &Progress,
    ) -> Result<Pin, Error> {
        let lock = self.store.layer_lock(&diff_id).lock_owned().await;
        let pin = match self.store.pin(&diff_id) {
            Some(pin) => {
                received.add(blob.size, &self.shared);
                pin
            }
            None => {
                self.fetch_layer(session, blob, diff_id, Arc::new(lock), received)
                    .await?
            }
        };
        self.shared.tell(&PullProgress::Unpacked {
            digest: diff_id.to_string(),
        });
        Ok(pin)
    }

    async fn fetch_layer(
        &self,
        session: &Session<'_>,
        blob: &Descriptor,
        diff_id: Digest,
        lock: Arc<tokio::sync::OwnedMutexGuard<()>>,
        received: &Progress,
    ) -> Result<Pin, Error> {
        let limits = &self.store.config.limits;
        if blob.size > limits.layer_bytes {
            return Err(Error::TooLarge {
                what: format!("the layer {}", blob.digest),
                limit: limits.layer_bytes,
                unit: "bytes",
                setting: "layer_bytes",
            });
        }
        let _slot = self
            .store
            .layer_slots
            .acquire()
            .await
            .expect("the semaphore is never closed");
        let download = Download::begin(&self.store, blob.digest, diff_id);
        // Both threads that may outlive this future hold the lock, so that no second pull
        // touches the file while they do.
        let hold = Arc::clone(&lock) as super::registry::WriteGuard;
        let before = AtomicU64::new(0);
        let on_bytes = |have: u64| {
            let last = before.swap(have, Ordering::Relaxed);
            received.change(last, have, &self.shared);
        };
        session
            .download(blob, &download.path(), &hold, &on_bytes)
            .await?;
        let (store, bounds) = (Arc::clone(&self.store), self.bounds());
        let blob = blob.digest;
        run_blocking(move || {
            let _lock = lock;
            let result = unpack_blob(&store, &download.path(), blob, diff_id, &bounds);
            // Unpacked, or proven useless: either way it has served.
            if !matches!(result, Err(Error::Cancelled | Error::DiskFull { .. })) {
                let _ = std::fs::remove_file(download.path());
            }
            result
        })
        .await
    }

    fn bounds(&self) -> UnpackLimits {
        let limits = &self.store.config.limits;
        UnpackLimits {
            bytes: limits.layer_bytes,
            entries: limits.layer_entries,
            cancel: self.shared.cancel.clone(),
        }
    }
}

fn unpack_blob(
    store: &Arc<Inner>,
    path: &std::path::Path,
    blob: Digest,
    diff_id: Digest,
    bounds: &UnpackLimits,
) -> Result<Pin, Error> {
    let what = format!("the layer {blob}");
    let file = File::open(path).map_err(|e| Error::io("opening", path, e))?;
    let (work, unpacked) = unpack_into_work(
        store,
        BufReader::with_capacity(256 << 10, file),
        &what,
        bounds,
    )?;
    if unpacked.diff_id != diff_id {
        let message = format!(
            "uncompressed its digest is {}, but the configuration names {diff_id}",
            unpacked.diff_id
        );
        return Err(manifest::corrupt(&what, &message));
    }
    store.add_layer(&work, unpacked)
}

/// Unpacks a tar into `fs` of a new work directory.
pub(super) fn unpack_into_work(
    store: &Inner,
    input: impl std::io::BufRead,
    what: &str,
    bounds: &UnpackLimits,
) -> Result<(WorkDirectory, super::unpack::Unpacked), Error> {
    let work = WorkDirectory::new(&store.directory)?;
    let fs = work.path().join("fs");
    let made = std::fs::create_dir(&fs).and_then(|()| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&fs, std::fs::Permissions::from_mode(0o755))?;
        File::open(&fs)
    });
    let root = made.map_err(|e| Error::io("making", &fs, e))?;
    let unpacked = unpack(input, root.as_fd(), what, bounds)?;
    Ok((work, unpacked))
}

/// The layers of a manifest with what they are once uncompressed.
pub(super) fn pair_layers(
    what: &str,
    manifest: &Manifest,
    configuration: &Configuration,
) -> Result<Vec<(Descriptor, Digest)>, Error> {
    if manifest.layers.is_empty() {
        return Err(manifest::corrupt(
            what,
            "the image has no layers, so nothing can run in it",
        ));
    }
    if manifest.layers.len() != configuration.diff_ids.len() {
        return Err(manifest::corrupt(
            what,
            "it names another number of layers than the manifest",
        ));
    }
    if let Some(layer) = manifest
        .layers
        .iter()
        .find(|layer| !is_layer(&layer.media_type))
    {
        let message = format!(
            "{} is no file system layer: this is not an image",
            layer.media_type
        );
        return Err(manifest::corrupt(what, &message));
    }
    Ok(manifest
        .layers
        .iter()
        .cloned()
        .zip(configuration.diff_ids.iter().copied())
        .collect())
}

/// Whether a media type is a tar of files. Compression is found out from the bytes.
fn is_layer(media_type: &str) -> bool {
    let is_encrypted = media_type.ends_with("+encrypted");
    let is_tar =
        media_type.is_empty() || media_type.contains(".tar") || media_type.contains("rootfs.diff");
    is_tar && !is_encrypted
}

/// A file under `downloads/` that garbage collection leaves alone meanwhile.
struct Download {
    store: Arc<Inner>,
    name: String,
}

impl Download {
    fn begin(store: &Arc<Inner>, blob: Digest, diff_id: Digest) -> Self {
        // Both digests: a hostile configuration may pair one blob with another diff id, and
        // the lock that guards the file is the diff id's.
        let name = format!("{}.{}", blob.hex(), diff_id.hex());
        store.index().downloading.insert(name.clone());
        Self {
            store: Arc::clone(store),
            name,
        }
    }

    fn path(&self) -> std::path::PathBuf {
        self.store.directory.join("downloads").join(&self.name)
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        self.store.index().downloading.remove(&self.name);
    }
}

/// Bytes of all layers of one pull.
struct Progress {
    bytes: AtomicU64,
    told: AtomicU64,
}

impl Progress {
    fn add(&self, bytes: u64, shared: &SharedPull) {
        self.change(0, bytes, shared);
    }

    /// One layer's share went from `before` to `now`; it shrinks when an attempt starts over.
    fn change(&self, before: u64, now: u64, shared: &SharedPull) {
        let total = if now >= before {
            self.bytes.fetch_add(now - before, Ordering::Relaxed) + (now - before)
        } else {
            self.bytes.fetch_sub(before - now, Ordering::Relaxed) - (before - now)
        };
        let told = self.told.load(Ordering::Relaxed);
        if total >= told + PROGRESS_STEP_BYTES || total < told {
            self.told.store(total, Ordering::Relaxed);
            shared.tell(&PullProgress::Downloaded { bytes: total });
        }
    }
}
