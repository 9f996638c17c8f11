//! Recovery after a restart: a new server reattaches to the sandboxes of an earlier one, and removes
//! what that left half made or half deleted.
//!
//! A directory in `sandboxes/` with a record and a process is a sandbox, alive or ended. One
//! without a process was being made when the server died: nobody was told of it, so it goes. One
//! in the trash was being deleted: that is finished. A cgroup that no record names is killed and
//! removed. Namespaces, mounts and veths need no sweep: they are held by processes and
//! descriptors alone and go with them.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::egress::policy::EgressPolicy;
use api::error_chain;
use jiff::Timestamp;
use lifecycle::backend::Exit;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags};

use super::record::{Process, Record};
use super::{Alive, Sandbox, State, build, recorded_exit, removal};
use crate::backend::Shared;
use crate::cgroup::Tree;
use crate::config::Layout;
use crate::sys;

/// What a scan of the data directory found.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    intact: Vec<(PathBuf, Record, Process)>,
    /// To be removed, with the record where it can be read.
    leftovers: Vec<(PathBuf, Option<Record>)>,
}

/// Looks through the data directory and moves what is half made into the trash.
pub(crate) fn scan(layout: &Layout) -> io::Result<Scan> {
    let mut found = Scan::default();
    for directory in directories(&layout.sandboxes())? {
        let record = Record::read(&directory)?;
        match (record, Process::read(&directory)?) {
            (Some(record), Some(process)) => found.intact.push((directory, record, process)),
            _ => {
                removal::move_to_trash(&directory, layout)?;
            }
        }
    }
    for directory in directories(&layout.trash())? {
        let record = Record::read(&directory)?;
        found.leftovers.push((directory, record));
    }
    Ok(found)
}

fn directories(of: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(of)? {
        paths.push(entry?.path());
    }
    Ok(paths)
}

impl Scan {
    /// The slots that may still be in use.
    pub(crate) fn slots(&self) -> Vec<u32> {
        let leftovers = self
            .leftovers
            .iter()
            .filter_map(|(_, record)| record.as_ref());
        let intact = self.intact.iter().map(|(_, record, _)| record);
        intact.chain(leftovers).map(|record| record.slot).collect()
    }

    /// The sandboxes that lead to the egress gate, and what each may reach.
    pub(crate) fn gated(&self) -> Vec<(u32, api::id::SandboxId, EgressPolicy)> {
        let gated = |(_, record, _): &(PathBuf, Record, Process)| {
            let policy = record.policy.clone()?;
            Some((record.slot, record.id.clone(), policy))
        };
        self.intact.iter().filter_map(gated).collect()
    }

    /// Reattaches to the intact ones and removes the rest.
    pub(crate) async fn recover(self, shared: &Arc<Shared>) {
        let mut groups: Vec<String> = Vec::new();
        for (directory, record, process) in self.intact {
            let group = record.group.clone();
            let sandbox = reattach(shared, directory, record, &process);
            if sandbox.live().is_some() {
                groups.push(group);
                sandbox.watch(shared);
            } else {
                let record = &sandbox.record;
                super::release_slot(shared, record.slot, record.network).await;
            }
            shared.sandboxes.insert(sandbox);
        }
        sweep_groups(&shared.tree, &groups).await;
        for (directory, record) in self.leftovers {
            let own_volumes = record
                .as_ref()
                .map_or(Vec::new(), |r| r.own_volumes.clone());
            if let Some(record) = record {
                super::release_slot(shared, record.slot, record.network).await;
            }
            let behind = shared.clone();
            shared.behind.spawn(async move {
                removal::remove_trashed(&behind, directory, own_volumes).await;
            });
        }
    }
}

/// Kills and removes every cgroup of ours that belongs to no living sandbox: those of half-made
/// and half-deleted ones, and of sandboxes that ended while no server was there.
async fn sweep_groups(tree: &Tree, in_use: &[String]) {
    let names = match tree.list() {
        Ok(names) => names,
        Err(error) => {
            tracing::warn!(error = %error_chain(&error), "the cgroups of earlier sandboxes cannot be listed");
            return;
        }
    };
    for name in names.iter().filter(|name| !in_use.contains(name)) {
        let removed = match tree.find(name) {
            Ok(group) => match group.kill().await {
                Ok(()) => group.remove(),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::warn!(cgroup = name, error = %error_chain(&error), "a leftover cgroup could not be removed");
        }
    }
}

fn reattach(
    shared: &Shared,
    directory: PathBuf,
    record: Record,
    process: &Process,
) -> Arc<Sandbox> {
    // Without its image the sandbox still runs; a lease only keeps the layers from being
    // removed.
    let lease = shared.images.lease_for(&record.image);
    if let Err(error) = &lease {
        tracing::warn!(sandbox_id = %record.id, error = %error_chain(error), "the image of a sandbox is gone");
    }
    let holds = (lease.ok(), shared.lock.clone());
    match open_live(shared, &directory, &record, process) {
        Ok(Some(alive)) => {
            let state = match alive.group.is_frozen() {
                Ok(true) => State::Paused,
                _ => State::Running,
            };
            Sandbox::alive(record, process, directory, alive, state, holds)
        }
        outcome => {
            if let Err(error) = outcome {
                tracing::warn!(sandbox_id = %record.id, error = %api::error_chain(&error), "a sandbox cannot be reached");
            }
            let exit = exit(shared, &directory, &record);
            Sandbox::ended(record, process, directory, exit, holds)
        }
    }
}

/// The descriptors of a sandbox whose PID 1 still is the one in its record.
fn open_live(
    shared: &Shared,
    directory: &Path,
    record: &Record,
    process: &Process,
) -> io::Result<Option<Alive>> {
    if !record.is_of_this_boot()? {
        return Ok(None);
    }
    let pid = Pid::from_raw(process.pid).ok_or_else(|| io::Error::other("pid 0 in a record"))?;
    // The descriptor first, the check second: from here on the number cannot be reused.
    let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
        return Ok(None);
    };
    if !process.is_same() || has_exited(&pidfd) {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let net = rustix::fs::open(
        format!("/proc/{}/ns/net", process.pid),
        flags,
        Mode::empty(),
    )?;
    let state = rustix::fs::open(directory, flags | OFlags::DIRECTORY, Mode::empty())?;
    let group = shared.tree.find(&record.group).map_err(io::Error::other)?;
    let control = build::control(&state)?;
    Ok(Some(Alive {
        pidfd: sys::watch(pidfd)?,
        group,
        control,
        net,
    }))
}

fn has_exited(pidfd: &std::os::fd::OwnedFd) -> bool {
    let mut watched = [rustix::event::PollFd::from_borrowed_fd(
        pidfd.as_fd(),
        rustix::event::PollFlags::IN,
    )];
    let now = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// How a sandbox ended that ended while no server was there: as its spawner wrote down, or
/// unknown.
fn exit(shared: &Shared, directory: &Path, record: &Record) -> Exit {
    let status = recorded_exit(directory);
    let at = std::fs::metadata(directory.join(crate::spawner::EXIT_FILE))
        .and_then(|metadata| metadata.modified())
        .ok()
        .and_then(|time| Timestamp::try_from(time).ok());
    let was_short_of_memory = shared
        .tree
        .find(&record.group)
        .is_ok_and(|group| group.oom_kills() > 0);
    super::exit(status, was_short_of_memory, at)
}
