//! Threads that serve connections, each with an event loop of its own.
//!
//! A runtime with several workers wakes another one whenever a worker finds something to do, in
//! case there is more. For a connection that only passes bytes on, that is a system call and a
//! switch of threads for every read, as much as the reading itself. A connection that stays on one
//! thread, together with whatever it talks to, costs neither.
//!
//! Work that computes or blocks does not belong here: it would hold up every connection of its
//! thread.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The threads. When this is dropped they end, and with them whatever still runs on them.
pub(crate) struct ConnectionThreads {
    runtimes: Vec<Handle>,
    next: AtomicUsize,
    _stop: DropGuard,
}

impl ConnectionThreads {
    /// Starts the threads.
    pub(crate) fn start(count: usize) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let thread = |_| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (handle, stop) = (runtime.handle().clone(), stop.clone());
            std::thread::Builder::new()
                .name("connections".to_owned())
                .spawn(move || {
                    runtime.block_on(stop.cancelled());
                    // A blocking call that hangs must not keep the process from ending.
                    runtime.shutdown_background();
                })?;
            Ok(handle)
        };
        let runtimes = (0..count).map(thread).collect::<io::Result<_>>()?;
        Ok(Self {
            runtimes,
            next: AtomicUsize::new(0),
            _stop: stop.clone().drop_guard(),
        })
    }

    /// The thread for the next connection, in turn; `None` where there are no threads.
    pub(crate) fn next(&self) -> Option<&Handle> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.runtimes.get(turn.checked_rem(self.runtimes.len())?)
    }
}
