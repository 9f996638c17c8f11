//! Limits, freezing and killing by control groups, on v1 and v2 alike.
//!
//! A [`Tree`] is this server's directory in each hierarchy; a [`Group`] is one sandbox's
//! directories in it. Groups come from a small pool, because making six directories costs more
//! than the rest of a limit. Everything about a group is on disk under its name, so a restarted
//! server finds it again with [`Tree::find`], and strays with [`Tree::list`].
//!
//! It works with whatever controllers the machine has: [`Capabilities`] says which limits hold,
//! and asking for one that does not is an error, never ignored. It creates directories only in
//! hierarchies whose controllers it uses.

mod group;
mod kill;
mod layout;
mod limit;
mod oom;
#[cfg(test)]
mod tests;
mod tree;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lifecycle::backend::Limits;

pub use group::Group;
pub use oom::OomWatch;
pub use tree::Tree;

/// Where groups are made and how many are kept ready.
#[derive(Debug, Clone)]
pub struct Config {
    /// The directory of this server in every hierarchy, relative to its mount.
    pub parent: PathBuf,
    /// Groups kept ready. Each is a directory per controller, about 0.1 MiB of kernel memory.
    pub ready: usize,
    /// What every group is made with: processor time, memory and processes, where the machine can
    /// limit them.
    pub limits: Limits,
}

impl Config {
    /// The defaults for a server whose state is in `data_dir`: servers do not see each other's
    /// groups. One in a container may have its state under the same name as one outside, and both
    /// the machine's groups, so it is the directory that counts and not only its name.
    pub fn new(data_dir: &Path) -> Self {
        use std::hash::{DefaultHasher, Hash, Hasher};
        use std::os::unix::fs::MetadataExt;
        let mut hasher = DefaultHasher::new();
        data_dir.hash(&mut hasher);
        if let Ok(directory) = data_dir.metadata() {
            (directory.dev(), directory.ino()).hash(&mut hasher);
        }
        let parent = format!("opensandbox-{:08x}", hasher.finish() & 0xffff_ffff);
        // As many as network slots are kept ready: a burst takes both.
        Self {
            parent: PathBuf::from(parent),
            ready: 32,
            limits: Limits::default(),
        }
    }
}

/// What holds on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// 1 or 2.
    pub version: u8,
    /// Processor time is limited.
    pub cpu: bool,
    /// Memory is limited.
    pub memory: bool,
    /// Swap counts towards the memory limit. Without it a sandbox may use swap beyond its limit.
    pub swap: bool,
    /// Processes are limited.
    pub pids: bool,
    /// Groups can be frozen.
    pub freezer: bool,
    /// Device nodes are filtered, beyond what the mount options do.
    pub devices: bool,
}

/// How a process gets into a group as it starts.
#[derive(Debug)]
pub enum Entry {
    /// v2: the descriptor for `CLONE_INTO_CGROUP`.
    CloneInto(OwnedFd),
    /// v1: the new process itself, while it has a single thread, writes `0` into each of these.
    ///
    /// A thread that moves only itself skips the kernel's lock over all thread groups, whose
    /// first writer after a quiet spell waits out a grace period of 5 to 20 ms. Writing another
    /// process's id, or into `cgroup.procs`, takes that lock.
    WriteZero(Vec<OwnedFd>),
}

/// What a group uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time since the group was made.
    pub cpu: Duration,
    /// Memory without the page cache that can be dropped at once.
    pub memory_bytes: u64,
    /// The memory limit, where one is set.
    pub memory_limit_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: u64,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No usable hierarchy.
    #[error(
        "no usable cgroup hierarchy is mounted; on most systems: mount -t cgroup2 none \
         /sys/fs/cgroup"
    )]
    NotMounted,
    /// The hierarchy cannot be written.
    #[error(
        "{path} is not writable, so limits cannot be set; run the server as root, and in a \
         container give it a writable cgroup mount"
    )]
    NotWritable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The machine has no controller for this limit.
    #[error("this machine cannot limit {0}: the cgroup controller for it is not available")]
    Unsupported(&'static str),
    /// The kernel refused a limit.
    #[error("the kernel refused the {what} limit {value}")]
    Limit {
        what: &'static str,
        /// As it was written.
        value: String,
        #[source]
        source: io::Error,
    },
    /// A group did not freeze or empty in time.
    #[error("the cgroup {name} did not {what} within {waited:?}")]
    Slow {
        name: String,
        what: &'static str,
        waited: Duration,
    },
    /// There is no such group.
    #[error("there is no cgroup {0}")]
    NotFound(String),
    /// Reading or writing a control file failed.
    #[error("{action} failed")]
    Kernel {
        /// What was being done, with the path.
        action: String,
        #[source]
        source: io::Error,
    },
}

impl Error {
    fn kernel(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Kernel {
            action: action.into(),
            source: source.into(),
        }
    }
}
