//! The signals that ask a daemon to end, or to read its settings again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Catches the signals that ask this process to end, from the moment it is made.
#[derive(Debug)]
pub struct Termination {
    terminate: Signal,
    interrupt: Signal,
}

impl Termination {
    /// Begins to catch them. Must run inside a tokio runtime.
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one and tells its name.
    pub async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Catches the signal that asks this process to read its settings again, SIGHUP, from the moment it is made.
/// Uncaught, it would end the process (signal(7)).
#[derive(Debug)]
pub struct Hangup(Signal);

impl Hangup {
    /// Begins to catch it. Must run inside a tokio runtime.
    pub fn catch() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for the next one.
    pub async fn wait(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
