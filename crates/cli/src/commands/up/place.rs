//! Where the server of `osb up` has its socket, its log and the lock of whoever starts or ends it.
//!
//! All of it is root's: a user who could put another socket or file there would decide what root signals. Only
//! the socket itself is given to the user.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use opensandbox::{ConnectionConfig, ENV_UP_DIR};

use crate::error::Error;

/// Who starts or ends a server has done so by then.
const LOCK_DEADLINE: Duration = Duration::from_secs(200);

/// Others may go through to the socket, and see nothing else.
const DIRECTORY_MODE: u32 = 0o711;

/// A log that is longer when a server starts is put aside, in place of the one that was before.
const LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(super) struct Place {
    directory: PathBuf,
    /// Whose server it is.
    pub(super) user: u32,
}

impl Place {
    /// The directories, made where they are not there.
    pub(super) fn make() -> Result<Self, Error> {
        let directory = ConnectionConfig::up_directory();
        let name = directory.file_name().and_then(|name| name.to_str());
        let user = name.and_then(|name| name.parse().ok()).unwrap_or_default();
        for made in directory.parent().into_iter().chain([&*directory]) {
            let builder = std::fs::DirBuilder::new().mode(DIRECTORY_MODE).create(made);
            match builder {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::file("made", made, error));
                }
                _ => check(made)?,
            }
        }
        Ok(Self { directory, user })
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.join("api.sock")
    }

    /// Where the server says that it is ready.
    pub(super) fn notify(&self) -> PathBuf {
        self.directory.join("notify.sock")
    }

    /// On a disk, since it grows; beside the socket where somebody chose that place.
    pub(super) fn log(&self) -> PathBuf {
        match std::env::var_os(ENV_UP_DIR) {
            Some(chosen) if !chosen.is_empty() => self.directory.join("server.log"),
            _ => PathBuf::from(format!("/var/log/opensandbox-up-{}.log", self.user)),
        }
    }

    /// The log, to be added to.
    pub(super) fn open_log(&self) -> Result<File, Error> {
        let path = self.log();
        let wrong = |error| Error::file("written", &path, error);
        if std::fs::metadata(&path).is_ok_and(|log| log.len() > LOG_BYTES_MAX) {
            std::fs::rename(&path, path.with_extension("log.1")).map_err(wrong)?;
        }
        let mut options = File::options();
        options.append(true).create(true).mode(0o600);
        options.open(&path).map_err(wrong)
    }

    /// Waits for another `osb up` or `osb down`; whoever holds the returned file is alone.
    pub(super) async fn lock(&self) -> Result<File, Error> {
        let path = self.directory.join("lock");
        let wrong = |error| Error::file("locked", &path, error);
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(wrong)?;
        let locking = tokio::task::spawn_blocking(move || {
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).map(|()| file)
        });
        match tokio::time::timeout(LOCK_DEADLINE, locking).await {
            Ok(Ok(locked)) => locked.map_err(|error| wrong(error.into())),
            Ok(Err(error)) => Err(wrong(io::Error::other(error))),
            Err(_) => Err(Error::Failed {
                message: "another `osb up` or `osb down` is at work and does not end".to_owned(),
                next: Some(format!("who it is: fuser {}", path.display())),
            }),
        }
    }
}

/// Refuses a directory that others than root could change.
fn check(directory: &Path) -> Result<(), Error> {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let metadata = std::fs::symlink_metadata(directory)
        .map_err(|error| Error::file("read", directory, error))?;
    let is_safe =
        metadata.is_dir() && metadata.uid() == 0 && metadata.mode() & WRITABLE_BY_OTHERS == 0;
    if is_safe {
        return Ok(());
    }
    Err(Error::Failed {
        message: format!(
            "{} must be a directory that root alone can change",
            directory.display()
        ),
        next: Some(format!("move it away, or name another by {ENV_UP_DIR}")),
    })
}
