//! The only module with `unsafe`: system calls that rustix does not offer safely.

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// Takes ownership of a descriptor that the parent process left open, and marks it
/// close-on-exec so that no child gets it.
pub(crate) fn inherited(fd: RawFd) -> std::io::Result<OwnedFd> {
    // SAFETY: fcntl on any number is safe; it fails with EBADF when nothing is open there.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and each number is taken once, at start, from the
    // command line, before anything else in the process could have opened it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
