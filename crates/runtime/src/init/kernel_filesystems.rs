//! The filesystems that the kernel itself provides in a sandbox: `/proc`, `/sys` and `/dev`, with
//! what concerns the whole machine covered.
//!
//! Not here: the root they are mounted in, and volumes; those are `filesystem`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;

use super::filesystem::{Scaffold, attach, clone_tree, clone_tree_as_it_is, filesystem};
use crate::protection::Protection;
use crate::spawner::protocol::{CgroupEntry, Request};
use crate::sys::{self, MountChange};

/// `/dev/shm` is as large as Docker's; what is in it counts against the memory limit anyway.
const SHM_SIZE: &str = "64m";

/// Terminals of one sandbox. All sandboxes share the machine's (3,072 by default), so none may
/// have most of them.
const TERMINALS_MAX: &str = "256";

/// Parts of /proc that tell about, or act on, the whole machine. Covered where they exist.
const MASKED_PROC: [&str; 27] = [
    "acpi",
    "asound",
    "bus",
    "cmdline",
    "config.gz",
    "consoles",
    "diskstats",
    "driver",
    "fs",
    "interrupts",
    "iomem",
    "ioports",
    "irq",
    "kallsyms",
    "kcore",
    "keys",
    "kmsg",
    "latency_stats",
    "modules",
    "partitions",
    "sched_debug",
    "scsi",
    "softirqs",
    "swaps",
    "sysrq-trigger",
    "timer_list",
    "timer_stats",
];

/// The parts of /sys that programs size themselves by or ask for their network; all else is left
/// out, because it tells of the host's disks, and with them of other sandboxes, of its firmware and
/// of its power draw, which leaks keys. What `class/net` links to is below `devices/virtual`.
const SHOWN_SYS: [&str; 5] = [
    "class/net",
    "devices/virtual/net",
    "devices/system/cpu",
    "devices/system/node",
    "kernel/mm/transparent_hugepage",
];

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

/// What of the host's /proc is covered, and what of its /sys is shown.
pub(super) struct Masks {
    proc: Vec<Mask>,
    sys: Vec<&'static str>,
}

struct Mask {
    path: &'static str,
    is_directory: bool,
}

impl Masks {
    /// What there is on this machine. Reads /proc and /sys of the host.
    pub(super) fn of_host() -> Self {
        let is_there = |path: &&str| rustix::fs::stat(format!("/sys/{path}")).is_ok();
        Self {
            proc: existing_masks("/proc", &MASKED_PROC),
            sys: SHOWN_SYS.into_iter().filter(is_there).collect(),
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

/// A process filesystem of the caller's own pid namespace, attached nowhere.
pub(crate) fn process_filesystem() -> rustix::io::Result<OwnedFd> {
    filesystem("proc", &[], NOSUID_NODEV_NOEXEC)
}

/// A process filesystem of the new pid namespace. `/proc/sys` is read-only and what concerns the
/// whole machine is covered. Paths below it are safe by name: the filesystem is new, the
/// kernel's, and no process but this one is in its namespace.
pub(super) fn mount_proc(root: &OwnedFd, scaffold: &Scaffold) -> rustix::io::Result<()> {
    let proc = filesystem("proc", &[], NOSUID_NODEV_NOEXEC)?;
    attach(proc.as_fd(), open_mount_point(root, "proc")?.as_fd(), "")?;
    if Protection::SysctlReadOnly.is_on() {
        let sysctl = clone_tree(
            proc.as_fd(),
            "sys",
            MountAttrFlags::MOUNT_ATTR_RDONLY | NOSUID_NODEV_NOEXEC,
        )?;
        attach(sysctl.as_fd(), proc.as_fd(), "sys")?;
    }
    if Protection::ProcMasks.is_on() {
        mask(proc.as_fd(), &scaffold.masks.proc)?;
    }
    Ok(())
}

/// What of the kernel's own description of the machine a sandbox needs, read-only: a small tree
/// with parts of a sysfs of the sandbox's own network namespace, and its control groups.
pub(super) fn mount_sys(
    root: &OwnedFd,
    scaffold: &Scaffold,
    request: &Request,
) -> rustix::io::Result<()> {
    let read_only = NOSUID_NODEV_NOEXEC | MountAttrFlags::MOUNT_ATTR_RDONLY;
    let sysfs = filesystem("sysfs", &[], read_only)?;
    // Before Linux 6.15 only what is attached can be cloned. The tree covers it.
    attach(sysfs.as_fd(), open_mount_point(root, "sys")?.as_fd(), "")?;
    if !Protection::SysParts.is_on() {
        return Ok(());
    }
    let tree = filesystem(
        "tmpfs",
        &[("mode", "0755"), ("size", "4k")],
        NOSUID_NODEV_NOEXEC,
    )?;
    for path in &scaffold.masks.sys {
        make_directories(tree.as_fd(), path)?;
        let part = clone_tree_as_it_is(sysfs.as_fd(), path)?;
        attach(part.as_fd(), tree.as_fd(), path)?;
    }
    make_directories(tree.as_fd(), "fs/cgroup")?;
    // Language runtimes size themselves by their limits, and execd's metrics are the sandbox's own.
    match request.cgroup {
        CgroupEntry::BornInto => {
            let cgroup = filesystem("cgroup2", &[], read_only)?;
            attach(cgroup.as_fd(), tree.as_fd(), "fs/cgroup")?;
        }
        CgroupEntry::Write(0) => {}
        CgroupEntry::Write(_) => mount_hierarchies(tree.as_fd(), scaffold, read_only)?,
    }
    let change = MountChange {
        set: u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits()),
        ..MountChange::default()
    };
    sys::change_mount(tree.as_fd(), c"", change)?;
    attach(tree.as_fd(), sysfs.as_fd(), "")
}

/// Makes a directory and those above it that are missing.
fn make_directories(at: BorrowedFd<'_>, path: &str) -> rustix::io::Result<()> {
    let ends = path.match_indices('/').map(|(end, _)| end);
    for end in ends.chain([path.len()]) {
        match rustix::fs::mkdirat(at, &path[..end], Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Version 1 has a mount per hierarchy, below a directory of their own. The namespace made by
/// `unshare_cgroup_namespace` makes each show the sandbox's group and nothing above it.
fn mount_hierarchies(
    tree: BorrowedFd<'_>,
    scaffold: &Scaffold,
    read_only: MountAttrFlags,
) -> rustix::io::Result<()> {
    for controllers in &scaffold.hierarchies {
        let place = format!("fs/cgroup/{controllers}");
        rustix::fs::mkdirat(tree, place.as_str(), Mode::from_raw_mode(0o755))?;
        let options: Vec<_> = controllers.split(',').map(|name| (name, "")).collect();
        let hierarchy = filesystem("cgroup", &options, read_only)?;
        attach(hierarchy.as_fd(), tree, &place)?;
    }
    Ok(())
}

/// One small filesystem is both `/dev`, read-only, and `/dev/shm`, writable. Each sandbox has its
/// own: on inodes shared with others, locks and inotify would tell sandboxes of each other.
pub(super) fn mount_dev(root: &OwnedFd, request: &Request) -> rustix::io::Result<()> {
    let no_exec = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let size = if Protection::SharedMemoryLimit.is_on() {
        SHM_SIZE
    } else {
        "50%"
    };
    let options = [("size", size), ("mode", "0755")];
    let dev = filesystem("tmpfs", &options, no_exec)?;
    make_devices(dev.as_fd(), request.first_id)?;
    attach(dev.as_fd(), open_mount_point(root, "dev")?.as_fd(), "")?;
    // Group 5 is `tty` in every distribution.
    let terminals = (request.first_id + 5).to_string();
    let mut options = vec![
        ("gid", terminals.as_str()),
        ("mode", "0620"),
        ("ptmxmode", "0666"),
    ];
    if Protection::TerminalLimit.is_on() {
        options.push(("max", TERMINALS_MAX));
    }
    let pts = filesystem("devpts", &options, no_exec)?;
    attach(pts.as_fd(), dev.as_fd(), "pts")?;
    let shm = clone_tree(dev.as_fd(), "shm", NOSUID_NODEV_NOEXEC)?;
    attach(shm.as_fd(), dev.as_fd(), "shm")?;
    if !Protection::DevReadOnly.is_on() {
        return Ok(());
    }
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
    for mask in masks {
        let cover = if mask.is_directory {
            "nothing"
        } else {
            "empty"
        };
        let cover = clone_tree_as_it_is(CWD, cover)?;
        attach(cover.as_fd(), filesystem, mask.path)?;
    }
    Ok(())
}

/// Makes what masks are cloned from, in the scaffold: an empty directory and an empty file, each a
/// mount with the attributes that its clones are to have.
pub(super) fn make_covers() -> rustix::io::Result<()> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::open("empty", flags, Mode::from_raw_mode(0o444))?;
    rustix::fs::mkdir("nothing", Mode::from_raw_mode(0o755))?;
    for cover in ["empty", "nothing"] {
        let attributes = NOSUID_NODEV_NOEXEC | MountAttrFlags::MOUNT_ATTR_RDONLY;
        let mount = clone_tree(CWD, cover, attributes)?;
        attach(mount.as_fd(), CWD, cover)?;
    }
    Ok(())
}

/// A directory right below the root that must be one: not a link, and not somebody's volume.
fn open_mount_point(root: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(root, name, flags, Mode::empty(), resolve)
}
