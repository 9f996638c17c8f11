//! Terminals over WebSocket: a shell that outlives its connections.
//!
//! The shell's output goes into a ring that never makes it wait; a connected client reads
//! the ring at its own pace and, when it falls too far behind, is told where it goes on.
//! One client holds a terminal at a time; another may take it over.

mod ring;
mod routes;
mod shell;
mod socket;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use api::exec::pty::{DEFAULT_SIZE, Mode};
use api::id::PtyId;
use rustix::process::Signal;
use tokio::sync::{Notify, watch};

pub(crate) use routes::router;

use crate::limits::{self, Reached};
use crate::process::{Exit, locked};
use ring::Ring;
use shell::Shell;

/// All terminals.
#[derive(Default)]
pub(crate) struct Ptys {
    all: Mutex<HashMap<String, Arc<Pty>>>,
}

/// One terminal.
struct Pty {
    id: PtyId,
    cwd: Option<PathBuf>,
    command: Option<String>,
    inner: Mutex<Inner>,
    /// Output was added, or the shell ended.
    grown: Notify,
    /// The number of the client that holds the terminal; 0 for none.
    holder: watch::Sender<u64>,
    /// Keeps two clients that connect at once from starting two shells.
    starting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Inner {
    ring: Ring,
    shell: Option<Arc<Shell>>,
    /// How the last shell ended, and the offset of its last output.
    ended: Option<(Exit, u64)>,
    clients: u64,
    /// Columns and rows that a shell starts with.
    size: (u16, u16),
}

impl Ptys {
    fn find(&self, id: &str) -> Option<Arc<Pty>> {
        locked(&self.all).get(id).cloned()
    }

    fn add(&self, pty: &Arc<Pty>) -> Result<(), Reached> {
        let mut all = locked(&self.all);
        if all.len() >= limits::PTYS {
            return Err(Reached {
                name: "PTYS",
                value: limits::PTYS,
                advice: "delete a terminal that is not needed any more",
            });
        }
        all.insert(pty.id.to_string(), Arc::clone(pty));
        Ok(())
    }

    fn take(&self, id: &str) -> Option<Arc<Pty>> {
        locked(&self.all).remove(id)
    }
}

impl Pty {
    fn new(
        id: PtyId,
        cwd: Option<PathBuf>,
        command: Option<String>,
        size: Option<(u16, u16)>,
    ) -> Self {
        let inner = Inner {
            size: size.unwrap_or(DEFAULT_SIZE),
            ..Inner::default()
        };
        Self {
            id,
            cwd,
            command,
            inner: Mutex::new(inner),
            grown: Notify::new(),
            holder: watch::Sender::new(0),
            starting: tokio::sync::Mutex::new(()),
        }
    }

    fn shell(&self) -> Option<Arc<Shell>> {
        locked(&self.inner).shell.clone()
    }

    /// The size that a shell starts with; one that runs gets it at once.
    fn set_size(&self, size: (u16, u16)) {
        let shell = {
            let mut inner = locked(&self.inner);
            inner.size = size;
            inner.shell.clone()
        };
        if let Some(shell) = shell {
            // One that has just ended has no size.
            let _ = shell.resize(size.0, size.1);
        }
    }

    fn is_held(&self) -> bool {
        *self.holder.borrow() != 0
    }

    /// Makes the caller the holder and tells the one before.
    fn hold(&self) -> u64 {
        let client = {
            let mut inner = locked(&self.inner);
            inner.clients += 1;
            inner.clients
        };
        self.holder.send_replace(client);
        client
    }

    fn release(&self, client: u64) {
        self.holder.send_if_modified(|holder| {
            let is_own = *holder == client;
            if is_own {
                *holder = 0;
            }
            is_own
        });
    }

    fn kill(&self) {
        if let Some(shell) = self.shell() {
            shell.process.signal_group(Signal::HUP);
            shell.process.signal_group(Signal::KILL);
        }
    }
}

fn mode_of(wants_pipe: bool) -> Mode {
    if wants_pipe { Mode::Pipe } else { Mode::Pty }
}
