//! Sockets whose memory the kernel charges to nobody, handed out by number.
//!
//! What waits in a netlink socket, and in a socket for `ping`, counts against no memory limit:
//! neither is in the protocol's account nor in the cgroup's (`sk_has_account` in the kernel's
//! include/net/sock.h). One holds up to twice `net.core.rmem_max`, so a sandbox may have few. The
//! filter has such calls of socket(2) answered by the spawner, which makes the socket in the
//! sandbox's network namespace itself, because a sandbox that only had leave to go on could begin
//! any number of calls before the first is done.
//!
//! How many are open is asked of the kernel: each socket is put into an epoll set of its sandbox.
//! The set does not keep a socket open (epoll(7)), so what the set lists is what the sandbox has.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType};
use rustix::thread::{Gid, LinkNameSpaceType, move_into_link_name_space};

use crate::protection::Protection;
use crate::sys::notify;

/// Such sockets that one sandbox may have at once. `ip` and every lookup of a name use one, for a
/// moment.
const SOCKETS_MAX: usize = 64;
/// On a machine with large receive buffers they are fewer, so that together they hold about this
/// much, but not fewer than [`SOCKETS_MIN`].
const BYTES_MAX: u64 = 64 << 20;
const SOCKETS_MIN: usize = 8;
/// Answers to one sandbox in a second: the spawner's time is everybody's.
const ANSWERS_PER_SECOND_MAX: u32 = 1_000;
const SECOND: Duration = Duration::from_secs(1);

/// The calls of all sandboxes that are ours to answer.
pub(super) struct Sockets {
    sandboxes: HashMap<u64, Sandbox>,
    /// Sandboxes that have had their answers for now, each with the moment from which they are
    /// listened to again; the earliest first.
    resting: VecDeque<(Instant, u64)>,
    /// The spawner's own network namespace.
    host: OwnedFd,
    /// A process filesystem, to ask what an epoll set holds.
    proc: OwnedFd,
    limit: usize,
}

struct Sandbox {
    listener: OwnedFd,
    network: Network,
    /// The sockets that are open; made with the first.
    open: Option<OwnedFd>,
    answered: u32,
    since: Instant,
}

/// Where a sandbox's sockets are made, and as whom.
pub(super) struct Network {
    pub(super) namespace: OwnedFd,
    /// The host's id of the sandbox's root. Sockets for `ping` are for groups of the sandbox only
    /// (`net.ipv4.ping_group_range`).
    pub(super) first_id: u32,
}

/// How many such sockets a sandbox may have on this machine. Reads /proc of the host.
pub(super) fn limit() -> usize {
    if !Protection::SocketCount.is_on() {
        return usize::MAX;
    }
    let text = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
    limit_for(text.trim().parse().unwrap_or(0))
}

fn limit_for(rmem_max: u64) -> usize {
    let fit = BYTES_MAX / (2 * rmem_max).max(1);
    usize::try_from(fit).map_or(SOCKETS_MAX, |fit| fit.clamp(SOCKETS_MIN, SOCKETS_MAX))
}

impl Sockets {
    pub(super) fn new(host: OwnedFd, proc: OwnedFd, limit: usize) -> Self {
        Self {
            sandboxes: HashMap::new(),
            resting: VecDeque::new(),
            host,
            proc,
            limit,
        }
    }

    /// Answers the calls that arrive on `listener` from now on.
    pub(super) fn add(
        &mut self,
        set: BorrowedFd<'_>,
        key: u64,
        listener: OwnedFd,
        network: Network,
    ) -> rustix::io::Result<()> {
        epoll::add(
            set,
            &listener,
            epoll::EventData::new_u64(key),
            epoll::EventFlags::IN,
        )?;
        let sandbox = Sandbox {
            listener,
            network,
            open: None,
            answered: 0,
            since: Instant::now(),
        };
        self.sandboxes.insert(key, sandbox);
        Ok(())
    }

    /// The sandbox is gone, and with it its descriptors here.
    pub(super) fn remove(&mut self, key: u64) {
        self.sandboxes.remove(&key);
    }

    /// How long to wait until a sandbox is to be listened to again.
    pub(super) fn next_rested(&self) -> Option<Duration> {
        let (at, _) = self.resting.front()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// Listens again to those that have rested.
    pub(super) fn wake(&mut self, set: BorrowedFd<'_>) {
        let now = Instant::now();
        while self.resting.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.resting.pop_front() else {
                return;
            };
            if let Some(sandbox) = self.sandboxes.get_mut(&key) {
                (sandbox.answered, sandbox.since) = (0, now);
                listen(set, sandbox.listener.as_fd(), key, epoll::EventFlags::IN);
            }
        }
    }

    /// Does what a listener woke us for.
    ///
    /// It hangs up when the last process of the sandbox that has the filter begins to exit, some milliseconds
    /// before the sandbox is gone. epoll reports that for as long as the listener is in the set, whatever it was
    /// added for (epoll_ctl(2)), so it goes out of the set now: else the loop would turn until then, and take from
    /// the sandbox's end the processor that it needs.
    pub(super) fn wake_for(&mut self, set: BorrowedFd<'_>, key: u64, events: epoll::EventFlags) {
        if events.contains(epoll::EventFlags::IN) {
            self.answer(set, key);
        } else if let Some(gone) = self.sandboxes.remove(&key) {
            // Closing it is not enough where somebody has a copy.
            let _ = epoll::delete(set, &gone.listener);
        }
    }

    /// Answers one call of a sandbox.
    fn answer(&mut self, set: BorrowedFd<'_>, key: u64) {
        let Some(sandbox) = self.sandboxes.get_mut(&key) else {
            return;
        };
        let call = match notify::next_call(sandbox.listener.as_fd()) {
            Ok(call) => call,
            // The one that woke us was given up, or nobody is left who could call: then it hangs up.
            Err(_) => return,
        };
        let made = sandbox.make(call, self.host.as_fd(), self.proc.as_fd(), self.limit);
        let is_close_on_exec = call.arguments[1] & u64::from(SocketFlags::CLOEXEC.bits()) != 0;
        let listener = sandbox.listener.as_fd();
        // An error says that the caller was killed while it waited.
        let _ = match made {
            Ok(socket) => notify::give(listener, call, socket.as_fd(), is_close_on_exec),
            Err(errno) => notify::refuse(listener, call, errno),
        };
        sandbox.answered += 1;
        let now = Instant::now();
        if now.duration_since(sandbox.since) >= SECOND {
            (sandbox.answered, sandbox.since) = (0, now);
        } else if sandbox.answered >= ANSWERS_PER_SECOND_MAX {
            listen(
                set,
                sandbox.listener.as_fd(),
                key,
                epoll::EventFlags::empty(),
            );
            self.resting.push_back((sandbox.since + SECOND, key));
        }
    }
}

/// Changes what a listener wakes us for. It was added, so the kernel has no reason to refuse.
fn listen(set: BorrowedFd<'_>, listener: BorrowedFd<'_>, key: u64, flags: epoll::EventFlags) {
    let _ = epoll::modify(set, listener, epoll::EventData::new_u64(key), flags);
}

impl Sandbox {
    fn make(
        &mut self,
        call: notify::Call,
        host: BorrowedFd<'_>,
        proc: BorrowedFd<'_>,
        limit: usize,
    ) -> rustix::io::Result<OwnedFd> {
        let open = match &self.open {
            Some(open) => open,
            None => self
                .open
                .insert(epoll::create(epoll::CreateFlags::CLOEXEC)?),
        };
        if count(proc, open)? >= limit {
            return Err(Errno::MFILE);
        }
        let socket = within(&self.network, host, || socket(call.arguments))??;
        let none = epoll::EventFlags::empty();
        epoll::add(open, &socket, epoll::EventData::new_u64(0), none)?;
        Ok(socket)
    }
}

/// What socket(2) would do. The filter lets only families and protocols through that it knows, so
/// the numbers are the kernel's to judge.
fn socket(arguments: [u64; 6]) -> rustix::io::Result<OwnedFd> {
    // The kernel reads ints.
    let low = |argument: u64| u32::try_from(argument & u64::from(u32::MAX)).unwrap_or_default();
    let family = u16::try_from(low(arguments[0])).map_err(|_| Errno::AFNOSUPPORT)?;
    let kind = low(arguments[1]);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kept = SocketFlags::from_bits_retain(kind & SocketFlags::NONBLOCK.bits());
    let protocol = std::num::NonZeroU32::new(low(arguments[2])).map(Protocol::from_raw);
    rustix::net::socket_with(
        AddressFamily::from_raw(family),
        SocketType::from_raw(kind & !flags.bits()),
        kept | SocketFlags::CLOEXEC,
        protocol,
    )
}

/// How many sockets an epoll set lists: one line for each in proc_pid_fdinfo(5).
fn count(proc: BorrowedFd<'_>, set: &OwnedFd) -> rustix::io::Result<usize> {
    let path = format!("self/fdinfo/{}", set.as_raw_fd());
    let file = rustix::fs::openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let text = std::io::read_to_string(std::fs::File::from(file))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(text.lines().filter(|line| line.starts_with("tfd:")).count())
}

/// Does `work` in a sandbox's network namespace and as a member of its group; the spawner has one
/// thread.
fn within<T>(
    network: &Network,
    host: BorrowedFd<'_>,
    work: impl FnOnce() -> T,
) -> rustix::io::Result<T> {
    let kind = Some(LinkNameSpaceType::Network);
    let become_group = |id: u32| {
        let (root, id) = (Gid::ROOT, Gid::from_raw(id));
        rustix::thread::set_thread_res_gid(root, id, root)
    };
    move_into_link_name_space(network.namespace.as_fd(), kind)?;
    let done = become_group(network.first_id).map(|()| work());
    if become_group(0).is_err() || move_into_link_name_space(host, kind).is_err() {
        // It would make the next sandbox's sockets in this one's network.
        std::process::abort();
    }
    done
}

/// What the loop waits on besides; kept here because the keys of sandboxes must differ from it.
pub(super) fn add_source(set: &OwnedFd, source: &OwnedFd, key: u64) -> rustix::io::Result<()> {
    epoll::add(
        set,
        source,
        epoll::EventData::new_u64(key),
        epoll::EventFlags::IN,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_buffers_mean_fewer_sockets() {
        assert_eq!(limit_for(212_992), SOCKETS_MAX);
        assert_eq!(limit_for(1 << 20), 32);
        assert_eq!(limit_for(4 << 20), SOCKETS_MIN);
        assert_eq!(limit_for(u64::MAX / 4), SOCKETS_MIN);
        assert_eq!(limit_for(0), SOCKETS_MAX);
    }

    #[test]
    fn a_listener_that_hangs_up_wakes_the_loop_once() {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        // What hangs up is a pipe here; its reading end says so as a listener does, and says nothing else.
        let (listener, last_process) = rustix::pipe::pipe().unwrap();
        let network = Network {
            namespace: std::fs::File::open("/proc/self/ns/net").unwrap().into(),
            first_id: 0,
        };
        let directory = || std::fs::File::open("/proc").unwrap().into();
        let mut sockets = Sockets::new(directory(), directory(), 1);
        sockets.add(set.as_fd(), 7, listener, network).unwrap();
        drop(last_process);
        let empty = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        };
        let mut events = [empty; 2];
        let at_once = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        assert_eq!(epoll::wait(&set, &mut events, Some(&at_once)), Ok(1));
        let (key, flags) = (events[0].data.u64(), events[0].flags);
        sockets.wake_for(set.as_fd(), key, flags);
        assert_eq!(epoll::wait(&set, &mut events, Some(&at_once)), Ok(0));
        // That it is removed again when the process is reaped does no harm.
        sockets.remove(key);
    }

    #[test]
    fn a_set_lists_the_sockets_that_are_open() {
        let proc: OwnedFd = std::fs::File::open("/proc").unwrap().into();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let open = || {
            let arguments = [libc::AF_NETLINK, libc::SOCK_RAW, 0, 0, 0, 0];
            let arguments = arguments.map(|it| u64::try_from(it).unwrap());
            let made = socket(arguments).unwrap();
            let none = epoll::EventFlags::empty();
            epoll::add(&set, &made, epoll::EventData::new_u64(0), none).unwrap();
            made
        };
        let (first, second) = (open(), open());
        assert_eq!(count(proc.as_fd(), &set).unwrap(), 2);
        drop(first);
        let third = open();
        assert_eq!(count(proc.as_fd(), &set).unwrap(), 2);
        // Not closed while somebody has a copy.
        let copy = third.try_clone().unwrap();
        drop((second, third));
        assert_eq!(count(proc.as_fd(), &set).unwrap(), 1);
        drop(copy);
        assert_eq!(count(proc.as_fd(), &set).unwrap(), 0);
    }
}
