//! The only module with `unsafe`: system calls that rustix does not offer safely.

pub(crate) mod fscred;
pub(crate) mod heap;
pub(crate) mod signal;
pub(crate) mod spawn;

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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

/// Keeps glibc from giving each thread an allocation arena of its own: they would cost the
/// idle daemon more private memory than its data.
pub(crate) fn use_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets an integer inside the allocator, before any thread is started.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// The number of bytes waiting in a pipe.
pub(crate) fn readable_bytes(fd: impl std::os::fd::AsFd) -> usize {
    rustix::io::ioctl_fionread(fd).map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0))
}

/// Marks every descriptor from 3 up close-on-exec, so that nothing the daemon's parent left
/// open reaches a command.
pub(crate) fn close_on_exec_from_three() {
    // SAFETY: takes integers; an old kernel without the call answers ENOSYS, and then the
    // descriptors given on the command line are marked one by one.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
}

/// Lets the event loop wait for a descriptor to become readable.
pub(crate) fn watch(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays open, and the same, until the AsyncFd that owns it
    // is dropped.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(Into::into)
}

/// As [`watch`], for a descriptor that is written to as well.
pub(crate) fn watch_both_ways(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: as in `watch`.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE | Interest::WRITABLE) }
        .map_err(Into::into)
}

/// As [`watch`], for a descriptor that is only written to.
pub(crate) fn watch_writable(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: as in `watch`.
    unsafe { AsyncFd::register_with_interest(fd, Interest::WRITABLE) }.map_err(Into::into)
}
