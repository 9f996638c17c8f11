//! `mount_setattr`, which rustix does not have yet.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{Errno, Result};

/// What to change on a mount; see mount_setattr(2).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MountChange<'a> {
    /// `MOUNT_ATTR_*` flags to set.
    pub(crate) set: u64,
    /// The whole tree below it too.
    pub(crate) is_recursive: bool,
    /// Cut every propagation from and to other mounts.
    pub(crate) is_private: bool,
    /// Show owners through this user namespace's mapping. The mount must be detached and not
    /// yet mapped.
    pub(crate) idmap: Option<BorrowedFd<'a>>,
}

#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Changes the mount at `path` below `dir`; an empty `path` is `dir` itself.
pub(crate) fn change_mount(
    dir: BorrowedFd<'_>,
    path: &CStr,
    change: MountChange<'_>,
) -> Result<()> {
    let mut attributes = Attributes {
        set: change.set,
        clear: 0,
        propagation: if change.is_private {
            libc::MS_PRIVATE
        } else {
            0
        },
        user_namespace: 0,
    };
    if let Some(namespace) = change.idmap {
        attributes.set |= libc::MOUNT_ATTR_IDMAP;
        attributes.user_namespace =
            u64::try_from(namespace.as_raw_fd()).map_err(|_| Errno::BADF)?;
    }
    let mut flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    if change.is_recursive {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: `path` is NUL-terminated, `attributes` is a live struct of the size passed, and the
    // call keeps neither.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    super::process::check(outcome).map(drop)
}
