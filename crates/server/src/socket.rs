//! The unix socket that the API is served at: made for its owner alone, in place of one that a killed server
//! left, and removed with the server. Does not ask who connects: the kernel does, by the mode of the file.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener as StdListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::UnixListener;

/// The file of a socket, removed on drop if it is still the same one.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another server may have put its own there.
        if identity(&self.path).is_ok_and(|id| id == self.id) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Listens at `path`. A socket there that nobody listens at any more is replaced; anything else is an error.
pub(crate) fn listen(path: &Path, backlog: u32) -> io::Result<(UnixListener, SocketFile)> {
    match UnixStream::connect(path) {
        Ok(stream) if is_served(&stream)? => return Err(io::ErrorKind::AddrInUse.into()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // Nobody listens; or it is a file of another kind, which is not ours to replace.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => refuse_a_file(path)?,
        Err(error) => return Err(error),
    }
    // Under a name of its own until it can be connected to: who finds it at `path` can use it.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}", std::process::id()));
    let fresh = PathBuf::from(fresh);
    let _ = std::fs::remove_file(&fresh);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file gets the mode that the socket has when it is bound (Linux, unix_bind_bsd), so there is no moment
    // in which it is open to others.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(&fresh)?)?;
    let placed = place(&socket, &fresh, path, backlog);
    if placed.is_err() {
        let _ = std::fs::remove_file(&fresh);
    }
    let id = placed?;
    let file = SocketFile {
        path: path.to_owned(),
        id,
    };
    Ok((UnixListener::from_std(StdListener::from(socket))?, file))
}

fn place(
    socket: &rustix::fd::OwnedFd,
    fresh: &Path,
    path: &Path,
    backlog: u32,
) -> io::Result<(u64, u64)> {
    rustix::net::listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    std::fs::rename(fresh, path)?;
    identity(path)
}

/// A connection to a server that was killed is closed within this.
const DYING: Duration = Duration::from_secs(1);

/// Whether somebody keeps this connection. A killed server is gone a moment before its sockets are, and until
/// then they can be connected to.
fn is_served(mut stream: &UnixStream) -> io::Result<bool> {
    stream.set_read_timeout(Some(DYING))?;
    // A server waits for a request and says nothing.
    let read = stream.read(&mut [0]);
    Ok(read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock))
}

fn refuse_a_file(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    let kind = std::fs::symlink_metadata(path)?.file_type();
    if kind.is_socket() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        "there is a file that is not a socket",
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn is_its_owners_alone_and_goes_with_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        let (listener, file) = listen(&path, 16).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        UnixStream::connect(&path).unwrap();
        let second = listen(&path, 16).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop((listener, file));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn one_that_was_left_is_replaced_and_another_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        drop(StdListener::bind(&path).unwrap());
        let (_listener, old) = listen(&path, 16).unwrap();
        UnixStream::connect(&path).unwrap();
        // Between death and the end of its sockets, too.
        let dying = folder.path().join("dying.sock");
        let server = StdListener::bind(&dying).unwrap();
        let (asked, ask) = std::sync::mpsc::channel();
        let ends = std::thread::spawn(move || {
            asked.send(()).unwrap();
            drop(server.accept());
        });
        ask.recv().unwrap();
        let (_replaced, _file) = listen(&dying, 16).unwrap();
        ends.join().unwrap();
        UnixStream::connect(&dying).unwrap();
        // What another server put there since is left alone.
        std::fs::remove_file(&path).unwrap();
        let _other = StdListener::bind(&path).unwrap();
        drop(old);
        UnixStream::connect(&path).unwrap();

        let file = folder.path().join("file");
        std::fs::write(&file, "mine").unwrap();
        listen(&file, 16).unwrap_err();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    }
}
