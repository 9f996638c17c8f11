//! The process of the server of `osb up`: found by its socket, started, and asked to end.
//!
//! There is no file with its number: the kernel knows who listens at a socket, so a number that another
//! process has by now is never signalled, and nothing is out of date after a crash.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;
use tokio::net::{UnixDatagram, UnixStream};
use tokio::process::{Child, Command};

use super::place::Place;
use crate::args::up::Up;
use crate::error::Error;
use crate::interrupts::Interrupts;

/// A server that takes back hundreds of sandboxes is ready by then.
const START_DEADLINE: Duration = Duration::from_secs(120);

/// Longer than the server gives requests and its store: the default of its settings is 15 s.
const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// What a server says at once (`daemon::notify`).
const NOTICE_BYTES: usize = 4096;

/// A server that listens.
pub(super) struct Server {
    pub(super) pid: Pid,
    process: OwnedFd,
}

impl Server {
    /// The server that listens at this socket, if one does.
    pub(super) async fn find(socket: &Path) -> Result<Option<Self>, Error> {
        let Some(pid) = listener(socket).await? else {
            return Ok(None);
        };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(Error::file("looked after", socket, error.into())),
        };
        // A killed one is gone a moment before its socket is.
        if has_ended(&process, Duration::ZERO)? {
            return Ok(None);
        }
        // It listens still, so it lived when its number was looked up: the descriptor is its own.
        match listener(socket).await? {
            Some(second) if second == pid => Ok(Some(Self { pid, process })),
            _ => Ok(None),
        }
    }

    /// Asks it to end and waits until it has.
    pub(super) async fn end(self) -> Result<(), Error> {
        let pid = self.pid.as_raw_nonzero();
        match pidfd_send_signal(&self.process, Signal::TERM) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let ended =
            tokio::task::spawn_blocking(move || has_ended(&self.process, STOP_DEADLINE)).await;
        match ended.map_err(io::Error::other)?? {
            true => Ok(()),
            false => Err(Error::Failed {
                message: format!(
                    "the server (process {pid}) did not end in {} s",
                    STOP_DEADLINE.as_secs()
                ),
                next: Some(format!(
                    "wait, or kill -9 {pid}: sandboxes survive that, too"
                )),
            }),
        }
    }
}

/// Waits until the process has ended, at most for `limit`: its descriptor is readable then (pidfd_open(2)).
fn has_ended(process: &OwnedFd, limit: Duration) -> io::Result<bool> {
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: 0,
    };
    let mut waiting = [PollFd::new(process, PollFlags::IN)];
    Ok(poll(&mut waiting, Some(&limit))? > 0)
}

/// Who listens at a socket.
async fn listener(socket: &Path) -> Result<Option<Pid>, Error> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let wrong = |error| Error::file("connected to", socket, error);
    let stream = match UnixStream::connect(socket).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => return Ok(None),
        Err(error) => return Err(wrong(error)),
    };
    // Of a stream that was connected to, these are the credentials of whoever called listen(2) (unix(7)).
    let pid = stream.peer_cred().map_err(wrong)?.pid();
    pid.and_then(Pid::from_raw)
        .map(Some)
        .ok_or_else(|| wrong(io::Error::other("it belongs to another pid namespace")))
}

/// Starts a server and waits until it says that it is ready.
pub(super) async fn start(place: &Place, args: &Up) -> Result<(), Error> {
    let mut interrupts = Interrupts::listen()?;
    let notices = Notices::open(&place.notify())?;
    let log = place.open_log()?;
    let mut child = spawn(place, args, log, &notices.path)?;
    let mut reason = None;
    let mut deadline = pin!(tokio::time::sleep(START_DEADLINE));
    let why = loop {
        tokio::select! {
            // What it said last arrived before it ended.
            biased;
            notice = notices.next() => {
                let notice = notice?;
                if notice.lines().any(|line| line == "READY=1") {
                    return Ok(());
                }
                let status = notice.lines().find_map(|line| line.strip_prefix("STATUS="));
                reason = status.map(str::to_owned).or(reason);
            }
            ended = child.wait() => {
                let ended = format!("it ended with {}", ended?);
                return Err(failed(place, &reason.unwrap_or(ended)));
            }
            code = interrupts.next() => break Error::Interrupted(code),
            () = &mut deadline => {
                let waited = START_DEADLINE.as_secs();
                break failed(place, &format!("it is not ready after {waited} s"));
            }
        }
    };
    give_up(child).await;
    Err(why)
}

/// Ends a server that is not wanted any more before it was ready.
async fn give_up(mut child: Child) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        // It was not waited for yet, so the number is still its own.
        let pid = Pid::from_raw(pid).expect("a process has a number");
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
    let _ = tokio::time::timeout(STOP_DEADLINE, child.wait()).await;
}

fn failed(place: &Place, reason: &str) -> Error {
    Error::Failed {
        message: format!("the server did not start: {reason}"),
        next: Some(format!(
            "read its log, {}; `osb doctor` says what this machine lacks",
            place.log().display()
        )),
    }
}

fn spawn(place: &Place, args: &Up, log: File, notify: &Path) -> Result<Child, Error> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("server");
    if let Some(path) = &args.server_config {
        let path = std::path::absolute(path)?;
        command.arg("--config").arg(path);
    }
    let mut set = |key: &str, value: &str| {
        command.arg("--set").arg(format!("{key}={value}"));
    };
    set("server.socket", &place.socket().display().to_string());
    match args.port {
        None => set("server.host", "none"),
        Some(port) => {
            set("server.host", "127.0.0.1");
            set("server.port", &port.to_string());
        }
    }
    for pair in &args.set {
        command.arg("--set").arg(pair);
    }
    command
        .current_dir("/")
        .env("NOTIFY_SOCKET", notify)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Ctrl-C and the end of this terminal are not for it. (SIGHUP has it read its settings again.)
        .process_group(0);
    Ok(command.spawn()?)
}

/// Where the server says how it stands (sd_notify(3)).
struct Notices {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Notices {
    fn open(path: &Path) -> Result<Self, Error> {
        let _ = std::fs::remove_file(path);
        let socket =
            UnixDatagram::bind(path).map_err(|error| Error::file("listened at", path, error))?;
        let path = path.to_owned();
        Ok(Self { socket, path })
    }

    async fn next(&self) -> Result<String, Error> {
        let mut bytes = vec![0; NOTICE_BYTES];
        let length = self.socket.recv(&mut bytes).await?;
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
