//! The small process that clones PID 1 of every sandbox, and the server's end of it.
//!
//! Why a process of its own: cloning the server would copy its page tables (42 ms at 1 GiB), and
//! between a clone in a threaded process and the next program no lock may be taken. The spawner
//! has one thread, so its children can borrow its memory and ordinary code may run in them.
//!
//! It is the parent of the sandboxes and therefore learns how they end: it writes that into the
//! sandbox's directory before it reaps, so the record is there by the time anybody sees the
//! process gone. It outlives the server for this, and ends when the last of its children has.
//! Nothing else depends on it: when it is killed the sandboxes go on under the host's init, and
//! the server starts another.

mod client;
pub(crate) mod packet;
pub(crate) mod protocol;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::init::{self, InitContext};
use crate::sys::{self, ExitStatus, Keep, Memory, ProgramText, Stack};

pub(crate) use client::{SpawnError, Spawned, Spawner};
use protocol::{CgroupEntry, Descriptors, InitFailure, REQUEST_BYTES_MAX, Report, Request, Step};

/// The file in a sandbox's directory that says how it ended: `code N` or `signal N`.
pub(crate) const EXIT_FILE: &str = "exit";

/// The namespaces PID 1 is born into. Network and user come from its slot, and the cgroup
/// namespace has to wait until it is in its cgroup.
const NAMESPACES: i32 =
    libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;

/// What `osb spawner` runs: serves requests from the socket on standard input until the server
/// and all sandboxes are gone. Must be called before the process has a second thread.
pub fn main() -> ! {
    let code = match serve() {
        Ok(()) => 0,
        Err(failure) => {
            let _ = rustix::io::write(rustix::stdio::stderr(), failure.as_bytes());
            1
        }
    };
    std::process::exit(code);
}

fn serve() -> Result<(), String> {
    let fail = |what: &'static str| move |errno: Errno| format!("osb spawner: {what}: {errno}\n");
    let socket = sys::take_inherited(0);
    // A spawner started from a terminal must not die with it.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"osb-spawner");
    // Kernels without keyrings answer ENOSYS, and then there is none to inherit.
    let _ = sys::join_anonymous_keyring();
    raise_open_files();
    let children = sys::watch_children().map_err(fail("watching children"))?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let context = InitContext {
        filter: crate::seccomp::compile(),
        null: rustix::fs::open("/dev/null", flags, Mode::empty()).map_err(fail("/dev/null"))?,
        scaffold: init::prepare_scaffold().map_err(fail("making its root filesystem"))?,
    };
    // It may outlive the server by days: from here on it holds none of the server's pipes open.
    sys::duplicate_to(context.null.as_fd(), 2, Keep::AcrossExec)
        .map_err(fail("closing its standard error"))?;
    let mut spawner = EventLoop {
        socket: Some(socket),
        children,
        context,
        alive: HashMap::new(),
        buffer: vec![0; REQUEST_BYTES_MAX],
        layer_mount_points: 0,
        stack: Stack::new().map_err(fail("reserving a stack"))?,
    };
    spawner.run().map_err(fail("waiting"))
}

/// The spawner stands still while a child borrows its memory. A child that looks for a place inside
/// another volume may have to wait for a file server that is gone, and then only it may wait.
fn memory_for(request: &Request) -> Memory {
    let mounts = &request.mounts;
    let is_inside = |path: &str, other: &str| {
        path.strip_prefix(other.trim_end_matches('/'))
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let is_nested = mounts.iter().any(|mount| {
        mounts
            .iter()
            .any(|other| is_inside(&mount.path, &other.path))
    });
    if is_nested {
        Memory::Copied
    } else {
        Memory::Borrowed
    }
}

/// One descriptor per living sandbox is held.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // With the lower limit fewer sandboxes fit, which a request will say.
    let _ = setrlimit(Resource::Nofile, raised);
}

struct EventLoop {
    /// `None` once the server has gone.
    socket: Option<OwnedFd>,
    children: OwnedFd,
    context: InitContext,
    /// The directories of the sandboxes whose parent this is.
    alive: HashMap<Pid, OwnedFd>,
    buffer: Vec<u8>,
    /// How many layers have a directory in the scaffold to be mounted on.
    layer_mount_points: usize,
    /// Where children run until they are a program of their own.
    stack: Stack,
}

impl EventLoop {
    fn run(&mut self) -> rustix::io::Result<()> {
        while self.socket.is_some() || !self.alive.is_empty() {
            let (has_request, has_exit) = self.wait()?;
            if has_exit {
                self.reap();
            }
            if has_request {
                self.answer();
            }
        }
        Ok(())
    }

    fn wait(&self) -> rustix::io::Result<(bool, bool)> {
        let mut watched = vec![PollFd::new(&self.children, PollFlags::IN)];
        if let Some(socket) = &self.socket {
            watched.push(PollFd::new(socket, PollFlags::IN));
        }
        match rustix::event::poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let is_ready = |i: usize| watched.get(i).is_some_and(|w| !w.revents().is_empty());
        Ok((is_ready(1), is_ready(0)))
    }

    fn answer(&mut self) {
        let Some(socket) = &self.socket else { return };
        match packet::receive(socket.as_fd(), &mut self.buffer) {
            Ok((0, _)) => self.socket = None,
            Ok((length, list)) => self.spawn(length, list),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // A packet that was too large is lost; its report socket closes, which says so.
            Err(Errno::MSGSIZE) => {}
            Err(_) => self.socket = None,
        }
    }

    fn spawn(&mut self, length: usize, list: Vec<OwnedFd>) {
        let Ok(request) = serde_json::from_slice::<Request>(&self.buffer[..length]) else {
            return;
        };
        let Some((report, descriptors)) = Descriptors::take(&request, list) else {
            return;
        };
        let outcome = match ProgramText::new(&request.arguments, &request.environment) {
            Ok(text) => self
                .clone_sandbox(&request, &descriptors, &text, report.as_fd())
                .map_err(|errno| InitFailure::new(Step::Clone, errno, "")),
            Err(text) => Err(InitFailure::new(Step::Execute, Errno::INVAL, text)),
        };
        let (answer, pidfd) = match &outcome {
            Ok((pid, pidfd)) => (
                Report::Started {
                    pid: pid.as_raw_nonzero().get(),
                },
                Some(pidfd),
            ),
            Err(failure) => (Report::Failed(failure.clone()), None),
        };
        let text = serde_json::to_vec(&answer).expect("a report is plain data");
        let pidfd: Vec<_> = pidfd.iter().map(|fd| fd.as_fd()).collect();
        // If the server is gone the next one finds the process by its cgroup and record.
        let _ = packet::send(report.as_fd(), &text, &pidfd);
        if let Ok((pid, _)) = outcome {
            self.alive.insert(pid, descriptors.state);
        }
    }

    fn clone_sandbox(
        &mut self,
        request: &Request,
        descriptors: &Descriptors,
        text: &ProgramText,
        report: BorrowedFd<'_>,
    ) -> rustix::io::Result<(Pid, OwnedFd)> {
        if request.layers > self.layer_mount_points {
            self.context
                .scaffold
                .ensure_layer_mount_points(request.layers)?;
            self.layer_mount_points = request.layers;
        }
        let cgroup = match request.cgroup {
            CgroupEntry::BornInto => descriptors.cgroup.first().map(AsFd::as_fd),
            CgroupEntry::Write(_) => None,
        };
        let memory = memory_for(request);
        let context = &self.context;
        sys::clone_process(NAMESPACES, cgroup, memory, &mut self.stack, || {
            init::become_sandbox(context, request, descriptors, text, report);
        })
    }

    /// Records how each ended child ended, then lets it go.
    fn reap(&mut self) {
        // Clears the readiness; several exits may have made it one.
        let mut drained = [0_u8; 1024];
        while rustix::io::read(&self.children, &mut drained).is_ok() {}
        while let Some((pid, status)) = sys::ended_child() {
            if let Some(directory) = self.alive.remove(&pid) {
                // Gone with the sandbox if it was deleted meanwhile; then nobody asks.
                let _ = record_exit(&directory, status);
            }
            // Only now may others see that the process is gone.
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
        }
    }
}

/// One write of a few bytes, so that a reader finds all of it or nothing.
fn record_exit(directory: &OwnedFd, status: ExitStatus) -> rustix::io::Result<()> {
    let text = match status {
        ExitStatus::Code(code) => format!("code {code}\n"),
        ExitStatus::Signal(signal) => format!("signal {signal}\n"),
    };
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, EXIT_FILE, flags, Mode::from_raw_mode(0o600))?;
    rustix::io::write(&file, text.as_bytes()).map(drop)
}

/// Reads what [`record_exit`] wrote.
pub(crate) fn parse_exit(text: &str) -> Option<ExitStatus> {
    let (kind, number) = text.strip_suffix('\n')?.split_once(' ')?;
    let number = number.parse().ok()?;
    match kind {
        "code" => Some(ExitStatus::Code(number)),
        "signal" => Some(ExitStatus::Signal(number)),
        _ => None,
    }
}
