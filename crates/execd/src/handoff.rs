//! What a backend that cannot pass descriptors to PID 1 hands over at the start: the token, the
//! environment and, where both share a kernel, the listening socket.
//!
//! An engine starts programs with nothing but arguments and variables, and everybody who may look
//! at the container sees both. So the daemon asks for the rest before anything else runs: at a
//! unix socket that the backend has put into the sandbox (`--handoff PATH`), or on its standard
//! input (`--handoff -`). The backend answers once, and hears when the daemon serves. Where it can reach
//! neither, as on another machine, `PATH` is a file, which is gone before anything else runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use serde::Deserialize;

/// The backend has all of it in memory; only a machine on its knees takes seconds.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Larger than the environment the kernel lets a program have.
const MESSAGE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What the backend hears, on the same connection or on standard error, when the daemon serves.
pub(crate) const SERVING: &str = "execd: serving\n";

/// What was handed over.
pub(crate) struct Handoff {
    pub(crate) message: Message,
    /// Where to serve, already listening.
    pub(crate) listener: Option<OwnedFd>,
    connection: Option<UnixStream>,
}

/// The part of it that is text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Message {
    #[serde(default)]
    pub(crate) token: String,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Open files of each command, where the backend has no other way to limit them.
    #[serde(default)]
    pub(crate) open_files: Option<u64>,
}

/// Asks for the handoff: at a socket, on standard input when `path` is `-`, or in a file.
pub(crate) fn receive(path: &Path) -> io::Result<Handoff> {
    if path.as_os_str() == "-" {
        let mut text = Vec::new();
        let input = io::stdin().lock();
        input.take(MESSAGE_BYTES_MAX).read_to_end(&mut text)?;
        return Ok(Handoff {
            message: serde_json::from_slice(&text)?,
            listener: None,
            connection: None,
        });
    }
    if std::fs::symlink_metadata(path)?.is_file() {
        let mut text = Vec::new();
        File::open(path)?
            .take(MESSAGE_BYTES_MAX)
            .read_to_end(&mut text)?;
        // It holds the token: without this every command could read it.
        std::fs::remove_file(path)?;
        return Ok(Handoff {
            message: serde_json::from_slice(&text)?,
            listener: None,
            connection: None,
        });
    }
    let mut connection = UnixStream::connect(path)?;
    connection.set_read_timeout(Some(ANSWER_MAX))?;
    let (mut text, listener) = first_part(&connection)?;
    let rest = (&mut connection).take(MESSAGE_BYTES_MAX);
    io::copy(&mut { rest }, &mut text)?;
    Ok(Handoff {
        message: serde_json::from_slice(&text)?,
        listener,
        connection: Some(connection),
    })
}

/// Descriptors come with the first bytes.
fn first_part(connection: &UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut text = vec![0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        connection,
        &mut [IoSliceMut::new(&mut text)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    text.truncate(received.bytes);
    let mut listener = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            listener = descriptors.last();
        }
    }
    Ok((text, listener))
}

impl Handoff {
    /// Tells the backend that the daemon answers. Whoever handed over and went away did not want
    /// to know.
    pub(crate) fn serving(connection: Option<UnixStream>) {
        let _ = match connection {
            Some(mut connection) => connection.write_all(SERVING.as_bytes()),
            None => io::stderr().write_all(SERVING.as_bytes()),
        };
    }

    /// Takes the connection out, to tell of success later; until it is dropped the backend waits.
    pub(crate) fn connection(&mut self) -> Option<UnixStream> {
        self.connection.take()
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixListener;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

    use super::*;

    #[test]
    fn takes_over_the_token_the_environment_and_the_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gate");
        let gate = UnixListener::bind(&path).unwrap();
        let control = directory.path().join("control");
        let listener = UnixListener::bind(&control).unwrap();
        let value = "x".repeat(100_000);
        let text = format!(r#"{{"token":"secret","env":{{"LONG":"{value}"}}}}"#);
        let backend = std::thread::spawn(move || {
            let (mut connection, _) = gate.accept().unwrap();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let descriptors = [listener.as_fd()];
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
            let (head, rest) = text.as_bytes().split_at(10);
            let head = [IoSlice::new(head)];
            rustix::net::sendmsg(&connection, &head, &mut ancillary, SendFlags::empty()).unwrap();
            connection.write_all(rest).unwrap();
            connection.shutdown(std::net::Shutdown::Write).unwrap();
            let mut heard = String::new();
            connection.read_to_string(&mut heard).unwrap();
            heard
        });
        let mut handoff = receive(&path).unwrap();
        assert_eq!(handoff.message.token, "secret");
        assert_eq!(handoff.message.env["LONG"], value);
        let listener = UnixListener::from(handoff.listener.take().unwrap());
        let client = UnixStream::connect(&control).unwrap();
        assert!(listener.accept().is_ok());
        drop(client);
        Handoff::serving(handoff.connection());
        assert_eq!(backend.join().unwrap(), SERVING);
    }

    #[test]
    fn a_file_is_read_once_and_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("handoff");
        std::fs::write(
            &path,
            r#"{"token":"secret","env":{"A":"b"},"open_files":9}"#,
        )
        .unwrap();
        let handoff = receive(&path).unwrap();
        assert_eq!(handoff.message.token, "secret");
        assert_eq!(handoff.message.env["A"], "b");
        assert_eq!(handoff.message.open_files, Some(9));
        assert!(handoff.listener.is_none());
        assert!(!path.exists());
        assert!(receive(&path).is_err());
    }

    #[test]
    fn a_missing_backend_is_an_error() {
        assert!(receive(Path::new("/nonexistent/gate")).is_err());
    }
}
