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

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
};

use super::Outcome;
use super::kernel_filesystems::{
    Masks, hierarchies, make_covers, mount_dev, mount_proc, mount_sys,
};
use crate::spawner::protocol::{Descriptors, InitFailure, MountTarget, Request, Step};
use crate::sys::{self, MountChange};

/// A string option of fsconfig(2) has at most 255 bytes.
const OPTION_BYTES_MAX: usize = 255;

/// The tmpfs that is the spawner's whole filesystem, and what of the host's /proc and /sys there
/// is to mask. The working directory is its root.
pub(crate) struct Scaffold {
    root_mount: RootMount,
    pub(super) masks: Masks,
    /// The hierarchies of cgroup v1 that a sandbox sees of itself, each by its controllers.
    pub(super) hierarchies: Vec<String>,
}

/// How layers reach the overlay, and with that how the scaffold is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RootMount {
    /// Layers are descriptors, the root covers the scaffold.
    OverScaffold,
    /// Layers have names in the scaffold, the root replaces it.
    ReplacesScaffold,
}

/// Moves this process into a mount namespace of its own that holds one small tmpfs: places to
/// attach to, and an empty file and an empty directory to mask with.
pub(crate) fn prepare_scaffold() -> rustix::io::Result<Scaffold> {
    let masks = Masks::of_host();
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
    let root_mount = if overlay_takes_detached_mounts() {
        RootMount::OverScaffold
    } else {
        RootMount::ReplacesScaffold
    };
    populate_scaffold(root_mount)?;
    Ok(Scaffold {
        root_mount,
        masks,
        hierarchies,
    })
}

/// Whether this kernel mounts an overlay of detached mounts, found out by doing it.
fn overlay_takes_detached_mounts() -> bool {
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

fn populate_scaffold(root_mount: RootMount) -> rustix::io::Result<()> {
    make_covers()?;
    if root_mount == RootMount::OverScaffold {
        // It stays in every sandbox's namespace, out of reach. Whoever reached it all the same
        // must not find a place that all sandboxes share.
        let change = MountChange {
            set: u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits()),
            ..MountChange::default()
        };
        return sys::change_mount(CWD, c"", change);
    }
    for directory in ["root", "writable", "layers"] {
        rustix::fs::mkdir(directory, Mode::from_raw_mode(0o755))?;
    }
    Ok(())
}

impl Scaffold {
    /// Makes sure there is a place for each of this many layers, where they need one. Called by
    /// the spawner, whose tmpfs all children share.
    pub(crate) fn ensure_layer_mount_points(&self, count: usize) -> rustix::io::Result<()> {
        if self.root_mount == RootMount::OverScaffold {
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
        match self.root_mount {
            // The root is mounted on the namespace's own root, so a walk upwards from anywhere,
            // whatever its process calls its root, ends on top of the pile: here.
            RootMount::OverScaffold => rustix::process::chroot(c".")?,
            // With both arguments the same directory the old root ends up stacked on the new
            // one, and one unmount of "." takes it away: no directory for it has to exist in
            // the image.
            RootMount::ReplacesScaffold => {
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
    sys::set_file_ids(first, first).map_err(super::at_step(Step::Root))?;
    let root = mount_root(scaffold.root_mount, descriptors).map_err(super::at_step(Step::Root))?;
    mount_volumes(&root, request, descriptors)?;
    sys::set_file_ids(0, 0).map_err(super::at_step(Step::Root))?;
    mount_proc(&root, scaffold).map_err(super::at_step(Step::Proc))?;
    mount_sys(&root, scaffold, request).map_err(super::at_step(Step::Sys))?;
    mount_dev(&root, request).map_err(super::at_step(Step::Dev))?;
    Ok(root)
}

/// The overlay. `volatile`, because the sandbox does not outlive the machine: without it an
/// fsync inside, and the unmount at the end, would wait for the host's disk. Redirects and
/// metadata-only copies are off so that a hostile layer cannot use them and a writable layer can
/// become an image layer as it is.
fn mount_root(root_mount: RootMount, descriptors: &Descriptors) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let place = match root_mount {
        RootMount::OverScaffold => {
            let writable = descriptors.writable.as_fd();
            set_descriptors(context.as_fd(), &descriptors.layers, writable)?;
            "/"
        }
        RootMount::ReplacesScaffold => {
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
        let fail = |errno| InitFailure::new(Step::Mount, errno, target.path.as_str());
        let place = mount_point(root.as_fd(), target).map_err(fail)?;
        attach(mount.as_fd(), place.as_fd(), "").map_err(fail)?;
    }
    Ok(())
}

/// Finds, or makes, where a mount goes. Links are followed inside `root` and nowhere else.
fn mount_point(root: BorrowedFd<'_>, target: &MountTarget) -> rustix::io::Result<OwnedFd> {
    let parts: Vec<&str> = target
        .path
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    let (last, parents) = parts.split_last().ok_or(Errno::INVAL)?;
    let mut directory = open_in_root(root, "/", OFlags::PATH | OFlags::DIRECTORY)?;
    let mut path = String::new();
    for part in parents {
        path = format!("{path}/{part}");
        directory = open_or_make_directory(root, directory.as_fd(), &path, part)?;
    }
    path = format!("{path}/{last}");
    if target.is_directory {
        return open_or_make_directory(root, directory.as_fd(), &path, last);
    }
    match open_in_root(root, &path, OFlags::PATH) {
        Err(Errno::NOENT) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(&directory, *last, flags, Mode::from_raw_mode(0o644))?;
            open_in_root(root, &path, OFlags::PATH)
        }
        other => other,
    }
}

fn open_or_make_directory(
    root: BorrowedFd<'_>,
    parent: BorrowedFd<'_>,
    path: &str,
    name: &str,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    match open_in_root(root, path, flags) {
        Err(Errno::NOENT) => {
            rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
            open_in_root(root, path, flags)
        }
        other => other,
    }
}

/// Opens a path as a process whose root is `root` would, but never through a magic link.
pub(super) fn open_in_root(
    root: BorrowedFd<'_>,
    path: &str,
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// A new detached mount of a filesystem.
pub(super) fn filesystem(
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

/// A new detached mount of what is at `path`.
pub(super) fn clone_tree(
    directory: BorrowedFd<'_>,
    path: &str,
    attributes: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let tree = clone_tree_as_it_is(directory, path)?;
    let change = MountChange {
        set: u64::from(attributes.bits()),
        ..MountChange::default()
    };
    sys::change_mount(tree.as_fd(), c"", change)?;
    Ok(tree)
}

/// The same with the attributes of the mount that it is cloned from.
pub(super) fn clone_tree_as_it_is(
    directory: BorrowedFd<'_>,
    path: &str,
) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    rustix::mount::open_tree(directory, path, flags)
}

/// Attaches a detached mount; an empty `path` is `directory` itself.
pub(super) fn attach(
    mount: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    path: &str,
) -> rustix::io::Result<()> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if path.is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    rustix::mount::move_mount(mount, c"", directory, path, flags)
}
