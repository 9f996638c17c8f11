//! The filesystems that the kernel itself provides in a sandbox: `/proc`, `/sys` and `/dev`, with
//! what concerns the whole machine covered.
//!
//! Not here: the root they are mounted in, and volumes; those are `filesystem`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::mount::MountAttrFlags;

use super::filesystem::{Scaffold, attach, clone_tree, filesystem};
use crate::spawner::protocol::{CgroupEntry, Request};
use crate::sys::{self, MountChange};

/// `/dev/shm` is as large as Docker's; what is in it counts against the memory limit anyway.
const SHM_SIZE: &str = "64m";

/// Terminals of one sandbox. All sandboxes share the machine's (3,072 by default), so none may
/// have most of them.
const TERMINALS_MAX: &str = "256";

/// Parts of /proc that tell about, or act on, the whole machine. Covered where they exist.
const MASKED_PROC: [&str; 14] = [
    "acpi",
    "asound",
    "bus",
    "driver",
    "fs",
    "irq",
    "kallsyms",
    "kcore",
    "keys",
    "kmsg",
    "latency_stats",
    "scsi",
    "sysrq-trigger",
    "timer_list",
];

/// Parts of /sys that tell about the machine's firmware or its power draw, which leaks keys.
const MASKED_SYS: [&str; 2] = ["firmware", "devices/virtual/powercap"];

/// The device nodes of `/dev`: name, major, minor.
const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// No setuid, no devices, no programs.
const NOSUID_NODEV_NOEXEC: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NODEV)
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

pub(super) struct Masks {
    proc: Vec<Mask>,
    sys: Vec<Mask>,
}

struct Mask {
    path: &'static str,
    is_directory: bool,
}

impl Masks {
    /// What there is to mask on this machine. Reads /proc and /sys of the host.
    pub(super) fn of_host() -> Self {
        Self {
            proc: existing_masks("/proc", &MASKED_PROC),
            sys: existing_masks("/sys", &MASKED_SYS),
        }
    }
}

fn existing_masks(root: &str, names: &[&'static str]) -> Vec<Mask> {
    let look = |path: &&'static str| {
        let found = rustix::fs::lstat(format!("{root}/{path}")).ok()?;
        let kind = FileType::from_raw_mode(found.st_mode);
        Some(Mask {
            path,
            is_directory: kind.is_dir(),
        })
    };
    names.iter().filter_map(look).collect()
}

/// The hierarchies that tell a process what it may use, out of /proc/self/cgroup.
pub(super) fn hierarchies(text: &str) -> Vec<String> {
    let tells = |controllers: &str| {
        controllers
            .split(',')
            .any(|name| matches!(name, "cpu" | "cpuacct" | "memory"))
    };
    text.lines()
        .filter_map(|line| line.split(':').nth(1))
        .filter(|controllers| tells(controllers))
        .map(str::to_owned)
        .collect()
}

/// A process filesystem of the new pid namespace. `/proc/sys` is read-only and what concerns the
/// whole machine is covered. Paths below it are safe by name: the filesystem is new, the
/// kernel's, and no process but this one is in its namespace.
pub(super) fn mount_proc(root: &OwnedFd, scaffold: &Scaffold) -> rustix::io::Result<()> {
    let proc = filesystem("proc", &[], NOSUID_NODEV_NOEXEC)?;
    attach(proc.as_fd(), open_mount_point(root, "proc")?.as_fd(), "")?;
    let sysctl = clone_tree(
        proc.as_fd(),
        "sys",
        MountAttrFlags::MOUNT_ATTR_RDONLY | NOSUID_NODEV_NOEXEC,
    )?;
    attach(sysctl.as_fd(), proc.as_fd(), "sys")?;
    mask(proc.as_fd(), &scaffold.masks.proc)
}

/// The devices of the sandbox's own network namespace, read-only.
pub(super) fn mount_sys(
    root: &OwnedFd,
    scaffold: &Scaffold,
    request: &Request,
) -> rustix::io::Result<()> {
    let read_only = NOSUID_NODEV_NOEXEC | MountAttrFlags::MOUNT_ATTR_RDONLY;
    let sysfs = filesystem("sysfs", &[], read_only)?;
    attach(sysfs.as_fd(), open_mount_point(root, "sys")?.as_fd(), "")?;
    // Language runtimes size themselves by their limits, and execd's metrics are the sandbox's own.
    match request.cgroup {
        CgroupEntry::BornInto => {
            let cgroup = filesystem("cgroup2", &[], read_only)?;
            attach(cgroup.as_fd(), sysfs.as_fd(), "fs/cgroup")?;
        }
        CgroupEntry::Write(0) => {}
        CgroupEntry::Write(_) => mount_hierarchies(sysfs.as_fd(), scaffold, read_only)?,
    }
    mask(sysfs.as_fd(), &scaffold.masks.sys)
}

/// Version 1 has a mount per hierarchy, below a directory of their own. The namespace made by
/// `unshare_cgroup_namespace` makes each show the sandbox's group and nothing above it.
fn mount_hierarchies(
    sysfs: BorrowedFd<'_>,
    scaffold: &Scaffold,
    read_only: MountAttrFlags,
) -> rustix::io::Result<()> {
    let places = filesystem(
        "tmpfs",
        &[("mode", "0755"), ("size", "4k")],
        NOSUID_NODEV_NOEXEC,
    )?;
    for controllers in &scaffold.hierarchies {
        rustix::fs::mkdirat(&places, controllers.as_str(), Mode::from_raw_mode(0o755))?;
        let options: Vec<_> = controllers.split(',').map(|name| (name, "")).collect();
        let hierarchy = filesystem("cgroup", &options, read_only)?;
        attach(hierarchy.as_fd(), places.as_fd(), controllers)?;
    }
    let change = MountChange {
        set: u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits()),
        ..MountChange::default()
    };
    sys::change_mount(places.as_fd(), c"", change)?;
    attach(places.as_fd(), sysfs, "fs/cgroup")
}

/// One small filesystem is both `/dev`, read-only, and `/dev/shm`, writable. Each sandbox has its
/// own: on inodes shared with others, locks and inotify would tell sandboxes of each other.
pub(super) fn mount_dev(root: &OwnedFd, request: &Request) -> rustix::io::Result<()> {
    let no_exec = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let options = [("size", SHM_SIZE), ("mode", "0755")];
    let dev = filesystem("tmpfs", &options, no_exec)?;
    make_devices(dev.as_fd(), request.first_id)?;
    attach(dev.as_fd(), open_mount_point(root, "dev")?.as_fd(), "")?;
    // Group 5 is `tty` in every distribution.
    let terminals = (request.first_id + 5).to_string();
    let options = [
        ("gid", terminals.as_str()),
        ("mode", "0620"),
        ("ptmxmode", "0666"),
        ("max", TERMINALS_MAX),
    ];
    let pts = filesystem("devpts", &options, no_exec)?;
    attach(pts.as_fd(), dev.as_fd(), "pts")?;
    let shm = clone_tree(dev.as_fd(), "shm", NOSUID_NODEV_NOEXEC)?;
    attach(shm.as_fd(), dev.as_fd(), "shm")?;
    let change = MountChange {
        set: u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits()),
        ..MountChange::default()
    };
    sys::change_mount(dev.as_fd(), c"", change)
}

fn make_devices(dev: BorrowedFd<'_>, first_id: u32) -> rustix::io::Result<()> {
    let mode = Mode::from_raw_mode;
    for (name, major, minor) in DEVICES {
        let device = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(dev, name, FileType::CharacterDevice, mode(0o666), device)?;
        // mknod applied the umask.
        rustix::fs::chmodat(dev, name, mode(0o666), AtFlags::empty())?;
    }
    for (name, target) in DEVICE_LINKS {
        rustix::fs::symlinkat(target, dev, name)?;
    }
    rustix::fs::mkdirat(dev, "pts", mode(0o755))?;
    rustix::fs::mkdirat(dev, "shm", mode(0o755))?;
    let (user, group) = (Uid::from_raw(first_id), Gid::from_raw(first_id));
    rustix::fs::chownat(dev, "shm", Some(user), Some(group), AtFlags::empty())?;
    rustix::fs::chmodat(dev, "shm", mode(0o1777), AtFlags::empty())
}

fn mask(filesystem: BorrowedFd<'_>, masks: &[Mask]) -> rustix::io::Result<()> {
    let flags = NOSUID_NODEV_NOEXEC | MountAttrFlags::MOUNT_ATTR_RDONLY;
    for mask in masks {
        let cover = if mask.is_directory {
            "nothing"
        } else {
            "empty"
        };
        let cover = clone_tree(CWD, cover, flags)?;
        attach(cover.as_fd(), filesystem, mask.path)?;
    }
    Ok(())
}

/// A directory right below the root that must be one: not a link, and not somebody's volume.
fn open_mount_point(root: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(root, name, flags, Mode::empty(), resolve)
}
