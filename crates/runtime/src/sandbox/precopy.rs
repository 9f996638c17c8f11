//! Copying the large files of a running sandbox before it is frozen for a snapshot, so that it does
//! not stand still while they are copied.
//!
//! A file counts as unchanged when its inode, size and times are what they were before its copy
//! began. The kernel changes a file's ctime with every write, but there are two ways in which a
//! write could go unseen, and both are closed by what is done first:
//!
//! - Times move in ticks, so a write shortly after another may leave them as they are. Files that
//!   changed within [`TICK`] before the start, or after it, are not copied early.
//! - A page that is mapped and already dirty is written without the kernel noticing. The
//!   filesystem is synced after the start and before anything is looked at: that makes every page
//!   clean, and the next write to it notices itself.
//!
//! Whatever else the sandbox does meanwhile, the worst it can achieve is that its own file is
//! copied again while it is frozen. Small files are left for then too: finding them again costs
//! as much as copying them.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::time::{ClockId, clock_gettime};

use super::copy::{DEPTH_MAX, DIRECTORY, copy_data, names, remove_tree};

/// Files from this size on are copied early: a copy of this much takes about as long as making
/// and finding a file does.
const BYTES_MIN: i64 = 64 << 10;

/// Files copied early at most, and directories looked into. A sandbox can make files faster than
/// they are copied; the rest waits until it is frozen.
const FILES_MAX: usize = 10_000;
const DIRECTORIES_MAX: usize = 100_000;

/// Several times the coarsest tick of file times: 10 ms, where the kernel counts in hundredths.
const TICK: i128 = 50_000_000;

/// The files copied so far, in a directory of their own that goes when this is dropped.
pub(crate) struct Precopy {
    directory: PathBuf,
    handle: OwnedFd,
    files: HashMap<(u64, u64), Copied>,
}

struct Copied {
    name: CString,
    stamp: Stamp,
}

/// What differs once a file has been written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    bytes: i64,
    modified: i128,
    changed: i128,
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        let time = |seconds: i64, nanoseconds: u64| {
            i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
        };
        Self {
            bytes: stat.st_size,
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl Precopy {
    /// Copies the large files below `from` that nobody is writing into the new directory
    /// `directory`.
    pub(crate) fn copy(from: &Path, directory: &Path) -> io::Result<Self> {
        let root = rustix::fs::openat(CWD, from, DIRECTORY, Mode::empty())?;
        rustix::fs::mkdir(directory, Mode::from_raw_mode(0o700))?;
        let mut early = Self {
            directory: directory.to_owned(),
            handle: rustix::fs::openat(CWD, directory, DIRECTORY, Mode::empty())?,
            files: HashMap::new(),
        };
        let start = clock_gettime(ClockId::Realtime);
        let start = i128::from(start.tv_sec) * 1_000_000_000 + i128::from(start.tv_nsec);
        rustix::fs::syncfs(&root)?;
        early.walk(root, start - TICK)?;
        Ok(early)
    }

    fn walk(&mut self, root: OwnedFd, before: i128) -> io::Result<()> {
        let mut seen = 1;
        let mut levels = vec![(names(&root)?, root)];
        while let Some((entries, _)) = levels.last_mut() {
            let Some(name) = entries.pop() else {
                levels.pop();
                continue;
            };
            if self.files.len() >= FILES_MAX || seen >= DIRECTORIES_MAX {
                return Ok(());
            }
            let (_, directory) = levels.last().expect("the loop saw one");
            // Everything may be gone or be something else by now; what is not copied here is
            // copied later.
            let found = rustix::fs::statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW);
            let Ok(found) = found else { continue };
            let kind = FileType::from_raw_mode(found.st_mode);
            if kind.is_file() && found.st_size >= BYTES_MIN {
                self.copy_file(directory, &name, before)?;
            } else if kind.is_dir() && levels.len() < DEPTH_MAX {
                let next = rustix::fs::openat(directory, &name, DIRECTORY, Mode::empty());
                let Ok(next) = next else { continue };
                seen += 1;
                levels.push((names(&next)?, next));
            }
        }
        Ok(())
    }

    fn copy_file(&mut self, directory: &OwnedFd, name: &CStr, before: i128) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(from) = rustix::fs::openat(directory, name, flags, Mode::empty()) else {
            return Ok(());
        };
        let stat = rustix::fs::fstat(&from)?;
        let key = (stat.st_dev, stat.st_ino);
        let stamp = Stamp::of(&stat);
        let is_quiet = stamp.changed < before && stamp.modified < before;
        let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
        if !is_file || !is_quiet || self.files.contains_key(&key) {
            return Ok(());
        }
        let name = CString::new(self.files.len().to_string()).expect("no NUL in a number");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let to = rustix::fs::openat(&self.handle, &name, flags, Mode::from_raw_mode(0o600))?;
        copy_data(&from, &to, &stat)?;
        self.files.insert(key, Copied { name, stamp });
        Ok(())
    }

    /// Moves the copy of a file to `name` in `directory`, if there is one and the file, which
    /// nobody may be writing now, is still what was copied.
    pub(super) fn move_copy_to(
        &mut self,
        stat: &Stat,
        directory: &OwnedFd,
        name: &CStr,
    ) -> io::Result<bool> {
        let copied = self.files.remove(&(stat.st_dev, stat.st_ino));
        match copied.filter(|copied| copied.stamp == Stamp::of(stat)) {
            Some(copied) => {
                rustix::fs::renameat(&self.handle, &copied.name, directory, name)?;
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

impl Drop for Precopy {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.directory) {
            // The next start empties the staging directory.
            tracing::warn!(error = %api::error_chain(&error), "early copies of a snapshot remain");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::sandbox::copy::copy_tree;

    const CONTENT: usize = 200_000;

    /// A tree with a large file in it, old enough to be copied early.
    fn tree(directory: &Path) -> PathBuf {
        let from = directory.join("from");
        fs::create_dir_all(from.join("deep")).unwrap();
        fs::write(from.join("deep/large"), vec![1; CONTENT]).unwrap();
        fs::write(from.join("small"), "s").unwrap();
        from
    }

    /// The start of a copy that finds the file at rest, without waiting for time to pass.
    fn later() -> i128 {
        let now = SystemTime::now() + Duration::from_secs(1);
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        i128::try_from(since.as_nanos()).unwrap()
    }

    fn early(from: &Path, directory: &Path) -> Precopy {
        fs::create_dir(directory).unwrap();
        let open = |path: &Path| rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty()).unwrap();
        let mut early = Precopy {
            directory: directory.to_owned(),
            handle: open(directory),
            files: HashMap::new(),
        };
        early.walk(open(from), later()).unwrap();
        early
    }

    #[test]
    fn an_unchanged_file_is_moved_and_not_copied_again() {
        let temp = tempfile::tempdir().unwrap();
        let from = tree(temp.path());
        let mut early = early(&from, &temp.path().join("early"));
        assert_eq!(early.files.len(), 1);
        let copied = fs::metadata(temp.path().join("early/0")).unwrap();
        let to = temp.path().join("to");
        copy_tree(&from, &to, &|_| false, Some(&mut early)).unwrap();
        let placed = fs::metadata(to.join("deep/large")).unwrap();
        use std::os::unix::fs::MetadataExt;
        assert_eq!(placed.ino(), copied.ino());
        assert_eq!(placed.mode() & 0o777, 0o644);
        assert_eq!(fs::read(to.join("deep/large")).unwrap(), vec![1; CONTENT]);
        assert_eq!(fs::read(to.join("small")).unwrap(), b"s");
        drop(early);
        assert!(!temp.path().join("early").exists());
    }

    #[test]
    fn a_file_that_changed_since_is_copied_again() {
        let temp = tempfile::tempdir().unwrap();
        let from = tree(temp.path());
        let mut early = early(&from, &temp.path().join("early"));
        let file = File::options().write(true).open(from.join("deep/large"));
        let file = file.unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"new", 0).unwrap();
        // As if the write had been an hour later: the clock's tick is not under test here.
        file.set_modified(SystemTime::now() + Duration::from_secs(3600))
            .unwrap();
        let to = temp.path().join("to");
        copy_tree(&from, &to, &|_| false, Some(&mut early)).unwrap();
        assert!(fs::read(to.join("deep/large")).unwrap().starts_with(b"new"));
    }

    #[test]
    fn a_file_that_was_just_written_is_not_copied_early() {
        let temp = tempfile::tempdir().unwrap();
        let from = tree(temp.path());
        let just = SystemTime::now() + Duration::from_secs(3600);
        let file = File::options().write(true).open(from.join("deep/large"));
        file.unwrap().set_modified(just).unwrap();
        let early = Precopy::copy(&from, &temp.path().join("early")).unwrap();
        assert!(early.files.is_empty());
    }
}
