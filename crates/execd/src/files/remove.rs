//! Deleting: a file, or a directory with everything in it.
//!
//! Symbolic links are deleted, never followed; a name that is not there is no error. One directory
//! is open at a time however deep the tree is, and the way back up is checked, so a tree that is
//! moved away while it is being deleted cannot lead the deletion elsewhere.

use std::{
    ffi::CString,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, unlinkat},
    io::Errno,
};

use super::{
    credentials::parent,
    error::{Error, Result},
};

/// Deletes what `path` names unless it is a directory.
pub(super) fn file(path: &Path) -> Result<()> {
    match unlinkat(CWD, path, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        // Some filesystems report EPERM for a directory, as POSIX allows.
        Err(Errno::ISDIR | Errno::PERM) if path.is_dir() => Err(Error::WrongKind {
            path: path.into(),
            what: "is a directory; delete it as a directory",
        }),
        Err(e) => Err(Error::io("deleting", path, e)),
    }
}

/// Deletes what `path` names and, if it is a directory, everything below it.
pub(super) fn tree(path: &Path) -> Result<()> {
    let Some(name) = path.file_name() else {
        let why = "the root of the filesystem cannot be deleted".into();
        return Err(Error::BadPath {
            path: path.display().to_string(),
            why,
        });
    };
    let above = match open(CWD, parent(path)) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        other => other.map_err(|e| Error::io("deleting", path, e))?,
    };
    empty_and_remove(
        above,
        CString::new(name.as_encoded_bytes()).unwrap_or_default(),
    )
    .map_err(|(below, e)| Error::io("deleting", parent(path).join(below), e))
}

fn open(at: impl std::os::fd::AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    openat(
        at,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// The directories from the top down to the open one: their names, and what each really is.
struct Level {
    name: CString,
    above: (u64, u64),
}

/// Works on `current`, going down into a directory when one is met and up again when it is empty.
fn empty_and_remove(mut current: OwnedFd, top: CString) -> Result<(), (PathBuf, Errno)> {
    let mut way: Vec<Level> = Vec::new();
    let mut next = Some(top);
    loop {
        if let Some(name) = next.take() {
            match enter(&current, &name) {
                Ok(None) if way.is_empty() => return Ok(()),
                Ok(None) => {}
                Ok(Some(below)) => {
                    let above = identity(&current).map_err(|e| (shown(&way, Some(&name)), e))?;
                    way.push(Level { name, above });
                    current = below;
                }
                Err(e) => return Err((shown(&way, Some(&name)), e)),
            }
        }
        let failed = |e| (shown(&way, None), e);
        if let Some(directory) =
            unlink_files(&current).map_err(|(name, e)| (shown(&way, name.as_ref()), e))?
        {
            next = Some(directory);
            continue;
        }
        // Empty: back up, and remove it from there.
        let up = open(&current, "..").map_err(failed)?;
        let Some(level) = way.last() else {
            return Ok(());
        };
        if identity(&up).map_err(failed)? != level.above {
            return Err(failed(Errno::AGAIN));
        }
        match unlinkat(&up, &level.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            // Somebody put a file in meanwhile: go in again.
            Err(Errno::NOTEMPTY) => continue,
            Err(e) => return Err(failed(e)),
        }
        way.pop();
        if way.is_empty() {
            return Ok(());
        }
        current = up;
    }
}

/// Opens `name` if it is a directory, else deletes it.
fn enter(at: &OwnedFd, name: &CString) -> Result<Option<OwnedFd>, Errno> {
    match open(at, name) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => match unlinkat(at, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        },
        // An empty directory can be removed without the right to read it.
        Err(Errno::ACCESS) => unlinkat(at, name, AtFlags::REMOVEDIR)
            .map(|()| None)
            .map_err(|_| Errno::ACCESS),
        Err(e) => Err(e),
    }
}

/// Deletes the entries that are no directories; gives the first that is one.
fn unlink_files(directory: &OwnedFd) -> Result<Option<CString>, (Option<CString>, Errno)> {
    for entry in Dir::read_from(directory).map_err(|e| (None, e))? {
        let entry = entry.map_err(|e| (None, e))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entry.file_type() == FileType::Directory {
            return Ok(Some(name.to_owned()));
        }
        match unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            // The filesystem did not say what it is, or it has become a directory.
            Err(Errno::ISDIR | Errno::PERM) if open(directory, name).is_ok() => {
                return Ok(Some(name.to_owned()));
            }
            Err(e) => return Err((Some(name.to_owned()), e)),
        }
    }
    Ok(None)
}

fn identity(directory: &OwnedFd) -> Result<(u64, u64), Errno> {
    fstat(directory).map(|stat| (stat.st_dev, stat.st_ino))
}

fn shown(way: &[Level], last: Option<&CString>) -> PathBuf {
    let names = way.iter().map(|level| &level.name).chain(last);
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn links_are_deleted_and_their_targets_stay() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("kept")).unwrap();
        fs::write(at("kept/f"), "").unwrap();
        for (link, target) in [
            ("dangling", "nowhere"),
            ("to-dir", "kept"),
            ("tree", "kept"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        file(&at("dangling")).unwrap();
        file(&at("to-dir")).unwrap();
        tree(&at("tree")).unwrap();
        let left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(left, ["kept"]);
        assert!(at("kept/f").exists());
    }

    #[test]
    fn files_and_directories_are_told_apart_and_absence_is_fine() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(file(dir.path()), Err(Error::WrongKind { .. })));
        file(&dir.path().join("none")).unwrap();
        tree(&dir.path().join("none/deeper")).unwrap();
        fs::write(dir.path().join("f"), "").unwrap();
        tree(&dir.path().join("f")).unwrap();
        assert!(!dir.path().join("f").exists());
        assert!(matches!(tree(Path::new("/")), Err(Error::BadPath { .. })));
    }

    #[test]
    fn wide_and_very_deep_trees_go() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        for i in 0..20 {
            fs::create_dir_all(root.join(format!("wide/{i}/x"))).unwrap();
            fs::write(root.join(format!("wide/{i}/f")), "").unwrap();
        }
        symlink(dir.path(), root.join("wide/3/out")).unwrap();
        // Deeper than descriptors allow at once and than a path can say.
        let mut at = open(CWD, &root).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, "deep", Mode::from_raw_mode(0o755)).unwrap();
            at = open(&at, "deep").unwrap();
        }
        drop(at);
        tree(&root).unwrap();
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}
