//! What changes the store: layers and images come, names move, snapshots are sealed, garbage
//! goes. The disk is changed before memory, in an order that a crash may interrupt anywhere.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use api::error_chain;
use api::id::SnapshotId;
use jiff::Timestamp;

use super::index::{self, ImageName, ImageRecord, Layer, SnapshotRecord};
use super::store::{Inner, Lease, Pin};
use super::unpack::Unpacked;
use super::{Collected, Error, ImageId, Usage, disk, tree};

impl Inner {
    /// Puts an unpacked tree (`fs` in the work directory) among the layers. It reaches the disk
    /// with the image that needs it.
    pub(super) fn add_layer(
        self: &Arc<Self>,
        work: &disk::WorkDirectory,
        unpacked: Unpacked,
    ) -> Result<Pin, Error> {
        let record = work.path().join("layer.json");
        let path = index::layer_directory(&self.directory, &unpacked.diff_id);
        std::fs::write(&record, unpacked.size_bytes.to_string())
            .map_err(|e| Error::io("writing", &record, e))?;
        let mut index = self.index();
        if let Entry::Vacant(vacant) = index.layers.entry(unpacked.diff_id) {
            disk::move_over(&self.directory, work.path(), &path)?;
            vacant.insert(Layer {
                size_bytes: unpacked.size_bytes,
                pins: 0,
            });
        }
        index.pin(&unpacked.diff_id);
        drop(index);
        Ok(Pin {
            layer: unpacked.diff_id,
            store: Arc::clone(self),
        })
    }

    /// Records an image whose layers are pinned, under its names; the answer keeps it.
    pub(super) fn add_image(
        self: &Arc<Self>,
        record: ImageRecord,
        names: &[ImageName],
    ) -> Result<Lease, Error> {
        let id = record.id.clone();
        let records = self.records.lock().expect("no panic while held");
        let is_known = self.index().images.contains_key(&id);
        if !is_known {
            // Once for all its layers: a record on the disk means that they are there too, and
            // layers that no record names are removed when the store is opened.
            disk::sync_file_system(&self.directory)
                .map_err(|e| Error::io("syncing", &self.directory, e))?;
            let path = disk::image_record_path(&self.directory, &id);
            disk::write_json(&self.directory, &path, &record)?;
        }
        let mut index = self.index();
        index.images.entry(id.clone()).or_insert(record);
        index.take_lease(&id)?;
        drop(index);
        let lease = Lease {
            image: id.clone(),
            store: Arc::clone(self),
        };
        let mut has_displaced = false;
        self.change_names_locked(&records, |all| {
            for name in names {
                let before = all.insert(name.clone(), id.clone());
                has_displaced |= before.is_some_and(|before| before != id);
            }
            Ok(())
        })?;
        drop(records);
        if has_displaced && self.may_collect.load(Ordering::Acquire) {
            // The image is here either way; what it replaced can wait for the next time.
            if let Err(error) = self.collect() {
                tracing::warn!(error = %error_chain(&error), "images could not be tidied up");
            }
        }
        Ok(lease)
    }

    pub(super) fn change_names(
        &self,
        change: impl FnOnce(&mut BTreeMap<ImageName, ImageId>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let records = self.records.lock().expect("no panic while held");
        self.change_names_locked(&records, change)
    }

    fn change_names_locked(
        &self,
        _records: &MutexGuard<'_, ()>,
        change: impl FnOnce(&mut BTreeMap<ImageName, ImageId>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut names = self.index().names.clone();
        change(&mut names)?;
        disk::write_names(&self.directory, &names)?;
        self.index().names = names;
        Ok(())
    }

    pub(super) fn collect(&self) -> Result<Collected, Error> {
        let _records = self.records.lock().expect("no panic while held");
        let store = &self.directory;
        let mut index = self.index();
        let garbage = index.garbage();
        index.forget(&garbage);
        // Moved away under the lock: a pull that wants one of them again must not meet the old.
        let layers = garbage
            .layers
            .iter()
            .map(|layer| index::layer_directory(store, layer));
        let hosts = garbage
            .hosts
            .iter()
            .map(|host| index::host_directory(store, host));
        let mut trashed = Vec::new();
        for path in layers.chain(hosts) {
            trashed.extend(disk::move_to_trash(store, &path)?);
        }
        let downloading = index.downloading.clone();
        for path in disk::children(&store.join("downloads"))? {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if !downloading.contains(name) {
                trashed.extend(disk::move_to_trash(store, &path)?);
            }
        }
        drop(index);
        for image in &garbage.images {
            let path = disk::image_record_path(store, image);
            std::fs::remove_file(&path).map_err(|e| Error::io("removing", &path, e))?;
        }
        for path in &trashed {
            tree::remove_path(path).map_err(|e| Error::io("removing", path, e))?;
        }
        let (images, layers) = (garbage.images.len(), garbage.layers.len());
        Ok(Collected {
            images,
            layers,
            bytes: garbage.bytes,
        })
    }

    pub(super) fn usage(&self) -> Result<Usage, Error> {
        let mut usage = Usage::default();
        for name in ["downloads", "images", "host", "work"] {
            let path = self.directory.join(name);
            // Files come and go meanwhile.
            usage.other_bytes += tree::disk_bytes(&path).unwrap_or_default();
        }
        let index = self.index();
        usage.layers_bytes = index.layers.values().map(|layer| layer.size_bytes).sum();
        usage.snapshots_bytes = index.snapshots.values().map(|s| s.size_bytes).sum();
        usage.reclaimable_bytes = index.garbage().bytes;
        Ok(usage)
    }

    pub(super) fn add_snapshot(
        &self,
        id: &SnapshotId,
        parent: &ImageId,
        upper: &Path,
        size_bytes: u64,
    ) -> Result<ImageId, Error> {
        let image = index::snapshot_image(id);
        let path = index::snapshot_directory(&self.directory, id);
        let mut index = self.index();
        if index.snapshots.contains_key(id) {
            return Err(Error::InUse {
                what: format!("the id {id}"),
                by: "a snapshot".to_owned(),
            });
        }
        let depth = index.stack(&self.directory, parent)?.layers.len();
        if depth >= index::STACK_MAX {
            return Err(Error::TooLarge {
                what: format!("snapshot {id}"),
                limit: index::STACK_MAX as u64,
                unit: "layers, its own included; export it and import the archive to flatten it",
                setting: "layers",
            });
        }
        let record = SnapshotRecord {
            id: id.clone(),
            parent: parent.clone(),
            size_bytes,
            created_at: Timestamp::now(),
        };
        let bytes = serde_json::to_vec(&record).expect("a record has string keys");
        let made = std::fs::create_dir(&path)
            .and_then(|()| std::fs::write(path.join("record.json"), bytes))
            .and_then(|()| std::fs::rename(upper, path.join("fs")));
        if let Err(error) = made {
            let _ = tree::remove_path(&path);
            return Err(Error::io("sealing", upper, error));
        }
        index.snapshots.insert(id.clone(), record);
        Ok(image)
    }

    pub(super) fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), Error> {
        let image = index::snapshot_image(id);
        let mut index = self.index();
        if !index.snapshots.contains_key(id) {
            return Ok(());
        }
        let in_use = |by: String| Error::InUse {
            what: format!("snapshot {id}"),
            by,
        };
        if let Some(above) = index.snapshots_on(&image).next() {
            return Err(in_use(format!("snapshot {}", above.id)));
        }
        match index.leases(&image) {
            0 => {}
            count => return Err(in_use(format!("{count} sandboxes"))),
        }
        let path = index::snapshot_directory(&self.directory, id);
        let trashed = disk::move_to_trash(&self.directory, &path)?;
        index.snapshots.remove(id);
        drop(index);
        match trashed {
            Some(trashed) => {
                tree::remove_path(&trashed).map_err(|e| Error::io("removing", &trashed, e))
            }
            None => Ok(()),
        }
    }
}
