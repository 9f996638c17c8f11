//! A writable layer of bounded size: a filesystem of its own in a sparse file.
//!
//! The one way that works on every filesystem the data directory may be on: project quotas need
//! a kernel, a filesystem and a mount option that few machines have all of. The file takes what
//! is written into it and no more; bytes and inodes end where its filesystem ends. It is mounted
//! in the sandbox's directory on the host as well, so that snapshots find the layer where they
//! find every other.
//!
//! Not here: limits for volumes, which outlive sandboxes.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags};

use super::build::WRITABLE_DIR;
use crate::sys;

/// The file in a sandbox's directory that holds its writable layer.
const DISK_FILE: &str = "disk.img";

/// A filesystem smaller than this has no room beside its own bookkeeping.
const BYTES_MIN: u64 = 4 << 20;

/// A file on ext4 with its usual blocks ends just short of 16 TiB (ext4(5)), and one of this size fits.
const BYTES_MAX: u64 = 15 << 40;

/// Why no filesystem of this size can be made.
pub(crate) fn size_problem(bytes: u64) -> Option<String> {
    match bytes {
        ..BYTES_MIN => Some(format!("a disk has at least {} MiB", BYTES_MIN >> 20)),
        BYTES_MIN..=BYTES_MAX => None,
        _ => Some(format!("a disk has at most {} TiB", BYTES_MAX >> 40)),
    }
}

/// Where the program is on machines whose PATH leaves out what only root uses.
const MKFS_DIRECTORIES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// What bounded layers are made with.
#[derive(Debug, Clone)]
pub(crate) struct DiskImages {
    mkfs: PathBuf,
}

impl DiskImages {
    /// `None` where this machine cannot make any; the text says what would mend that.
    pub(crate) fn find() -> Result<Self, &'static str> {
        if !Path::new("/dev/loop-control").exists() {
            return Err("the kernel has no loop devices; run: modprobe loop");
        }
        let places = MKFS_DIRECTORIES
            .iter()
            .map(|place| Path::new(place).join("mkfs.ext4"));
        let found = places.into_iter().find(|path| path.is_file());
        found
            .map(|mkfs| Self { mkfs })
            .ok_or("there is no mkfs.ext4; run: apt-get install e2fsprogs")
    }

    /// Makes a filesystem of `bytes` and mounts it on the writable directory of a sandbox, which
    /// is there and empty.
    pub(crate) fn mount(&self, directory: &Path, bytes: u64) -> io::Result<()> {
        let path = directory.join(DISK_FILE);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        file.set_len(bytes)?;
        self.format(&path)?;
        let (device, source) = sys::attach_loop_device(file.as_fd())?;
        let context = rustix::mount::fsopen(c"ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_string(&context, "source", source.as_str())?;
        // A file that was just made is all zeros: there is nothing to initialise behind our back.
        rustix::mount::fsconfig_set_flag(&context, "noinit_itable")?;
        rustix::mount::fsconfig_create(&context)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        drop(device);
        rustix::mount::move_mount(
            &mount,
            c"",
            CWD,
            directory.join(WRITABLE_DIR),
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )?;
        Ok(())
    }

    /// No journal: the sandbox does not outlive the machine. No blocks kept back for root: root
    /// is who fills it.
    fn format(&self, file: &Path) -> io::Result<()> {
        let made = Command::new(&self.mkfs)
            .args(["-q", "-F", "-m", "0", "-O", "^has_journal,^resize_inode"])
            .args(["-E", "nodiscard,lazy_itable_init=1"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()?;
        if made.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&made.stderr);
        Err(io::Error::other(format!(
            "mkfs.ext4 failed: {}",
            said.trim()
        )))
    }
}

/// Takes the mount away where a sandbox's directory has one. Its processes may still hold it;
/// then it goes with them.
pub(crate) fn unmount(directory: &Path) -> io::Result<()> {
    if !directory.join(DISK_FILE).exists() {
        return Ok(());
    }
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    match rustix::mount::unmount(directory.join(WRITABLE_DIR), flags) {
        // Not mounted: it was being made or removed, or the machine was started anew.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_no_file_can_have_is_refused() {
        for (bytes, is_possible) in [
            (BYTES_MIN - 1, false),
            (BYTES_MIN, true),
            (10 << 40, true),
            (1000 << 40, false),
            (u64::MAX, false),
        ] {
            assert_eq!(size_problem(bytes).is_none(), is_possible, "{bytes}");
        }
    }
}
