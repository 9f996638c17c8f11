//! The server's end of the spawner: starts it, asks it, and starts another when it has died.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Mutex;

use super::packet;
use super::protocol::{
    DESCRIPTORS_MAX, Descriptors, InitFailure, REPORT_BYTES_MAX, REQUEST_BYTES_MAX, Report, Request,
};
use crate::sys;

/// A healthy spawner answers in a fraction of a millisecond. A process that takes this long is
/// stuck in the kernel, on a dead disk for example.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// A spawner that dies is replaced this often for one request. The request itself may be what
/// kills it, so not for ever.
const TRIES_MAX: usize = 3;

/// Why a sandbox's first process could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnError {
    /// The spawner program does not start.
    #[error("the spawner {program} does not start")]
    Program {
        program: String,
        #[source]
        source: io::Error,
    },
    /// The request does not fit into a packet.
    #[error("{what} are more than {limit}")]
    TooLarge { what: &'static str, limit: usize },
    /// It died again and again.
    #[error("the spawner died {TRIES_MAX} times while making this sandbox")]
    Died,
    /// It does not answer.
    #[error("the sandbox's first process did not start within {ANSWER_DEADLINE:?}")]
    Stuck,
    /// The process gave up.
    #[error("{} failed", .0.step.doing())]
    Failed(InitFailure),
    /// Talking to it failed.
    #[error("talking to the spawner failed")]
    Socket(#[source] io::Error),
}

/// Starts processes through a spawner process.
#[derive(Debug)]
pub(crate) struct Spawner {
    program: PathBuf,
    arguments: Vec<OsString>,
    current: Mutex<Option<Arc<AsyncFd<OwnedFd>>>>,
}

/// A new first process, on its way to becoming the program.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) pid: Pid,
    pidfd: OwnedFd,
    report: AsyncFd<OwnedFd>,
}

impl Spawner {
    pub(crate) fn new(program: PathBuf, arguments: Vec<OsString>) -> Self {
        Self {
            program,
            arguments,
            current: Mutex::new(None),
        }
    }

    /// Has a spawner running before the first request needs it.
    pub(crate) async fn start(&self) -> Result<(), SpawnError> {
        self.connection().await.map(drop)
    }

    /// Clones a first process.
    pub(crate) async fn spawn(
        &self,
        request: &Request,
        descriptors: &Descriptors,
    ) -> Result<Spawned, SpawnError> {
        let text = serde_json::to_vec(request).expect("a request is plain data");
        if text.len() > REQUEST_BYTES_MAX {
            let what = "the bytes of the command and the environment";
            return Err(SpawnError::TooLarge {
                what,
                limit: REQUEST_BYTES_MAX,
            });
        }
        for _ in 0..TRIES_MAX {
            let connection = self.connection().await?;
            match send_request(&connection, &text, descriptors).await {
                Err(RequestError::SpawnerGone) => self.forget(&connection).await,
                Err(RequestError::Failed(error)) => return Err(error),
                Ok(spawned) => return Ok(spawned),
            }
        }
        Err(SpawnError::Died)
    }

    async fn connection(&self) -> Result<Arc<AsyncFd<OwnedFd>>, SpawnError> {
        let mut current = self.current.lock().await;
        if let Some(connection) = &*current {
            return Ok(connection.clone());
        }
        let connection = Arc::new(self.launch()?);
        *current = Some(connection.clone());
        Ok(connection)
    }

    async fn forget(&self, dead: &Arc<AsyncFd<OwnedFd>>) {
        let mut current = self.current.lock().await;
        if current
            .as_ref()
            .is_some_and(|connection| Arc::ptr_eq(connection, dead))
        {
            tracing::warn!("the spawner died; starting another");
            *current = None;
        }
    }

    fn launch(&self) -> Result<AsyncFd<OwnedFd>, SpawnError> {
        let (ours, theirs) = pair(SocketFlags::CLOEXEC).map_err(SpawnError::Socket)?;
        // A request must fit into the buffer whole; the default holds some 200 KiB.
        let room = 2 * REQUEST_BYTES_MAX;
        rustix::net::sockopt::set_socket_send_buffer_size_force(&ours, room)
            .map_err(|errno| SpawnError::Socket(errno.into()))?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(|errno| SpawnError::Socket(errno.into()))?;
        let started = tokio::process::Command::new(&self.program)
            .arg0("osb")
            .args(&self.arguments)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .env_clear()
            .envs(crate::protection::environment())
            .process_group(0)
            .kill_on_drop(false)
            .spawn();
        // The handle is dropped: the runtime reaps it when it ends, and its end is noticed on
        // the socket.
        started.map_err(|source| SpawnError::Program {
            program: self.program.display().to_string(),
            source,
        })?;
        sys::watch(ours).map_err(SpawnError::Socket)
    }
}

enum RequestError {
    /// The spawner is gone; nothing was made.
    SpawnerGone,
    Failed(SpawnError),
}

async fn send_request(
    connection: &AsyncFd<OwnedFd>,
    text: &[u8],
    descriptors: &Descriptors,
) -> Result<Spawned, RequestError> {
    let failed = |error: io::Error| RequestError::Failed(SpawnError::Socket(error));
    let (ours, theirs) = pair(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).map_err(failed)?;
    let list = descriptors.in_order(theirs.as_fd());
    if list.len() > DESCRIPTORS_MAX {
        let what = "the layers and volumes of one sandbox";
        return Err(RequestError::Failed(SpawnError::TooLarge {
            what,
            limit: DESCRIPTORS_MAX,
        }));
    }
    let sent = connection
        .async_io(Interest::WRITABLE, |socket| {
            packet::send(socket.as_fd(), text, &list).map_err(io::Error::from)
        })
        .await;
    match sent {
        Ok(()) => {}
        Err(error) if is_disconnected(&error) => return Err(RequestError::SpawnerGone),
        Err(error) => return Err(failed(error)),
    }
    drop(list);
    drop(theirs);
    let report = sys::watch(ours).map_err(failed)?;
    match read(&report).await {
        Ok(Some((Report::Started { pid }, Some(pidfd)))) => {
            let pid = Pid::from_raw(pid).expect("the spawner reports a real process");
            Ok(Spawned { pid, pidfd, report })
        }
        Ok(Some((Report::Failed(failure), _))) => {
            Err(RequestError::Failed(SpawnError::Failed(failure)))
        }
        Ok(_) => Err(RequestError::SpawnerGone),
        Err(error) => Err(RequestError::Failed(error)),
    }
}

impl Spawned {
    /// The descriptor of the process.
    pub(crate) fn into_pidfd(self) -> OwnedFd {
        self.pidfd
    }

    /// Waits until the process runs the program, or has said why it cannot.
    pub(crate) async fn executed(&self) -> Result<(), SpawnError> {
        match read(&self.report).await? {
            None => Ok(()),
            Some((Report::Failed(failure), _)) => Err(SpawnError::Failed(failure)),
            Some((Report::Started { .. }, _)) => Err(SpawnError::Died),
        }
    }
}

/// The next report; `None` once nobody is left who could send one.
async fn read(report: &AsyncFd<OwnedFd>) -> Result<Option<(Report, Option<OwnedFd>)>, SpawnError> {
    let mut buffer = [0_u8; REPORT_BYTES_MAX];
    let received = report.async_io(Interest::READABLE, |socket| {
        packet::receive(socket.as_fd(), &mut buffer).map_err(io::Error::from)
    });
    let (length, descriptors) = match tokio::time::timeout(ANSWER_DEADLINE, received).await {
        Err(_) => return Err(SpawnError::Stuck),
        Ok(Err(error)) if is_disconnected(&error) => return Ok(None),
        Ok(outcome) => outcome.map_err(SpawnError::Socket)?,
    };
    if length == 0 {
        return Ok(None);
    }
    let report = serde_json::from_slice(&buffer[..length])
        .map_err(|error| SpawnError::Socket(io::Error::other(error)))?;
    Ok(Some((report, descriptors.into_iter().next())))
}

fn is_disconnected(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::PIPE | Errno::CONNRESET | Errno::CONNREFUSED | Errno::NOTCONN)
    )
}

fn pair(flags: SocketFlags) -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
    debug_assert_ne!(ours.as_raw_fd(), theirs.as_raw_fd());
    Ok((ours, theirs))
}
