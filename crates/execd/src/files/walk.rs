//! Listing and searching: many files described in one answer.
//!
//! Entries come in the order of their bytes, each directory's children right behind it. Symbolic
//! links are described and never entered. A directory that cannot be read while walking is left
//! out, since one such place must not hide the rest; only the root must be readable. The answer is
//! JSON built directly, so that 100,000 entries cost what their stats cost.

use std::{
    ffi::{CStr, CString},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
};

use bytes::Bytes;
use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, statat},
    io::Errno,
};

use super::{
    error::{Error, Result},
    glob::Glob,
    info::FileInfo,
};
use crate::identity::Accounts;

/// Entries in one answer. At some 230 bytes each this bounds an answer's memory to about 60 MB,
/// while a directory of 100,000 files still fits well.
pub(super) const ENTRIES_MAX: u64 = 250_000;

/// Answers are handed on in pieces of about this size, so that a long one is never moved as a whole.
const PIECE: usize = 256 * 1024;

/// A JSON array that grows in pieces.
pub(super) struct Answer {
    pieces: Vec<Bytes>,
    current: Vec<u8>,
    count: u64,
    limit: u64,
}

impl Answer {
    fn new(limit: u64) -> Self {
        Self {
            pieces: Vec::new(),
            current: vec![b'['],
            count: 0,
            limit,
        }
    }

    fn add(&mut self, path: &[u8], stat: &Stat, accounts: &Accounts) -> Result<()> {
        if self.count == self.limit {
            return Err(Error::Limit {
                name: "ENTRIES_MAX",
                limit: self.limit,
                what: "entries in one answer",
                advice: "ask for a smaller depth, a narrower pattern or a directory further down",
            });
        }
        if self.count > 0 {
            self.current.push(b',');
        }
        self.count += 1;
        serde_json::to_writer(&mut self.current, &FileInfo::new(path, stat, accounts))
            .map_err(|e| Error::Internal(e.to_string()))?;
        if self.current.len() >= PIECE {
            self.pieces.push(std::mem::take(&mut self.current).into());
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Vec<Bytes> {
        self.current.push(b']');
        self.pieces.push(self.current.into());
        self.pieces
    }
}

/// The entries below `root`, `depth` levels deep.
pub(super) fn list(root: &Path, depth: u64, accounts: &Accounts) -> Result<Answer> {
    let stat =
        statat(CWD, root, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| Error::io("listing", root, e))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {}
        FileType::Symlink => {
            let what = "is a symbolic link; list the directory it points to";
            return Err(Error::WrongKind {
                path: root.into(),
                what,
            });
        }
        _ => {
            return Err(Error::WrongKind {
                path: root.into(),
                what: "is not a directory",
            });
        }
    }
    let mut answer = Answer::new(ENTRIES_MAX);
    if depth > 0 {
        let top = open(root.as_os_str().as_bytes()).map_err(|e| Error::io("listing", root, e))?;
        let mut visit = |path: &[u8], stat: &Stat| answer.add(path, stat, accounts);
        walk(root, &top, depth, &mut visit)?;
    }
    Ok(answer)
}

/// The files below `root` whose name, or whose path relative to `root`, matches.
pub(super) fn search(root: &Path, glob: &Glob, accounts: &Accounts) -> Result<Answer> {
    search_within(root, glob, accounts, ENTRIES_MAX)
}

fn search_within(root: &Path, glob: &Glob, accounts: &Accounts, limit: u64) -> Result<Answer> {
    let shown = root.as_os_str().as_bytes();
    let mut answer = Answer::new(limit);
    let base = if shown.ends_with(b"/") {
        shown.len()
    } else {
        shown.len() + 1
    };
    let mut visit = |path: &[u8], stat: &Stat| {
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Ok(());
        }
        let name = &path[path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1)..];
        let relative = path.get(base..).unwrap_or(name);
        let hit = glob.matches(&String::from_utf8_lossy(name))
            || (glob.has_slash() && glob.matches(&String::from_utf8_lossy(relative)));
        if hit {
            answer.add(path, stat, accounts)
        } else {
            Ok(())
        }
    };
    let stat = statat(CWD, root, AtFlags::empty()).map_err(|e| Error::io("searching", root, e))?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top =
            openat(CWD, root, flags, Mode::empty()).map_err(|e| Error::io("searching", root, e))?;
        walk(root, &top, u64::MAX, &mut visit)?;
    } else {
        visit(shown, &stat)?;
    }
    Ok(answer)
}

type Visit<'a> = dyn FnMut(&[u8], &Stat) -> Result<()> + 'a;

struct Entry {
    path: Vec<u8>,
    stat: Stat,
    level: u64,
}

/// Calls `visit` for everything below `root`, not for `root` itself. One directory is open at a
/// time, however deep the tree is.
fn walk(root: &Path, top: &OwnedFd, depth: u64, visit: &mut Visit<'_>) -> Result<()> {
    let mut todo =
        entries(top, root.as_os_str().as_bytes(), 1).map_err(|e| Error::io("reading", root, e))?;
    while let Some(entry) = todo.pop() {
        visit(&entry.path, &entry.stat)?;
        if entry.level < depth
            && FileType::from_raw_mode(entry.stat.st_mode) == FileType::Directory
            && let Ok(mut below) =
                open(&entry.path).and_then(|fd| entries(&fd, &entry.path, entry.level + 1))
        {
            todo.append(&mut below);
        }
    }
    Ok(())
}

fn open(path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
}

/// A directory's entries, last name first, so that the first is popped first.
fn entries(directory: &OwnedFd, path: &[u8], level: u64) -> Result<Vec<Entry>, Errno> {
    let mut names: Vec<CString> = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    names.sort_unstable_by(|a, b| b.cmp(a));
    let stat = |name: &CStr| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    // A file that vanished since its name was read is no entry any more.
    let described = names
        .iter()
        .filter_map(|name| stat(name).ok().map(|stat| (name, stat)));
    let joined = described.map(|(name, stat)| {
        let mut joined = Vec::with_capacity(path.len() + 1 + name.to_bytes().len());
        joined.extend_from_slice(path);
        if !path.ends_with(b"/") {
            joined.push(b'/');
        }
        joined.extend_from_slice(name.to_bytes());
        Entry {
            path: joined,
            stat,
            level,
        }
    });
    Ok(joined.collect())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    fn paths(answer: Result<Answer>, root: &Path) -> Vec<String> {
        let joined: Vec<u8> = answer.unwrap().finish().concat();
        let entries: Vec<serde_json::Value> = serde_json::from_slice(&joined).unwrap();
        let prefix = format!("{}/", root.display());
        entries
            .iter()
            .map(|e| {
                e["path"]
                    .as_str()
                    .unwrap()
                    .strip_prefix(&prefix)
                    .unwrap()
                    .to_string()
            })
            .collect()
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for path in ["b/c", "a/x/deep"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        for path in ["b/c/m.py", "b/n.py", "a/x/deep/o.py", "z.txt", "a.txt"] {
            fs::write(dir.path().join(path), "").unwrap();
        }
        symlink("b", dir.path().join("link")).unwrap();
        dir
    }

    #[test]
    fn a_listing_is_ordered_and_children_follow_their_parent() {
        let dir = tree();
        let at = |depth| paths(list(dir.path(), depth, &Accounts::default()), dir.path());
        assert_eq!(at(0), [""; 0]);
        assert_eq!(at(1), ["a", "a.txt", "b", "link", "z.txt"]);
        assert_eq!(
            at(2),
            ["a", "a/x", "a.txt", "b", "b/c", "b/n.py", "link", "z.txt"]
        );
        assert_eq!(at(9).len(), 11);
    }

    #[test]
    fn only_a_real_directory_is_listed() {
        let dir = tree();
        let kind = |name: &str| {
            list(&dir.path().join(name), 1, &Accounts::default())
                .err()
                .unwrap()
        };
        assert!(kind("link").to_string().contains("symbolic link"));
        assert!(kind("a.txt").to_string().contains("not a directory"));
        assert!(matches!(kind("none"), Error::NotFound(_)));
    }

    #[test]
    fn a_search_matches_names_and_relative_paths() {
        let dir = tree();
        let found = |pattern: &str| {
            let glob = Glob::new(pattern).unwrap();
            paths(search(dir.path(), &glob, &Accounts::default()), dir.path())
        };
        assert_eq!(found("*.py"), ["a/x/deep/o.py", "b/c/m.py", "b/n.py"]);
        assert_eq!(found("b/*.py"), ["b/n.py"]);
        assert_eq!(found("**/*.py").len(), 3);
        assert_eq!(
            found("**"),
            [
                "a/x/deep/o.py",
                "a.txt",
                "b/c/m.py",
                "b/n.py",
                "link",
                "z.txt"
            ]
        );
        assert_eq!(found("{a,z}.txt"), ["a.txt", "z.txt"]);
        assert_eq!(found("c"), [""; 0], "directories are not files");
    }

    #[test]
    fn the_root_of_a_search_may_be_a_link_or_a_file() {
        let dir = tree();
        let glob = Glob::new("*.py").unwrap();
        assert_eq!(
            paths(
                search(&dir.path().join("link"), &glob, &Accounts::default()),
                dir.path()
            )
            .len(),
            2
        );
        let one = search(&dir.path().join("b/n.py"), &glob, &Accounts::default());
        assert_eq!(paths(one, dir.path()), ["b/n.py"]);
        let missing = search(&dir.path().join("none"), &glob, &Accounts::default());
        assert!(matches!(missing, Err(Error::NotFound(_))));
    }

    #[test]
    fn the_limit_is_named() {
        let dir = tree();
        let glob = Glob::new("**").unwrap();
        let error = search_within(dir.path(), &glob, &Accounts::default(), 3)
            .err()
            .unwrap();
        assert!(error.to_string().contains("ENTRIES_MAX"), "{error}");
    }

    #[test]
    fn a_directory_that_cannot_be_read_hides_nothing_else() {
        let dir = tree();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let closed = dir.path().join("b");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        let root = dir.path().to_path_buf();
        // Root reads everything, so the walk is done as somebody else when the test is root.
        let walked = std::thread::spawn(move || {
            if rustix::process::geteuid().is_root() {
                crate::sys::fscred::assume(65534, 65534, &[65534]).unwrap();
            }
            paths(
                search(&root, &Glob::new("*.py").unwrap(), &Accounts::default()),
                &root,
            )
        });
        assert_eq!(walked.join().unwrap(), ["a/x/deep/o.py"]);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    }
}
