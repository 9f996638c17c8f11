//! Landlock: rights over files that a process gives up for good, see landlock(7).

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, Result};

use super::process::check;

/// Every right over files that an interface version knows, by its number of bits
/// (`LANDLOCK_ACCESS_FS_*` in linux/landlock.h).
///
/// Version 1 is not used: it forbids every rename from one directory to another, and has no right
/// that would allow it.
const RIGHTS: [(i64, u32); 3] = [(2, 14), (3, 15), (5, 16)];

/// What of Landlock this kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Landlock {
    rights: u64,
}

/// `struct landlock_ruleset_attr` in its first size.
#[repr(C)]
struct Ruleset {
    rights: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    rights: u64,
    parent: RawFd,
}

impl Landlock {
    /// `None` where the kernel has none, or only version 1.
    pub(crate) fn find() -> Option<Self> {
        const VERSION: u32 = 1;
        // SAFETY: with this flag the call takes no memory and returns a number.
        let outcome = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                std::ptr::null::<Ruleset>(),
                0,
                VERSION,
            )
        };
        Self::of_version(check(outcome).ok()?)
    }

    fn of_version(version: i64) -> Option<Self> {
        let known = RIGHTS.iter().rev().find(|(since, _)| version >= *since);
        known.map(|(_, bits)| Self {
            rights: (1 << bits) - 1,
        })
    }

    /// This thread, and whatever it becomes or starts, has no right over files but those below
    /// `root`. `no_new_privs` must be set.
    pub(crate) fn restrict_to(self, root: BorrowedFd<'_>) -> Result<()> {
        let ruleset = Ruleset {
            rights: self.rights,
        };
        // SAFETY: `ruleset` is a live struct of the size passed; the call returns a descriptor.
        let outcome = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const ruleset,
                size_of::<Ruleset>(),
                0,
            )
        };
        let descriptor = RawFd::try_from(check(outcome)?).map_err(|_| Errno::BADF)?;
        // SAFETY: the kernel made this descriptor for us just now.
        let ruleset = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let rule = PathBeneath {
            rights: self.rights,
            parent: root.as_raw_fd(),
        };
        const PATH_BENEATH: u32 = 1;
        // SAFETY: `rule` is a live struct of the type named, which the kernel only reads.
        let outcome = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                ruleset.as_raw_fd(),
                PATH_BENEATH,
                &raw const rule,
                0,
            )
        };
        check(outcome)?;
        // SAFETY: takes a descriptor and a number.
        let outcome =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
        check(outcome).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_kernel_restricts_more_and_the_first_version_nothing() {
        let rights = |version| Landlock::of_version(version).map(|it| it.rights);
        assert_eq!(rights(0), None);
        assert_eq!(rights(1), None);
        assert_eq!(rights(2), Some(0x3fff));
        assert_eq!(rights(3), Some(0x7fff));
        assert_eq!(rights(4), Some(0x7fff));
        assert_eq!(rights(5), Some(0xffff));
        assert_eq!(rights(8), Some(0xffff));
    }
}
