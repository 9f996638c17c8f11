//! The host's side of execd's handoff: at a socket that is mounted into one sandbox it gives
//! execd, which is the first to run there, its token, its environment and its listening socket.
//!
//! The mount is read-only, the socket answers once and is gone before any program of the user
//! runs. The control socket itself is never visible inside: nobody there can put a link to a
//! socket of the host in its place.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lifecycle::execd::SERVING;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};

use crate::directory;

/// The socket's name in the mounted directory.
pub(crate) const SOCKET: &str = "socket";

/// Where execd asks.
pub(crate) struct Gate {
    listener: UnixListener,
    path: PathBuf,
    control: OwnedFd,
}

impl Gate {
    /// Listens in `gate`, the mounted directory, for an execd that will serve on `control`.
    pub(crate) fn open(gate: &Path, control: OwnedFd) -> io::Result<Self> {
        let listener = directory::bind(gate, SOCKET)?;
        let path = gate.join(SOCKET);
        // The image's user may be anybody; nobody else sees the directory.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener: UnixListener::from_std(listener)?,
            path,
            control,
        })
    }

    /// Waits for execd, gives it everything, and returns when it serves.
    pub(crate) async fn hand_over(self, message: &[u8]) -> io::Result<()> {
        let (mut execd, _) = self.listener.accept().await?;
        // One execd, one answer.
        std::fs::remove_file(&self.path)?;
        let (head, rest) = message.split_at(1);
        send_with(&execd, head, &self.control).await?;
        execd.write_all(rest).await?;
        execd.shutdown().await?;
        let mut heard = String::new();
        let answer = execd.take(SERVING.len() as u64 + 1);
        { answer }.read_to_string(&mut heard).await?;
        if heard == SERVING {
            Ok(())
        } else {
            Err(io::Error::other("execd ended before it served"))
        }
    }
}

async fn send_with(to: &UnixStream, bytes: &[u8], descriptor: &OwnedFd) -> io::Result<()> {
    to.async_io(Interest::WRITABLE, || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor.as_fd()];
        let has_room = ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        debug_assert!(has_room, "made for one");
        let bytes = [IoSlice::new(bytes)];
        Ok(rustix::net::sendmsg(
            to,
            &bytes,
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?)
    })
    .await
    .map(drop)
}
