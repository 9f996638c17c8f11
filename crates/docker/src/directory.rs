//! What lies on the host beside the engine: the lock, execd, and of each sandbox its control
//! socket, its token and the directory that is mounted into it.
//!
//! ```text
//! lock                        held by the one server that uses the directory
//! execd/<digest>/execd        mounted read-only into every sandbox that runs this version
//! sandboxes/<id>/control.sock where the host reaches execd; never seen inside
//! sandboxes/<id>/record.json  the token, and when the sandbox was ready
//! pins/                       what volumes are mounted from, while a sandbox starts
//! sandboxes/<id>/gate/        mounted read-only: the socket at which execd asks for the rest
//! ```
//!
//! Only root may enter: the control socket and the token are keys to the sandbox.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::id::SandboxId;
use jiff::Timestamp;
use lifecycle::backend::Error;
use rustix::fs::{Mode, OFlags};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::engine::unavailable;

/// A server that is stopping has let go of its data directory by then.
const LOCK_MAX: Duration = Duration::from_secs(5);

const CONTROL: &str = "control.sock";
const RECORD: &str = "record.json";
const GATE: &str = "gate";

/// Where everything is.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

/// What is kept of a sandbox.
#[derive(Serialize, Deserialize)]
struct Record {
    token: String,
    /// `None` until it was ready.
    started_at: Option<Timestamp>,
}

/// What was kept of a sandbox.
pub(crate) struct StoredSandbox {
    pub(crate) token: SecretString,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) control: Option<OwnedFd>,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// Makes the directories and takes the lock, which is held as long as the answer is kept.
    pub(crate) async fn open(&self) -> Result<File, Error> {
        let root = self.root.clone();
        let taken = tokio::task::spawn_blocking(move || {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700);
            builder.create(root.join("sandboxes"))?;
            builder.create(root.join("execd"))?;
            builder.create(root.join("pins"))?;
            let mut options = File::options();
            options.create(true).truncate(false).write(true);
            let file = options.open(root.join("lock"))?;
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
            crate::volume::unpin_all(&root.join("pins"))?;
            io::Result::Ok(file)
        });
        let root = self.root.display();
        match tokio::time::timeout(LOCK_MAX, taken).await {
            Ok(Ok(Ok(lock))) => Ok(lock),
            Ok(Ok(Err(source))) => Err(failed(format!("opening {root}"), source)),
            Ok(Err(panic)) => Err(Error::Internal(panic.to_string())),
            Err(_) => Err(unavailable(format!(
                "another server uses {root}; stop it first, or set docker.data_dir"
            ))),
        }
    }

    pub(crate) fn of(&self, id: &SandboxId) -> PathBuf {
        self.root.join("sandboxes").join(id.as_str())
    }

    pub(crate) fn pins(&self) -> PathBuf {
        self.root.join("pins")
    }

    /// Makes the directory of a new sandbox and returns the one that is mounted into it.
    pub(crate) fn prepare(&self, id: &SandboxId, token: &SecretString) -> io::Result<PathBuf> {
        let directory = self.of(id);
        DirBuilder::new().mode(0o700).create(&directory)?;
        write_record(&directory, token, None)?;
        let gate = directory.join(GATE);
        // Whoever the image's user is must be able to pass.
        DirBuilder::new().mode(0o755).create(&gate)?;
        Ok(gate)
    }

    /// Notes that a sandbox is ready. From here on a restarted server takes it back.
    pub(crate) fn finish(
        &self,
        id: &SandboxId,
        token: &SecretString,
        started_at: Timestamp,
    ) -> io::Result<()> {
        write_record(&self.of(id), token, Some(started_at))
    }

    /// Removes what is kept of a sandbox; `Ok` when there is nothing.
    pub(crate) fn remove(&self, id: &SandboxId) -> io::Result<()> {
        match fs::remove_dir_all(self.of(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Ids of which something is kept.
    pub(crate) fn ids(&self) -> io::Result<Vec<SandboxId>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(self.root.join("sandboxes"))? {
            let name = entry?.file_name().into_string();
            ids.extend(name.ok().and_then(|name| name.try_into().ok()));
        }
        Ok(ids)
    }

    /// Copies execd to where it is mounted from; its digest and directory. Done once per version:
    /// what is there already is what it says it is, because only root writes here.
    pub(crate) fn install(&self, program: &Path) -> Result<(String, PathBuf), Error> {
        let bytes = fs::read(program).map_err(|error| {
            unavailable(format!(
                "execd is not at {}: {error}; install it beside osb or set runtime.execd_path",
                program.display()
            ))
        })?;
        let digest = hex::encode(&Sha256::digest(&bytes)[..16]);
        let directory = self.root.join("execd").join(&digest);
        let place = || {
            if directory.join("execd").exists() {
                return Ok(());
            }
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(&directory)?;
            let fresh = directory.join(".execd");
            fs::write(&fresh, &bytes)?;
            fs::set_permissions(&fresh, Permissions::from_mode(0o755))?;
            fs::rename(fresh, directory.join("execd"))
        };
        match place() {
            Ok(()) => Ok((digest, directory)),
            Err(source) => {
                let action = format!("placing execd in {}", directory.display());
                Err(failed(action, source))
            }
        }
    }

    /// Removes the versions of execd that nobody runs any more.
    pub(crate) fn tidy(&self, in_use: &[String]) -> io::Result<()> {
        for entry in fs::read_dir(self.root.join("execd"))? {
            let entry = entry?;
            let name = entry.file_name();
            if !in_use.iter().any(|digest| name == digest.as_str()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

/// The listening control socket in a sandbox's directory.
pub(crate) fn control(directory: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    bind(directory, CONTROL)
}

/// A listening socket in `directory`. Through the directory's descriptor, because an address has
/// room for 108 bytes and a data directory may have a longer name.
pub(crate) fn bind(directory: &Path, name: &str) -> io::Result<std::os::unix::net::UnixListener> {
    use std::os::fd::AsRawFd as _;
    let directory = File::open(directory)?;
    let path = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
    std::os::unix::net::UnixListener::bind(path)
}

/// The control socket of a sandbox as a descriptor, which no renaming leads elsewhere.
pub(crate) fn control_of(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory.join(CONTROL), flags, Mode::empty())?;
    Ok(opened)
}

/// What is kept in the directory of a sandbox; `None` when there is no such directory.
pub(crate) fn read(directory: &Path) -> io::Result<Option<StoredSandbox>> {
    let record = match fs::read(directory.join(RECORD)) {
        Ok(bytes) => serde_json::from_slice::<Record>(&bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(StoredSandbox {
        token: SecretString::from(record.token),
        started_at: record.started_at,
        control: control_of(directory).ok(),
    }))
}

fn write_record(
    directory: &Path,
    token: &SecretString,
    started_at: Option<Timestamp>,
) -> io::Result<()> {
    let record = Record {
        token: token.expose_secret().to_owned(),
        started_at,
    };
    let fresh = directory.join(".record");
    let mut options = File::options();
    options.create(true).truncate(true).write(true).mode(0o600);
    let mut file = options.open(&fresh)?;
    file.write_all(&serde_json::to_vec(&record)?)?;
    fs::rename(fresh, directory.join(RECORD))
}

pub(crate) fn failed(action: impl Into<String>, source: io::Error) -> Error {
    let is_full = matches!(
        source.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    );
    let action = action.into();
    if is_full {
        return Error::Exhausted {
            what: "disk",
            message: format!("{action}: {source}"),
        };
    }
    Error::Io { action, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_server_at_a_time_and_nobody_else_may_look() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(&root.path().join("data"));
        let lock = layout.open().await.unwrap();
        let id: SandboxId = "one".parse().unwrap();
        let token = SecretString::from("secret".to_owned());
        layout.prepare(&id, &token).unwrap();
        for path in [layout.root.join("sandboxes"), layout.of(&id)] {
            let mode = fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0);
        }
        let record = layout.of(&id).join(RECORD);
        assert_eq!(
            fs::metadata(record).unwrap().permissions().mode() & 0o077,
            0
        );
        drop(lock);
        layout.open().await.unwrap();
    }

    #[test]
    fn a_sandbox_is_ready_only_when_noted() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        fs::create_dir(root.path().join("sandboxes")).unwrap();
        let id: SandboxId = "one".parse().unwrap();
        let token = SecretString::from("secret".to_owned());
        assert!(read(&layout.of(&id)).unwrap().is_none());
        layout.prepare(&id, &token).unwrap();
        let kept = read(&layout.of(&id)).unwrap().unwrap();
        assert_eq!(kept.started_at, None);
        let now = Timestamp::now();
        layout.finish(&id, &token, now).unwrap();
        let kept = read(&layout.of(&id)).unwrap().unwrap();
        assert_eq!(kept.started_at, Some(now));
        assert_eq!(kept.token.expose_secret(), "secret");
        assert_eq!(layout.ids().unwrap(), std::slice::from_ref(&id));
        layout.remove(&id).unwrap();
        layout.remove(&id).unwrap();
        assert!(layout.ids().unwrap().is_empty());
    }
}
