//! What the store holds, in memory: images, their names, layers, snapshots and who uses them.
//!
//! Pure bookkeeping: it decides what may be removed and what a name means, and does no I/O. The
//! disk is written first, this second, so that nothing is promised that a crash would take back.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::id::SnapshotId;
use jiff::Timestamp;
use lifecycle::backend::Platform;
use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::{Bind, Error, Image, ImageConfig, ImageId, Snapshot};

/// Layers and snapshots that may lie on each other. overlayfs takes 500 lower directories.
pub(super) const STACK_MAX: usize = 400;

const SNAPSHOT_PREFIX: &str = "snapshot:";

/// One image as its record file has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ImageRecord {
    pub(super) id: ImageId,
    /// Bottom first, as manifests list them.
    pub(super) layers: Vec<Digest>,
    pub(super) config: Arc<ImageConfig>,
    /// The configuration document as it came, for export.
    pub(super) document: Arc<str>,
    pub(super) created_at: Timestamp,
}

/// One snapshot as its record file has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SnapshotRecord {
    pub(super) id: SnapshotId,
    pub(super) parent: ImageId,
    pub(super) size_bytes: u64,
    pub(super) created_at: Timestamp,
}

/// A reference in full, for one platform.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ImageName {
    pub(super) reference: String,
    pub(super) os: String,
    pub(super) arch: String,
}

impl ImageName {
    pub(super) fn new(reference: String, platform: &Platform) -> Self {
        Self {
            reference,
            os: platform.os.clone(),
            arch: platform.arch.clone(),
        }
    }
}

/// A layer that is unpacked.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Layer {
    pub(super) size_bytes: u64,
    /// Pulls and imports that count on it and have no image yet.
    pub(super) pins: usize,
}

/// The tree of the image `host`, by its image id.
#[derive(Debug, Clone)]
pub(super) struct HostTree {
    pub(super) binds: Vec<Bind>,
    pub(super) config: Arc<ImageConfig>,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) images: BTreeMap<ImageId, ImageRecord>,
    pub(super) names: BTreeMap<ImageName, ImageId>,
    pub(super) layers: HashMap<Digest, Layer>,
    pub(super) snapshots: BTreeMap<SnapshotId, SnapshotRecord>,
    pub(super) hosts: BTreeMap<ImageId, HostTree>,
    /// The host tree that new sandboxes get.
    pub(super) host: Option<ImageId>,
    /// File names under `downloads/` that a pull writes now.
    pub(super) downloading: HashSet<String>,
    leases: HashMap<ImageId, usize>,
}

/// What garbage collection may take.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    pub(super) images: Vec<ImageId>,
    pub(super) layers: Vec<Digest>,
    pub(super) hosts: Vec<ImageId>,
    pub(super) bytes: u64,
}

pub(super) fn snapshot_image(id: &SnapshotId) -> ImageId {
    ImageId(format!("{SNAPSHOT_PREFIX}{id}").into())
}

pub(super) fn snapshot_of(image: &ImageId) -> Option<SnapshotId> {
    image.as_str().strip_prefix(SNAPSHOT_PREFIX)?.parse().ok()
}

pub(super) fn layer_directory(store: &Path, layer: &Digest) -> PathBuf {
    store.join("layers").join(layer.hex())
}

pub(super) fn snapshot_directory(store: &Path, id: &SnapshotId) -> PathBuf {
    store.join("snapshots").join(id.as_str())
}

pub(super) fn host_directory(store: &Path, id: &ImageId) -> PathBuf {
    store
        .join("host")
        .join(id.as_str().trim_start_matches("host:"))
}

/// What stands under an image: directories topmost first, and how to run it.
pub(super) struct Stack {
    pub(super) layers: Vec<PathBuf>,
    pub(super) binds: Vec<Bind>,
    pub(super) config: Arc<ImageConfig>,
}

impl Index {
    pub(super) fn stack(&self, store: &Path, image: &ImageId) -> Result<Stack, Error> {
        let mut layers = Vec::new();
        let mut bottom = image.clone();
        while let Some(id) = snapshot_of(&bottom) {
            let record = self.snapshots.get(&id).ok_or(Error::UnknownImage(bottom))?;
            layers.push(snapshot_directory(store, &id).join("fs"));
            bottom = record.parent.clone();
        }
        if let Some(host) = self.hosts.get(&bottom) {
            layers.push(host_directory(store, &bottom).join("fs"));
            return Ok(Stack {
                layers,
                binds: host.binds.clone(),
                config: Arc::clone(&host.config),
            });
        }
        let Some(record) = self.images.get(&bottom) else {
            return Err(Error::UnknownImage(bottom));
        };
        let own = record.layers.iter().rev();
        layers.extend(own.map(|layer| layer_directory(store, layer).join("fs")));
        Ok(Stack {
            layers,
            binds: Vec::new(),
            config: Arc::clone(&record.config),
        })
    }

    pub(super) fn contains(&self, image: &ImageId) -> bool {
        match snapshot_of(image) {
            Some(id) => self.snapshots.contains_key(&id),
            None => self.images.contains_key(image) || self.hosts.contains_key(image),
        }
    }

    pub(super) fn take_lease(&mut self, image: &ImageId) -> Result<(), Error> {
        if !self.contains(image) {
            return Err(Error::UnknownImage(image.clone()));
        }
        *self.leases.entry(image.clone()).or_default() += 1;
        Ok(())
    }

    pub(super) fn drop_lease(&mut self, image: &ImageId) {
        if let Some(count) = self.leases.get_mut(image) {
            *count -= 1;
            if *count == 0 {
                self.leases.remove(image);
            }
        }
    }

    pub(super) fn leases(&self, image: &ImageId) -> usize {
        self.leases.get(image).copied().unwrap_or_default()
    }

    /// Keeps a layer from garbage collection; returns whether it is here.
    pub(super) fn pin(&mut self, layer: &Digest) -> bool {
        let layer = self.layers.get_mut(layer);
        layer.map(|layer| layer.pins += 1).is_some()
    }

    pub(super) fn unpin(&mut self, layer: &Digest) {
        if let Some(layer) = self.layers.get_mut(layer) {
            layer.pins -= 1;
        }
    }

    /// Snapshots that stand directly on an image.
    pub(super) fn snapshots_on(&self, image: &ImageId) -> impl Iterator<Item = &SnapshotRecord> {
        self.snapshots
            .values()
            .filter(move |snapshot| snapshot.parent == *image)
    }

    pub(super) fn list(&self) -> Vec<Image> {
        let size = |layer: &Digest| self.layers.get(layer).map_or(0, |layer| layer.size_bytes);
        let names = |id: &ImageId| {
            let names = self.names.iter().filter(|(_, image)| *image == id);
            names
                .map(|(name, _)| name.reference.clone())
                .collect::<BTreeSet<_>>()
        };
        let image = |record: &ImageRecord| Image {
            id: record.id.clone(),
            references: names(&record.id).into_iter().collect(),
            platform: record.config.platform.clone(),
            size_bytes: record.layers.iter().map(size).sum(),
            created_at: record.created_at,
            users: self.leases(&record.id) + self.snapshots_on(&record.id).count(),
            config: record.config.clone(),
        };
        self.images.values().map(image).collect()
    }

    pub(super) fn list_snapshots(&self) -> Vec<Snapshot> {
        let listed = |record: &SnapshotRecord| Snapshot {
            image: snapshot_image(&record.id),
            id: record.id.clone(),
            parent: record.parent.clone(),
            size_bytes: record.size_bytes,
            created_at: record.created_at,
        };
        self.snapshots.values().map(listed).collect()
    }

    /// What nothing needs: no name, no lease, no snapshot, no pull under way.
    pub(super) fn garbage(&self) -> Garbage {
        let is_free = |id: &ImageId| self.leases(id) == 0 && self.snapshots_on(id).next().is_none();
        let named: HashSet<&ImageId> = self.names.values().collect();
        let images: Vec<ImageId> = self
            .images
            .keys()
            .filter(|id| !named.contains(id) && is_free(id))
            .cloned()
            .collect();
        let hosts = self
            .hosts
            .keys()
            .filter(|id| self.host.as_ref() != Some(id) && is_free(id))
            .cloned()
            .collect();
        let kept: HashSet<&Digest> = self
            .images
            .values()
            .filter(|record| !images.contains(&record.id))
            .flat_map(|record| &record.layers)
            .collect();
        let unused = self
            .layers
            .iter()
            .filter(|(digest, l)| l.pins == 0 && !kept.contains(digest));
        let layers: Vec<Digest> = unused.map(|(digest, _)| *digest).collect();
        let bytes = layers
            .iter()
            .map(|digest| self.layers[digest].size_bytes)
            .sum();
        Garbage {
            images,
            layers,
            hosts,
            bytes,
        }
    }

    /// Forgets what [`Index::garbage`] named.
    pub(super) fn forget(&mut self, garbage: &Garbage) {
        for image in &garbage.images {
            self.images.remove(image);
        }
        for layer in &garbage.layers {
            self.layers.remove(layer);
        }
        for host in &garbage.hosts {
            self.hosts.remove(host);
        }
    }
}
