//! `POST /files/mv`: renaming, also from one mount to another.
//!
//! An existing destination is never overwritten. Inside a mount it is one rename. Between mounts the
//! source is copied beside the destination under a hidden name, flushed, renamed, and only then
//! deleted: at every moment one whole copy exists. The copy keeps content (holes too), modes with
//! the setuid bits, owners, times, extended attributes, hard links among the files moved, devices
//! and pipes. A symbolic link is moved as a link.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom as Hole, Stat, Timespec,
        Timestamps, Uid, XattrFlags, chmodat, chownat, fsync, lgetxattr, linkat, llistxattr,
        lsetxattr, mkdirat, mknodat, openat, readlinkat, renameat, renameat_with, seek, statat,
        symlinkat, utimensat,
    },
    io::Errno,
};

use super::{
    credentials::parent,
    error::{Error, Result},
    remove,
    staged::hidden_name,
};

/// The longest list of names and the longest value of extended attributes the kernel has.
const XATTR_MAX: usize = 64 * 1024;

pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    statat(CWD, from, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| Error::io("moving", from, e))?;
    let above = parent(to);
    fs::create_dir_all(above).map_err(|e| Error::io("making the directory", above, e))?;
    match rename_new(from, to) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST | Errno::NOTEMPTY) => Err(Error::Exists(to.into())),
        Err(Errno::XDEV) => across(from, to),
        Err(Errno::INVAL) => Err(Error::WrongKind {
            path: to.into(),
            what: "lies inside the directory that is to be moved",
        }),
        Err(e) => Err(Error::io("moving", from, e)),
    }
}

/// Renames unless the destination exists.
fn rename_new(from: &Path, to: &Path) -> Result<(), Errno> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The filesystem cannot promise it in one step: look first. EINVAL is also what a move into
        // itself gives, and the plain rename then gives it again.
        Err(Errno::INVAL | Errno::NOSYS) => match statat(CWD, to, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => renameat(CWD, from, CWD, to),
            Err(e) => Err(e),
        },
        other => other,
    }
}

fn across(from: &Path, to: &Path) -> Result<()> {
    if statat(CWD, to, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Error::Exists(to.into()));
    }
    let hidden = parent(to).join(hidden_name());
    let copied = Copy::default()
        .tree(from, &hidden)
        .and_then(|()| match rename_new(&hidden, to) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST | Errno::NOTEMPTY) => Err(Error::Exists(to.into())),
            Err(e) => Err(Error::io("moving", from, e)),
        });
    if copied.is_err() {
        // What was copied so far is of no use; the source is whole.
        let _ = remove::tree(&hidden);
        return copied;
    }
    let above = File::open(parent(to)).and_then(|directory| directory.sync_all());
    above.map_err(|e| Error::io("flushing", parent(to), e))?;
    remove::tree(from)
}

/// One copy of a tree.
#[derive(Default)]
struct Copy {
    /// Where files with several names were copied to first.
    linked: HashMap<(u64, u64), PathBuf>,
}

impl Copy {
    fn tree(&mut self, from: &Path, to: &Path) -> Result<()> {
        // Directories get their attributes last: a read-only one could not be filled, and filling
        // changes its times.
        let mut directories = Vec::new();
        let mut todo = vec![(from.to_path_buf(), to.to_path_buf())];
        while let Some((from, to)) = todo.pop() {
            let reading = |e| Error::io("reading", &from, e);
            let stat = statat(CWD, &from, AtFlags::SYMLINK_NOFOLLOW).map_err(reading)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                mkdirat(CWD, &to, Mode::from_raw_mode(0o700))
                    .map_err(|e| Error::io("making", &to, e))?;
                for entry in fs::read_dir(&from).map_err(|e| Error::io("reading", &from, e))? {
                    let name = entry
                        .map_err(|e| Error::io("reading", &from, e))?
                        .file_name();
                    todo.push((from.join(&name), to.join(&name)));
                }
                directories.push((from, to, stat));
            } else {
                self.entry(&from, &to, &stat)?;
            }
        }
        directories
            .iter()
            .rev()
            .try_for_each(|(from, to, stat)| dress(from, to, stat))
    }

    fn entry(&mut self, from: &Path, to: &Path, stat: &Stat) -> Result<()> {
        let writing = |e: Errno| Error::io("writing", to, e);
        if stat.st_nlink > 1 {
            let key = (stat.st_dev, stat.st_ino);
            if let Some(first) = self.linked.get(&key) {
                return linkat(CWD, first, CWD, to, AtFlags::empty()).map_err(writing);
            }
            self.linked.insert(key, to.to_path_buf());
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => content(from, to)?,
            FileType::Symlink => {
                let target =
                    readlinkat(CWD, from, Vec::new()).map_err(|e| Error::io("reading", from, e))?;
                symlinkat(target, CWD, to).map_err(writing)?;
            }
            kind => {
                mknodat(CWD, to, kind, Mode::from_raw_mode(0o600), stat.st_rdev)
                    .map_err(writing)?;
            }
        }
        dress(from, to, stat)
    }
}

fn content(from: &Path, to: &Path) -> Result<()> {
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut source: File = openat(
        CWD,
        from,
        flags | OFlags::RDONLY | OFlags::NONBLOCK,
        Mode::empty(),
    )
    .map_err(|e| Error::io("reading", from, e))?
    .into();
    let new = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mut target: File = openat(CWD, to, new, Mode::from_raw_mode(0o600))
        .map_err(|e| Error::io("writing", to, e))?
        .into();
    copy_data(&mut source, &mut target)
        .and_then(|()| Ok(fsync(&target)?))
        .map_err(|e| Error::io("writing", to, e))
}

/// Copies the data and leaves the holes.
fn copy_data(source: &mut File, target: &mut File) -> io::Result<()> {
    let size = source.metadata()?.len();
    let mut at = 0;
    while at < size {
        let (start, end) = match seek(source.as_fd(), Hole::Data(at)) {
            Ok(start) => (start, seek(source.as_fd(), Hole::Hole(start))?),
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            // The filesystem knows no holes.
            Err(_) => (at, size),
        };
        source.seek(SeekFrom::Start(start))?;
        target.seek(SeekFrom::Start(start))?;
        io::copy(&mut source.take(end - start), target)?;
        at = end;
    }
    target.set_len(size)
}

/// Puts the attributes of the original on the copy: the owner first, since changing it clears the
/// setuid bits; the times last, since everything else changes them.
fn dress(from: &Path, to: &Path, stat: &Stat) -> Result<()> {
    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
    let failed = |e: Errno| Error::io("setting the attributes of", to, e);
    match chownat(
        CWD,
        to,
        Some(Uid::from_raw(stat.st_uid)),
        Some(Gid::from_raw(stat.st_gid)),
        nofollow,
    ) {
        // Only root may keep another owner; the files then belong to the user, as with mv(1).
        Ok(()) | Err(Errno::PERM) => {}
        Err(e) => return Err(failed(e)),
    }
    copy_xattrs(from, to);
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        chmodat(CWD, to, mode, AtFlags::empty()).map_err(failed)?;
    }
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: stat.st_atime,
            tv_nsec: stat.st_atime_nsec as _,
        },
        last_modification: Timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: stat.st_mtime_nsec as _,
        },
    };
    utimensat(CWD, to, &times, nofollow).map_err(failed)
}

/// As far as the destination's filesystem and the caller's rights allow, like mv(1).
fn copy_xattrs(from: &Path, to: &Path) {
    let mut names = vec![0u8; XATTR_MAX];
    let Ok(length) = llistxattr(from, &mut names) else {
        return;
    };
    let mut value = vec![0u8; XATTR_MAX];
    for name in names[..length]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty())
    {
        if let Ok(size) = lgetxattr(from, name, &mut value) {
            let _ = lsetxattr(to, name, &value[..size], XattrFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn renames_into_new_directories_and_never_over_something() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("a"), "a").unwrap();
        rename(&at("a"), &at("new/deep/b")).unwrap();
        assert_eq!(fs::read_to_string(at("new/deep/b")).unwrap(), "a");
        fs::write(at("c"), "c").unwrap();
        assert!(matches!(
            rename(&at("c"), &at("new/deep/b")),
            Err(Error::Exists(_))
        ));
        assert!(matches!(
            rename(&at("c"), &at("new")),
            Err(Error::Exists(_))
        ));
        assert!(matches!(
            rename(&at("none"), &at("x")),
            Err(Error::NotFound(_))
        ));
        assert!(matches!(
            rename(&at("new"), &at("new/deep/inside")),
            Err(Error::WrongKind { .. })
        ));
        symlink("nowhere", at("link")).unwrap();
        rename(&at("link"), &at("link2")).unwrap();
        assert_eq!(fs::read_link(at("link2")).unwrap(), Path::new("nowhere"));
    }

    /// A directory on another filesystem than the temporary directory: /dev/shm is always a mount
    /// of its own.
    fn elsewhere() -> tempfile::TempDir {
        let here = tempfile::tempdir().unwrap();
        let there = tempfile::tempdir_in("/dev/shm")
            .expect("/dev/shm is there on every Linux these tests run on");
        let device = |path: &Path| fs::metadata(path).unwrap().dev();
        assert_ne!(
            device(here.path()),
            device(there.path()),
            "the test needs two filesystems"
        );
        there
    }

    #[test]
    fn a_tree_moves_between_mounts_with_everything_it_has() {
        let (here, there) = (tempfile::tempdir().unwrap(), elsewhere());
        let (from, to) = (here.path().join("tree"), there.path().join("sub/tree"));
        fs::create_dir_all(from.join("closed")).unwrap();
        fs::write(from.join("closed/f"), "content").unwrap();
        fs::hard_link(from.join("closed/f"), from.join("second")).unwrap();
        fs::set_permissions(from.join("second"), fs::Permissions::from_mode(0o4751)).unwrap();
        symlink("closed/f", from.join("link")).unwrap();
        mknodat(
            CWD,
            from.join("pipe"),
            FileType::Fifo,
            Mode::from_raw_mode(0o640),
            0,
        )
        .unwrap();
        let sparse = File::create(from.join("sparse")).unwrap();
        sparse.write_all_at(b"end", 10 << 20).unwrap();
        sparse.set_len(20 << 20).unwrap();
        fs::set_permissions(from.join("closed"), fs::Permissions::from_mode(0o1555)).unwrap();
        let time = fs::metadata(from.join("second"))
            .unwrap()
            .modified()
            .unwrap();

        rename(&from, &to).unwrap();

        assert!(!from.exists());
        assert_eq!(fs::read_to_string(to.join("closed/f")).unwrap(), "content");
        let (one, two) = (
            fs::metadata(to.join("closed/f")).unwrap(),
            fs::metadata(to.join("second")).unwrap(),
        );
        assert_eq!(one.ino(), two.ino(), "hard links stay one file");
        assert_eq!(two.permissions().mode() & 0o7777, 0o4751);
        assert_eq!(two.modified().unwrap(), time);
        assert_eq!(
            fs::metadata(to.join("closed"))
                .unwrap()
                .permissions()
                .mode()
                & 0o7777,
            0o1555
        );
        assert_eq!(
            fs::read_link(to.join("link")).unwrap(),
            Path::new("closed/f")
        );
        assert!(fs::metadata(to.join("pipe")).unwrap().file_type().is_fifo());
        let sparse = fs::metadata(to.join("sparse")).unwrap();
        assert_eq!(sparse.len(), 20 << 20);
        assert!(sparse.blocks() * 512 < 1 << 20, "the holes stay holes");
        let siblings: Vec<_> = fs::read_dir(there.path().join("sub"))
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(siblings, ["tree"], "no temporary name is left");
    }

    #[test]
    fn between_mounts_too_nothing_is_overwritten() {
        let (here, there) = (tempfile::tempdir().unwrap(), elsewhere());
        let (from, to) = (here.path().join("f"), there.path().join("f"));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        assert!(matches!(rename(&from, &to), Err(Error::Exists(_))));
        assert_eq!(fs::read_to_string(&to).unwrap(), "old");
        assert_eq!(fs::read_to_string(&from).unwrap(), "new");
    }
}
