//! What the server and the spawner say to each other.
//!
//! A request is one packet: JSON with the numbers and strings, and the descriptors in a fixed
//! order. Each request brings its own report socket. The spawner sends the new process's pidfd
//! over it; the new process sends why it failed; and when the last copy closes, either the
//! program runs or, if nothing was said, the spawner died. So there is nothing to match and
//! nothing to clean up when one side goes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The largest request: the kernel's own bound on arguments plus environment of a program with
/// the default stack is 2 MiB.
pub(crate) const REQUEST_BYTES_MAX: usize = 2 << 20;

/// The kernel passes at most this many descriptors in one packet (`SCM_MAX_FD`).
pub(crate) const DESCRIPTORS_MAX: usize = 253;

/// The largest report.
pub(crate) const REPORT_BYTES_MAX: usize = 1024;

/// Everything init needs to know that is not a descriptor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) hostname: String,
    /// The arguments of PID 1, its name first.
    pub(crate) arguments: Vec<String>,
    /// The program among them that the image must have; empty for none.
    pub(crate) entrypoint: String,
    /// `NAME=value`.
    pub(crate) environment: Vec<String>,
    /// Absolute; made where it is missing.
    pub(crate) workdir: String,
    /// As an image writes it: `user`, `uid`, `user:group` or `uid:gid`; empty is root.
    pub(crate) user: String,
    /// The host's id of the sandbox's root.
    pub(crate) first_id: u32,
    /// Open files per process.
    pub(crate) open_files: Option<u64>,
    /// How the process gets into its cgroup.
    pub(crate) cgroup: CgroupEntry,
    /// Number of layers.
    pub(crate) layers: usize,
    /// Where the prepared mounts go, in this order.
    pub(crate) mounts: Vec<MountTarget>,
}

/// Where a prepared mount goes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MountTarget {
    /// Absolute path in the sandbox.
    pub(crate) path: String,
    /// A directory, or else a file.
    pub(crate) is_directory: bool,
}

/// How a process gets into its cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CgroupEntry {
    /// The descriptor is a cgroup v2 directory to be born into.
    BornInto,
    /// The descriptors are this many `tasks` files of cgroup v1 to write oneself to.
    Write(usize),
}

/// The descriptors of a request, in the order in which they travel.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// The sandbox's directory on the host, for the exit record.
    pub(crate) state: OwnedFd,
    /// The program that becomes PID 1.
    pub(crate) program: OwnedFd,
    /// The listening control socket.
    pub(crate) listen: OwnedFd,
    /// Holds the access token.
    pub(crate) token: OwnedFd,
    /// Where output goes.
    pub(crate) log: OwnedFd,
    /// The user namespace.
    pub(crate) user: OwnedFd,
    /// The network namespace.
    pub(crate) net: OwnedFd,
    /// A detached, idmapped mount that holds `upper` and `work`.
    pub(crate) writable: OwnedFd,
    /// See [`CgroupEntry`].
    pub(crate) cgroup: Vec<OwnedFd>,
    /// Detached, idmapped mounts, topmost first.
    pub(crate) layers: Vec<OwnedFd>,
    /// Detached mounts for [`Request::mounts`].
    pub(crate) mounts: Vec<OwnedFd>,
}

impl Descriptors {
    /// As they travel, after the socket to report on.
    pub(crate) fn in_order<'a>(&'a self, report: BorrowedFd<'a>) -> Vec<BorrowedFd<'a>> {
        let fixed = [
            &self.state,
            &self.program,
            &self.listen,
            &self.token,
            &self.log,
            &self.user,
            &self.net,
            &self.writable,
        ];
        let lists = self.cgroup.iter().chain(&self.layers).chain(&self.mounts);
        let rest = fixed.into_iter().chain(lists).map(AsFd::as_fd);
        std::iter::once(report).chain(rest).collect()
    }

    /// Takes the report socket and the descriptors of `request` from the list they came in;
    /// `None` if it is not as long as the request says.
    pub(crate) fn take(request: &Request, list: Vec<OwnedFd>) -> Option<(OwnedFd, Self)> {
        let cgroup = match request.cgroup {
            CgroupEntry::BornInto => 1,
            CgroupEntry::Write(count) => count,
        };
        let mut list = list.into_iter();
        let report = list.next()?;
        let descriptors = Self {
            state: list.next()?,
            program: list.next()?,
            listen: list.next()?,
            token: list.next()?,
            log: list.next()?,
            user: list.next()?,
            net: list.next()?,
            writable: list.next()?,
            cgroup: list.by_ref().take(cgroup).collect(),
            layers: list.by_ref().take(request.layers).collect(),
            mounts: list.by_ref().take(request.mounts.len()).collect(),
        };
        let is_whole = descriptors.cgroup.len() == cgroup
            && descriptors.layers.len() == request.layers
            && descriptors.mounts.len() == request.mounts.len();
        (is_whole && list.next().is_none()).then_some((report, descriptors))
    }
}

/// The steps that make a sandbox, in their order; a report names the one that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    Clone,
    Cgroup,
    Session,
    Network,
    CgroupNamespace,
    Hostname,
    Rlimits,
    Root,
    Mount,
    Proc,
    Sys,
    Dev,
    Pivot,
    OomScore,
    UserNamespace,
    User,
    Workdir,
    Capabilities,
    Entrypoint,
    Descriptors,
    Landlock,
    Seccomp,
    Execute,
}

impl Step {
    /// What was being done, to follow "while".
    pub(crate) fn doing(self) -> &'static str {
        match self {
            Self::Clone => "cloning PID 1",
            Self::Cgroup => "joining its cgroups",
            Self::Session => "starting its session",
            Self::Network => "joining its network namespace",
            Self::CgroupNamespace => "making its cgroup namespace",
            Self::Hostname => "setting its hostname",
            Self::Rlimits => "setting its resource limits",
            Self::Root => "mounting its root filesystem",
            Self::Mount => "mounting its volumes",
            Self::Proc => "mounting /proc",
            Self::Sys => "mounting /sys",
            Self::Dev => "mounting /dev",
            Self::Pivot => "entering its root filesystem",
            Self::OomScore => "setting its score for the OOM killer",
            Self::UserNamespace => "joining its user namespace",
            Self::User => "becoming the image's user",
            Self::Workdir => "entering its working directory",
            Self::Capabilities => "dropping capabilities",
            Self::Entrypoint => "finding the entrypoint",
            Self::Descriptors => "arranging descriptors",
            Self::Landlock => "confining it to its files",
            Self::Seccomp => "installing the system call filter",
            Self::Execute => "executing execd",
        }
    }
}

/// What comes over the report socket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The process exists; its pidfd comes with this packet.
    Started {
        /// Its id on the host.
        pid: i32,
    },
    /// It, or the spawner before it, gave up.
    Failed(InitFailure),
}

/// Why a sandbox could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InitFailure {
    pub(crate) step: Step,
    pub(crate) errno: i32,
    /// The path or name it was about; may be empty.
    pub(crate) about: String,
}

impl InitFailure {
    pub(crate) fn new(step: Step, errno: Errno, about: impl Into<String>) -> Self {
        Self {
            step,
            errno: errno.raw_os_error(),
            about: about.into(),
        }
    }
}
