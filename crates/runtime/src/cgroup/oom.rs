//! Tells when the kernel kills a process of a group for memory.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Error;
use super::group::Group;
use super::tree::write;
use crate::sys::event::watch_for;

/// The first wait for the kill count of v1 to change: about as long as a kill takes. Each further
/// wait is twice as long.
const POLL_FIRST: Duration = Duration::from_micros(100);
/// When to stop waiting: a kill that takes longer is found by the next event, or when the
/// sandbox ends and its count is read.
const POLL_DEADLINE: Duration = Duration::from_secs(1);

/// Waits for kills of one group.
pub struct OomWatch {
    group: Group,
    seen: u64,
    source: Source,
}

enum Source {
    /// Counts up on every out-of-memory condition, and once when the group is removed.
    V1(AsyncFd<OwnedFd>),
    /// Raises a priority event on every change of the file.
    V2(AsyncFd<OwnedFd>),
}

impl OomWatch {
    pub(super) fn v1(group: Group, dir: &Path) -> Result<Self, Error> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::kernel("making an eventfd", e))?;
        let control = open(&dir.join("memory.oom_control"))?;
        let registration = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
        write(&dir.join("cgroup.event_control"), &registration)?;
        let event = watch_for(event, Interest::READABLE)
            .map_err(|e| Error::kernel("watching an eventfd", e))?;
        Ok(Self {
            seen: group.oom_kills(),
            group,
            source: Source::V1(event),
        })
    }

    pub(super) fn v2(group: Group, dir: &Path) -> Result<Self, Error> {
        let events = watch_for(open(&dir.join("memory.events"))?.into(), Interest::PRIORITY)
            .map_err(|e| Error::kernel("watching memory.events", e))?;
        Ok(Self {
            seen: group.oom_kills(),
            group,
            source: Source::V2(events),
        })
    }

    /// How many processes have been killed since the last call; waits for the first. `None`
    /// once the group is gone. Safe to cancel.
    pub async fn next(&mut self) -> Option<u64> {
        loop {
            let total = self.group.oom_kills();
            if total > self.seen {
                let new = total - self.seen;
                self.seen = total;
                return Some(new);
            }
            if !self.group.exists() {
                return None;
            }
            self.wait().await.ok()?;
            self.wait_for_kill_count().await;
        }
    }

    /// v1 tells of the shortage before it kills, and has no event for the kill. It follows within
    /// microseconds, or never, when a process that was ending anyway made room.
    async fn wait_for_kill_count(&self) {
        if let Source::V2(_) = self.source {
            return;
        }
        let (mut pause, mut waited) = (POLL_FIRST, Duration::ZERO);
        while self.group.oom_kills() == self.seen && waited < POLL_DEADLINE {
            tokio::time::sleep(pause).await;
            waited += pause;
            pause *= 2;
        }
    }

    async fn wait(&self) -> std::io::Result<()> {
        match &self.source {
            Source::V1(event) => {
                let mut ready = event.readable().await?;
                let mut count = [0_u8; 8];
                // The count is of no interest; reading it arms the next wait.
                let _ = rustix::io::read(event.get_ref().as_fd(), &mut count);
                ready.clear_ready();
            }
            Source::V2(events) => {
                let mut ready = events.ready(Interest::PRIORITY).await?;
                let _ = rustix::io::pread(events.get_ref(), &mut [0_u8; 512], 0);
                ready.clear_ready();
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> Result<fs::File, Error> {
    fs::File::open(path).map_err(|e| Error::kernel(format!("opening {}", path.display()), e))
}
