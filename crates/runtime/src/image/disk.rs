//! The store's files: made so that a crash at any instant leaves either the old or the new.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::index::{
    HostTree, ImageName, ImageRecord, Index, SnapshotRecord, host_directory, layer_directory,
};
use super::{Error, ImageId, digest::Digest, host, tree};

/// How long to wait for the lock of a store that was just closed: a child of its process holds the
/// descriptor until it executes its program, which takes milliseconds. Short, because a person who
/// asks about the store of a running server waits for it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

const DIRECTORIES: [&str; 6] = ["layers", "images", "snapshots", "host", "downloads", "work"];

/// A directory under `work/` that removes itself unless it was moved away.
pub(super) struct WorkDirectory {
    path: PathBuf,
}

impl WorkDirectory {
    pub(super) fn new(store: &Path) -> Result<Self, Error> {
        let path = store
            .join("work")
            .join(format!("{:032x}", rand::random::<u128>()));
        make_private(&path).map_err(|e| Error::io("making", &path, e))?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        if let Err(error) = tree::remove_path(&self.path) {
            tracing::warn!(path = %self.path.display(), error = %api::error_chain(&error), "could not remove a work directory");
        }
    }
}

/// Nobody but the host's root may look into the store: layers hold set-user-id programs.
fn make_private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(path)
}

/// Makes the store's directories and locks it for this process.
pub(super) fn open(store: &Path) -> Result<File, Error> {
    for name in [""].iter().chain(&DIRECTORIES) {
        let path = store.join(name);
        make_private(&path).map_err(|e| Error::io("making", &path, e))?;
    }
    let path = store.join("lock");
    let locked = crate::lock::lock_within(&path, LOCK_TIMEOUT);
    let locked = locked.map_err(|e| Error::io("locking", &path, e))?;
    locked.ok_or_else(|| Error::InUse {
        what: format!("the image store {}", store.display()),
        by: "another server; stop it, or give this one another directory".to_owned(),
    })
}

/// Reads everything back and removes what a crash left half made.
pub(super) fn load(store: &Path) -> Result<Index, Error> {
    let mut index = Index::default();
    for path in children(&store.join("work"))? {
        tree::remove_path(&path).map_err(|e| Error::io("removing", &path, e))?;
    }
    for path in children(&store.join("layers"))? {
        let digest = file_name(&path).and_then(Digest::from_hex);
        match (digest, read_json(&path.join("layer.json"))) {
            (Some(digest), Some(size_bytes)) => {
                let layer = super::index::Layer {
                    size_bytes,
                    pins: 0,
                };
                index.layers.insert(digest, layer);
            }
            _ => discard(&path)?,
        }
    }
    for path in children(&store.join("images"))? {
        match read_json::<ImageRecord>(&path) {
            Some(record) if record.layers.iter().all(|l| index.layers.contains_key(l)) => {
                index.images.insert(record.id.clone(), record);
            }
            _ => discard(&path)?,
        }
    }
    forget_unnamed_layers(store, &mut index)?;
    for path in children(&store.join("host"))? {
        let id = file_name(&path).map(host::image_id);
        match (id, read_json::<Vec<PathBuf>>(&path.join("binds.json"))) {
            (Some(id), Some(binds)) => {
                let binds = binds.into_iter().map(host::bind).collect();
                index.hosts.insert(
                    id,
                    HostTree {
                        binds,
                        config: host::config(),
                    },
                );
            }
            _ => discard(&path)?,
        }
    }
    load_snapshots(store, &mut index)?;
    let known = load_names(store)?
        .into_iter()
        .filter(|(_, id)| index.images.contains_key(id));
    index.names = known.collect();
    Ok(index)
}

/// A file that cannot be read must not pass for an empty one: every image would be garbage.
fn load_names(store: &Path) -> Result<Vec<(ImageName, ImageId)>, Error> {
    let path = store.join("names.json");
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| Error::Corrupt {
            what: path.display().to_string(),
            message: format!("{e}; mend it, or delete it to forget what the images are called"),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::io("reading", &path, error)),
    }
}

/// Removes layers whose image was never recorded: nobody knows whether they are whole.
fn forget_unnamed_layers(store: &Path, index: &mut Index) -> Result<(), Error> {
    let named: HashSet<Digest> = index
        .images
        .values()
        .flat_map(|record| record.layers.iter().copied())
        .collect();
    let unnamed: Vec<Digest> = index
        .layers
        .keys()
        .filter(|layer| !named.contains(layer))
        .copied()
        .collect();
    for layer in unnamed {
        discard(&layer_directory(store, &layer))?;
        index.layers.remove(&layer);
    }
    Ok(())
}

fn load_snapshots(store: &Path, index: &mut Index) -> Result<(), Error> {
    for path in children(&store.join("snapshots"))? {
        let record: Option<SnapshotRecord> = read_json(&path.join("record.json"));
        match record {
            // The layer is moved in last: without it the snapshot was never made.
            Some(record) if path.join("fs").is_dir() => {
                index.snapshots.insert(record.id.clone(), record);
            }
            _ => discard(&path)?,
        }
    }
    Ok(())
}

fn discard(path: &Path) -> Result<(), Error> {
    tracing::warn!(path = %path.display(), "removing what a crash left incomplete");
    tree::remove_path(path).map_err(|e| Error::io("removing", path, e))
}

fn file_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

pub(super) fn children(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |e| Error::io("reading", directory, e);
    let entries = fs::read_dir(directory).map_err(failed)?;
    entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(failed))
        .collect()
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Writes a file whole: under another name, to the disk, then into place.
pub(super) fn write_json(
    store: &Path,
    path: &Path,
    value: &impl serde::Serialize,
) -> Result<(), Error> {
    let work = WorkDirectory::new(store)?;
    let new = work.path().join("new");
    let bytes = serde_json::to_vec(value).expect("records have string keys and no floats");
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        sync_directory(path.parent().unwrap_or(store))
    };
    write().map_err(|e| Error::io("writing", path, e))
}

pub(super) fn write_names(
    store: &Path,
    names: &std::collections::BTreeMap<ImageName, ImageId>,
) -> Result<(), Error> {
    let list: Vec<(&ImageName, &ImageId)> = names.iter().collect();
    write_json(store, &store.join("names.json"), &list)
}

pub(super) fn image_record_path(store: &Path, id: &ImageId) -> PathBuf {
    store.join("images").join(format!(
        "{}.json",
        id.as_str().trim_start_matches("sha256:")
    ))
}

/// A rename is on the disk once its directory is.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Everything written so far to the file system of `path`. One call for a whole tree: syncing
/// its files one by one takes a commit each.
pub(super) fn sync_file_system(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(path)?)?)
}

/// Moves a file or directory into `work/`, which opening the store empties. Returns where to, unless
/// it was gone already.
pub(super) fn move_to_trash(store: &Path, path: &Path) -> Result<Option<PathBuf>, Error> {
    let trashed = store
        .join("work")
        .join(format!("gone-{:032x}", rand::random::<u128>()));
    match fs::rename(path, &trashed) {
        Ok(()) => Ok(Some(trashed)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("removing", path, error)),
    }
}

/// Moves a directory to where only something unknown can stand; that goes.
pub(super) fn move_over(store: &Path, from: &Path, to: &Path) -> Result<(), Error> {
    let unknown = move_to_trash(store, to)?;
    fs::rename(from, to).map_err(|e| Error::io("moving to", to, e))?;
    match unknown {
        Some(trashed) => {
            tree::remove_path(&trashed).map_err(|e| Error::io("removing", &trashed, e))
        }
        None => Ok(()),
    }
}

/// Moves a host tree into place. It need not reach the disk: its name holds only until the next
/// boot, and a snapshot that stands on it is synced with all that was written before.
pub(super) fn install_host(store: &Path, work: &WorkDirectory, id: &ImageId) -> Result<(), Error> {
    let path = host_directory(store, id);
    fs::rename(work.path(), &path).map_err(|e| Error::io("installing", &path, e))
}
