//! The small process that clones PID 1 of every sandbox, and the server's end of it.
//!
//! Why a process of its own: cloning the server would copy its page tables (42 ms at 1 GiB), and
//! between a clone in a threaded process and the next program no lock may be taken. The spawner
//! has one thread, so its children can borrow its memory and ordinary code may run in them.
//!
//! It is the parent of the sandboxes and therefore learns how they end: it writes that into the
//! sandbox's directory before it reaps, so the record is there by the time anybody sees the
//! process gone. It outlives the server for this, and ends when the last of its children has.
//! It has a network namespace of its own with nothing in it, and few capabilities. It also makes the
//! sockets that a sandbox may have only few of (`sockets`). Nothing else depends on it: when it is
//! killed the sandboxes go on under the host's init without such sockets (`ENOSYS`), and the server
//! starts another.

mod client;
pub(crate) mod packet;
pub(crate) mod protocol;
mod sockets;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};

use crate::init::{self, InitContext};
use crate::sys::{self, ExitStatus, Keep, Memory, ProgramText, Stack};

pub(crate) use client::{SpawnError, Spawned, Spawner};
use protocol::{CgroupEntry, Descriptors, InitFailure, REQUEST_BYTES_MAX, Report, Request, Step};
use sockets::{Network, Sockets};

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
    protect_from_oom();
    let children = sys::watch_children().map_err(fail("watching children"))?;
    let (listeners, theirs) = listener_channel().map_err(fail("making a pair of sockets"))?;
    let open =
        |path: &str, flags: OFlags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
    // Nothing can be reached from it: the network of the host is none of its business.
    sys::unshare_namespaces(UnshareFlags::NEWNET).map_err(fail("leaving the host's network"))?;
    let own = open("/proc/self/ns/net", OFlags::RDONLY).map_err(fail("its network"))?;
    let sockets_max = sockets::limit();
    let context = InitContext {
        filter: crate::seccomp::compile(),
        null: open("/dev/null", OFlags::RDWR).map_err(fail("/dev/null"))?,
        scaffold: init::prepare_scaffold().map_err(fail("making its root filesystem"))?,
        landlock: sys::Landlock::find(),
        listeners: theirs,
    };
    let proc = init::process_filesystem().map_err(fail("mounting /proc"))?;
    // It may outlive the server by days: from here on it holds none of the server's pipes open.
    sys::duplicate_to(context.null.as_fd(), 2, Keep::AcrossExec)
        .map_err(fail("closing its standard error"))?;
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(fail("making an epoll set"))?;
    for (key, source) in [
        (KEY_SERVER, &socket),
        (KEY_CHILDREN, &children),
        (KEY_LISTENERS, &listeners),
    ] {
        sockets::add_source(&set, source, key).map_err(fail("filling its epoll set"))?;
    }
    keep_capabilities().map_err(fail("giving up capabilities"))?;
    let mut spawner = EventLoop {
        set,
        socket: Some(socket),
        children,
        listeners,
        context,
        alive: HashMap::new(),
        sockets: Sockets::new(own, proc, sockets_max),
        next_key: KEY_SANDBOXES,
        unheard: HashMap::new(),
        buffer: vec![0; REQUEST_BYTES_MAX],
        layer_mount_points: 0,
        stack: Stack::new().map_err(fail("reserving a stack"))?,
    };
    spawner.run().map_err(fail("waiting"))
}

/// What making a sandbox needs: mounts and namespaces (`SYS_ADMIN`), ids and owners, device nodes,
/// and limits.
const CAPABILITIES: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP);

/// Gives up every other capability. Joining a sandbox's user namespace makes a process all-powerful
/// in there whatever it had before (user_namespaces(7)).
fn keep_capabilities() -> rustix::io::Result<()> {
    init::bound_capabilities(CAPABILITIES)?;
    let held = rustix::thread::capabilities(None)?.permitted & CAPABILITIES;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: held,
            permitted: held,
            inheritable: CapabilitySet::empty(),
        },
    )
}

/// What woke the loop: one of these, or from [`KEY_SANDBOXES`] on a sandbox.
const KEY_SERVER: u64 = 0;
const KEY_CHILDREN: u64 = 1;
const KEY_LISTENERS: u64 = 2;
const KEY_SANDBOXES: u64 = 3;

/// Events taken at once: a sandbox that asks for sockets all the time gets one per turn, and the
/// server's requests come first in each.
const EVENTS_MAX: usize = 64;

/// Where new sandboxes send the descriptor on which their calls arrive.
fn listener_channel() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::io::ioctl_fionbio(&pair.0, true)?;
    Ok(pair)
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

/// The kernel is to kill sandboxes for memory, and not the one that knows how they ended; likewise
/// the server. Needs `CAP_SYS_RESOURCE`; without it the score stays what it is.
pub fn protect_from_oom() {
    const SCORE: &str = "-900";
    let _ = std::fs::write("/proc/self/oom_score_adj", SCORE);
}

/// Descriptors per living sandbox: its directory, its network and its filter's listener.
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
    set: OwnedFd,
    /// `None` once the server has gone.
    socket: Option<OwnedFd>,
    children: OwnedFd,
    /// See [`listener_channel`].
    listeners: OwnedFd,
    context: InitContext,
    /// The sandboxes whose parent this is.
    alive: HashMap<Pid, Child>,
    sockets: Sockets,
    next_key: u64,
    /// The networks of sandboxes whose listener has not come yet, by key.
    unheard: HashMap<u64, Network>,
    buffer: Vec<u8>,
    /// How many layers have a directory in the scaffold to be mounted on.
    layer_mount_points: usize,
    /// Where children run until they are a program of their own.
    stack: Stack,
}

struct Child {
    /// Where its end is recorded.
    directory: OwnedFd,
    /// What its calls are known by.
    key: u64,
}

impl EventLoop {
    fn run(&mut self) -> rustix::io::Result<()> {
        while self.socket.is_some() || !self.alive.is_empty() {
            let woken = self.wait()?;
            self.sockets.wake(self.set.as_fd());
            for source in [KEY_CHILDREN, KEY_SERVER, KEY_LISTENERS] {
                if woken.iter().any(|(key, _)| *key == source) {
                    match source {
                        KEY_CHILDREN => self.reap(),
                        KEY_SERVER => self.answer(),
                        _ => self.hear(),
                    }
                }
            }
            for (key, events) in woken.into_iter().filter(|(key, _)| *key >= KEY_SANDBOXES) {
                self.sockets.wake_for(self.set.as_fd(), key, events);
            }
        }
        Ok(())
    }

    /// Waits until something happens; returns the keys of what did, and what.
    fn wait(&self) -> rustix::io::Result<Vec<(u64, epoll::EventFlags)>> {
        let empty = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        };
        let mut events = [empty; EVENTS_MAX];
        let timeout = self
            .sockets
            .next_rested()
            .map(|left| rustix::event::Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: i64::from(left.subsec_nanos()),
            });
        let count = match epoll::wait(&self.set, &mut events, timeout.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(errno),
        };
        Ok(events[..count]
            .iter()
            .map(|event| (event.data.u64(), event.flags))
            .collect())
    }

    /// Takes in the listeners of new sandboxes.
    fn hear(&mut self) {
        let mut key = [0_u8; size_of::<u64>()];
        while let Ok((length, mut descriptors)) = packet::receive(self.listeners.as_fd(), &mut key)
        {
            let key = u64::from_ne_bytes(key);
            // None when the sandbox has ended by now.
            let (Some(network), Some(listener)) = (self.unheard.remove(&key), descriptors.pop())
            else {
                continue;
            };
            if length == size_of::<u64>() {
                // Without it the sandbox's calls wait until it is gone; there is memory for an
                // entry, or the spawner would not have come this far.
                let _ = self.sockets.add(self.set.as_fd(), key, listener, network);
            }
        }
    }

    fn forget_server(&mut self) {
        self.socket = None;
    }

    fn answer(&mut self) {
        let Some(socket) = &self.socket else { return };
        match packet::receive(socket.as_fd(), &mut self.buffer) {
            Ok((0, _)) => self.forget_server(),
            Ok((length, list)) => self.spawn(length, list),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // A packet that was too large is lost; its report socket closes, which says so.
            Err(Errno::MSGSIZE) => {}
            Err(_) => self.forget_server(),
        }
    }

    fn spawn(&mut self, length: usize, list: Vec<OwnedFd>) {
        let Ok(request) = serde_json::from_slice::<Request>(&self.buffer[..length]) else {
            return;
        };
        let Some((report, descriptors)) = Descriptors::take(&request, list) else {
            return;
        };
        let key = self.next_key;
        self.next_key += 1;
        let outcome = match ProgramText::new(&request.arguments, &request.environment) {
            Ok(text) => self
                .clone_sandbox(&request, &descriptors, &text, (key, report.as_fd()))
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
            let directory = descriptors.state;
            self.alive.insert(pid, Child { directory, key });
            let network = Network {
                namespace: descriptors.net,
                first_id: request.first_id,
            };
            self.unheard.insert(key, network);
        }
    }

    fn clone_sandbox(
        &mut self,
        request: &Request,
        descriptors: &Descriptors,
        text: &ProgramText,
        (key, report): (u64, BorrowedFd<'_>),
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
            init::become_sandbox(context, request, descriptors, text, (key, report));
        })
    }

    /// Records how each ended child ended, then lets it go.
    fn reap(&mut self) {
        // Clears the readiness; several exits may have made it one.
        let mut drained = [0_u8; 1024];
        while rustix::io::read(&self.children, &mut drained).is_ok() {}
        while let Some((pid, status)) = sys::ended_child() {
            if let Some(child) = self.alive.remove(&pid) {
                // Gone with the sandbox if it was deleted meanwhile; then nobody asks.
                let _ = record_exit(&child.directory, status);
                self.unheard.remove(&child.key);
                self.sockets.remove(child.key);
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
