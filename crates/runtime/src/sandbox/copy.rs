//! Copying and removing trees that a sandbox made.
//!
//! Their content is hostile: links that lead elsewhere, files with a terabyte of holes,
//! directories nested by the ten thousand. So nothing is opened by more than one name at a time
//! and no link is followed; holes stay holes; and neither function recurses.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;

use super::precopy::Precopy;

/// Two descriptors are held for each level. Paths that programs can use end at 4,096 bytes, so
/// no real tree is deeper than half of that.
pub(super) const DEPTH_MAX: usize = 2_048;

/// An attribute's name list and value have at most 64 KiB each.
const XATTR_BYTES_MAX: usize = 1 << 16;

/// Overlayfs's own notes about where a file was copied up from mean nothing in another layer.
/// What says that a directory is opaque must stay.
const DROPPED_XATTRS: [&[u8]; 4] = [
    b"trusted.overlay.origin",
    b"trusted.overlay.impure",
    b"trusted.overlay.nlink",
    b"trusted.overlay.uuid",
];

/// A directory that is being copied.
struct Level {
    from: OwnedFd,
    to: OwnedFd,
    stat: Stat,
    /// Below the root, for hard links.
    path: Vec<u8>,
    entries: Vec<CString>,
}

/// Copies the tree `from` to the new directory `to`, leaving out what `skip` names by its path
/// below the root. Keeps owners, modes, times, links, holes, devices and attributes. Files whose
/// content is among the `early` ones are not copied again. Returns the bytes that its files hold.
pub(crate) fn copy_tree(
    from: &Path,
    to: &Path,
    skip: &dyn Fn(&[u8]) -> bool,
    mut early: Option<&mut Precopy>,
) -> io::Result<u64> {
    let from = rustix::fs::openat(CWD, from, DIRECTORY, Mode::empty())?;
    rustix::fs::mkdir(to, Mode::from_raw_mode(0o700))?;
    let to = rustix::fs::openat(CWD, to, DIRECTORY, Mode::empty())?;
    let root = to.try_clone()?;
    let mut links: HashMap<(u64, u64), CString> = HashMap::new();
    let mut bytes = 0;
    let mut levels = vec![Level::enter(from, to, Vec::new())?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.entries.pop() else {
            let done = levels.pop().expect("the loop saw one");
            finish(done.from.as_fd(), done.to.as_fd(), &done.stat)?;
            continue;
        };
        let path = join(&level.path, name.to_bytes());
        if skip(&path) {
            continue;
        }
        let stat = rustix::fs::statat(&level.from, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            if levels.len() >= DEPTH_MAX {
                return Err(io::Error::other(
                    "directories are nested too deeply to be copied",
                ));
            }
            let level = levels.last().expect("the loop saw one");
            let (from, to) = descend(level, &name)?;
            levels.push(Level::enter(from, to, path)?);
            continue;
        }
        let key = (stat.st_dev, stat.st_ino);
        if let Some(first) = links.get(&key) {
            rustix::fs::linkat(&root, first.as_c_str(), &level.to, &name, AtFlags::empty())?;
            continue;
        }
        bytes += copy_entry(level, &name, &stat, early.as_deref_mut())?;
        if stat.st_nlink > 1 {
            links.insert(key, CString::new(path).map_err(io::Error::other)?);
        }
    }
    Ok(bytes)
}

/// The bytes that the files of a tree hold, without following anything.
pub(crate) fn size_of_tree(path: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    let root = rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())?;
    let mut levels = vec![(root.try_clone()?, names(&root)?)];
    while let Some((directory, entries)) = levels.last_mut() {
        let Some(name) = entries.pop() else {
            levels.pop();
            continue;
        };
        let stat = rustix::fs::statat(&*directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode).is_dir() && levels.len() < DEPTH_MAX {
            let (directory, _) = levels.last().expect("the loop saw one");
            let next = rustix::fs::openat(directory, &name, DIRECTORY, Mode::empty())?;
            let entries = names(&next)?;
            levels.push((next, entries));
        } else {
            bytes += held(&stat);
        }
    }
    Ok(bytes)
}

/// How often a directory that is not empty at the end is emptied again. The spawner may write
/// its one note of how a process ended at any moment; a directory that nobody may use any more
/// gets nothing else.
const EMPTYINGS_MAX: usize = 3;

/// Removes a tree.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    for _ in 1..EMPTYINGS_MAX {
        match empty_and_remove(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            outcome => return outcome,
        }
    }
    empty_and_remove(path)
}

/// Directories below the first level are moved up before they are emptied, so that depth costs
/// neither stack nor descriptors.
fn empty_and_remove(path: &Path) -> io::Result<()> {
    let root = match rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty()) {
        Ok(root) => root,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    let mut moved = 0_u64;
    let mut pending = empty(&root, &root, &mut moved)?;
    while let Some(name) = pending.pop() {
        let directory = rustix::fs::openat(&root, &name, DIRECTORY, Mode::empty())?;
        pending.extend(empty(&directory, &root, &mut moved)?);
        rustix::fs::unlinkat(&root, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR)?)
}

/// Unlinks what is in `directory` and moves its directories into `root`, under the names that
/// are returned.
fn empty(directory: &OwnedFd, root: &OwnedFd, moved: &mut u64) -> io::Result<Vec<CString>> {
    let mut directories = Vec::new();
    for name in names(directory)? {
        match rustix::fs::unlinkat(directory, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => directories.push(up(directory, &name, root, moved)?),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(directories)
}

fn up(from: &OwnedFd, name: &CStr, root: &OwnedFd, moved: &mut u64) -> io::Result<CString> {
    loop {
        *moved += 1;
        let fresh = CString::new(format!(".removing-{moved}")).expect("no NUL in a number");
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(from, name, root, &fresh, flags) {
            Ok(()) => return Ok(fresh),
            // A name that the sandbox chose, or that an interrupted removal left.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Level {
    fn enter(from: OwnedFd, to: OwnedFd, path: Vec<u8>) -> io::Result<Self> {
        Ok(Self {
            stat: rustix::fs::fstat(&from)?,
            entries: names(&from)?,
            from,
            to,
            path,
        })
    }
}

pub(super) fn names(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return name.to_vec();
    }
    [path, b"/", name].concat()
}

fn descend(level: &Level, name: &CStr) -> io::Result<(OwnedFd, OwnedFd)> {
    let from = rustix::fs::openat(&level.from, name, DIRECTORY, Mode::empty())?;
    rustix::fs::mkdirat(&level.to, name, Mode::from_raw_mode(0o700))?;
    let to = rustix::fs::openat(&level.to, name, DIRECTORY, Mode::empty())?;
    Ok((from, to))
}

fn copy_entry(
    level: &Level,
    name: &CStr,
    stat: &Stat,
    early: Option<&mut Precopy>,
) -> io::Result<u64> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind.is_file() {
        let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let from = rustix::fs::openat(&level.from, name, read, Mode::empty())?;
        let is_placed = match early {
            Some(early) => early.move_copy_to(stat, &level.to, name)?,
            None => false,
        };
        let to = if is_placed {
            rustix::fs::openat(&level.to, name, read, Mode::empty())?
        } else {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let to = rustix::fs::openat(&level.to, name, flags, Mode::from_raw_mode(0o600))?;
            copy_data(&from, &to, stat)?;
            to
        };
        finish(from.as_fd(), to.as_fd(), stat)?;
        return Ok(held(stat));
    }
    if kind.is_symlink() {
        let target = rustix::fs::readlinkat(&level.from, name, Vec::new())?;
        rustix::fs::symlinkat(target, &level.to, name)?;
    } else {
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        rustix::fs::mknodat(&level.to, name, kind, mode, stat.st_rdev)?;
    }
    let (uid, gid) = owner(stat);
    rustix::fs::chownat(&level.to, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    if !kind.is_symlink() {
        // The umask took part in mknod.
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        rustix::fs::chmodat(&level.to, name, mode, AtFlags::empty())?;
    }
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(&level.to, name, &times(stat), flags)?;
    Ok(0)
}

/// Shares the blocks where the filesystem can, or else copies them inside the kernel.
pub(super) fn copy_data(from: &OwnedFd, to: &OwnedFd, stat: &Stat) -> io::Result<()> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size == 0 || rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    rustix::fs::ftruncate(to, size)?;
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(from, rustix::fs::SeekFrom::Data(at)) {
            Ok(start) => start,
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        let end = rustix::fs::seek(from, rustix::fs::SeekFrom::Hole(start))?.min(size);
        copy_range(from, to, start, end)?;
        at = end;
    }
    Ok(())
}

fn copy_range(from: &OwnedFd, to: &OwnedFd, start: u64, end: u64) -> io::Result<()> {
    let (mut read, mut written) = (start, start);
    while read < end {
        let length = usize::try_from(end - read).unwrap_or(usize::MAX);
        let (source, target) = (Some(&mut read), Some(&mut written));
        match rustix::fs::copy_file_range(from, source, to, target, length) {
            // It was cut short meanwhile.
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(Errno::XDEV) => return copy_through_memory(from, to, read, end),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Large enough that a system call costs nothing beside the copying.
const BUFFER_BYTES: usize = 1 << 18;

/// The kernel copies between two filesystems only where both are of some kinds.
fn copy_through_memory(from: &OwnedFd, to: &OwnedFd, start: u64, end: u64) -> io::Result<()> {
    let mut buffer = vec![0_u8; BUFFER_BYTES];
    let mut at = start;
    while at < end {
        let wanted = usize::try_from(end - at).map_or(BUFFER_BYTES, |left| left.min(BUFFER_BYTES));
        let length = rustix::io::pread(from, &mut buffer[..wanted], at)?;
        if length == 0 {
            return Ok(());
        }
        let mut written = 0;
        while written < length {
            let place = at + written as u64;
            written += rustix::io::pwrite(to, &buffer[written..length], place)?;
        }
        at += length as u64;
    }
    Ok(())
}

/// Owner, attributes, mode and times of a file or directory, in the order in which none undoes
/// another: a change of owner clears setuid, and everything changes the times.
fn finish(
    from: std::os::fd::BorrowedFd<'_>,
    to: std::os::fd::BorrowedFd<'_>,
    stat: &Stat,
) -> io::Result<()> {
    let (uid, gid) = owner(stat);
    rustix::fs::fchown(to, uid, gid)?;
    copy_xattrs(from, to)?;
    rustix::fs::fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    Ok(rustix::fs::futimens(to, &times(stat))?)
}

fn copy_xattrs(
    from: std::os::fd::BorrowedFd<'_>,
    to: std::os::fd::BorrowedFd<'_>,
) -> io::Result<()> {
    let mut list = vec![0_u8; XATTR_BYTES_MAX];
    let length = match rustix::fs::flistxattr(from, &mut list[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    let mut value = Vec::new();
    for name in list[..length]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty())
    {
        if DROPPED_XATTRS.contains(&name) {
            continue;
        }
        value.resize(XATTR_BYTES_MAX, 0);
        let length = rustix::fs::fgetxattr(from, name, &mut value[..])?;
        rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

fn owner(stat: &Stat) -> (Option<rustix::fs::Uid>, Option<rustix::fs::Gid>) {
    let uid = rustix::fs::Uid::from_raw(stat.st_uid);
    let gid = rustix::fs::Gid::from_raw(stat.st_gid);
    (Some(uid), Some(gid))
}

fn times(stat: &Stat) -> Timestamps {
    let time = |seconds: i64, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or(0),
    };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn held(stat: &Stat) -> u64 {
    const BLOCK_BYTES: u64 = 512;
    u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK_BYTES
}

#[cfg(test)]
mod tests;
