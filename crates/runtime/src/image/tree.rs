//! Removing and measuring directory trees that others have filled.
//!
//! A sandbox can nest directories deeper than any path is long and deeper than a process has
//! descriptors, so removal never goes deep: what lies too deep is first moved up.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, RawMode, RenameFlags};
use rustix::io::Errno;

/// How many directories removal holds open at once.
const OPEN_DIRECTORIES_MAX: usize = 32;

/// Removes `name` in `parent` and everything under it, never following a link. `Ok` when there
/// is nothing.
pub(crate) fn remove(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let top = open(parent, name)?;
    let mut moved = 0;
    empty(top.as_fd(), top.as_fd(), 1, &mut moved)?;
    // Each round empties directories that were moved up, and may move up others.
    while moved > 0 {
        moved = 0;
        empty(top.as_fd(), top.as_fd(), 1, &mut moved)?;
    }
    Ok(fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// As [`remove`], by path. The path itself is trusted, what lies under it is not.
pub(crate) fn remove_path(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    match fs::open(
        parent,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(parent) => remove(parent.as_fd(), name),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Entries of a directory without `.` and `..`: name and type.
pub(super) fn entries(directory: BorrowedFd<'_>) -> io::Result<Vec<(CString, FileType)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes() == b"." || name.to_bytes() == b".." {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            let stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            kind = FileType::from_raw_mode(stat.st_mode as RawMode);
        }
        found.push((name.to_owned(), kind));
    }
    Ok(found)
}

fn open(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) -> io::Result<std::os::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(parent, name, flags, Mode::empty())?)
}

fn empty(
    top: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    depth: usize,
    moved: &mut u64,
) -> io::Result<()> {
    for (name, kind) in entries(directory)? {
        if kind != FileType::Directory {
            fs::unlinkat(directory, &name, AtFlags::empty())?;
            continue;
        }
        match fs::unlinkat(directory, &name, AtFlags::REMOVEDIR) {
            Ok(()) => continue,
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        if depth >= OPEN_DIRECTORIES_MAX {
            move_up(top, directory, &name, moved)?;
            continue;
        }
        let below = open(directory, &name)?;
        empty(top, below.as_fd(), depth + 1, moved)?;
        drop(below);
        fs::unlinkat(directory, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// Moves a directory directly under the top, under a name that is free there.
fn move_up(
    top: BorrowedFd<'_>,
    from: BorrowedFd<'_>,
    name: &CString,
    moved: &mut u64,
) -> io::Result<()> {
    loop {
        *moved += 1;
        let free = format!("deep-{moved}");
        match fs::renameat_with(from, name, top, &*free, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            other => return Ok(other?),
        }
    }
}

/// What the files of a tree take on disk, each counted once, in bytes.
pub(super) fn disk_bytes(path: &Path) -> io::Result<u64> {
    let mut total = 0;
    let mut waiting = vec![path.to_owned()];
    while let Some(directory) = waiting.pop() {
        let opened = open(fs::CWD, &directory)?;
        for (name, kind) in entries(opened.as_fd())? {
            let stat = fs::statat(&opened, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            if kind == FileType::Directory {
                waiting.push(directory.join(OsStr::from_bytes(name.to_bytes())));
            }
            total += (stat.st_blocks as u64) * 512 / stat.st_nlink.max(1) as u64;
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        std::fs::create_dir(&root).unwrap();
        let mut current = fs::open(&root, OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..3000 {
            fs::mkdirat(&current, "d", Mode::RWXU).unwrap();
            fs::openat(&current, "file", OFlags::CREATE, Mode::RWXU).unwrap();
            current = fs::openat(&current, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        drop(current);
        remove_path(&root).unwrap();
        assert!(!root.exists());
        remove_path(&root).unwrap();
    }

    #[test]
    fn removal_does_not_follow_links() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("kept");
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("file"), "x").unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::os::unix::fs::symlink(&kept, tree.join("link")).unwrap();
        remove_path(&tree).unwrap();
        assert!(kept.join("file").exists());
    }
}
