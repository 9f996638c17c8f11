//! Removing a sandbox so that a crash at any point is finished by the next start.
//!
//! The first act is to rename its directory into the trash: from then on it does not exist for
//! anybody, and the record in the trash says what is left to take away. The directory itself goes
//! last.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lifecycle::backend::Error;
use rustix::process::Signal;

use super::copy::remove_tree;
use super::{Sandbox, State, build, disk_image, volume};
use crate::backend::Shared;
use crate::config::Layout;

/// Ends a sandbox and takes it away. Returns when it is gone for every observer; the slow part
/// goes on behind.
pub(crate) async fn delete(
    shared: &Arc<Shared>,
    sandbox: &Arc<Sandbox>,
    grace: Duration,
) -> Result<(), Error> {
    let _change = sandbox.change.lock().await;
    if !shared.sandboxes.contains(sandbox) {
        // Another caller was faster.
        return Ok(());
    }
    if !grace.is_zero() && !matches!(sandbox.state(), State::Exited(_)) {
        sandbox.signal(Signal::TERM)?;
        sandbox.resume().or_else(|error| match error {
            // It ended between the signal and now.
            Error::WrongState { .. } => Ok(()),
            other => Err(other),
        })?;
        let _ = tokio::time::timeout(grace, sandbox.wait_for_exit()).await;
    }
    let trashed = move_to_trash(&sandbox.directory(), &shared.layout)
        .map_err(|source| build::failed(format!("deleting sandbox {}", sandbox.id()), source))?;
    *sandbox
        .directory
        .lock()
        .expect("no code panics with this lock held") = trashed.clone();
    sandbox.kill()?;
    shared.sandboxes.remove(sandbox.id());
    let (sandbox, behind) = (sandbox.clone(), shared.clone());
    shared.behind.spawn(async move {
        sandbox.wait_for_exit().await;
        remove_trashed(&behind, trashed, sandbox.record.own_volumes.clone()).await;
        drop(sandbox);
    });
    Ok(())
}

/// Removes a directory in the trash, whose processes have ended.
pub(crate) async fn remove_trashed(shared: &Shared, trashed: PathBuf, own_volumes: Vec<String>) {
    let volumes = shared.layout.volumes();
    let _turn = shared.removals.acquire().await;
    let removed = tokio::task::spawn_blocking(move || {
        remove_volumes(&own_volumes, &volumes);
        remove_directory(&trashed).map_err(|error| (trashed, error))
    });
    if let Ok(Err((path, error))) = removed.await {
        // The next start tries again.
        tracing::warn!(path = %path.display(), error = %api::error_chain(&error), "a deleted sandbox's files remain");
    }
}

/// Moves a directory into the trash under a name of its own.
pub(crate) fn move_to_trash(directory: &Path, layout: &Layout) -> io::Result<PathBuf> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = directory
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    loop {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let trashed = layout.trash().join(format!("{name}.{number}"));
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(
            rustix::fs::CWD,
            directory,
            rustix::fs::CWD,
            &trashed,
            flags,
        ) {
            Ok(()) => return Ok(trashed),
            // Left by an earlier server.
            Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Removes a directory whose sandbox never came to be.
pub(crate) fn remove_now(directory: &Path, layout: &Layout) -> io::Result<()> {
    remove_directory(&move_to_trash(directory, layout)?)
}

/// Removes a sandbox's directory, what is mounted in it first.
fn remove_directory(trashed: &Path) -> io::Result<()> {
    disk_image::unmount(trashed)?;
    remove_tree(trashed)
}

pub(crate) fn remove_volumes(claims: &[String], volumes_dir: &Path) {
    for claim in claims {
        if let Err(error) = volume::remove(claim, volumes_dir) {
            tracing::warn!(volume = claim, error = %api::error_chain(&error), "a volume could not be removed");
        }
    }
}
