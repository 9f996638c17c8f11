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

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Uid};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::digest::{Digest, HashingReader};
use super::tar::{Entry, Kind, Reader};
use super::tree;

/// A path has at most this many directories: four times the deepest real trees, and few enough
/// that walking down a tree never runs out of descriptors.
const DEPTH_MAX: usize = 255;
/// Times of directories are set at the end, so their names are kept until then; this much of
/// them. A full distribution has some 10 MiB.
const DIRECTORY_NAMES_BYTES_MAX: usize = 64 << 20;
/// How much is read and written at once.
const COPY_BYTES: usize = 256 << 10;
/// The unit in which file systems give out space.
const DISK_BLOCK: u64 = 4096;

/// The names overlayfs gives its mark for "hides what is below": one when the host's root
/// mounted it, one when a user namespace's root did.
const OPAQUE_XATTRS: [&str; 2] = ["trusted.overlay.opaque", "user.overlay.opaque"];

/// How much of what a layer may hold.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
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
    bounds: &Bounds,
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

/// The uncompressed form of a stream, known by its first bytes rather than by what a manifest
/// says: builders get media types wrong.
pub(super) fn decompress<'a>(mut input: impl io::BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let refuse = |name: &str| {
        let message = format!("it is compressed with {name}; gzip, zstd and none are understood");
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    };
    match input.fill_buf()? {
        [0x1f, 0x8b, ..] => Ok(Box::new(flate2::bufread::MultiGzDecoder::new(input))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Box::new(zstd::Decoder::with_buffer(input)?)),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => refuse("xz"),
        [b'B', b'Z', b'h', ..] => refuse("bzip2"),
        _ => Ok(Box::new(input)),
    }
}

/// Ends with [`LimitExceeded`] instead of giving more than its share.
struct Bounded<R> {
    inner: R,
    left: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("the layer is too large")]
struct LimitExceeded;

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or(io::Error::other(LimitExceeded))?;
        Ok(count)
    }
}

/// An error of reading: the machine's own, or the stream's.
fn stream_error(what: &str, bounds: &Bounds, error: io::Error) -> Error {
    if error
        .get_ref()
        .is_some_and(|inner| inner.is::<LimitExceeded>())
    {
        return too_large(what, bounds.bytes, "bytes", "layer_bytes");
    }
    if error.raw_os_error().is_some() {
        return Error::io("reading", Path::new(what), error);
    }
    let message = match error.kind() {
        io::ErrorKind::UnexpectedEof => "it ends too early".to_owned(),
        _ => error.to_string(),
    };
    Error::Corrupt {
        what: what.to_owned(),
        message,
    }
}

fn too_large(what: &str, limit: u64, unit: &'static str, setting: &'static str) -> Error {
    Error::TooLarge {
        what: what.to_owned(),
        limit,
        unit,
        setting,
    }
}

struct Unpacker<'a> {
    root: BorrowedFd<'a>,
    what: &'a str,
    bounds: &'a Bounds,
    entries: u64,
    size_bytes: u64,
    /// The directory of the last entry: the next is mostly in the same.
    parent: Option<(Vec<OsString>, Rc<OwnedFd>)>,
    times: HashMap<Vec<OsString>, Timespec>,
    times_bytes: usize,
    buffer: Vec<u8>,
}

/// What stands at a name before an entry is put there.
#[derive(PartialEq, Eq)]
enum Standing {
    Nothing,
    Whiteout,
    Directory,
    Other,
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
        let standing = self.standing(&parent, &name)?;
        if entry.kind == Kind::Directory {
            path.push(name);
            return self.place_directory(entry, path, &parent, &standing);
        }
        self.clear(&parent, &name, &standing)?;
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
        self.own(root.as_fd(), entry)?;
        self.remember_times(Vec::new(), entry)
    }

    fn place_directory(
        &mut self,
        entry: &Entry,
        path: Vec<OsString>,
        parent: &OwnedFd,
        standing: &Standing,
    ) -> Result<(), Error> {
        let name = path.last().expect("the root was handled before").clone();
        if *standing != Standing::Directory {
            self.clear(parent, &name, standing)?;
            fs::mkdirat(parent, &name, Mode::from_raw_mode(0o700))
                .map_err(|e| self.failed("making", Path::new(&name), e))?;
            self.size_bytes += DISK_BLOCK;
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = fs::openat(parent, &name, flags, Mode::empty())
            .map_err(|e| self.failed("opening", Path::new(&name), e))?;
        self.own(directory.as_fd(), entry)?;
        // Made anew in the layer that removed it: what is below must stay hidden.
        if *standing == Standing::Whiteout {
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
        self.own(file.as_fd(), entry)?;
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
        self.own_unopened(entry, parent, name)
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
        self.own_unopened(entry, parent, name)?;
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
        if self.standing(&target_parent, &target)? != Standing::Other {
            return Err(self.corrupt(missing, &entry.path));
        }
        // Two spellings of one file: nothing to do, and clearing the one would lose both.
        if self.is_same(&target_parent, &target, parent, name)? {
            return Ok(());
        }
        let standing = self.standing(parent, name)?;
        self.clear(parent, name, &standing)?;
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
        match self.standing(parent, hidden)? {
            // A whiteout speaks of the layers below, not of what this layer brings.
            Standing::Directory => {
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let directory = fs::openat(parent, hidden, flags, Mode::empty())
                    .map_err(|e| self.failed("opening", Path::new(hidden), e))?;
                self.set_opaque(directory.as_fd())
            }
            Standing::Whiteout | Standing::Other => Ok(()),
            Standing::Nothing => {
                fs::mknodat(parent, hidden, FileType::CharacterDevice, Mode::empty(), 0)
                    .map_err(|e| self.failed("making a whiteout for", Path::new(hidden), e))
            }
        }
    }

    fn set_opaque(&self, directory: BorrowedFd<'_>) -> Result<(), Error> {
        for name in OPAQUE_XATTRS {
            match fs::fsetxattr(directory, name, b"y", fs::XattrFlags::empty()) {
                // A file system without user xattrs is one that no user namespace can use as
                // a layer with opaque directories either.
                Err(Errno::OPNOTSUPP) if name.starts_with("user.") => {}
                other => other.map_err(|e| self.failed("marking opaque", Path::new("."), e))?,
            }
        }
        Ok(())
    }

    /// Owner, xattrs and mode, in this order: changing the owner clears set-user-id and
    /// capabilities.
    fn own(&self, file: BorrowedFd<'_>, entry: &Entry) -> Result<(), Error> {
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
    fn own_unopened(&self, entry: &Entry, parent: &OwnedFd, name: &OsStr) -> Result<(), Error> {
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

    fn remember_times(&mut self, path: Vec<OsString>, entry: &Entry) -> Result<(), Error> {
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

    fn set_directory_times(&mut self) -> Result<(), Error> {
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

    /// A name as the list of its components, `.` and `..` resolved by text alone, as builders
    /// mean them.
    fn components(&self, name: &[u8]) -> Result<Vec<OsString>, Error> {
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
    fn directory(&mut self, path: &[OsString]) -> Result<Rc<OwnedFd>, Error> {
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
            let is_whiteout = self.standing(&parent, name)? == Standing::Whiteout;
            if is_whiteout {
                self.clear(&parent, name, &Standing::Whiteout)?;
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
    fn existing_directory(&mut self, path: &[OsString]) -> Result<Option<Rc<OwnedFd>>, Error> {
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

    fn standing(&self, parent: &OwnedFd, name: &OsStr) -> Result<Standing, Error> {
        match fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(Standing::Nothing),
            Err(error) => Err(self.failed("looking at", Path::new(name), error)),
            Ok(stat) => Ok(match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => Standing::Directory,
                FileType::CharacterDevice => Standing::Whiteout,
                _ => Standing::Other,
            }),
        }
    }

    /// Takes away what stands at a name.
    fn clear(&mut self, parent: &OwnedFd, name: &OsStr, standing: &Standing) -> Result<(), Error> {
        if *standing == Standing::Nothing {
            return Ok(());
        }
        // A remembered directory may have been reached through what goes now.
        self.parent = None;
        let removed = if *standing == Standing::Directory {
            tree::remove(parent.as_fd(), name)
        } else {
            fs::unlinkat(parent, name, AtFlags::empty()).map_err(io::Error::from)
        };
        removed.map_err(|e| self.failed("replacing", Path::new(name), e))
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
