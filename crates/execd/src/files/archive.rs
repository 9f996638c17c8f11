//! `GET /directories/archive`: a directory with everything below it as a tar stream.
//!
//! Names are relative to the directory, in the order of a listing; modes, owners, times, links,
//! pipes and devices are kept, files with several names are stored once; sockets are left out, for
//! no archive can hold them. The tree may change while it is read: a file that vanishes is left
//! out, one that shrinks breaks the stream off, since its length was already told.
//!
//! The stream is made on a thread of its own that waits for the connection; their number is limited.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, Uri, header};
use rustix::fs::{AtFlags, CWD, FileType, Stat, major, minor, statat};
use tar::{Builder, EntryType, Header};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use super::{
    credentials::{FileAccess, FileUser},
    error::{Error, Result},
    query::Query,
};

/// Archives being read or written at once. Each has a thread that waits for its client.
const ARCHIVES_MAX: usize = 16;

/// Pieces between the thread and the connection, and the size of one.
pub(super) const PIECES: usize = 4;
const PIECE: usize = 256 * 1024;

static ARCHIVES: Semaphore = Semaphore::const_new(ARCHIVES_MAX);

/// A place among the archives in work.
pub(super) fn admit() -> Result<SemaphorePermit<'static>> {
    ARCHIVES.try_acquire().map_err(|_| Error::Busy {
        name: "ARCHIVES_MAX",
        limit: ARCHIVES_MAX,
        what: "archives",
    })
}

pub(super) async fn get(user: FileUser, uri: Uri) -> Result<Response> {
    let raw = Query::of(&uri).path()?;
    let permit = admit()?;
    let root = user
        .run(move |access| {
            let root = access.resolve(&raw)?;
            // Reading it once tells now, not in the middle of the stream, that it cannot be read.
            fs::read_dir(&root).map_err(|e| Error::io("reading", &root, e))?;
            Ok(root)
        })
        .await?;
    let (pieces, stream) = mpsc::channel(PIECES);
    user.run_apart(move |access| {
        let _permit = permit;
        let mut out = Pieces {
            current: Vec::with_capacity(PIECE),
            to: pieces,
        };
        if let Err(error) = write_tree(access, &root, &mut out).and_then(|()| out.flush()) {
            // The answer has begun, so breaking it off is the only way to say it is not whole.
            let _ = out.to.blocking_send(Err(error));
        }
        Ok(())
    })?;
    let mut response = Response::new(Body::from_stream(futures_util::stream::unfold(
        stream,
        |mut stream| async move { stream.recv().await.map(|piece| (piece, stream)) },
    )));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/x-tar"),
    );
    Ok(response)
}

/// Collects what the tar writer gives into pieces for the connection.
struct Pieces {
    current: Vec<u8>,
    to: mpsc::Sender<io::Result<Bytes>>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.current.extend_from_slice(bytes);
        if self.current.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.current, Vec::with_capacity(PIECE));
        // The client has gone: so has the reason to go on.
        self.to
            .blocking_send(Ok(piece.into()))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn write_tree(access: &FileAccess, root: &Path, out: &mut Pieces) -> io::Result<()> {
    let mut builder = Builder::new(out);
    let mut linked: HashMap<(u64, u64), PathBuf> = HashMap::new();
    let mut todo = names(root, Path::new(""))?;
    while let Some(name) = todo.pop() {
        let path = root.join(&name);
        let Ok(stat) = statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        let mut head = header_of(access, &stat);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                builder.append_data(&mut head, name.join(""), io::empty())?;
                // One that cannot be read is stored empty; the rest of the tree counts more.
                todo.append(&mut names(&path, &name).unwrap_or_default());
            }
            FileType::Symlink => {
                if let Ok(target) = fs::read_link(&path) {
                    builder.append_link(&mut head, &name, target)?;
                }
            }
            FileType::RegularFile => {
                if stat.st_nlink > 1 {
                    if let Some(first) = linked.get(&(stat.st_dev, stat.st_ino)) {
                        head.set_entry_type(EntryType::Link);
                        head.set_size(0);
                        builder.append_link(&mut head, &name, first)?;
                        continue;
                    }
                    linked.insert((stat.st_dev, stat.st_ino), name.clone());
                }
                append_file(&mut builder, &mut head, &path, &name)?;
            }
            FileType::Socket => {}
            _ => builder.append_data(&mut head, &name, io::empty())?,
        }
    }
    builder.into_inner().map(|_| ())
}

/// The entries of a directory below `prefix`, last name first.
fn names(directory: &Path, prefix: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(prefix.join(entry?.file_name()));
    }
    names.sort_unstable_by(|a, b| b.as_os_str().as_bytes().cmp(a.as_os_str().as_bytes()));
    Ok(names)
}

fn append_file(
    builder: &mut Builder<&mut Pieces>,
    head: &mut Header,
    path: &Path,
    name: &Path,
) -> io::Result<()> {
    let open = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let file = match open {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let size = head.size()?;
    let mut counted = file.take(size);
    builder.append_data(head, name, &mut counted)?;
    if counted.limit() > 0 {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("{} shrank", path.display()),
        ));
    }
    Ok(())
}

fn header_of(access: &FileAccess, stat: &Stat) -> Header {
    let mut head = Header::new_gnu();
    let kind = FileType::from_raw_mode(stat.st_mode);
    head.set_entry_type(match kind {
        FileType::Directory => EntryType::Directory,
        FileType::Symlink => EntryType::Symlink,
        FileType::Fifo => EntryType::Fifo,
        FileType::CharacterDevice => EntryType::Char,
        FileType::BlockDevice => EntryType::Block,
        _ => EntryType::Regular,
    });
    head.set_mode(stat.st_mode & 0o7777);
    head.set_uid(stat.st_uid.into());
    head.set_gid(stat.st_gid.into());
    head.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    let regular = kind == FileType::RegularFile;
    head.set_size(if regular {
        u64::try_from(stat.st_size).unwrap_or(0)
    } else {
        0
    });
    // Names that do not fit the field are left out; the numbers say the same.
    if let Some(name) = access.accounts.user_name(stat.st_uid) {
        let _ = head.set_username(name);
    }
    if let Some(name) = access.accounts.group_name(stat.st_gid) {
        let _ = head.set_groupname(name);
    }
    if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
        let _ = head.set_device_major(major(stat.st_rdev));
        let _ = head.set_device_minor(minor(stat.st_rdev));
    }
    head
}
