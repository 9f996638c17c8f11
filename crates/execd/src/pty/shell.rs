//! Starting a terminal's shell, and the task that reads what it prints until it has ended.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use api::exec::pty::{Mode, Signal as WireSignal};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcgetpgrp, tcsetwinsize};
use rustix::time::Timespec;
use tokio::io::unix::AsyncFd;

use super::{Inner, Pty};
use crate::command;
use crate::output::Channel;
use crate::process::{self, Exit, Launch, LaunchError, Process, locked};
use crate::state::Shared;
use crate::sys;

/// What programs may expect of the terminal.
const TERM: &str = "xterm-256color";

/// Bytes read at once.
const READ_BYTES: usize = 32 * 1024;

/// A running shell and the daemon's ends of its input and output.
pub(super) struct Shell {
    pub(super) process: Process,
    pub(super) mode: Mode,
    input: Arc<AsyncFd<OwnedFd>>,
}

/// Why a shell did not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the working directory could not be made")]
    Directory(#[source] io::Error),
    #[error("no terminal could be made")]
    Terminal(#[source] io::Error),
    #[error("the shell did not start")]
    Launch(#[source] LaunchError),
}

/// Descriptors the shell prints to, as the daemon reads them.
type Outputs = Vec<(Channel, Arc<AsyncFd<OwnedFd>>)>;

impl Pty {
    /// The running shell, started in `mode` when there is none.
    pub(super) async fn ensure_shell(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        mode: Mode,
    ) -> Result<Arc<Shell>, Error> {
        let _starting = self.starting.lock().await;
        if let Some(shell) = self.shell() {
            return Ok(shell);
        }
        let (pty, shared) = (Arc::clone(self), Arc::clone(shared));
        let started = tokio::task::spawn_blocking(move || start(&pty, &shared, mode));
        let (shell, outputs) = started.await.expect("starting a shell does not panic")?;
        let shell = Arc::new(shell);
        let mut inner = locked(&self.inner);
        inner.shell = Some(Arc::clone(&shell));
        inner.ended = None;
        drop(inner);
        tokio::spawn(keep(Arc::clone(self), Arc::clone(&shell), outputs));
        Ok(shell)
    }
}

impl Shell {
    /// Writes all of `bytes`; waits while the shell does not read.
    pub(super) async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.input.writable().await?;
            let written = ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), bytes)?));
            match written {
                Ok(Ok(written)) => bytes = &bytes[written..],
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        match self.mode {
            Mode::Pty => Ok(tcsetwinsize(self.input.get_ref(), size(columns, rows))?),
            Mode::Pipe => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "pipes have no size; connect without pty=0",
            )),
        }
    }

    /// Signals the program in the terminal's foreground, or the shell's group.
    pub(super) fn signal(&self, signal: WireSignal) -> bool {
        let signal = match signal {
            WireSignal::SigInt => Signal::INT,
            WireSignal::SigTerm => Signal::TERM,
            WireSignal::SigKill => Signal::KILL,
            WireSignal::SigQuit => Signal::QUIT,
            WireSignal::SigHup => Signal::HUP,
        };
        if self.mode == Mode::Pty
            && let Ok(group) = tcgetpgrp(self.input.get_ref())
            && group.as_raw_nonzero().get() != self.process.pid()
        {
            return rustix::process::kill_process_group(group, signal).is_ok();
        }
        self.process.signal_group(signal)
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn start(pty: &Pty, shared: &Arc<Shared>, mode: Mode) -> Result<(Shell, Outputs), Error> {
    if let Some(directory) = &pty.cwd {
        std::fs::create_dir_all(directory).map_err(Error::Directory)?;
    }
    let mut environment = command::environment(shared, &[]);
    environment.set("TERM", TERM);
    let program = process::find_shell(&environment).map_err(Error::Launch)?;
    let mut argv = vec![program.clone().into_os_string()];
    if program.file_name().is_some_and(|name| name == "bash") {
        argv.extend(["--norc", "--noprofile"].map(OsString::from));
    }
    if let Some(command) = &pty.command {
        argv.extend([OsString::from("-c"), command.into()]);
    }
    let launch = |stdio, takes_terminal| {
        shared.processes.launch_blocking(Launch {
            argv,
            environment,
            directory: pty.cwd.as_deref().map(Path::to_owned),
            identity: None,
            stdio,
            descriptors: Vec::new(),
            takes_terminal,
        })
    };
    match mode {
        Mode::Pty => {
            let size = locked(&pty.inner).size;
            let (master, slave) = open_terminal(size).map_err(Error::Terminal)?;
            let copies = (slave.try_clone(), slave.try_clone());
            let (Ok(second), Ok(third)) = copies else {
                return Err(Error::Terminal(io::Error::last_os_error()));
            };
            let process = launch([slave, second, third], true).map_err(Error::Launch)?;
            let master = Arc::new(sys::watch_both_ways(master).map_err(Error::Terminal)?);
            let outputs = vec![(Channel::Stdout, Arc::clone(&master))];
            Ok((
                Shell {
                    process,
                    mode,
                    input: master,
                },
                outputs,
            ))
        }
        Mode::Pipe => {
            let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|e| Error::Terminal(e.into()));
            let ((stdin, input), (stdout, output), (stderr, errors)) = (pipe()?, pipe()?, pipe()?);
            for fd in [&input, &stdout, &stderr] {
                rustix::io::ioctl_fionbio(fd, true).map_err(|e| Error::Terminal(e.into()))?;
            }
            let process = launch([stdin, output, errors], false).map_err(Error::Launch)?;
            let watched = |fd| sys::watch(fd).map(Arc::new).map_err(Error::Terminal);
            let outputs = vec![
                (Channel::Stdout, watched(stdout)?),
                (Channel::Stderr, watched(stderr)?),
            ];
            let input = Arc::new(sys::watch_writable(input).map_err(Error::Terminal)?);
            Ok((
                Shell {
                    process,
                    mode,
                    input,
                },
                outputs,
            ))
        }
    }
}

/// A terminal of this size: the daemon's side and the shell's. It has its size before the shell runs: readline
/// reads the size and writes it back while it starts (`set_winsize` in its rltty.c), so a change in between is
/// lost.
fn open_terminal((columns, rows): (u16, u16)) -> io::Result<(OwnedFd, OwnedFd)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    unlockpt(&master)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    tcsetwinsize(&master, size(columns, rows))?;
    rustix::io::ioctl_fionbio(&master, true)?;
    Ok((master, slave))
}

/// Reads into the ring until the shell has ended, then says so.
async fn keep(pty: Arc<Pty>, shell: Arc<Shell>, outputs: Outputs) {
    let mut open: Vec<bool> = outputs.iter().map(|_| true).collect();
    let exit = loop {
        tokio::select! {
            exit = shell.process.wait() => break exit,
            () = readable(&outputs, 0), if open[0] => open[0] = pty.read(&outputs[0]),
            () = readable(&outputs, 1), if open.get(1) == Some(&true) => {
                open[1] = pty.read(&outputs[1]);
            }
        }
    };
    for (output, is_open) in outputs.iter().zip(open) {
        // A job that lives on may print for ever: no more than a ring's worth.
        let mut turns = crate::limits::PTY_REPLAY_BYTES / READ_BYTES;
        while is_open && turns > 0 && has_more(output) && pty.read(output) {
            turns -= 1;
        }
    }
    pty.end(exit);
}

async fn readable(outputs: &Outputs, index: usize) {
    match outputs.get(index) {
        // The readiness is cleared by reading until nothing is left.
        Some((_, fd)) => drop(fd.readable().await),
        None => std::future::pending().await,
    }
}

/// Asks the kernel rather than the event loop: polling a terminal first carries over what
/// the shell has written but the terminal has not yet delivered.
fn has_more((_, fd): &(Channel, Arc<AsyncFd<OwnedFd>>)) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(
        fd.get_ref().as_fd(),
        PollFlags::IN,
    )];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    matches!(poll(&mut fds, Some(&at_once)), Ok(1)) && fds[0].revents().contains(PollFlags::IN)
}

impl Pty {
    /// Moves what is there into the ring; false when the other side is closed.
    fn read(&self, (channel, fd): &(Channel, Arc<AsyncFd<OwnedFd>>)) -> bool {
        let mut buffer = vec![0; READ_BYTES];
        let read = fd.try_io(tokio::io::Interest::READABLE, |fd| {
            Ok(rustix::io::read(fd, &mut buffer)?)
        });
        match read {
            Ok(0) => return false,
            Ok(read) => locked(&self.inner).ring.push(*channel, &buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            // EIO is how a terminal without a shell ends.
            Err(_) => return false,
        }
        self.grown.notify_waiters();
        true
    }

    fn end(&self, exit: Exit) {
        let mut inner = locked(&self.inner);
        let end = inner.ring.end();
        let Inner { shell, ended, .. } = &mut *inner;
        *shell = None;
        *ended = Some((exit, end));
        drop(inner);
        self.grown.notify_waiters();
    }
}

impl Error {
    pub(super) fn message(&self) -> String {
        api::error_chain(self).to_string()
    }
}
