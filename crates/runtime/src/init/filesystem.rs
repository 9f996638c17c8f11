//! The sandbox's filesystem: an overlay of the image's layers, the volumes, `/proc`, `/sys` and
//! `/dev`, put together from detached mounts in a namespace that holds nothing of the host.
//!
//! The namespace starts as one small tmpfs, the scaffold. Taking a mount away makes the kernel
//! wait until every processor has passed a quiescent state (`synchronize_rcu_expedited`, 0.1 ms on
//! an idle machine and 4 ms on a busy one), so where the kernel allows it nothing is taken away:
//! layers are handed to the overlay as descriptors, and the finished root is laid over the
//! scaffold, as the kernel itself lays the real root over its initramfs. What stays underneath is
//! read-only and holds an empty directory and an empty file.
//!
//! Kernels before 6.15 refuse a detached mount as an overlay layer. There the layers are attached
//! to names in the scaffold, and the whole scaffold is unmounted once the root is entered.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
};

use super::Outcome;
use crate::spawner::wire::{CgroupEntry, Descriptors, Failure, Request, Step, Target};
use crate::sys::{self, MountChange};

/// `/dev/shm` is as large as Docker's; what is in it counts against the memory limit anyway.
const SHM_SIZE: &str = "64m";

/// Terminals of one sandbox. All sandboxes share the machine's (3,072 by default), so none may
/// have most of them.
const TERMINALS_MAX: &str = "256";

/// A string option of fsconfig(2) has at most 255 bytes.
const OPTION_BYTES_MAX: usize = 255;

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

/// The tmpfs that is the spawner's whole filesystem, and what of the host's /proc and /sys there
/// is to mask. The working directory is its root.
pub(crate) struct Scaffold {
    way: Way,
    masks: Masks,
    /// The hierarchies of cgroup v1 that a sandbox sees of itself, each by its controllers.
    hierarchies: Vec<String>,
}

/// How layers reach the overlay, and with that how the scaffold is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Layers are descriptors, the root covers the scaffold.
    Covered,
    /// Layers have names in the scaffold, the root replaces it.
    Replaced,
}

struct Masks {
    proc: Vec<Mask>,
    sys: Vec<Mask>,
}

struct Mask {
    path: &'static str,
    is_directory: bool,
}

/// Moves this process into a mount namespace of its own that holds one small tmpfs: places to
/// attach to, and an empty file and an empty directory to mask with.
pub(crate) fn prepare_scaffold() -> rustix::io::Result<Scaffold> {
    let masks = Masks {
        proc: existing("/proc", &MASKED_PROC),
        sys: existing("/sys", &MASKED_SYS),
    };
    let hierarchies =
        hierarchies(&std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
    sys::unshare_namespaces(rustix::thread::UnshareFlags::NEWNS)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", private)?;
    let tmpfs = filesystem(
        "tmpfs",
        &[("mode", "0755")],
        MountAttrFlags::MOUNT_ATTR_NOSUID,
    )?;
    // Any directory will do as the place to attach to; every root has this one.
    rustix::mount::move_mount(
        &tmpfs,
        c"",
        CWD,
        c"/",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    rustix::process::fchdir(&tmpfs)?;
    rustix::process::pivot_root(c".", c".")?;
    rustix::mount::unmount(c".", rustix::mount::UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")?;
    let way = if takes_descriptors() {
        Way::Covered
    } else {
        Way::Replaced
    };
    furnish(way)?;
    Ok(Scaffold {
        way,
        masks,
        hierarchies,
    })
}

/// Whether this kernel mounts an overlay of detached mounts, found out by doing it.
fn takes_descriptors() -> bool {
    let attempt = || -> rustix::io::Result<()> {
        // Held until the end: a detached mount goes with its last descriptor.
        let layers = [filesystem("tmpfs", &[], MountAttrFlags::empty())?];
        let writable = filesystem("tmpfs", &[], MountAttrFlags::empty())?;
        for name in ["upper", "work"] {
            rustix::fs::mkdirat(&writable, name, Mode::from_raw_mode(0o755))?;
        }
        let context = rustix::mount::fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        set_descriptors(context.as_fd(), &layers, writable.as_fd())?;
        rustix::mount::fsconfig_create(&context)
    };
    attempt().is_ok()
}

fn existing(root: &str, names: &[&'static str]) -> Vec<Mask> {
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

fn furnish(way: Way) -> rustix::io::Result<()> {
    let mode = Mode::from_raw_mode;
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::open("empty", flags, mode(0o444))?;
    rustix::fs::mkdir("nothing", mode(0o755))?;
    if way == Way::Covered {
        // It stays in every sandbox's namespace, out of reach. Whoever reached it all the same
        // must not find a place that all sandboxes share.
        let change = MountChange {
            set: u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits()),
            ..MountChange::default()
        };
        return sys::change_mount(CWD, c"", change);
    }
    for directory in ["root", "writable", "layers"] {
        rustix::fs::mkdir(directory, mode(0o755))?;
    }
    Ok(())
}

impl Scaffold {
    /// Makes sure there is a place for each of this many layers, where they need one. Called by
    /// the spawner, whose tmpfs all children share.
    pub(crate) fn ensure_places(&self, count: usize) -> rustix::io::Result<()> {
        if self.way == Way::Covered {
            return Ok(());
        }
        for place in 0..count {
            match rustix::fs::mkdir(format!("layers/{place}"), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Makes the assembled `root` the root of this process, and leaves it as the only thing in the
    /// namespace that can be reached.
    pub(super) fn leave_for(&self, root: &OwnedFd) -> rustix::io::Result<()> {
        rustix::process::fchdir(root)?;
        match self.way {
            // The root is mounted on the namespace's own root, so a walk upwards from anywhere,
            // whatever its process calls its root, ends on top of the pile: here.
            Way::Covered => rustix::process::chroot(c".")?,
            // With both arguments the same directory the old root ends up stacked on the new
            // one, and one unmount of "." takes it away: no directory for it has to exist in
            // the image.
            Way::Replaced => {
                rustix::process::pivot_root(c".", c".")?;
                rustix::mount::unmount(c".", rustix::mount::UnmountFlags::DETACH)?;
            }
        }
        rustix::process::chdir(c"/")
    }
}

/// Puts the whole filesystem together and returns its root, attached in the scaffold.
pub(super) fn assemble(
    scaffold: &Scaffold,
    request: &Request,
    descriptors: &Descriptors,
) -> Outcome<OwnedFd> {
    // What is made from here on, in the overlay's own directories and to mount on, belongs to
    // the sandbox's root. The host's root has no name in an idmapped layer: the kernel would
    // answer EOVERFLOW.
    let first = request.first_id;
    sys::set_file_ids(first, first).map_err(super::at(Step::Root))?;
    let root = mount_root(scaffold.way, descriptors).map_err(super::at(Step::Root))?;
    mount_volumes(&root, request, descriptors)?;
    sys::set_file_ids(0, 0).map_err(super::at(Step::Root))?;
    mount_proc(&root, scaffold).map_err(super::at(Step::Proc))?;
    mount_sys(&root, scaffold, request).map_err(super::at(Step::Sys))?;
    mount_dev(&root, request).map_err(super::at(Step::Dev))?;
    Ok(root)
}

/// The overlay. `volatile`, because the sandbox does not outlive the machine: without it an
/// fsync inside, and the unmount at the end, would wait for the host's disk. Redirects and
/// metadata-only copies are off so that a hostile layer cannot use them and a writable layer can
/// become an image layer as it is.
fn mount_root(way: Way, descriptors: &Descriptors) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let place = match way {
        Way::Covered => {
            let writable = descriptors.writable.as_fd();
            set_descriptors(context.as_fd(), &descriptors.layers, writable)?;
            "/"
        }
        Way::Replaced => {
            set_names(context.as_fd(), descriptors)?;
            "root"
        }
    };
    let set = |key: &str, value: &str| rustix::mount::fsconfig_set_string(&context, key, value);
    set("redirect_dir", "nofollow")?;
    set("metacopy", "off")?;
    set("index", "off")?;
    rustix::mount::fsconfig_set_flag(&context, "volatile")?;
    rustix::mount::fsconfig_create(&context)?;
    let none = MountAttrFlags::empty();
    let root = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, none)?;
    // The working directory stays where it is, in the scaffold, even when this covers it.
    attach(root.as_fd(), CWD, place)?;
    Ok(root)
}

/// Gives an overlay its layers, topmost first, and the mount with its `upper` and `work`.
fn set_descriptors(
    context: BorrowedFd<'_>,
    layers: &[OwnedFd],
    writable: BorrowedFd<'_>,
) -> rustix::io::Result<()> {
    for layer in layers {
        rustix::mount::fsconfig_set_fd(context, "lowerdir+", layer)?;
    }
    for (key, name) in [("upperdir", "upper"), ("workdir", "work")] {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(writable, name, flags, Mode::empty())?;
        rustix::mount::fsconfig_set_fd(context, key, &directory)?;
    }
    Ok(())
}

/// The same by names in the scaffold.
fn set_names(context: BorrowedFd<'_>, descriptors: &Descriptors) -> rustix::io::Result<()> {
    let mut names = Vec::with_capacity(descriptors.layers.len());
    for (place, layer) in descriptors.layers.iter().enumerate() {
        let name = format!("layers/{place}");
        attach(layer.as_fd(), CWD, &name)?;
        names.push(name);
    }
    attach(descriptors.writable.as_fd(), CWD, "writable")?;
    let set = |key: &str, value: &str| rustix::mount::fsconfig_set_string(context, key, value);
    // The old spelling is the one every kernel knows, but it has to fit into one option.
    let joined = names.join(":");
    if joined.len() <= OPTION_BYTES_MAX {
        set("lowerdir", &joined)?;
    } else {
        for name in &names {
            set("lowerdir+", name)?;
        }
    }
    set("upperdir", "writable/upper")?;
    set("workdir", "writable/work")
}

fn mount_volumes(root: &OwnedFd, request: &Request, descriptors: &Descriptors) -> Outcome {
    for (target, mount) in request.mounts.iter().zip(&descriptors.mounts) {
        let fail = |errno| Failure::new(Step::Mount, errno, target.path.as_str());
        let place = mount_point(root.as_fd(), target).map_err(fail)?;
        attach(mount.as_fd(), place.as_fd(), "").map_err(fail)?;
    }
    Ok(())
}

/// Finds, or makes, where a mount goes. Links are followed inside `root` and nowhere else.
fn mount_point(root: BorrowedFd<'_>, target: &Target) -> rustix::io::Result<OwnedFd> {
    let parts: Vec<&str> = target
        .path
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    let (last, parents) = parts.split_last().ok_or(Errno::INVAL)?;
    let mut directory = inside(root, "/", OFlags::PATH | OFlags::DIRECTORY)?;
    let mut path = String::new();
    for part in parents {
        path = format!("{path}/{part}");
        directory = enter_or_make(root, directory.as_fd(), &path, part)?;
    }
    path = format!("{path}/{last}");
    if target.is_directory {
        return enter_or_make(root, directory.as_fd(), &path, last);
    }
    match inside(root, &path, OFlags::PATH) {
        Err(Errno::NOENT) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(&directory, *last, flags, Mode::from_raw_mode(0o644))?;
            inside(root, &path, OFlags::PATH)
        }
        other => other,
    }
}

fn enter_or_make(
    root: BorrowedFd<'_>,
    parent: BorrowedFd<'_>,
    path: &str,
    name: &str,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    match inside(root, path, flags) {
        Err(Errno::NOENT) => {
            rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
            inside(root, path, flags)
        }
        other => other,
    }
}

/// Opens a path as a process whose root is `root` would, but never through a magic link.
pub(super) fn inside(
    root: BorrowedFd<'_>,
    path: &str,
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// A directory right below the root that must be one: not a link, and not somebody's volume.
fn fixed(root: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(root, name, flags, Mode::empty(), resolve)
}

/// A process filesystem of the new pid namespace. `/proc/sys` is read-only and what concerns the
/// whole machine is covered. Paths below it are safe by name: the filesystem is new, the
/// kernel's, and no process but this one is in its namespace.
fn mount_proc(root: &OwnedFd, scaffold: &Scaffold) -> rustix::io::Result<()> {
    let proc = filesystem("proc", &[], HARMLESS)?;
    attach(proc.as_fd(), fixed(root, "proc")?.as_fd(), "")?;
    let sysctl = clone_tree(
        proc.as_fd(),
        "sys",
        MountAttrFlags::MOUNT_ATTR_RDONLY | HARMLESS,
    )?;
    attach(sysctl.as_fd(), proc.as_fd(), "sys")?;
    mask(proc.as_fd(), &scaffold.masks.proc)
}

/// The devices of the sandbox's own network namespace, read-only.
fn mount_sys(root: &OwnedFd, scaffold: &Scaffold, request: &Request) -> rustix::io::Result<()> {
    let read_only = HARMLESS | MountAttrFlags::MOUNT_ATTR_RDONLY;
    let sysfs = filesystem("sysfs", &[], read_only)?;
    attach(sysfs.as_fd(), fixed(root, "sys")?.as_fd(), "")?;
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
/// `own_cgroups` makes each show the sandbox's group and nothing above it.
fn mount_hierarchies(
    sysfs: BorrowedFd<'_>,
    scaffold: &Scaffold,
    read_only: MountAttrFlags,
) -> rustix::io::Result<()> {
    let places = filesystem("tmpfs", &[("mode", "0755"), ("size", "4k")], HARMLESS)?;
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
fn mount_dev(root: &OwnedFd, request: &Request) -> rustix::io::Result<()> {
    let no_exec = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let options = [("size", SHM_SIZE), ("mode", "0755")];
    let dev = filesystem("tmpfs", &options, no_exec)?;
    make_devices(dev.as_fd(), request.first_id)?;
    attach(dev.as_fd(), fixed(root, "dev")?.as_fd(), "")?;
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
    let shm = clone_tree(dev.as_fd(), "shm", HARMLESS)?;
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

/// No setuid, no devices, no programs.
const HARMLESS: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NODEV)
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

fn mask(filesystem: BorrowedFd<'_>, masks: &[Mask]) -> rustix::io::Result<()> {
    let flags = HARMLESS | MountAttrFlags::MOUNT_ATTR_RDONLY;
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

/// A new detached mount of a filesystem.
fn filesystem(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(&context, *key, *value)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// The hierarchies that tell a process what it may use, out of /proc/self/cgroup.
fn hierarchies(text: &str) -> Vec<String> {
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

/// A new detached mount of what is at `path`.
fn clone_tree(
    directory: BorrowedFd<'_>,
    path: &str,
    attributes: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = rustix::mount::open_tree(directory, path, flags)?;
    let change = MountChange {
        set: u64::from(attributes.bits()),
        ..MountChange::default()
    };
    sys::change_mount(tree.as_fd(), c"", change)?;
    Ok(tree)
}

/// Attaches a detached mount; an empty `path` is `directory` itself.
fn attach(mount: BorrowedFd<'_>, directory: BorrowedFd<'_>, path: &str) -> rustix::io::Result<()> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if path.is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    rustix::mount::move_mount(mount, c"", directory, path, flags)
}
