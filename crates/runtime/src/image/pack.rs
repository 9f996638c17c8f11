//! A directory tree as a tar: the reverse of [`super::unpack`].
//!
//! Names come in order, so one tree always gives one archive. overlayfs's whiteouts and opaque
//! directories become the image format's. Sockets and devices are left out.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{Error, tree};

/// As deep as unpacking goes.
const DEPTH_MAX: usize = 255;
/// The kernel's own limit of an xattr's value.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// What the tree is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeKind {
    /// A layer of overlayfs: character devices 0:0 hide, marked directories are opaque.
    Layer,
    /// Files as they are.
    Plain,
}

/// Writes the tree under `root` to `out`. A file longer than `file_bytes_max` is refused: a
/// sparse one would be written with all its holes.
pub(super) fn pack(
    root: &Path,
    out: impl Write,
    kind: TreeKind,
    file_bytes_max: u64,
) -> Result<(), Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = fs::open(root, flags, Mode::empty()).map_err(|e| Error::io("opening", root, e))?;
    let mut packer = Packer {
        archive: tar::Builder::new(out),
        root,
        kind,
        file_bytes_max,
        links: HashMap::new(),
    };
    let stat = fs::fstat(&opened).map_err(|e| Error::io("looking at", root, e))?;
    packer.directory(opened.as_fd(), Path::new("."), &stat)?;
    packer.contents(opened.as_fd(), Path::new(""), 0)?;
    packer
        .archive
        .into_inner()
        .and_then(|mut out| out.flush())
        .map_err(|e| packer_failed(root, e))
}

fn packer_failed(root: &Path, error: io::Error) -> Error {
    Error::io("packing", root, error)
}

struct Packer<'a, W: Write> {
    archive: tar::Builder<W>,
    root: &'a Path,
    kind: TreeKind,
    file_bytes_max: u64,
    /// First name of each file that has several.
    links: HashMap<(u64, u64), PathBuf>,
}

impl<W: Write> Packer<'_, W> {
    fn contents(
        &mut self,
        directory: BorrowedFd<'_>,
        path: &Path,
        depth: usize,
    ) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(self.refuse(path, "it is more than 255 directories deep"));
        }
        let mut entries = tree::entries(directory).map_err(|e| self.failed(path, e))?;
        entries.sort_by(|left, right| left.0.cmp(&right.0));
        for (name, _) in entries {
            let child = path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            let stat = fs::statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|e| self.failed(&child, e))?;
            self.entry(directory, &name, &child, &stat, depth)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CString,
        path: &Path,
        stat: &Stat,
        depth: usize,
    ) -> Result<(), Error> {
        if name.to_bytes().starts_with(b".wh.") {
            return Err(self.refuse(
                path,
                "its name is one that the image format keeps for itself",
            ));
        }
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_whiteout = kind == FileType::CharacterDevice && stat.st_rdev == 0;
        if is_whiteout && self.kind == TreeKind::Layer {
            let hidden = [b".wh.", name.to_bytes()].concat();
            let path = path.with_file_name(std::ffi::OsStr::from_bytes(&hidden));
            return self.empty_file(&path);
        }
        if matches!(kind, FileType::Directory) {
            let opened = self.open(parent, name, path, OFlags::DIRECTORY)?;
            self.directory(opened.as_fd(), path, stat)?;
            return self.contents(opened.as_fd(), path, depth + 1);
        }
        if stat.st_nlink > 1 {
            if let Some(first) = self.links.get(&(stat.st_dev, stat.st_ino)) {
                let mut header = header_of(stat, tar::EntryType::Link);
                let first = first.clone();
                return self
                    .archive
                    .append_link(&mut header, path, first)
                    .map_err(|e| self.failed(path, e));
            }
            self.links
                .insert((stat.st_dev, stat.st_ino), path.to_owned());
        }
        match kind {
            FileType::RegularFile => self.file(parent, name, path, stat),
            FileType::Symlink => {
                let target =
                    fs::readlinkat(parent, name, Vec::new()).map_err(|e| self.failed(path, e))?;
                let mut header = header_of(stat, tar::EntryType::Symlink);
                let target = std::ffi::OsStr::from_bytes(target.to_bytes());
                self.archive
                    .append_link(&mut header, path, target)
                    .map_err(|e| self.failed(path, e))
            }
            FileType::Fifo => {
                let mut header = header_of(stat, tar::EntryType::Fifo);
                self.archive
                    .append_data(&mut header, path, io::empty())
                    .map_err(|e| self.failed(path, e))
            }
            _ => Ok(()),
        }
    }

    fn directory(&mut self, opened: BorrowedFd<'_>, path: &Path, stat: &Stat) -> Result<(), Error> {
        let is_opaque = self.xattrs(opened, path)?;
        let mut header = header_of(stat, tar::EntryType::Directory);
        let append = self.archive.append_data(&mut header, path, io::empty());
        append.map_err(|e| self.failed(path, e))?;
        if is_opaque && self.kind == TreeKind::Layer {
            self.empty_file(&path.join(".wh..wh..opq"))?;
        }
        Ok(())
    }

    fn file(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CString,
        path: &Path,
        stat: &Stat,
    ) -> Result<(), Error> {
        let size = stat.st_size as u64;
        if size > self.file_bytes_max {
            return Err(Error::TooLarge {
                what: format!("{}", self.root.join(path).display()),
                limit: self.file_bytes_max,
                unit: "bytes",
                setting: "layer_bytes",
            });
        }
        let opened = self.open(parent, name, path, OFlags::NONBLOCK)?;
        self.xattrs(opened.as_fd(), path)?;
        let mut header = header_of(stat, tar::EntryType::Regular);
        header.set_size(size);
        // A file that shrinks meanwhile is filled up: the header has been promised.
        let contents = File::from(opened)
            .take(size)
            .chain(io::repeat(0))
            .take(size);
        self.archive
            .append_data(&mut header, path, contents)
            .map_err(|e| self.failed(path, e))
    }

    fn empty_file(&mut self, path: &Path) -> Result<(), Error> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o600);
        header.set_size(0);
        let append = self.archive.append_data(&mut header, path, io::empty());
        append.map_err(|e| self.failed(path, e))
    }

    /// Writes the xattrs worth keeping ahead of the entry; returns whether it is opaque.
    fn xattrs(&mut self, opened: BorrowedFd<'_>, path: &Path) -> Result<bool, Error> {
        let mut names = vec![0_u8; XATTR_BYTES_MAX];
        let length = match fs::flistxattr(opened, &mut names) {
            Err(Errno::OPNOTSUPP) => 0,
            other => other.map_err(|e| self.failed(path, e))?,
        };
        let mut kept = Vec::new();
        let mut is_opaque = false;
        for name in names[..length]
            .split(|b| *b == 0)
            .filter(|name| !name.is_empty())
        {
            let Ok(text) = std::str::from_utf8(name) else {
                continue;
            };
            // In `user.` these names say nothing: anyone may have set them.
            let is_idle = text.starts_with("user.overlay.");
            match text.strip_prefix("trusted.overlay.") {
                Some("opaque") => is_opaque = true,
                Some("redirect" | "metacopy") if self.kind == TreeKind::Layer => {
                    return Err(self.refuse(
                        path,
                        "overlayfs moved it from below, which a layer alone cannot say",
                    ));
                }
                _ if is_idle => {}
                Some(_) => {}
                None if text == "security.capability" || text.starts_with("user.") => {
                    let mut value = vec![0_u8; XATTR_BYTES_MAX];
                    let length = fs::fgetxattr(opened, name, &mut value)
                        .map_err(|e| self.failed(path, e))?;
                    value.truncate(length);
                    kept.push((format!("SCHILY.xattr.{text}"), value));
                }
                None => {}
            }
        }
        let fields = kept.iter().map(|(name, value)| (name.as_str(), &value[..]));
        if !kept.is_empty() {
            self.archive
                .append_pax_extensions(fields)
                .map_err(|e| self.failed(path, e))?;
        }
        Ok(is_opaque)
    }

    fn open(
        &self,
        parent: BorrowedFd<'_>,
        name: &CString,
        path: &Path,
        extra: OFlags,
    ) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | extra;
        fs::openat(parent, name, flags, Mode::empty()).map_err(|e| self.failed(path, e))
    }

    fn failed(&self, path: &Path, error: impl Into<io::Error>) -> Error {
        Error::io("packing", &self.root.join(path), error)
    }

    fn refuse(&self, path: &Path, message: &str) -> Error {
        Error::Corrupt {
            what: self.root.join(path).display().to_string(),
            message: message.to_owned(),
        }
    }
}

fn header_of(stat: &Stat, kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_size(0);
    header
}
