//! The directories of this machine that the image `host` shows, each as a read-only overlay of a sandbox's own: of
//! the directory itself and of the mask that hides settings in it. Not idmapped, so that root in the sandbox is
//! nobody in them.
//!
//! An overlay for each sandbox, because its inodes are its own: on shared ones, locks and inotify would tell it
//! what the host and other sandboxes run. Its layers are detached mounts that are made once. Given by name, the
//! names of the host's directories would stand in every sandbox's table of mounts; kernels before 6.15, which
//! refuse a detached mount as a layer, leave no other way.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use super::volume::{self, PreparedMount};
use crate::image::Bind;
use crate::protection::Protection;
use crate::spawner::protocol::MountTarget;

/// A string option of fsconfig(2) has at most 255 bytes.
const OPTION_BYTES_MAX: usize = 255;

/// The layers, made with the first sandbox that needs them. They are as many as `host_directories` says.
#[derive(Debug, Default)]
pub(crate) struct HostLayers {
    made: Mutex<HashMap<PathBuf, Arc<OwnedFd>>>,
}

impl HostLayers {
    /// Mounts of what an image shows of this machine.
    pub(crate) fn shown(&self, binds: &[Bind], images: &Path) -> io::Result<Vec<PreparedMount>> {
        let shown = |bind: &Bind| {
            let path = bind.target.to_string_lossy().into_owned();
            Ok(PreparedMount {
                mount: self.mount(&bind.source, images)?,
                target: MountTarget {
                    path,
                    is_directory: true,
                },
            })
        };
        binds.iter().map(shown).collect()
    }

    fn mount(&self, source: &Path, images: &Path) -> io::Result<OwnedFd> {
        if !Protection::OwnInodes.is_on() {
            let layer = self.layer(source)?;
            return Ok(volume::detached_mount(
                layer.as_fd(),
                libc::MOUNT_ATTR_RDONLY,
                None,
            )?);
        }
        let mask = match Protection::HostMasks.is_on() {
            true => crate::image::host_mask(images, source),
            false => crate::image::host_mask(images, Path::new("/")),
        };
        let by_descriptor = self.overlay_of_descriptors(&[&mask, source]);
        Ok(by_descriptor.or_else(|_| overlay_of_names(&[&mask, source]))?)
    }

    /// The topmost layer first.
    fn overlay_of_descriptors(&self, layers: &[&Path]) -> rustix::io::Result<OwnedFd> {
        let context = rustix::mount::fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        for layer in layers {
            rustix::mount::fsconfig_set_fd(
                context.as_fd(),
                "lowerdir+",
                self.layer(layer)?.as_fd(),
            )?;
        }
        read_only(&context)
    }

    fn layer(&self, path: &Path) -> rustix::io::Result<Arc<OwnedFd>> {
        let mut made = self
            .made
            .lock()
            .expect("no code panics with this lock held");
        if let Some(layer) = made.get(path) {
            return Ok(layer.clone());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let layer = Arc::new(volume::detached_mount(directory.as_fd(), 0, None)?);
        made.insert(path.to_owned(), layer.clone());
        Ok(layer)
    }
}

/// The same with layers by their names.
fn overlay_of_names(layers: &[&Path]) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // A colon separates layers, and a backslash makes one part of a name.
    let escape = |path: &&Path| {
        let text = path.to_str().ok_or(Errno::INVAL)?;
        Ok(text.replace('\\', "\\\\").replace(':', "\\:"))
    };
    let names = layers
        .iter()
        .map(escape)
        .collect::<rustix::io::Result<Vec<_>>>()?;
    let joined = names.join(":");
    if joined.len() <= OPTION_BYTES_MAX {
        rustix::mount::fsconfig_set_string(&context, "lowerdir", &joined)?;
    } else {
        // Since Linux 6.7, and with names as they are.
        for layer in layers {
            rustix::mount::fsconfig_set_string(&context, "lowerdir+", *layer)?;
        }
    }
    read_only(&context)
}

/// A detached overlay without a writable layer.
fn read_only(context: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    for (key, value) in [
        ("redirect_dir", "nofollow"),
        ("metacopy", "off"),
        ("index", "off"),
    ] {
        rustix::mount::fsconfig_set_string(context, key, value)?;
    }
    rustix::mount::fsconfig_create(context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}
