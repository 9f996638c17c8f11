//! Unpacks one layer's tar into an empty directory, whatever the tar contains.
//!
//! Everything happens relative to descriptors: the directory an entry goes into is opened with
//! `openat2(RESOLVE_IN_ROOT)`, so neither a link nor `..` leads outside, and the entry itself is
//! made in it by a single name that is never followed. Nobody else writes into the directory
//! meanwhile, so what was opened stays what it is.
//!
//! What an image may bring, and what not:
//! - Names that leave the root are refused, absolute names are taken relative to it.
//! - Owners and modes are kept, set-user-id included: inside a sandbox they are worth only what
//!   the sandbox's own user range is worth.
//! - Devices are left out. A sandbox has its own `/dev` and may open no others, and a device 0:0
//!   would pass for a whiteout.
//! - Of xattrs `security.capability` and `user.*` are kept; `user.overlay.*` and everything else
//!   is dropped, because overlayfs would take it for its own.
//! - Whiteouts become overlayfs's: a character device 0:0, or the opaque mark on a directory.

mod directories;
mod stream;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, Timespec, Uid};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::digest::{Digest, HashingReader};
use super::tar::{Entry, Kind, Reader};
use directories::Existing;
pub(super) use stream::decompress;
use stream::{Bounded, stream_error, too_large};

/// How much is read and written at once.
const COPY_BYTES: usize = 256 << 10;
/// The unit in which file systems give out space.
const DISK_BLOCK: u64 = 4096;

/// How much of what a layer may hold.
#[derive(Debug, Clone)]
pub(super) struct UnpackLimits {
    pub(super) bytes: u64,
    pub(super) entries: u64,
    pub(super) cancel: CancellationToken,
}

/// A layer that has been unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unpacked {
    /// The digest of the uncompressed tar.
    pub(super) diff_id: Digest,
    /// Bytes it takes on disk, about.
    pub(super) size_bytes: u64,
}

/// Unpacks the tar in `input`, compressed or not, into the empty directory `root`. `what` names
/// the layer in errors. On error the directory holds whatever had been written.
pub(super) fn unpack(
    input: impl io::BufRead,
    root: BorrowedFd<'_>,
    what: &str,
    bounds: &UnpackLimits,
) -> Result<Unpacked, Error> {
    let stream = decompress(input).map_err(|e| stream_error(what, bounds, e))?;
    let stream = HashingReader::new(Bounded {
        inner: stream,
        left: bounds.bytes,
    });
    let mut reader = Reader::new(stream);
    let mut unpacker = Unpacker {
        root,
        what,
        bounds,
        entries: 0,
        size_bytes: 0,
        parent: None,
        times: HashMap::new(),
        times_bytes: 0,
        buffer: vec![0; COPY_BYTES],
    };
    while let Some(entry) = reader.next().map_err(|e| stream_error(what, bounds, e))? {
        if bounds.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        unpacker.place(&entry, &mut reader)?;
    }
    unpacker.set_directory_times()?;
    let size_bytes = unpacker.size_bytes;
    // What follows the archive's end counts towards its digest.
    let mut stream = reader.into_inner();
    io::copy(&mut stream, &mut io::sink()).map_err(|e| stream_error(what, bounds, e))?;
    Ok(Unpacked {
        diff_id: stream.finish().0,
        size_bytes,
    })
}

struct Unpacker<'a> {
    root: BorrowedFd<'a>,
    what: &'a str,
    bounds: &'a UnpackLimits,
    entries: u64,
    size_bytes: u64,
    /// The directory of the last entry: the next is mostly in the same.
    parent: Option<(Vec<OsString>, Rc<OwnedFd>)>,
    times: HashMap<Vec<OsString>, Timespec>,
    times_bytes: usize,
    buffer: Vec<u8>,
}

impl Unpacker<'_> {
    fn place(&mut self, entry: &Entry, contents: &mut impl Read) -> Result<(), Error> {
        self.count_entry()?;
        let mut path = self.components(&entry.path)?;
        let Some(name) = path.pop() else {
            return self.place_root(entry);
        };
        let parent = self.directory(&path)?;
        if let Some(hidden) = name.as_bytes().strip_prefix(b".wh.") {
            return self.place_whiteout(&parent, OsStr::from_bytes(hidden));
        }
        if entry.kind == Kind::Device {
            tracing::debug!(layer = self.what, name = ?name, "left out a device");
            return Ok(());
        }
        if entry.kind == Kind::HardLink {
            return self.place_hard_link(entry, &path, &parent, &name);
        }
        let existing = self.existing(&parent, &name)?;
        if entry.kind == Kind::Directory {
            path.push(name);
            return self.place_directory(entry, path, &parent, &existing);
        }
        self.clear(&parent, &name, &existing)?;
        match entry.kind {
            Kind::Symlink => self.place_symlink(entry, &parent, &name),
            Kind::Fifo => self.place_fifo(entry, &parent, &name),
            _ => self.place_file(entry, &parent, &name, contents),
        }
    }

    /// The layer's own root: only what it is, for it exists.
    fn place_root(&mut self, entry: &Entry) -> Result<(), Error> {
        if entry.kind != Kind::Directory {
            return Err(self.corrupt("the root is not a directory", &entry.path));
        }
        let root = fs::openat(
            self.root,
            ".",
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e| self.failed("opening", Path::new("/"), e))?;
        self.apply_metadata(root.as_fd(), entry)?;
        self.remember_times(Vec::new(), entry)
    }

    fn place_directory(
        &mut self,
        entry: &Entry,
        path: Vec<OsString>,
        parent: &OwnedFd,
        existing: &Existing,
    ) -> Result<(), Error> {
        let name = path.last().expect("the root was handled before").clone();
        if *existing != Existing::Directory {
            self.clear(parent, &name, existing)?;
            fs::mkdirat(parent, &name, Mode::from_raw_mode(0o700))
                .map_err(|e| self.failed("making", Path::new(&name), e))?;
            self.size_bytes += DISK_BLOCK;
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = fs::openat(parent, &name, flags, Mode::empty())
            .map_err(|e| self.failed("opening", Path::new(&name), e))?;
        self.apply_metadata(directory.as_fd(), entry)?;
        // Made anew in the layer that removed it: what is below must stay hidden.
        if *existing == Existing::Whiteout {
            self.set_opaque(directory.as_fd())?;
        }
        self.remember_times(path, entry)
    }

    fn place_file(
        &mut self,
        entry: &Entry,
        parent: &OwnedFd,
        name: &OsStr,
        contents: &mut impl Read,
    ) -> Result<(), Error> {
        // A sparse file costs little here and all of its length to whoever copies it.
        if entry.size > self.bounds.bytes {
            return Err(too_large(
                self.what,
                self.bounds.bytes,
                "bytes",
                "layer_bytes",
            ));
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW;
        let file = fs::openat(
            parent,
            name,
            flags | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o600),
        )
        .map_err(|e| self.failed("making", Path::new(name), e))?;
        match &entry.sparse {
            None => self.copy(contents, &file, 0, entry.size, name)?,
            Some(map) => {
                fs::ftruncate(&file, entry.size)
                    .map_err(|e| self.failed("sizing", Path::new(name), e))?;
                for (offset, length) in map {
                    self.copy(contents, &file, *offset, *length, name)?;
                }
            }
        }
        self.apply_metadata(file.as_fd(), entry)?;
        let times = times_of(entry);
        fs::futimens(&file, &times).map_err(|e| self.failed("dating", Path::new(name), e))
    }

    fn copy(
        &mut self,
        contents: &mut impl Read,
        file: &OwnedFd,
        mut offset: u64,
        length: u64,
        name: &OsStr,
    ) -> Result<(), Error> {
        let mut left = length;
        while left > 0 {
            if self.bounds.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(COPY_BYTES);
            let count = contents
                .read(&mut self.buffer[..most])
                .map_err(|e| stream_error(self.what, self.bounds, e))?;
            let mut written = 0;
            while written < count {
                let chunk = &self.buffer[written..count];
                written += rustix::io::retry_on_intr(|| rustix::io::pwrite(file, chunk, offset))
                    .map_err(|e| self.failed("writing", Path::new(name), e))
                    .inspect(|n| offset += *n as u64)?;
            }
            left -= count as u64;
        }
        self.size_bytes += length.next_multiple_of(DISK_BLOCK);
        Ok(())
    }

    fn place_symlink(
        &mut self,
        entry: &Entry,
        parent: &OwnedFd,
        name: &OsStr,
    ) -> Result<(), Error> {
        if entry.link.is_empty() {
            return Err(self.corrupt("a symbolic link has no target", &entry.path));
        }
        fs::symlinkat(&entry.link[..], parent, name)
            .map_err(|e| self.failed("linking", Path::new(name), e))?;
        self.apply_metadata_unopened(entry, parent, name)
    }

    fn place_fifo(&mut self, entry: &Entry, parent: &OwnedFd, name: &OsStr) -> Result<(), Error> {
        fs::mknodat(
            parent,
            name,
            FileType::Fifo,
            Mode::from_raw_mode(entry.mode),
            0,
        )
        .map_err(|e| self.failed("making", Path::new(name), e))?;
        self.apply_metadata_unopened(entry, parent, name)?;
        // The umask took its share at creation. The name was made just now and is no link.
        fs::chmodat(
            parent,
            name,
            Mode::from_raw_mode(entry.mode),
            AtFlags::empty(),
        )
        .map_err(|e| self.failed("setting the mode of", Path::new(name), e))
    }

    fn place_hard_link(
        &mut self,
        entry: &Entry,
        path: &[OsString],
        parent: &OwnedFd,
        name: &OsStr,
    ) -> Result<(), Error> {
        let mut target_path = self.components(&entry.link)?;
        let missing = "a hard link's target is not a file of this layer";
        let Some(target) = target_path.pop() else {
            return Err(self.corrupt(missing, &entry.path));
        };
        if target_path == path && target == name {
            return Ok(());
        }
        let Some(target_parent) = self.existing_directory(&target_path)? else {
            return Err(self.corrupt(missing, &entry.path));
        };
        if self.existing(&target_parent, &target)? != Existing::Other {
            return Err(self.corrupt(missing, &entry.path));
        }
        // Two spellings of one file: nothing to do, and clearing the one would lose both.
        if self.is_same(&target_parent, &target, parent, name)? {
            return Ok(());
        }
        let existing = self.existing(parent, name)?;
        self.clear(parent, name, &existing)?;
        // Clearing may have removed the directory that held the target.
        match fs::linkat(&target_parent, &target, parent, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Err(self.corrupt(missing, &entry.path)),
            other => other.map_err(|e| self.failed("linking", Path::new(name), e)),
        }
    }

    fn is_same(
        &self,
        left: &OwnedFd,
        left_name: &OsStr,
        right: &OwnedFd,
        right_name: &OsStr,
    ) -> Result<bool, Error> {
        let left = fs::statat(left, left_name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| self.failed("looking at", Path::new(left_name), e))?;
        match fs::statat(right, right_name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(right) => Ok(left.st_ino == right.st_ino && left.st_dev == right.st_dev),
            Err(_) => Ok(false),
        }
    }

    fn place_whiteout(&mut self, parent: &OwnedFd, hidden: &OsStr) -> Result<(), Error> {
        match hidden.as_bytes() {
            b".wh..opq" => {
                let directory = fs::openat(
                    parent,
                    ".",
                    OFlags::DIRECTORY | OFlags::CLOEXEC,
                    Mode::empty(),
                )
                .map_err(|e| self.failed("opening", Path::new("."), e))?;
                return self.set_opaque(directory.as_fd());
            }
            // Bookkeeping of aufs, which some old images still carry.
            name if name.starts_with(b".wh.") => return Ok(()),
            b"" | b"." | b".." => {
                return Err(self.corrupt("a whiteout hides no name", hidden.as_bytes()));
            }
            _ => {}
        }
        match self.existing(parent, hidden)? {
            // A whiteout speaks of the layers below, not of what this layer brings.
            Existing::Directory => {
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let directory = fs::openat(parent, hidden, flags, Mode::empty())
                    .map_err(|e| self.failed("opening", Path::new(hidden), e))?;
                self.set_opaque(directory.as_fd())
            }
            Existing::Whiteout | Existing::Other => Ok(()),
            Existing::Nothing => {
                fs::mknodat(parent, hidden, FileType::CharacterDevice, Mode::empty(), 0)
                    .map_err(|e| self.failed("making a whiteout for", Path::new(hidden), e))
            }
        }
    }

    /// Owner, xattrs and mode, in this order: changing the owner clears set-user-id and
    /// capabilities.
    fn apply_metadata(&self, file: BorrowedFd<'_>, entry: &Entry) -> Result<(), Error> {
        let path = Path::new(OsStr::from_bytes(&entry.path));
        fs::fchown(
            file,
            Some(Uid::from_raw(entry.uid)),
            Some(Gid::from_raw(entry.gid)),
        )
        .map_err(|e| self.failed("setting the owner of", path, e))?;
        for (name, value) in &entry.xattrs {
            let is_capability = name == b"security.capability";
            let is_users = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
            if name.contains(&0) || !(is_capability || is_users) {
                tracing::debug!(layer = self.what, name = ?OsStr::from_bytes(name), "left out an xattr");
                continue;
            }
            match fs::fsetxattr(file, &name[..], value, fs::XattrFlags::empty()) {
                Ok(()) => {}
                // What a user's note needs may be more than this file system gives.
                Err(
                    Errno::OPNOTSUPP | Errno::NOSPC | Errno::TOOBIG | Errno::RANGE | Errno::PERM,
                ) if is_users => {
                    tracing::warn!(layer = self.what, path = ?path, "an xattr does not fit this file system");
                }
                Err(Errno::INVAL) => {
                    return Err(self.corrupt("an xattr has an impossible value", &entry.path));
                }
                Err(error) => return Err(self.failed("setting an xattr of", path, error)),
            }
        }
        fs::fchmod(file, Mode::from_raw_mode(entry.mode))
            .map_err(|e| self.failed("setting the mode of", path, e))
    }

    /// Owner and time of what cannot be opened.
    fn apply_metadata_unopened(
        &self,
        entry: &Entry,
        parent: &OwnedFd,
        name: &OsStr,
    ) -> Result<(), Error> {
        let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
        fs::chownat(
            parent,
            name,
            Some(uid),
            Some(gid),
            AtFlags::SYMLINK_NOFOLLOW,
        )
        .map_err(|e| self.failed("setting the owner of", Path::new(name), e))?;
        fs::utimensat(parent, name, &times_of(entry), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| self.failed("dating", Path::new(name), e))
    }

    fn count_entry(&mut self) -> Result<(), Error> {
        self.entries += 1;
        if self.entries > self.bounds.entries {
            return Err(too_large(
                self.what,
                self.bounds.entries,
                "entries",
                "layer_entries",
            ));
        }
        Ok(())
    }

    fn corrupt(&self, message: &str, name: &[u8]) -> Error {
        let name = String::from_utf8_lossy(name);
        Error::Corrupt {
            what: self.what.to_owned(),
            message: format!("{message}: {name:?}"),
        }
    }

    fn failed(&self, action: &str, path: &Path, error: impl Into<io::Error>) -> Error {
        let error = error.into();
        match error.raw_os_error() {
            Some(libc::ENAMETOOLONG) => self.corrupt(
                "a name is longer than file systems take",
                path.as_os_str().as_bytes(),
            ),
            Some(libc::EMLINK) => self.corrupt(
                "a file has more links than file systems take",
                path.as_os_str().as_bytes(),
            ),
            _ => Error::io(&format!("{}: {action}", self.what), path, error),
        }
    }
}

fn times_of(entry: &Entry) -> fs::Timestamps {
    let time = Timespec {
        tv_sec: entry.mtime_seconds,
        tv_nsec: entry.mtime_nanos.into(),
    };
    fs::Timestamps {
        last_access: time,
        last_modification: time,
    }
}

#[cfg(test)]
mod tests;
