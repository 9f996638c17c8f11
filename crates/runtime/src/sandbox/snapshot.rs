//! Keeping a sandbox's filesystem as something new sandboxes start from.
//!
//! An ended sandbox's writable layer is moved: constant time, whatever its size. A living one's
//! cannot be: overlayfs allows no layer of a mounted overlay to be exchanged, and its processes
//! hold files open in it. So its writable layer is copied, by sharing blocks where the filesystem
//! can (xfs, btrfs) and inside the kernel where it cannot: the large files that are at rest while
//! it runs (see [`Precopy`]), and then the rest while it is frozen, so that it stands still for as
//! long as its tree takes to walk and what is being written takes to copy. Either way a sandbox
//! made from the snapshot costs what one from an image costs: one layer more.
//!
//! What is written back to the disk afterwards, when the sandbox runs again: a snapshot that was
//! acknowledged survives a crash of the machine.

use std::io;
use std::path::Path;
use std::sync::Arc;

use api::id::SnapshotId;
use jiff::Timestamp;
use lifecycle::backend::{Error, SnapshotDetails, Source};
use rustix::fs::{Mode, OFlags};

use super::build::{WRITABLE_DIR, failed};
use super::copy::{copy_tree, remove_tree, size_of_tree};
use super::create::image_error;
use super::precopy::Precopy;
use super::record::Record;
use super::skeleton::OWN_FILES;
use super::{Sandbox, State, group_error};
use crate::backend::Shared;
use crate::image;

/// Makes `snapshot` of a sandbox in any state.
pub(crate) async fn snapshot(
    shared: &Arc<Shared>,
    sandbox: &Arc<Sandbox>,
    snapshot: &SnapshotId,
) -> Result<SnapshotDetails, Error> {
    let _change = sandbox.change.lock().await;
    if let Some(existing) = find(shared, snapshot) {
        // Called twice for one snapshot: the first made it.
        return Ok(existing);
    }
    let size_bytes = match sandbox.state() {
        // What is in a filesystem of its own cannot be moved out of it.
        State::Exited(_) if sandbox.record.limits.disk_bytes.is_none() => {
            return seal(shared, sandbox, snapshot).await;
        }
        State::Exited(_) | State::Paused => copy(shared, sandbox, snapshot, None).await.0?,
        State::Running => {
            let early = precopy(shared, sandbox, snapshot).await;
            let alive = sandbox.expect_alive("running")?;
            alive
                .group
                .freeze()
                .await
                .map_err(|error| group_error("freezing", &error))?;
            let (copied, early) = copy(shared, sandbox, snapshot, early).await;
            // Whatever became of the copy, the sandbox goes on.
            if let Err(error) = alive.group.thaw() {
                sandbox.set_unless_exited(State::Paused);
                return Err(group_error("thawing", &error));
            }
            // What of it was not used takes time to remove.
            shared.behind.spawn_blocking(move || drop(early));
            copied?
        }
    };
    store(shared, sandbox, snapshot, size_bytes).await?;
    Ok(details(snapshot, size_bytes))
}

fn details(snapshot: &SnapshotId, size_bytes: u64) -> SnapshotDetails {
    SnapshotDetails {
        id: snapshot.clone(),
        size_bytes,
        created_at: Timestamp::now(),
    }
}

/// The snapshots there are.
pub(crate) fn list(shared: &Shared) -> Vec<SnapshotDetails> {
    let details = |snapshot: image::Snapshot| SnapshotDetails {
        id: snapshot.id,
        size_bytes: snapshot.size_bytes,
        created_at: snapshot.created_at,
    };
    shared.images.snapshots().into_iter().map(details).collect()
}

fn find(shared: &Shared, snapshot: &SnapshotId) -> Option<SnapshotDetails> {
    list(shared).into_iter().find(|known| known.id == *snapshot)
}

/// Copies what a running sandbox is not writing. Whatever goes wrong here goes wrong again, and is
/// told, when the rest is copied.
async fn precopy(
    shared: &Arc<Shared>,
    sandbox: &Arc<Sandbox>,
    snapshot: &SnapshotId,
) -> Option<Precopy> {
    let upper = sandbox.directory().join(WRITABLE_DIR).join("upper");
    // No snapshot's own name has this character.
    let directory = shared.layout.staging().join(format!("{snapshot}~early"));
    let copied = tokio::task::spawn_blocking(move || {
        let _ = remove_tree(&directory);
        Precopy::copy(&upper, &directory)
    });
    match copied.await {
        Ok(Ok(early)) => Some(early),
        Ok(Err(error)) => {
            tracing::warn!(snapshot_id = %snapshot, error = %api::error_chain(&error), "copying ahead failed");
            None
        }
        Err(_) => None,
    }
}

/// Copies the writable layer of a frozen sandbox into the staging directory. Gives back what of
/// the early copies was not used.
async fn copy(
    shared: &Arc<Shared>,
    sandbox: &Arc<Sandbox>,
    snapshot: &SnapshotId,
    mut early: Option<Precopy>,
) -> (Result<u64, Error>, Option<Precopy>) {
    let upper = sandbox.directory().join(WRITABLE_DIR).join("upper");
    let staged = shared.layout.staging().join(snapshot.as_str());
    let copied = tokio::task::spawn_blocking(move || {
        let copied = copy_tree(&upper, &staged, &is_own_file, early.as_mut());
        if copied.is_err() {
            let _ = remove_tree(&staged);
        }
        (copied, early)
    });
    match copied.await {
        Ok((copied, early)) => {
            let action = || format!("copying the writable layer for snapshot {snapshot}");
            (copied.map_err(|source| failed(action(), source)), early)
        }
        Err(error) => {
            let what = format!("copying the writable layer panicked: {error}");
            (Err(Error::Internal(what)), None)
        }
    }
}

/// Moves the writable layer of an ended sandbox into the image store. The sandbox then stands on
/// the snapshot, with an empty writable layer, so that it can be asked for another.
async fn seal(
    shared: &Arc<Shared>,
    sandbox: &Arc<Sandbox>,
    snapshot: &SnapshotId,
) -> Result<SnapshotDetails, Error> {
    let (shared, sandbox, id) = (shared.clone(), sandbox.clone(), snapshot.clone());
    let sealed = tokio::task::spawn_blocking(move || seal_now(&shared, &sandbox, &id));
    let size_bytes = sealed
        .await
        .map_err(|error| Error::Internal(format!("sealing a layer panicked: {error}")))??;
    Ok(details(snapshot, size_bytes))
}

fn seal_now(shared: &Shared, sandbox: &Sandbox, snapshot: &SnapshotId) -> Result<u64, Error> {
    let io = |source: io::Error| failed(format!("sealing snapshot {snapshot}"), source);
    let upper = sandbox.directory().join(WRITABLE_DIR).join("upper");
    let size_bytes = size_of_tree(&upper).map_err(io)?;
    write_back(&upper).map_err(io)?;
    let images = &shared.images;
    let stored = images.add_snapshot(snapshot, &sandbox.image(), &upper, size_bytes);
    let image = stored.map_err(|error| image_error(error, &Source::Snapshot(snapshot.clone())))?;
    std::fs::create_dir(&upper).map_err(io)?;
    let mut record: Record = sandbox.record.clone();
    record.image = image.clone();
    record.write(&sandbox.directory()).map_err(io)?;
    let lease = images.lease_for(&image);
    let lease = lease.map_err(|error| image_error(error, &Source::Snapshot(snapshot.clone())))?;
    sandbox.set_image(image, lease);
    Ok(size_bytes)
}

/// The files that each sandbox gets anew.
fn is_own_file(path: &[u8]) -> bool {
    let name = path.strip_prefix(b"etc/".as_slice());
    name.is_some_and(|name| OWN_FILES.iter().any(|own| own.as_bytes() == name))
}

/// Writes the staged layer to the disk and hands it to the image store.
async fn store(
    shared: &Arc<Shared>,
    sandbox: &Arc<Sandbox>,
    snapshot: &SnapshotId,
    size_bytes: u64,
) -> Result<(), Error> {
    let staged = shared.layout.staging().join(snapshot.as_str());
    let (images, parent, id) = (
        shared.images.clone(),
        sandbox.record.image.clone(),
        snapshot.clone(),
    );
    let stored = tokio::task::spawn_blocking(move || {
        write_back(&staged)
            .map_err(|source| failed(format!("writing snapshot {id} to the disk"), source))?;
        let added = images.add_snapshot(&id, &parent, &staged, size_bytes);
        added.map_err(|error| {
            let _ = remove_tree(&staged);
            image_error(error, &Source::Snapshot(id))
        })
    });
    stored
        .await
        .map_err(|error| Error::Internal(format!("storing a snapshot panicked: {error}")))?
        .map(drop)
}

/// One sync of the filesystem: cheaper than one per file, and the directories are in it.
fn write_back(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(rustix::fs::syncfs(&directory)?)
}
