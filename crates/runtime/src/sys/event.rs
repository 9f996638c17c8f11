//! Waits on descriptors within the event loop.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Hands a descriptor to the event loop of the current runtime.
pub(crate) fn watch_for(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` keeps its one descriptor open until it is dropped, and `AsyncFd` owns
    // it until then.
    unsafe { AsyncFd::register_with_interest(descriptor, interest) }.map_err(Into::into)
}
