//! Makes a user namespace with a network namespace inside it, from a process with many threads.
//!
//! `unshare(CLONE_NEWUSER)` is refused to a process with threads, and forking a large server
//! costs tens of milliseconds, so the namespaces are born with a child that shares the server's
//! memory (`CLONE_VM`), runs two system calls and is killed once its namespaces are held by
//! descriptors. It never returns into Rust code that allocates, locks or unwinds.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use std::sync::{Mutex, PoisonError};

use rustix::process::{DumpableBehavior, Pid, Signal, WaitId, WaitIdOptions};
use rustix::thread::Uid;

/// The child calls two functions of a few dozen bytes each; a page would do.
const STACK_BYTES: usize = 16 * 1024;

/// A sleeping child in namespaces of its own. Killed and reaped when dropped; the namespaces live
/// on in whatever descriptors were opened on them.
pub(crate) struct Holder {
    pid: Pid,
    pidfd: OwnedFd,
    // Freed only after the child is gone.
    _stack: Box<[u8]>,
}

impl Holder {
    /// Makes the child and its namespaces. The user namespace has no id mapped yet.
    ///
    /// The namespace belongs to the host's user `owner`. The kernel counts what is used inside
    /// (inotify instances, namespaces, pending signals, locked memory) against the owner too: were
    /// that root for all, one sandbox could use up everybody's share.
    pub(crate) fn spawn(owner: u32) -> io::Result<Self> {
        Self::spawn_in(owner, libc::CLONE_NEWUSER | libc::CLONE_NEWNET)
    }

    /// Makes the child in a user namespace of its own and in the caller's network.
    pub(crate) fn spawn_without_network(owner: u32) -> io::Result<Self> {
        Self::spawn_in(owner, libc::CLONE_NEWUSER)
    }

    fn spawn_in(owner: u32, namespaces: c_int) -> io::Result<Self> {
        let mut stack = vec![0_u8; STACK_BYTES].into_boxed_slice();
        let end = stack.as_mut_ptr_range().end as usize & !15;
        let mut pidfd: c_int = -1;
        // No signal may ever run a handler of the server inside the child: it would run on the
        // shared memory as a second thread of nobody. The child inherits this mask.
        let mask = block_all_signals()?;
        let acting = match EffectiveUser::begin(owner) {
            Ok(acting) => acting,
            Err(error) => {
                restore_signals(&mask);
                return Err(error);
            }
        };
        // SAFETY: the stack is 16-byte aligned, large enough and outlives the child, because
        // `Holder` reaps it before the stack is freed. `hold` touches no shared memory.
        let pid = unsafe {
            libc::clone(
                hold,
                end as *mut c_void,
                libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_PIDFD | namespaces,
                std::ptr::without_provenance_mut(std::process::id() as usize),
                &raw mut pidfd,
            )
        };
        let failure = io::Error::last_os_error();
        drop(acting);
        restore_signals(&mask);
        if pid < 0 {
            return Err(failure);
        }
        // SAFETY: the kernel stored a new descriptor that nobody else knows.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        let pid = Pid::from_raw(pid).expect("clone returns a positive pid to the parent");
        Ok(Self {
            pid,
            pidfd,
            _stack: stack,
        })
    }

    /// The child, as the caller's pid namespace sees it.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // ESRCH: something else killed it; it still has to be reaped.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        // A child made without an exit signal is seen only by waits that ask for such.
        let all =
            WaitIdOptions::EXITED | WaitIdOptions::from_bits_retain(libc::__WALL.cast_unsigned());
        while let Err(rustix::io::Errno::INTR) =
            rustix::process::waitid(WaitId::PidFd(std::os::fd::AsFd::as_fd(&self.pidfd)), all)
        {
        }
    }
}

/// This thread's effective user is somebody else; its capabilities stay. Ended by dropping.
struct EffectiveUser {
    dumpable: DumpableBehavior,
    _alone: std::sync::MutexGuard<'static, ()>,
}

/// A change of the effective user marks the whole process as not to be looked into, and undoing
/// that must not overlap with another thread's change.
static EFFECTIVE_USER: Mutex<()> = Mutex::new(());

impl EffectiveUser {
    fn begin(user: u32) -> io::Result<Self> {
        let alone = EFFECTIVE_USER
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let dumpable = rustix::process::dumpable_behavior()?;
        // Of this thread only: the call goes past the C library, which would do it to all.
        rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::from_raw(user), Uid::ROOT)?;
        let acting = Self {
            dumpable,
            _alone: alone,
        };
        // Some systems let only the privileged make user namespaces.
        let mut held = rustix::thread::capabilities(None)?;
        held.effective = held.permitted;
        rustix::thread::set_capabilities(None, held)?;
        Ok(acting)
    }
}

impl Drop for EffectiveUser {
    fn drop(&mut self) {
        let root = rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT);
        if root.is_err() || rustix::process::set_dumpable_behavior(self.dumpable).is_err() {
            // The real user is still root, so the kernel has no reason to refuse. A thread of
            // the server with another user's rights must not go on.
            std::process::abort();
        }
    }
}

/// The user namespace that a namespace belongs to.
#[cfg(test)]
pub(crate) fn owner_of(namespace: std::os::fd::BorrowedFd<'_>) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    const NS_GET_USERNS: libc::c_ulong = 0xb701;
    // SAFETY: the request takes no argument and returns a new descriptor or an error.
    let fd = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The host's user that a user namespace belongs to.
#[cfg(test)]
pub(crate) fn owner_id(namespace: std::os::fd::BorrowedFd<'_>) -> io::Result<u32> {
    use std::os::fd::AsRawFd;
    const NS_GET_OWNER_UID: libc::c_ulong = 0xb704;
    let mut owner: libc::uid_t = 0;
    // SAFETY: the request writes one id where it is told to.
    match unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &raw mut owner) } {
        0 => Ok(owner),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the child does: die with the thread that made it, and sleep. None of the calls can fail,
/// so none writes `errno`, which lies in memory the child shares with that thread. A parent that
/// died before the first call is seen by the second.
extern "C" fn hold(parent: *mut c_void) -> c_int {
    // SAFETY: plain system calls with constant arguments; null pointers are what ppoll takes for
    // "nothing, for ever, with the mask as it is".
    unsafe {
        libc::syscall(
            libc::SYS_prctl,
            libc::PR_SET_PDEATHSIG,
            libc::SIGKILL,
            0,
            0,
            0,
        );
        if libc::syscall(libc::SYS_getppid).cast_unsigned() as usize == parent.addr() {
            libc::syscall(libc::SYS_ppoll, 0_usize, 0_usize, 0_usize, 0_usize, 0_usize);
        }
    }
    0
}

fn block_all_signals() -> io::Result<libc::sigset_t> {
    // SAFETY: both sets are plain data that the calls fill in.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) {
            0 => Ok(before),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: the mask was filled in by `block_all_signals`.
    unsafe {
        libc::pthread_sigmask(
            libc::SIG_SETMASK,
            std::ptr::from_ref(mask),
            std::ptr::null_mut(),
        );
    }
}
