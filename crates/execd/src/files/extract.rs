//! `PUT /directories/archive`: a tar stream unpacked into a directory, which is made if missing.
//!
//! No entry lands outside the directory: names with `..` are refused, a leading slash is dropped,
//! and the directories of every name are opened so that the kernel refuses a way that leaves the
//! root, whatever symbolic links are there or come with the archive. Links that point outside may
//! be stored, as any link may; nothing is written through them. A file replaces what has its name
//! unless that is a directory; directories are merged.
//!
//! Owners are those of the archive when the daemon has root's rights, else, and under a user's
//! prefix, the caller's. What was unpacked before an error stays.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
};

use axum::{Json, body::Body};
use bytes::{Buf, Bytes};
use http::Uri;
use http_body_util::BodyExt;
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid,
        chownat, futimens, linkat, makedev, mkdirat, mknodat, openat, openat2, statat, symlinkat,
        unlinkat, utimensat,
    },
    io::Errno,
};
use serde::Serialize;
use tar::{Archive, Entry, EntryType, Header};
use tokio::sync::mpsc;

use super::{
    archive::{PIECES, admit},
    credentials::{FileAccess, FileUser},
    error::{Error, Result},
    permission::Attributes,
    query::Query,
    staged::Staged,
    upload::drain,
};

#[derive(Serialize, Default)]
pub(super) struct Unpacked {
    entries: u64,
    bytes: u64,
}

pub(super) async fn put(user: FileUser, uri: Uri, mut body: Body) -> Result<Json<Unpacked>> {
    let raw = Query::of(&uri).path()?;
    let permit = admit()?;
    let (pieces, incoming) = mpsc::channel(PIECES);
    let done = user.run_apart(move |access| {
        let _permit = permit;
        let root = access.resolve(&raw)?;
        std::fs::create_dir_all(&root).map_err(|e| Error::io("making the directory", &root, e))?;
        unpack(
            access,
            &root,
            Stream {
                current: Bytes::new(),
                from: incoming,
            },
        )
    })?;
    while let Some(frame) = body.frame().await {
        let piece = frame
            .map_err(io::Error::other)
            .map(|frame| frame.into_data().unwrap_or_default());
        // The thread has ended early: it has found something wrong.
        if pieces.send(piece).await.is_err() {
            drain(&mut body).await;
            break;
        }
    }
    drop(pieces);
    let unpacked = done
        .await
        .unwrap_or_else(|_| Err(Error::Internal("the unpacking thread died".into())))?;
    Ok(Json(unpacked))
}

/// The body as the tar reader wants it.
struct Stream {
    current: Bytes,
    from: mpsc::Receiver<io::Result<Bytes>>,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.from.blocking_recv() {
                Some(piece) => self.current = piece?,
                None => return Ok(0),
            }
        }
        let size = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..size]);
        Ok(size)
    }
}

fn unpack(access: &FileAccess, root: &Path, stream: impl Read) -> Result<Unpacked> {
    let broken = |e: io::Error| {
        Error::BadContent(format!(
            "the body is not a whole, uncompressed tar archive: {e}"
        ))
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = openat(CWD, root, flags, Mode::empty()).map_err(|e| Error::io("opening", root, e))?;
    let mut target = Target {
        access,
        root: root.to_path_buf(),
        top,
        directories: Vec::new(),
    };
    let mut archive = Archive::new(stream);
    let mut unpacked = Unpacked::default();
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        unpacked.entries += 1;
        unpacked.bytes += target.add(&mut entry, &broken)?;
    }
    target.dress_directories()?;
    // The padding behind the end, so that the client can finish sending.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(broken)?;
    Ok(unpacked)
}

struct Target<'a> {
    access: &'a FileAccess,
    root: PathBuf,
    top: OwnedFd,
    /// Directories get mode and times last: filling them needs the one and changes the other.
    directories: Vec<(PathBuf, Attributes, Timestamps)>,
}

impl Target<'_> {
    /// Unpacks one entry; gives how many bytes of content it had.
    fn add<R: Read>(
        &mut self,
        entry: &mut Entry<'_, R>,
        broken: &dyn Fn(io::Error) -> Error,
    ) -> Result<u64> {
        let name = inside(&entry.path_bytes())?;
        let Some(last) = name.file_name().map(OsStr::to_os_string) else {
            return Ok(0);
        };
        let (kind, attributes, times) = {
            let head = entry.header();
            (
                head.entry_type(),
                self.attributes(head).map_err(broken)?,
                times(head).map_err(broken)?,
            )
        };
        let shown = self.root.join(&name);
        let above = self.directory(name.parent().unwrap_or(Path::new("")))?;
        let writing = |e: Errno| Error::io("unpacking", &shown, e);
        match kind {
            EntryType::XGlobalHeader => return Ok(0),
            EntryType::Directory => {
                self.directory(&name)?;
                self.directories.push((name, attributes, times));
                return Ok(0);
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                clear(&above, &last, true).map_err(writing)?;
                return write_file(
                    above,
                    last,
                    shown.clone(),
                    attributes,
                    &times,
                    entry,
                    broken,
                );
            }
            EntryType::Symlink => {
                let to = link_target(entry)?;
                clear(&above, &last, false).map_err(writing)?;
                symlinkat(OsStr::from_bytes(&to), &above, &last).map_err(writing)?;
            }
            EntryType::Link => {
                let to = inside(&link_target(entry)?)?;
                let to_above = self.directory(to.parent().unwrap_or(Path::new("")))?;
                clear(&above, &last, false).map_err(writing)?;
                let to_name = to.file_name().unwrap_or_default();
                return linkat(&to_above, to_name, &above, &last, AtFlags::empty())
                    .map(|()| 0)
                    .map_err(writing);
            }
            EntryType::Fifo | EntryType::Char | EntryType::Block => {
                clear(&above, &last, false).map_err(writing)?;
                make_node(entry.header(), &above, &last).map_err(writing)?;
            }
            other => {
                return Err(Error::BadContent(format!(
                    "'{}' is of a kind not unpacked: {other:?}",
                    shown.display()
                )));
            }
        }
        let (uid, gid) = (
            attributes.uid.map(Uid::from_raw),
            attributes.gid.map(Gid::from_raw),
        );
        chownat(&above, &last, uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(writing)?;
        utimensat(&above, &last, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(writing)?;
        Ok(0)
    }

    fn attributes(&self, head: &Header) -> io::Result<Attributes> {
        let id =
            |id: io::Result<u64>| id.map(|id| u32::try_from(id).ok().filter(|id| *id != u32::MAX));
        let owned = self.access.may_give_away;
        Ok(Attributes {
            uid: if owned { id(head.uid())? } else { None },
            gid: if owned { id(head.gid())? } else { None },
            mode: Some(head.mode()? & 0o7777),
        })
    }

    /// Opens a directory below the root, making what is missing of it.
    fn directory(&self, name: &Path) -> Result<OwnedFd> {
        let failed = |e: Errno| match e {
            Errno::XDEV | Errno::LOOP => Error::BadContent(format!(
                "'{}' lies behind a symbolic link that leaves the directory",
                self.root.join(name).display()
            )),
            e => Error::io("unpacking into", self.root.join(name), e),
        };
        match open_beneath(&self.top, name) {
            Err(Errno::NOENT) => {}
            other => return other.map_err(failed),
        }
        let mut made = PathBuf::new();
        for part in name.components() {
            let above = open_beneath(&self.top, &made).map_err(failed)?;
            match mkdirat(&above, part.as_os_str(), Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(failed(e)),
            }
            made.push(part);
        }
        open_beneath(&self.top, name).map_err(failed)
    }

    fn dress_directories(&self) -> Result<()> {
        for (name, attributes, times) in self.directories.iter().rev() {
            let shown = self.root.join(name);
            let directory = self.directory(name)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let open = openat(&directory, ".", flags, Mode::empty())
                .map_err(|e| Error::io("opening", &shown, e))?;
            attributes.apply_to_fd(open.as_fd(), &shown)?;
            futimens(&open, times).map_err(|e| Error::io("setting the times of", &shown, e))?;
        }
        Ok(())
    }
}

fn make_node(head: &Header, above: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let kind = match head.entry_type() {
        EntryType::Fifo => FileType::Fifo,
        EntryType::Char => FileType::CharacterDevice,
        _ => FileType::BlockDevice,
    };
    let number = |part: io::Result<Option<u32>>| part.ok().flatten().unwrap_or(0);
    let device = makedev(number(head.device_major()), number(head.device_minor()));
    let mode = Mode::from_raw_mode(head.mode().unwrap_or(0o600) & 0o7777);
    mknodat(above, name, kind, mode, device)
}

fn write_file<R: Read>(
    above: OwnedFd,
    last: OsString,
    shown: PathBuf,
    attributes: Attributes,
    times: &Timestamps,
    entry: &mut Entry<'_, R>,
    broken: &dyn Fn(io::Error) -> Error,
) -> Result<u64> {
    let size = entry.size();
    let mut staged = Staged::create_in(above, last, shown, attributes)?;
    let file = staged.file();
    let mut left = size;
    let mut piece = vec![0; 128 * 1024];
    while left > 0 {
        let read = entry.read(&mut piece).map_err(broken)?;
        if read == 0 {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
        io::Write::write_all(&mut &*file, &piece[..read])
            .map_err(|e| Error::io("writing", staged.path(), e))?;
        left -= read as u64;
    }
    futimens(&*file, times).map_err(|e| Error::io("setting the times of", staged.path(), e))?;
    staged.finish(true)?;
    staged.publish()?;
    Ok(size)
}

fn times(head: &Header) -> io::Result<Timestamps> {
    let at = Timespec {
        tv_sec: i64::try_from(head.mtime()?).unwrap_or(0),
        tv_nsec: 0,
    };
    Ok(Timestamps {
        last_access: at,
        last_modification: at,
    })
}

/// The name an entry gets below the root.
fn inside(raw: &[u8]) -> Result<PathBuf> {
    let mut name = PathBuf::new();
    for part in Path::new(OsStr::from_bytes(raw)).components() {
        match part {
            Component::Normal(part) => name.push(part),
            Component::ParentDir => {
                let shown = String::from_utf8_lossy(raw);
                return Err(Error::BadContent(format!(
                    "the entry '{shown}' would leave the directory"
                )));
            }
            _ => {}
        }
    }
    Ok(name)
}

fn link_target<R: Read>(entry: &Entry<'_, R>) -> Result<Vec<u8>> {
    let target = entry
        .link_name_bytes()
        .map(|target| target.into_owned())
        .filter(|target| !target.is_empty());
    target.ok_or_else(|| Error::BadContent("a link in the archive has no target".into()))
}

/// Takes away what has the name already; a directory stays and is an error, and so does a regular
/// file that is about to be replaced whole.
fn clear(above: &OwnedFd, name: &OsStr, keep_file: bool) -> Result<(), Errno> {
    match statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e),
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Err(Errno::ISDIR),
            FileType::RegularFile if keep_file => Ok(()),
            _ => unlinkat(above, name, AtFlags::empty()),
        },
    }
}

/// Opens a directory so that the kernel refuses a way out of `top`.
fn open_beneath(top: &OwnedFd, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let name = if name.as_os_str().is_empty() {
        Path::new(".")
    } else {
        name
    };
    match openat2(
        top,
        name,
        flags,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
    ) {
        // An old kernel, or a filter that does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => open_without_links(top, name),
        other => other,
    }
}

/// The same for kernels without openat2: no symbolic link at all on the way.
fn open_without_links(top: &OwnedFd, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut current = openat(top, ".", flags, Mode::empty())?;
    for part in name.components() {
        current = match openat(&current, part.as_os_str(), flags, Mode::empty()) {
            Err(Errno::NOTDIR) => {
                let stat = statat(&current, part.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)?;
                let link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
                return Err(if link { Errno::LOOP } else { Errno::NOTDIR });
            }
            other => other?,
        };
    }
    Ok(current)
}
