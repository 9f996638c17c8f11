//! What is kept on disk about a sandbox, so that a server that knows nothing can find it again.
//!
//! Two files, each written whole under another name and then renamed. `record.json` is there
//! before the sandbox has a process, so whatever a crash leaves can be found and removed;
//! `process.json` comes once it has one. A directory without the second is half made.
//!
//! Nothing here is synced to the disk. The files matter to the next server on the same boot, and
//! the page cache survives a process; after a crash of the machine every sandbox is gone anyway,
//! and a torn record only makes its directory count as half made. Neither environment nor token
//! are kept: they are the sandbox's secrets and nobody needs them again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use api::egress::policy::EgressPolicy;
use api::id::SandboxId;
use jiff::Timestamp;
use lifecycle::backend::{Limits, Platform};
use serde::{Deserialize, Serialize};

use crate::image::ImageId;
use crate::net::Network;

/// The format of these files; a server finds only what it can read.
pub(super) const RECORD_VERSION: u32 = 1;

const RECORD_FILE: &str = "record.json";
const PROCESS_FILE: &str = "process.json";

/// What a sandbox consists of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// [`RECORD_VERSION`] of the server that wrote it.
    pub(super) version: u32,
    pub(crate) id: SandboxId,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) image: ImageId,
    /// As the request named it, for people.
    pub(crate) source: String,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) platform: Platform,
    pub(crate) limits: Limits,
    pub(crate) network: Network,
    /// What a sandbox that leads to the egress gate may reach. Changed by writing the record anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<EgressPolicy>,
    pub(crate) slot: u32,
    pub(crate) group: String,
    /// Named volumes to remove with the sandbox.
    pub(crate) own_volumes: Vec<String>,
    /// All named volumes it has mounted.
    #[serde(default)]
    pub(crate) claims: Vec<String>,
    /// The machine's boot id when it was made: its processes live in no other boot.
    pub(super) boot: String,
}

/// PID 1 of a sandbox as the host knows it: enough to tell it from any other process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// In clock ticks since boot; with the pid it names one process for ever.
    pub(crate) start_ticks: u64,
    pub(crate) started_at: Timestamp,
}

impl Record {
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        write(directory, RECORD_FILE, self)
    }

    /// The record in `directory`; `None` where there is none that can be read.
    pub(crate) fn read(directory: &Path) -> io::Result<Option<Self>> {
        let record: Option<Self> = read(directory, RECORD_FILE)?;
        Ok(record.filter(|record| record.version == RECORD_VERSION))
    }

    /// Whether its processes can still be alive: not after the machine was started anew.
    pub(crate) fn is_of_this_boot(&self) -> io::Result<bool> {
        Ok(self.boot == boot_id()?)
    }
}

impl Process {
    /// Takes down who `pid` is. The caller holds a pidfd of it, so the number is not reused.
    /// A process that has ended and been reaped by now gets a start that no other can have.
    pub(crate) fn observe(pid: i32) -> io::Result<Self> {
        const BEFORE_ALL: u64 = 0;
        let start_ticks = match start_ticks(pid) {
            Err(error) if has_ended(&error) => BEFORE_ALL,
            found => found?,
        };
        Ok(Self {
            pid,
            start_ticks,
            started_at: Timestamp::now(),
        })
    }

    /// Whether the process that has this number now is the one that was taken down.
    pub(crate) fn is_same(&self) -> bool {
        start_ticks(self.pid).is_ok_and(|ticks| ticks == self.start_ticks)
    }

    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        write(directory, PROCESS_FILE, self)
    }

    pub(crate) fn read(directory: &Path) -> io::Result<Option<Self>> {
        read(directory, PROCESS_FILE)
    }
}

fn write(directory: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    let draft = directory.join(format!(".{name}"));
    let text = serde_json::to_vec(value)?;
    fs::write(&draft, text)?;
    fs::rename(draft, directory.join(name))
}

fn read<T: for<'de> Deserialize<'de>>(directory: &Path, name: &str) -> io::Result<Option<T>> {
    match fs::read(directory.join(name)) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reading a file of a process that is gone: there is no file, or it ends while it is read.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::SRCH)
}

/// Field 22 of /proc/pid/stat. The second field is the program's name in parentheses and may
/// itself hold spaces and parentheses, so counting starts after the last one.
fn start_ticks(pid: i32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = after_name.split_ascii_whitespace().nth(19);
    field
        .and_then(|ticks| ticks.parse().ok())
        .ok_or_else(|| io::Error::other("/proc/pid/stat has no start time"))
}

/// The random id that the kernel draws at each boot, see proc_sys_kernel(5).
pub(super) fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_again_and_another_is_not_taken_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let me = Process::observe(i32::try_from(std::process::id()).unwrap()).unwrap();
        me.write(directory.path()).unwrap();
        let mut read = Process::read(directory.path()).unwrap().unwrap();
        assert!(read.is_same());
        read.start_ticks += 1;
        assert!(!read.is_same());
    }

    #[test]
    fn a_torn_file_counts_as_missing() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(PROCESS_FILE), "{\"pid\": 1").unwrap();
        assert!(Process::read(directory.path()).unwrap().is_none());
        assert!(Record::read(directory.path()).unwrap().is_none());
    }

    #[test]
    fn a_process_that_is_gone_can_be_taken_down_and_is_nobody() {
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let pid = child.id().cast_signed();
        child.wait().unwrap();
        assert!(!Process::observe(pid).unwrap().is_same());
    }
}
