//! Ends every process of a group.
//!
//! v2 does it in one write. On v1 a group that forks faster than it can be read is first frozen,
//! then each process is signalled through a descriptor that cannot come to mean another process,
//! then the group is thawed, and dies. Either way the call returns when the kernel says that they
//! are gone.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::Error;
use super::group::{Group, wait_for};
use super::layout::{Controller, Layout};
use super::tree::{write, write_raw};

/// How long killed processes may take to be gone. Freeing many gigabytes takes seconds.
pub(super) const KILL_WAIT: Duration = Duration::from_secs(30);

pub(super) fn kill(group: &Group) -> Result<(), Error> {
    if let (Layout::V2 { .. }, Some(dir)) = (&group.tree.layout, group.dir(Controller::Freezer)) {
        // Kills what is frozen too. Kernels before 5.14 lack the file.
        if write_raw(&dir.join("cgroup.kill"), "1").is_ok() {
            let slow = || group.slow("empty");
            return wait_for(&dir.join("cgroup.events"), "populated", 0, KILL_WAIT, slow);
        }
    }
    let started = Instant::now();
    loop {
        // What cannot be frozen is killed as it is read, again and again.
        let _ = freeze(group);
        let dying = signal_all(group);
        let thawed = group.freezer().is_err() || group.thaw().is_ok();
        let dying = dying?;
        if dying.is_empty() {
            return Ok(());
        }
        if !thawed || !wait_for_exits(&dying, started) {
            return Err(group.slow("empty"));
        }
    }
}

/// Asks for a freeze and does not wait for it: a process that is about to stop forks no more.
fn freeze(group: &Group) -> Result<(), Error> {
    let dir = group.freezer()?;
    match &group.tree.layout {
        Layout::V1 { .. } => write(&dir.join("freezer.state"), "FROZEN"),
        Layout::V2 { .. } => write(&dir.join("cgroup.freeze"), "1"),
    }
}

fn signal_all(group: &Group) -> Result<Vec<OwnedFd>, Error> {
    let mut dying = Vec::new();
    for pid in group.processes()? {
        // Gone since the list was read, or a thread that is no process: nothing to do.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        if pidfd_send_signal(&process, Signal::KILL).is_ok() {
            dying.push(process);
        }
    }
    Ok(dying)
}

/// Whether all have ended before the time is up. A descriptor of a process becomes readable when
/// it ends.
fn wait_for_exits(processes: &[OwnedFd], started: Instant) -> bool {
    for process in processes {
        loop {
            let Some(left) = KILL_WAIT.checked_sub(started.elapsed()) else {
                return false;
            };
            let left = rustix::event::Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left)) {
                Ok(1..) => break,
                Ok(0) => return false,
                Err(_) => {}
            }
        }
    }
    true
}
