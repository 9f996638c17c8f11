//! Turning and watching processes.

use std::ffi::{c_char, c_int, c_long};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, Result};
use rustix::process::Pid;
use tokio::io::unix::AsyncFd;

/// Leaves the namespaces named by `CLONE_NEW*` flags for new ones.
pub(crate) fn unshare_namespaces(namespaces: rustix::thread::UnshareFlags) -> Result<()> {
    // SAFETY: only flags of namespaces are passed, never CLONE_FILES, which is what can pull
    // descriptors from under other threads.
    unsafe { rustix::thread::unshare_unsafe(namespaces) }
}

/// Sets the ids with which this thread makes files and restores the capabilities over files that
/// leaving uid 0 takes from the effective set.
pub(crate) fn set_file_ids(uid: u32, gid: u32) -> Result<()> {
    let capabilities = rustix::thread::capabilities(None)?;
    // SAFETY: these calls take numbers and touch no memory of ours. They report no error; what
    // they did is read back by calling again with an impossible id.
    let (uid_now, gid_now) = unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX))
    };
    if uid_now.cast_unsigned() != uid || gid_now.cast_unsigned() != gid {
        return Err(Errno::PERM);
    }
    rustix::thread::set_capabilities(None, capabilities)
}

/// How long a descriptor lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The next program gets it.
    AcrossExec,
    /// It closes when the next program starts.
    UntilExec,
}

/// Makes `from` also be descriptor number `to`, in place of whatever was there. The copy
/// survives the execution of another program only with `Keep::AcrossExec`.
pub(crate) fn duplicate_to(from: BorrowedFd<'_>, to: RawFd, keep: Keep) -> Result<()> {
    let flags = match keep {
        Keep::AcrossExec => 0,
        Keep::UntilExec => libc::O_CLOEXEC,
    };
    // SAFETY: the caller is a process about to execute another program; the descriptors it
    // replaces are not used by it again.
    let outcome = unsafe { libc::dup3(from.as_raw_fd(), to, flags) };
    check(c_long::from(outcome)).map(drop)
}

/// Closes every descriptor from `first` on.
pub(crate) fn close_from(first: u32) -> Result<()> {
    // SAFETY: as for `duplicate_to`: nothing that owns one of them is used again.
    let outcome = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    check(outcome).map(drop)
}

/// Takes ownership of a descriptor that this process was started with.
///
/// Call it once per number and before anything else opens descriptors.
pub(crate) fn take_inherited(number: RawFd) -> OwnedFd {
    // SAFETY: the parent put the descriptor there for us, and by the rule above nobody else in
    // this process owns it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// The last of the real-time signals, on every architecture we run on.
const SIGNAL_MAX: c_int = 64;

/// The signals that execd passes on to the entrypoint.
const FORWARDED: [c_int; 6] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Puts signal dispositions back to what a new program expects. The kernel does that for
/// handlers; what was ignored would stay ignored, and nobody ignores real-time signals.
///
/// The signals that execd waits for are blocked. For the first process of a pid namespace the
/// kernel drops a signal that is neither handled nor blocked, so without this one that comes
/// before execd listens would be lost; blocked, it waits until execd reads it.
pub(crate) fn reset_signals() -> Result<()> {
    for signal in 1..=SIGNAL_MAX {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        // SAFETY: setting the default disposition installs no handler. The two signals that
        // libc keeps for itself are refused, which is fine.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: the set lives on this stack for all calls.
    let outcome = unsafe {
        let mut waiting: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut waiting);
        for signal in FORWARDED {
            libc::sigaddset(&raw mut waiting, signal);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const waiting, std::ptr::null_mut())
    };
    check(c_long::from(outcome)).map(drop)
}

/// A descriptor that becomes readable when a child ends. Also makes this process deaf to the
/// signals that a terminal or a service manager sends to a whole group.
pub(crate) fn watch_children() -> Result<OwnedFd> {
    // SAFETY: the set lives on this stack for all calls; signalfd returns a new descriptor or -1.
    let descriptor = unsafe {
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    check(c_long::from(descriptor))?;
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Gives this process a session keyring of its own, so that it and what it starts cannot reach
/// the keys of the one that started it.
pub(crate) fn join_anonymous_keyring() -> Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: c_int = 1;
    // SAFETY: a null name asks for an anonymous keyring; no memory of ours is read.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            KEYCTL_JOIN_SESSION_KEYRING,
            std::ptr::null::<c_char>(),
        )
    };
    check(outcome).map(drop)
}

/// Has the runtime watch a descriptor that must be non-blocking where it is read or written.
pub(crate) fn watch(descriptor: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` keeps its one descriptor open until it is dropped, and `AsyncFd`
    // deregisters it before dropping it.
    let watched = unsafe { AsyncFd::register(descriptor) };
    Ok(watched?)
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl ExitStatus {
    /// Reads a wait(2) status word.
    pub(crate) fn from_wait(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signal(libc::WTERMSIG(status))
        } else {
            Self::Code(libc::WEXITSTATUS(status))
        }
    }
}

/// A child that has ended and is not reaped yet, if there is one. Leaves it as it is.
pub(crate) fn ended_child() -> Option<(Pid, ExitStatus)> {
    // SAFETY: all-zero is a valid `siginfo_t`, and the kernel fills it before it returns.
    let (outcome, information) = unsafe {
        let mut information: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let outcome = libc::waitid(libc::P_ALL, 0, &raw mut information, options);
        (outcome, information)
    };
    check(c_long::from(outcome)).ok()?;
    // SAFETY: these fields are the ones that waitid(2) fills; a process id of zero says that no
    // child has ended.
    let (pid, status) = unsafe { (information.si_pid(), information.si_status()) };
    let status = match information.si_code {
        libc::CLD_EXITED => ExitStatus::Code(status),
        _ => ExitStatus::Signal(status),
    };
    Some((Pid::from_raw(pid)?, status))
}

/// Ends this process at once: no destructor, no buffer, no handler runs.
pub(super) fn exit_now(code: c_int) -> ! {
    // SAFETY: ends the process; nothing of it is used again.
    unsafe { libc::_exit(code) }
}

/// `struct pidfd_info` of linux/pidfd.h in its first published size; the kernel fills as much of
/// it as it knows and says in `mask` what that was.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup_id: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// How the process behind a pidfd ended, whoever its parent was. `None` while it is not reaped
/// yet, and on kernels before 6.15, which do not tell.
pub(crate) fn exit_status_of(pidfd: BorrowedFd<'_>) -> Option<ExitStatus> {
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    // _IOWR(0xFF, 11, struct pidfd_info)
    const PIDFD_GET_INFO: libc::Ioctl =
        ((3 << 30) | ((size_of::<PidfdInfo>() as libc::Ioctl) << 16) | (0xFF << 8)) | 11;
    let mut info = PidfdInfo {
        mask: PIDFD_INFO_EXIT,
        ..PidfdInfo::default()
    };
    // SAFETY: the request number carries the size of `info`, which the kernel fills and which
    // outlives the call.
    let outcome = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
    check(c_long::from(outcome)).ok()?;
    (info.mask & PIDFD_INFO_EXIT != 0).then(|| ExitStatus::from_wait(info.exit_code))
}

/// The result of a raw system call through libc.
pub(super) fn check(outcome: c_long) -> Result<c_long> {
    if outcome == -1 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
    }
    Ok(outcome)
}
