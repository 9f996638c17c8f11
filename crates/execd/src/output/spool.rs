//! Where journals put output that no longer fits in memory: files without a name, which
//! vanish with the last block that lies in them and with the daemon.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, Mode, OFlags};

/// Makes unnamed files for journals.
#[derive(Debug, Default)]
pub(crate) struct Spool {
    /// The first directory that can hold unnamed files; `None` when there is none, as in an
    /// image with a read-only root.
    directory: OnceLock<Option<PathBuf>>,
}

impl Spool {
    /// A new empty file, on disk where possible, else in memory. Blocks.
    pub(crate) fn create(&self) -> io::Result<File> {
        if let Some(directory) = self.directory.get_or_init(first_usable)
            && let Ok(file) = unnamed(directory)
        {
            return Ok(file);
        }
        Ok(rustix::fs::memfd_create("output", MemfdFlags::CLOEXEC)?.into())
    }
}

fn first_usable() -> Option<PathBuf> {
    let candidates = ["/var/tmp", "/tmp", "/dev/shm"].map(PathBuf::from);
    candidates
        .into_iter()
        .find(|directory| unnamed(directory).is_ok())
}

/// Only the daemon's own user may open it again through /proc.
fn unnamed(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?.into())
}
