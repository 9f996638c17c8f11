//! The crate's only unsafe code: handing a descriptor to the reactor.

use std::io;

use rustix::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Lets the reactor watch a descriptor for reading. Must be called within a runtime.
pub(crate) fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and names the same file until it is dropped, and the
    // `AsyncFd` owns it from here on.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    watched.map_err(Into::into)
}
