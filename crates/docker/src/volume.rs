//! Volumes: from a request to mounts for the engine, without trusting a name twice.
//!
//! A host path is resolved below the allow-list's directory and a sub-path below its volume with
//! links forbidden, because other sandboxes may write to the same volume and plant one between the
//! check and the engine's use. What comes out is a descriptor, which is mounted where only root can
//! look; the engine is told that place, and it is gone once the container runs.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use bollard::models::{Mount, MountType, VolumeCreateRequest};
use lifecycle::backend::{Error, Volume, VolumeSource};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::engine::{Engine, EngineError};
use crate::labels::VOLUME_MAKER;

/// Directories of a sandbox that no volume may cover.
const RESERVED: [&str; 4] = ["/proc", "/sys", "/dev", "/opt/opensandbox"];

/// Mounts, and what they need until the container runs.
pub(crate) struct Prepared {
    /// Where places are pinned, and under which name.
    pins: PathBuf,
    id: String,
    pub(crate) mounts: Vec<Mount>,
    /// Named volumes that this request made.
    pub(crate) made: Vec<String>,
    /// Those of them that go with the sandbox.
    pub(crate) leaving: Vec<String>,
    held: Vec<Pin>,
}

/// A place that the engine can be told, because nobody but root can lead it elsewhere. Dropping it
/// takes nothing from a container that has it.
struct Pin(PathBuf);

impl Pin {
    fn new(place: &OwnedFd, at: PathBuf) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(place)?.st_mode);
        if kind.is_dir() {
            std::fs::create_dir(&at)?;
        } else {
            File::create_new(&at)?;
        }
        let source = format!("/proc/self/fd/{}", place.as_raw_fd());
        let pin = Self(at);
        rustix::mount::mount_bind(source, &pin.0)?;
        Ok(pin)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        unpin(&self.0);
    }
}

/// Unmounts and removes a pin. Never what is in it: a directory that is still mounted is busy.
fn unpin(at: &Path) {
    let _ = rustix::mount::unmount(at, UnmountFlags::DETACH);
    if std::fs::remove_dir(at).is_err() {
        let _ = rustix::fs::unlink(at);
    }
}

/// Removes the pins that a server which was killed left.
pub(crate) fn unpin_all(pins: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(pins)? {
        unpin(&entry?.path());
    }
    Ok(())
}

impl Prepared {
    pub(crate) fn new(pins: PathBuf, id: String) -> Self {
        Self {
            pins,
            id,
            mounts: Vec::new(),
            made: Vec::new(),
            leaving: Vec::new(),
            held: Vec::new(),
        }
    }

    /// The container runs and has its own.
    pub(crate) fn release(&mut self) {
        self.held.clear();
    }

    /// Adds the mount of one volume.
    pub(crate) async fn add(&mut self, engine: &Engine, volume: &Volume) -> Result<(), Error> {
        let target = target(&volume.mount_path)?;
        let source = match &volume.source {
            VolumeSource::HostPath { path, allowed_root } => {
                let mut place = open_host_path(path, allowed_root)?;
                if let Some(sub_path) = &volume.sub_path {
                    place = open_sub_path(place, sub_path)?;
                }
                self.hold(&place)?
            }
            VolumeSource::Named {
                claim,
                create,
                delete_with_sandbox,
                ..
            } => {
                let root = self
                    .named(engine, claim, *create, *delete_with_sandbox)
                    .await?;
                let Some(sub_path) = &volume.sub_path else {
                    self.mounts
                        .push(mount(MountType::VOLUME, claim.clone(), target, volume));
                    return Ok(());
                };
                let place = File::open(&root).map_err(|error| Error::Invalid {
                    field: "volumes.subPath",
                    message: format!("the engine keeps volume {claim} in {root}, which this server cannot open: {error}"),
                })?;
                let place = open_sub_path(place.into(), sub_path)?;
                self.hold(&place)?
            }
        };
        self.mounts
            .push(mount(MountType::BIND, source, target, volume));
        Ok(())
    }

    fn hold(&mut self, place: &OwnedFd) -> Result<String, Error> {
        let at = self.pins.join(format!("{}-{}", self.id, self.held.len()));
        let name = at.display().to_string();
        let pin = Pin::new(place, at).map_err(|error| Error::Invalid {
            field: "volumes",
            message: match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "host paths and sub-paths need a server that runs as root".to_owned()
                }
                _ => format!("the place cannot be mounted: {error}"),
            },
        })?;
        self.held.push(pin);
        Ok(name)
    }

    /// Where the engine keeps a volume, which is made if that was asked for.
    async fn named(
        &mut self,
        engine: &Engine,
        claim: &str,
        create: bool,
        delete_with_sandbox: bool,
    ) -> Result<String, Error> {
        let asked = engine.call("looking for a volume", engine.api.inspect_volume(claim));
        match asked.await {
            Ok(found) => return Ok(found.mountpoint),
            Err(failure) if failure.status() != Some(404) => return Err(refused(failure)),
            Err(_) if !create => {
                return Err(wrong_claim(format!(
                    "there is no volume {claim}; ask for it to be created"
                )));
            }
            Err(_) => {}
        }
        let (maker, value) = VOLUME_MAKER;
        let request = VolumeCreateRequest {
            name: Some(claim.to_owned()),
            labels: Some([(maker.to_owned(), value.to_owned())].into()),
            ..VolumeCreateRequest::default()
        };
        let made = engine.call("making a volume", engine.api.create_volume(request));
        let made = made.await.map_err(refused)?;
        self.made.push(claim.to_owned());
        if delete_with_sandbox {
            self.leaving.push(claim.to_owned());
        }
        Ok(made.mountpoint)
    }
}

fn refused(failure: EngineError) -> Error {
    match failure.status() {
        Some(400) => wrong_claim(failure.message().to_owned()),
        _ => failure.into_error(),
    }
}

fn wrong_claim(message: String) -> Error {
    Error::Invalid {
        field: "volumes.pvc.claimName",
        message,
    }
}

fn mount(typ: MountType, source: String, target: String, volume: &Volume) -> Mount {
    Mount {
        typ: Some(typ),
        source: Some(source),
        target: Some(target),
        read_only: Some(volume.read_only),
        ..Mount::default()
    }
}

/// Removes a named volume; what others still use stays.
pub(crate) async fn remove(engine: &Engine, claim: &str) -> Result<(), EngineError> {
    let none = None::<bollard::query_parameters::RemoveVolumeOptions>;
    let removed = engine.call("removing a volume", engine.api.remove_volume(claim, none));
    match removed.await {
        Err(failure) if failure.status() == Some(404) => Ok(()),
        Err(failure) if failure.status() == Some(409) => {
            tracing::info!(volume = claim, "kept: another container uses it");
            Ok(())
        }
        other => other,
    }
}

/// The parts of a path below something, refusing all that could lead out.
fn parts(path: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    (!parts.contains(&"..") && !path.contains('\0')).then_some(parts)
}

fn target(path: &str) -> Result<String, Error> {
    let wrong = |message: String| Error::Invalid {
        field: "volumes.mountPath",
        message,
    };
    let parts = parts(path).filter(|_| path.starts_with('/'));
    let parts =
        parts.ok_or_else(|| wrong(format!("{path} must be an absolute path without ..")))?;
    let plain = format!("/{}", parts.join("/"));
    let covers = |reserved: &&str| Path::new(&plain).starts_with(reserved);
    if plain == "/" || RESERVED.iter().any(covers) {
        return Err(wrong(format!("a volume cannot be mounted at {path}")));
    }
    Ok(plain)
}

fn open_host_path(path: &str, allowed_root: &str) -> Result<OwnedFd, Error> {
    let wrong = |message: String| Error::Invalid {
        field: "volumes.host.path",
        message,
    };
    let relative = Path::new(path)
        .strip_prefix(allowed_root)
        .map_err(|_| wrong(format!("{path} is not below {allowed_root}")))?;
    // The allow-list is the operator's, so links in it are theirs to make.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, allowed_root, flags | OFlags::DIRECTORY, Mode::empty())
        .map_err(|errno| wrong(format!("the allowed directory {allowed_root}: {errno}")))?;
    if relative.as_os_str().is_empty() {
        return Ok(root);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(&root, relative, flags, Mode::empty(), resolve).map_err(|errno| {
        wrong(match errno {
            Errno::NOENT => format!("{path} does not exist on this machine; make it first"),
            Errno::XDEV | Errno::LOOP => format!("{path} leads out of {allowed_root}"),
            _ => format!("{path}: {errno}"),
        })
    })
}

/// A sub-path, made where it is missing. No part of it may be a link.
fn open_sub_path(root: OwnedFd, sub_path: &str) -> Result<OwnedFd, Error> {
    let wrong = |message: String| Error::Invalid {
        field: "volumes.subPath",
        message,
    };
    let parts = parts(sub_path).filter(|_| !sub_path.starts_with('/'));
    let parts =
        parts.ok_or_else(|| wrong(format!("{sub_path} must be a relative path without ..")))?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let mut here = root;
    for part in parts {
        let made = rustix::fs::mkdirat(&here, part, Mode::from_raw_mode(0o755));
        let opened = match made {
            Ok(()) | Err(Errno::EXIST) => {
                rustix::fs::openat2(&here, part, flags, Mode::empty(), resolve)
            }
            Err(errno) => Err(errno),
        };
        here = opened.map_err(|errno| {
            wrong(match errno {
                Errno::LOOP | Errno::XDEV => format!("{part} is a link; a sub-path must not be"),
                _ => format!("{part}: {errno}"),
            })
        })?;
    }
    Ok(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_covers_nothing_it_must_not() {
        assert_eq!(target("/data//x/./y/").unwrap(), "/data/x/y");
        for path in [
            "",
            "data",
            "/",
            "/proc",
            "/dev/shm",
            "/a/../b",
            "/opt/opensandbox/bin",
        ] {
            assert!(target(path).is_err(), "{path}");
        }
        target("/opt/opensandbox-data").unwrap();
    }

    #[test]
    fn a_sub_path_follows_no_link() {
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", root.path().join("link")).unwrap();
        let open = || OwnedFd::from(File::open(root.path()).unwrap());
        open_sub_path(open(), "new/deep").unwrap();
        assert!(root.path().join("new/deep").is_dir());
        for path in ["link", "link/x", "../x", "/x", "new/../.."] {
            assert!(open_sub_path(open(), path).is_err(), "{path}");
        }
    }
}
