//! Starting a program: clone with shared memory, a few system calls, exec.
//!
//! `CLONE_VM | CLONE_VFORK` instead of fork: nothing is copied, whatever the daemon's size,
//! and the caller learns of a failed exec through ordinary memory. The price is that the
//! child may do nothing but system calls until exec: no allocation, no locks, no libc
//! function with state. `setuid` and its like are called as raw system calls, because
//! libc's versions would try to change every thread of the process whose memory the child
//! shares.

use std::ffi::{CStr, CString, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::process::{Pid, WaitId, WaitIdOptions};

/// Stack of the child until exec. The calls below need a few hundred bytes; libc's
/// `execve` wrapper no more.
const CHILD_STACK_BYTES: usize = 32 * 1024;

/// Stack of a thread that waits for one process and does nothing else.
const WATCH_STACK_BYTES: usize = 64 * 1024;

/// What the shell reports for a program that could not be run; nobody sees it, because the
/// failure is reported through memory.
const EXIT_NOT_RUN: c_int = 127;

/// Everything the child does between clone and exec.
pub(crate) struct Plan<'fd> {
    pub(crate) program: CString,
    pub(crate) arguments: Vec<CString>,
    pub(crate) environment: Vec<CString>,
    pub(crate) directory: Option<CString>,
    pub(crate) stdio: [BorrowedFd<'fd>; 3],
    /// Descriptors beyond the standard three, with the numbers they get in the child.
    /// Every source must lie above every target.
    pub(crate) descriptors: Vec<(BorrowedFd<'fd>, RawFd)>,
    pub(crate) identity: Option<Identity>,
    /// Make standard input, a terminal, the controlling one.
    pub(crate) takes_terminal: bool,
    /// Is killed when the thread that starts it ends.
    pub(crate) is_bound: bool,
    pub(crate) restore: Restore,
}

/// The user to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

/// What the daemon changed about itself and children must not inherit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Restore {
    /// The limit of open files as it was when the daemon started: (soft, hard).
    pub(crate) open_files: Option<(u64, u64)>,
    /// What a child writes to its `oom_score_adj`, so that it goes before the daemon when memory
    /// runs out.
    pub(crate) oom_score: Option<OomScore>,
}

/// A number up to 1000 as the kernel reads it; made before the clone, after which nothing may
/// allocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OomScore([u8; 4]);

impl OomScore {
    /// The score most easily killed.
    pub(crate) const MAX: i16 = 1000;

    /// `score` between 0 and [`OomScore::MAX`].
    pub(crate) fn new(score: i16) -> Self {
        let text = format!("{:>4}", score.clamp(0, Self::MAX));
        Self(
            text.into_bytes()
                .try_into()
                .expect("four digits are four bytes"),
        )
    }
}

/// The step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Clone,
    Session,
    Descriptors,
    Terminal,
    Limits,
    Groups,
    Group,
    User,
    Directory,
    Bind,
    Exec,
}

/// Why the program did not start.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.step.describe())]
pub(crate) struct Error {
    pub(crate) step: Step,
    pub(crate) source: io::Error,
}

impl Step {
    fn describe(self) -> &'static str {
        match self {
            Self::Clone => "no process could be made",
            Self::Session => "no session could be made for the process",
            Self::Descriptors => "the process's input and output could not be set up",
            Self::Terminal => "the terminal could not be made the controlling one",
            Self::Limits => "the process's limits could not be set",
            Self::Groups => "the supplementary groups could not be set",
            Self::Group => "the group could not be set",
            Self::User => "the user could not be set",
            Self::Directory => "the working directory could not be entered",
            Self::Bind => "the process could not be bound to the daemon's life",
            Self::Exec => "the program could not be executed",
        }
    }
}

/// A started process.
pub(crate) struct Started {
    pub(crate) pid: i32,
    /// Becomes readable when the process ends.
    pub(crate) end: End,
}

/// What tells of a process's end.
pub(crate) enum End {
    Pidfd(OwnedFd),
    /// A pipe that a thread closes when the process has ended, for kernels without pidfds: gVisor
    /// has none.
    Pipe(OwnedFd),
}

impl End {
    pub(crate) fn into_fd(self) -> OwnedFd {
        match self {
            Self::Pidfd(fd) | Self::Pipe(fd) => fd,
        }
    }
}

/// What parent and child share while the parent is suspended.
struct Shared<'a> {
    plan: &'a Plan<'a>,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    failure: Option<(Step, c_int)>,
    /// The daemon's pid as the child sees it.
    parent: libc::pid_t,
}

/// Starts the program in a session and process group of its own. Returns once it runs, or
/// with the step that failed; a kernel that has no pidfds fails in [`Step::Clone`] with `EINVAL`
/// when one is asked for.
pub(crate) fn spawn(plan: &Plan<'_>, with_pidfd: bool) -> Result<Started, Error> {
    let mut shared = Shared {
        plan,
        argv: pointers(&plan.arguments),
        envp: pointers(&plan.environment),
        failure: None,
        // SAFETY: always succeeds.
        parent: unsafe { libc::getpid() },
    };
    let mut stack = vec![0u128; CHILD_STACK_BYTES / size_of::<u128>()];
    let mask = block_signals();
    let mut pidfd: RawFd = -1;
    let mut flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    if with_pidfd {
        flags |= libc::CLONE_PIDFD;
    }
    // SAFETY: the stack outlives the child's use of it, because CLONE_VFORK suspends this
    // thread until the child has called exec or _exit; `shared` likewise. The stack
    // pointer is the end of a 16-byte aligned allocation. CLONE_PIDFD makes the kernel
    // store the pidfd through the fifth argument, which is not looked at without it.
    let pid = unsafe {
        libc::clone(
            child_main,
            stack.as_mut_ptr().add(stack.len()).cast(),
            flags,
            (&raw mut shared).cast(),
            &raw mut pidfd,
        )
    };
    let cloned = if pid < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    };
    restore_signals(&mask);
    cloned.map_err(|source| Error {
        step: Step::Clone,
        source,
    })?;
    let end = match with_pidfd {
        // SAFETY: the kernel stored a fresh descriptor that nobody else knows.
        true => End::Pidfd(unsafe { OwnedFd::from_raw_fd(pidfd) }),
        false => End::Pipe(watch_end(pid).map_err(|source| {
            end_failed(pid);
            Error {
                step: Step::Clone,
                source,
            }
        })?),
    };
    match shared.failure {
        None => Ok(Started { pid, end }),
        Some((step, errno)) => {
            reap_failed(pid);
            Err(Error {
                step,
                source: io::Error::from_raw_os_error(errno),
            })
        }
    }
}

/// A pipe that closes when the child has ended. The child stays to be collected.
fn watch_end(pid: i32) -> io::Result<OwnedFd> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let wait = move || {
        let child = WaitId::Pid(known(pid));
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        // An error says that somebody has collected it, which is an end too.
        let _ = rustix::io::retry_on_intr(|| rustix::process::waitid(child.clone(), options));
        drop(write);
    };
    std::thread::Builder::new()
        .stack_size(WATCH_STACK_BYTES)
        .spawn(wait)?;
    Ok(read)
}

/// Ends a child that nobody can wait for.
fn end_failed(pid: i32) {
    let _ = rustix::process::kill_process(known(pid), rustix::process::Signal::KILL);
    reap_failed(pid);
}

/// Collects the child that never became a program. Where the process is an init whose
/// reaper came first there is nothing left to collect, which is as good.
fn reap_failed(pid: i32) {
    let _ = rustix::process::waitid(WaitId::Pid(known(pid)), WaitIdOptions::EXITED);
}

fn known(pid: i32) -> Pid {
    Pid::from_raw(pid).expect("clone gives a pid")
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|text| text.as_ptr())
        .chain([std::ptr::null()])
        .collect()
}

/// A signal handler that ran in the child would run on the daemon's memory.
fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are plain memory that the calls fill.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: the mask was filled by `block_signals`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

extern "C" fn child_main(argument: *mut c_void) -> c_int {
    // SAFETY: the parent passes its `Shared` and is suspended, so this is the only user.
    let shared = unsafe { &mut *argument.cast::<Shared<'_>>() };
    // SAFETY: this runs in the child, which is what the function demands.
    let step = unsafe { become_program(shared) };
    // SAFETY: errno is this thread's; only the suspended parent shares it.
    shared.failure = Some((step, unsafe { *libc::__errno_location() }));
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(EXIT_NOT_RUN) }
}

/// Does what the plan says and returns only when a step failed, with errno set.
///
/// # Safety
/// Only for a child that shares memory with its suspended parent: system calls alone.
unsafe fn become_program(shared: &Shared<'_>) -> Step {
    let plan = shared.plan;
    // SAFETY: every call below takes integers, or pointers into `shared` that stay valid
    // until exec; all are async-signal-safe.
    unsafe {
        if libc::setsid() < 0 {
            return Step::Session;
        }
        for (target, source) in (0..).zip(&plan.stdio) {
            if libc::dup2(source.as_raw_fd(), target) < 0 {
                return Step::Descriptors;
            }
        }
        for (source, target) in &plan.descriptors {
            if libc::dup2(source.as_raw_fd(), *target) < 0 {
                return Step::Descriptors;
            }
        }
        if plan.takes_terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
            return Step::Terminal;
        }
        if !restore(&plan.restore) {
            return Step::Limits;
        }
        if let Some(identity) = &plan.identity
            && let Err(step) = assume(identity)
        {
            return step;
        }
        if let Some(directory) = &plan.directory
            && libc::chdir(directory.as_ptr()) < 0
        {
            return Step::Directory;
        }
        reset_signals();
        if plan.is_bound {
            // Asked for after the identity, whose change takes it back.
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                return Step::Bind;
            }
            // The daemon may have ended before; nobody would tell then.
            if libc::getppid() != shared.parent {
                libc::_exit(EXIT_NOT_RUN);
            }
        }
        libc::execve(
            plan.program.as_ptr(),
            shared.argv.as_ptr(),
            shared.envp.as_ptr(),
        );
    }
    Step::Exec
}

/// # Safety
/// As [`become_program`].
unsafe fn assume(identity: &Identity) -> Result<(), Step> {
    let groups = &identity.groups;
    // SAFETY: raw system calls, see the module's introduction for why raw.
    unsafe {
        if libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) < 0 {
            return Err(Step::Groups);
        }
        if libc::syscall(
            libc::SYS_setresgid,
            identity.gid,
            identity.gid,
            identity.gid,
        ) < 0
        {
            return Err(Step::Group);
        }
        if libc::syscall(
            libc::SYS_setresuid,
            identity.uid,
            identity.uid,
            identity.uid,
        ) < 0
        {
            return Err(Step::User);
        }
    }
    Ok(())
}

/// # Safety
/// As [`become_program`].
unsafe fn restore(wanted: &Restore) -> bool {
    if let Some((soft, hard)) = wanted.open_files {
        let limit = libc::rlimit {
            rlim_cur: soft,
            rlim_max: hard,
        };
        // SAFETY: a raw system call on a local value.
        let done = unsafe {
            libc::syscall(
                libc::SYS_prlimit64,
                0,
                libc::RLIMIT_NOFILE,
                &raw const limit,
                std::ptr::null_mut::<libc::rlimit>(),
            )
        };
        if done < 0 {
            return false;
        }
    }
    if let Some(OomScore(text)) = &wanted.oom_score {
        const FILE: &CStr = c"/proc/self/oom_score_adj";
        // SAFETY: system calls on constant strings. Without /proc the program starts with
        // the daemon's protection, which is no reason not to start it.
        unsafe {
            let fd = libc::open(FILE.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if fd >= 0 {
                libc::write(fd, text.as_ptr().cast(), text.len());
                libc::close(fd);
            }
        }
    }
    true
}

/// The kernel's own form of `sigaction`, all zero: the default action.
#[repr(C)]
struct DefaultAction {
    handler: usize,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}

/// Gives every signal its default action and unblocks all: exec resets handlers by itself
/// but keeps what is ignored, by Rust's start-up (SIGPIPE) or by whoever started the
/// daemon. Raw, because libc refuses to touch the two signals it keeps for itself.
///
/// # Safety
/// As [`become_program`].
unsafe fn reset_signals() {
    const SIGNALS: c_int = 64;
    let default = DefaultAction {
        handler: 0,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    let none: *mut c_void = std::ptr::null_mut();
    let set_bytes = size_of::<u64>();
    // SAFETY: the child's table of handlers is its own copy (no CLONE_SIGHAND). SIGKILL and
    // SIGSTOP answer EINVAL and have the default action anyway.
    unsafe {
        for signal in 1..=SIGNALS {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                &raw const default,
                none,
                set_bytes,
            );
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}
