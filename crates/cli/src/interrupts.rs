//! Ctrl-C and its kin, as events to wait for: so that what was begun can be ended properly.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The code for Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// The code for a terminal that is gone.
pub(crate) const HUNG_UP: u8 = 129;

/// Requests to stop.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Interrupts {
    /// From now on requests to stop wait here instead of ending the program.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next request to stop, as the exit code that shells give it.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPTED,
            _ = self.terminate.recv() => 143,
            _ = self.hang_up.recv() => HUNG_UP,
        }
    }
}
