//! Volumes: from a request to a detached mount, without ever trusting a name twice.
//!
//! A host path is resolved below the allow-list's directory with `RESOLVE_BENEATH`, a sub-path
//! below its volume with links forbidden altogether, because other sandboxes may write to the
//! same volume and could plant one between a check and its use. What comes out is a descriptor
//! of a mount; the name is never used again.
//!
//! Named volumes are idmapped like the layers: root in the sandbox is root in the volume, which
//! only root of the host can reach. In a host path root is somebody else, see [`owners`].

mod owners;

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use lifecycle::backend::{Error, Volume, VolumeSource};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use crate::config::HostPathRoot;
use crate::protection::Protection;
use crate::spawner::protocol::MountTarget;
use crate::sys::{self, MountChange};
use owners::Owners;

/// A mount ready to be attached.
pub(crate) struct PreparedMount {
    pub(crate) mount: OwnedFd,
    pub(crate) target: MountTarget,
}

/// Directories of a sandbox that no volume may cover: the kernel's own, which are mounted later.
const RESERVED: [&str; 3] = ["/proc", "/sys", "/dev"];

/// A claim is a directory name.
const CLAIM_BYTES_MAX: usize = 253;

/// The ids of one sandbox, and whose they are in host paths.
pub(crate) struct Ids<'a> {
    /// The sandbox's user namespace.
    pub(crate) user: BorrowedFd<'a>,
    /// The host's id of its root.
    pub(crate) first_id: u32,
    pub(crate) host_path_root: HostPathRoot,
    pub(crate) host_path_ids: Range<u32>,
}

/// Makes the mounts of `volumes`. Names of named volumes that did not exist, and go with the
/// sandbox, are added to `made` as they are made, so that the caller can undo them.
pub(crate) fn prepare(
    volumes: &[Volume],
    volumes_dir: &Path,
    ids: &Ids<'_>,
    made: &mut Vec<String>,
) -> Result<Vec<PreparedMount>, Error> {
    let mut mounts = Vec::with_capacity(volumes.len());
    for volume in volumes {
        let path = target_path(&volume.mount_path)?;
        let (root, owners) = match &volume.source {
            VolumeSource::HostPath { path, allowed_root } => {
                let root = open_host_path(path, allowed_root)?;
                let found = look_at(&root, volume)?;
                let as_whom = match Protection::VolumeOwners.is_on() {
                    true => ids.host_path_root,
                    false => HostPathRoot::Root,
                };
                let owners = Owners::of(&found, as_whom, &ids.host_path_ids);
                (root, owners)
            }
            VolumeSource::Named {
                claim,
                create,
                delete_with_sandbox,
                ..
            } => {
                let (root, is_new) = open_named(claim, *create, volumes_dir)?;
                if is_new && *delete_with_sandbox {
                    made.push(claim.clone());
                }
                (root, None)
            }
        };
        let source = match &volume.sub_path {
            Some(sub_path) => open_sub_path(&root, sub_path, owners)?,
            None => root,
        };
        let mount = match owners {
            None => prepare_mount(&source, path, volume, ids.user)?,
            Some(owners) => {
                check_writable(&source, volume, owners)?;
                let mapping = owners.mapping(ids.first_id, &ids.host_path_ids);
                let mapping = mapping.map_err(|error| Error::Io {
                    action: format!("mapping the owners of volume {}", volume.name),
                    source: std::io::Error::other(error),
                })?;
                prepare_mount(&source, path, volume, mapping.as_fd())?
            }
        };
        mounts.push(mount);
    }
    Ok(mounts)
}

fn look_at(source: &OwnedFd, volume: &Volume) -> Result<rustix::fs::Stat, Error> {
    rustix::fs::fstat(source).map_err(|errno| Error::Io {
        action: format!("looking at volume {}", volume.name),
        source: errno.into(),
    })
}

/// Says now that nothing could be written to a volume that is to be written to.
fn check_writable(source: &OwnedFd, volume: &Volume, owners: Owners) -> Result<(), Error> {
    let found = look_at(source, volume)?;
    if volume.read_only || owners.may_write(&found) {
        return Ok(());
    }
    let message = format!(
        "volume {} belongs to user {} of the host and root in a sandbox is user {} there, who may \
         not write to it: give it to them with chown {}, or mount it read-only",
        volume.name, found.st_uid, owners.user, owners.user
    );
    Err(Error::Invalid {
        field: "volumes.host.path",
        message,
    })
}

/// The named volumes among `volumes`.
pub(crate) fn claims(volumes: &[Volume]) -> Vec<String> {
    let claim = |volume: &Volume| match &volume.source {
        VolumeSource::Named { claim, .. } => Some(claim.clone()),
        VolumeSource::HostPath { .. } => None,
    };
    volumes.iter().filter_map(claim).collect()
}

/// Makes a named volume; `Ok` when there is one.
pub(crate) fn create(claim: &str, volumes_dir: &Path) -> Result<(), Error> {
    open_named(claim, true, volumes_dir).map(drop)
}

/// Removes a named volume; `Ok` when there is none.
pub(crate) fn remove(claim: &str, volumes_dir: &Path) -> std::io::Result<()> {
    super::copy::remove_tree(&volumes_dir.join(claim))
}

/// Checks a mount path and brings it into its plain form. Only names: what links in the image
/// make of it is settled inside the sandbox's root.
fn target_path(path: &str) -> Result<String, Error> {
    let wrong = |message: String| {
        Err(Error::Invalid {
            field: "volumes.mountPath",
            message,
        })
    };
    if !path.starts_with('/') {
        return wrong(format!("{path} must be an absolute path"));
    }
    let parts: Vec<&str> = path
        .split('/')
        .filter(|p| !p.is_empty() && *p != ".")
        .collect();
    if parts.is_empty() {
        return wrong("a volume cannot be the root directory; mount it below".to_owned());
    }
    if parts.contains(&"..") || path.contains('\0') {
        return wrong(format!("{path} must not contain .. or NUL"));
    }
    let plain = format!("/{}", parts.join("/"));
    let is_reserved =
        |reserved: &&str| plain == **reserved || plain.starts_with(&format!("{reserved}/"));
    if RESERVED.iter().any(is_reserved) {
        return wrong(format!(
            "{path} is the kernel's; volumes cannot be mounted there"
        ));
    }
    Ok(plain)
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn open_host_path(path: &str, allowed_root: &str) -> Result<OwnedFd, Error> {
    let wrong = |message: String| Error::Invalid {
        field: "volumes.host.path",
        message,
    };
    let relative = Path::new(path)
        .strip_prefix(allowed_root)
        .map_err(|_| wrong(format!("{path} is not below {allowed_root}")))?;
    // The allow-list is the operator's, so links in it are theirs to make.
    let root = rustix::fs::openat(CWD, allowed_root, DIRECTORY, Mode::empty())
        .map_err(|errno| wrong(format!("the allowed directory {allowed_root}: {errno}")))?;
    if relative.as_os_str().is_empty() {
        return Ok(root);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat2(&root, relative, flags, Mode::empty(), resolve).map_err(|errno| {
        wrong(match errno {
            Errno::NOENT => format!("{path} does not exist on this machine; make it first"),
            Errno::XDEV | Errno::LOOP => {
                format!("{path} leads out of {allowed_root} through a link")
            }
            _ => format!("{path}: {errno}"),
        })
    })
}

/// Whether a text can be a volume's name: it then names a directory right below the volumes.
pub(crate) fn is_claim(claim: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let begins_well = claim
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphanumeric());
    begins_well && claim.len() <= CLAIM_BYTES_MAX && claim.bytes().all(legal)
}

/// The volume's directory, and whether this call made it.
fn open_named(claim: &str, create: bool, volumes_dir: &Path) -> Result<(OwnedFd, bool), Error> {
    if !is_claim(claim) {
        let message = format!(
            "{claim:?} is not a volume name: use letters, digits, '-', '_' and '.', beginning \
             with a letter or digit"
        );
        return Err(Error::Invalid {
            field: "volumes.pvc.claimName",
            message,
        });
    }
    let path = volumes_dir.join(claim);
    let is_new = create
        && match rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => {
                let action = format!("making the volume {}", path.display());
                return Err(Error::Io {
                    action,
                    source: errno.into(),
                });
            }
        };
    match rustix::fs::openat(CWD, &path, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(root) => Ok((root, is_new)),
        Err(Errno::NOENT) => Err(Error::Invalid {
            field: "volumes.pvc.claimName",
            message: format!("there is no volume {claim}; ask for it to be created"),
        }),
        Err(errno) => {
            let action = format!("opening the volume {}", path.display());
            Err(Error::Io {
                action,
                source: errno.into(),
            })
        }
    }
}

/// A sub-path, made where it is missing. No part of it may be a link: whoever shares the volume
/// can put one there at any moment. What is made belongs to `owners`, else to root.
fn open_sub_path(root: &OwnedFd, sub_path: &str, owners: Option<Owners>) -> Result<OwnedFd, Error> {
    let wrong = |message: String| Error::Invalid {
        field: "volumes.subPath",
        message,
    };
    let parts: Vec<&str> = sub_path
        .split('/')
        .filter(|p| !p.is_empty() && *p != ".")
        .collect();
    if !Protection::VolumePaths.is_on() {
        return rustix::fs::openat(
            root,
            sub_path,
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| wrong(errno.to_string()));
    }
    if sub_path.starts_with('/') || parts.contains(&"..") || sub_path.contains('\0') {
        return Err(wrong(format!(
            "{sub_path} must be a relative path without .."
        )));
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut here = root.try_clone().map_err(|source| Error::Io {
        action: "copying a descriptor".to_owned(),
        source,
    })?;
    for (i, part) in parts.iter().enumerate() {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let open = || rustix::fs::openat2(&here, *part, flags, Mode::empty(), resolve);
        let next = match open() {
            Err(Errno::NOENT) => match make_directory(&here, part, owners) {
                Ok(()) | Err(Errno::EXIST) => open(),
                Err(errno) => Err(errno),
            },
            other => other,
        };
        here = next.map_err(|errno| {
            let so_far = parts[..=i].join("/");
            wrong(match errno {
                Errno::LOOP | Errno::XDEV => format!("{so_far} is a link; a sub-path must not be"),
                _ => format!("{so_far}: {errno}"),
            })
        })?;
    }
    Ok(here)
}

/// Makes a directory that belongs to `owners` from the start: to give it to them later would mean
/// to trust its name a second time.
fn make_directory(at: &OwnedFd, name: &str, owners: Option<Owners>) -> rustix::io::Result<()> {
    let mode = Mode::from_raw_mode(0o755);
    let Some(owners) = owners else {
        return rustix::fs::mkdirat(at, name, mode);
    };
    let made = sys::set_file_ids(owners.user, owners.group)
        .and_then(|()| rustix::fs::mkdirat(at, name, mode));
    if sys::set_file_ids(0, 0).is_err() {
        // The kernel has no reason to refuse. A thread of the server that goes on making files
        // for somebody else must not be.
        std::process::abort();
    }
    made
}

fn prepare_mount(
    source: &OwnedFd,
    path: String,
    volume: &Volume,
    user: BorrowedFd<'_>,
) -> Result<PreparedMount, Error> {
    let io = |action: &str, errno: Errno| Error::Io {
        action: format!("{action} volume {}", volume.name),
        source: errno.into(),
    };
    let found = look_at(source, volume)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    if !kind.is_dir() && !kind.is_file() {
        let message = "only directories and regular files can be mounted".to_owned();
        return Err(Error::Invalid {
            field: "volumes",
            message,
        });
    }
    let mut set = libc::MOUNT_ATTR_NOSUID;
    if Protection::VolumeNoDevices.is_on() {
        set |= libc::MOUNT_ATTR_NODEV;
    }
    if volume.read_only && Protection::VolumeReadOnly.is_on() {
        set |= libc::MOUNT_ATTR_RDONLY;
    }
    let mount = detached_mount(source.as_fd(), set, Some(user)).map_err(|errno| match errno {
        Errno::INVAL | Errno::OPNOTSUPP => Error::Invalid {
            field: "volumes",
            message: format!(
                "the filesystem of volume {} cannot map owners (idmapped mounts); use ext4, xfs, \
                 btrfs or tmpfs",
                volume.name
            ),
        },
        errno => io("mounting", errno),
    })?;
    Ok(PreparedMount {
        mount,
        target: MountTarget {
            path,
            is_directory: kind.is_dir(),
        },
    })
}

/// A detached mount of what `source` is, with attributes, its owners shown through `user`.
/// Mounts below it are left behind.
pub(crate) fn detached_mount(
    source: BorrowedFd<'_>,
    attributes: u64,
    user: Option<BorrowedFd<'_>>,
) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let mount = rustix::mount::open_tree(source, c"", flags)?;
    let change = MountChange {
        set: attributes,
        is_private: true,
        idmap: user,
        ..MountChange::default()
    };
    sys::change_mount(mount.as_fd(), c"", change)?;
    Ok(mount)
}

#[cfg(test)]
mod tests;
