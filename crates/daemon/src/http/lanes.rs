//! Threads to which connections are dealt out, each with an event loop of its own.
//!
//! A runtime with several workers wakes another one whenever a worker finds something to do, in
//! case there is more. For a connection that only passes bytes on, that is a system call and a
//! switch of threads for every read, as much as the reading itself. A connection that stays on one
//! thread, together with whatever it talks to, costs neither.
//!
//! What computes or blocks does not belong here: it would hold up every connection of its lane.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The threads. Dropped, they end, and with them whatever still runs on them.
pub(super) struct Lanes {
    lanes: Vec<Handle>,
    next: AtomicUsize,
    _stop: DropGuard,
}

impl Lanes {
    /// Starts the threads.
    pub(super) fn start(count: usize) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let lane = |_| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (handle, stop) = (runtime.handle().clone(), stop.clone());
            std::thread::Builder::new()
                .name("lane".to_owned())
                .spawn(move || {
                    runtime.block_on(stop.cancelled());
                    // Whatever blocks must not keep the process from ending.
                    runtime.shutdown_background();
                })?;
            Ok(handle)
        };
        let lanes = (0..count).map(lane).collect::<io::Result<_>>()?;
        Ok(Self {
            lanes,
            next: AtomicUsize::new(0),
            _stop: stop.clone().drop_guard(),
        })
    }

    /// The lane of the next connection; none where there are no lanes.
    pub(super) fn next(&self) -> Option<&Handle> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.lanes.get(turn.checked_rem(self.lanes.len())?)
    }
}
