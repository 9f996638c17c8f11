//! Where an entry goes: names to directories, made where they are missing, and what stands there.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::stream::too_large;
use super::{DISK_BLOCK, Unpacker, times_of};
use crate::image::tar::Entry;
use crate::image::{Error, tree};

/// A path has at most this many directories: four times the deepest real trees, and few enough
/// that walking down a tree never runs out of descriptors.
const DEPTH_MAX: usize = 255;
/// Times of directories are set at the end, so their names are kept until then; this much of
/// them. A full distribution has some 10 MiB.
const DIRECTORY_NAMES_BYTES_MAX: usize = 64 << 20;

/// overlayfs's mark for "hides what is below", as a mount by the host's root reads it. Its other
/// spelling, in `user.`, is for mounts by others: a sandbox could set it, and copying a directory
/// up would copy it.
pub(super) const OPAQUE_XATTR: &str = "trusted.overlay.opaque";

/// What stands at a name before an entry is put there.
#[derive(PartialEq, Eq)]
pub(super) enum Existing {
    Nothing,
    Whiteout,
    Directory,
    Other,
}

impl Unpacker<'_> {
    /// A name as the list of its components, `.` and `..` resolved by text alone, as builders
    /// mean them.
    pub(super) fn components(&self, name: &[u8]) -> Result<Vec<OsString>, Error> {
        let mut components = Vec::new();
        for component in name.split(|b| *b == b'/') {
            match component {
                b"" | b"." => {}
                b".." => {
                    if components.pop().is_none() {
                        return Err(self.corrupt("a name leads out of the root", name));
                    }
                }
                component => components.push(OsStr::from_bytes(component).to_owned()),
            }
        }
        if components.len() > DEPTH_MAX {
            return Err(self.corrupt("a name is more than 255 directories deep", &name[..64]));
        }
        Ok(components)
    }

    /// The directory at `path`, made where it is missing.
    pub(super) fn directory(&mut self, path: &[OsString]) -> Result<Rc<OwnedFd>, Error> {
        if let Some(directory) = self.existing_directory(path)? {
            return Ok(directory);
        }
        for end in 1..=path.len() {
            if self.existing_directory(&path[..end])?.is_some() {
                continue;
            }
            let parent = self
                .existing_directory(&path[..end - 1])?
                .ok_or_else(|| self.corrupt("a directory vanished", path[end - 1].as_bytes()))?;
            let name = &path[end - 1];
            let is_whiteout = self.existing(&parent, name)? == Existing::Whiteout;
            if is_whiteout {
                self.clear(&parent, name, &Existing::Whiteout)?;
            }
            self.count_entry()?;
            match fs::mkdirat(&*parent, name, Mode::from_raw_mode(0o755)) {
                Err(Errno::EXIST) => {
                    let message = "an entry passes through something that is not a directory";
                    return Err(self.corrupt(message, name.as_bytes()));
                }
                other => other.map_err(|e| self.failed("making", Path::new(name), e))?,
            }
            // The umask took its share at creation. The name was made just now and is no link.
            fs::chmodat(&*parent, name, Mode::from_raw_mode(0o755), AtFlags::empty())
                .map_err(|e| self.failed("setting the mode of", Path::new(name), e))?;
            self.size_bytes += DISK_BLOCK;
            if is_whiteout {
                let made = fs::openat(
                    &*parent,
                    name,
                    OFlags::DIRECTORY | OFlags::CLOEXEC,
                    Mode::empty(),
                )
                .map_err(|e| self.failed("opening", Path::new(name), e))?;
                self.set_opaque(made.as_fd())?;
            }
        }
        self.existing_directory(path)?
            .ok_or_else(|| self.corrupt("a directory vanished", b""))
    }

    /// The directory at `path`, links on the way resolved within the root. `None` where nothing,
    /// or something else, is there.
    pub(super) fn existing_directory(
        &mut self,
        path: &[OsString],
    ) -> Result<Option<Rc<OwnedFd>>, Error> {
        if let Some((cached, directory)) = &self.parent
            && cached == path
        {
            return Ok(Some(Rc::clone(directory)));
        }
        let joined: std::path::PathBuf = path.iter().collect();
        let joined = if path.is_empty() {
            Path::new(".")
        } else {
            joined.as_path()
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let opened = rustix::io::retry_on_intr(|| {
            fs::openat2(self.root, joined, flags, Mode::empty(), resolve)
        });
        match opened {
            Ok(directory) => {
                let directory = Rc::new(directory);
                self.parent = Some((path.to_vec(), Rc::clone(&directory)));
                Ok(Some(directory))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(self.failed("opening", joined, error)),
        }
    }

    pub(super) fn existing(&self, parent: &OwnedFd, name: &OsStr) -> Result<Existing, Error> {
        match fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(Existing::Nothing),
            Err(error) => Err(self.failed("looking at", Path::new(name), error)),
            Ok(stat) => Ok(match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => Existing::Directory,
                FileType::CharacterDevice => Existing::Whiteout,
                _ => Existing::Other,
            }),
        }
    }

    /// Takes away what stands at a name.
    pub(super) fn clear(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        existing: &Existing,
    ) -> Result<(), Error> {
        if *existing == Existing::Nothing {
            return Ok(());
        }
        // A remembered directory may have been reached through what goes now.
        self.parent = None;
        let removed = if *existing == Existing::Directory {
            tree::remove(parent.as_fd(), name)
        } else {
            fs::unlinkat(parent, name, AtFlags::empty()).map_err(io::Error::from)
        };
        removed.map_err(|e| self.failed("replacing", Path::new(name), e))
    }

    pub(super) fn set_opaque(&self, directory: BorrowedFd<'_>) -> Result<(), Error> {
        fs::fsetxattr(directory, OPAQUE_XATTR, b"y", fs::XattrFlags::empty())
            .map_err(|e| self.failed("marking opaque", Path::new("."), e))
    }

    pub(super) fn remember_times(
        &mut self,
        path: Vec<OsString>,
        entry: &Entry,
    ) -> Result<(), Error> {
        self.times_bytes += path
            .iter()
            .map(|c| c.len() + size_of::<OsString>())
            .sum::<usize>();
        if self.times_bytes > DIRECTORY_NAMES_BYTES_MAX {
            let limit = DIRECTORY_NAMES_BYTES_MAX as u64;
            return Err(too_large(
                self.what,
                limit,
                "bytes of directory names",
                "layer_entries",
            ));
        }
        self.times.insert(path, times_of(entry).last_modification);
        Ok(())
    }

    pub(super) fn set_directory_times(&mut self) -> Result<(), Error> {
        for (path, time) in std::mem::take(&mut self.times) {
            // A later entry may have put something else in its place.
            let Some(directory) = self.existing_directory(&path)? else {
                continue;
            };
            let times = fs::Timestamps {
                last_access: time,
                last_modification: time,
            };
            let name = path.iter().collect::<std::path::PathBuf>();
            fs::utimensat(&*directory, ".", &times, AtFlags::empty())
                .map_err(|e| self.failed("dating", &name, e))?;
        }
        Ok(())
    }
}
