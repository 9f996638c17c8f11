//! Seccomp user notification: calls of a filtered process that somebody else answers, see
//! seccomp_unotify(2).

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, Result};

use super::process::check;

/// Installs a seccomp filter on this thread for good and returns the descriptor on which its
/// notifications arrive, close-on-exec. `no_new_privs` must be set.
pub(crate) fn install_filter(program: &[libc::sock_filter]) -> Result<OwnedFd> {
    const NEW_LISTENER: libc::c_ulong = 1 << 3;
    /// A signal does not interrupt a call that waits for its answer: a runtime that sends signals
    /// to its own threads all the time, as Go's does, would else begin it again for ever.
    const WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::INVAL)?,
        filter: program.as_ptr().cast_mut(),
    };
    let install = |flags: libc::c_ulong| {
        // SAFETY: `program` describes a live slice; the kernel copies it and writes nothing.
        let outcome = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            )
        };
        check(outcome)
    };
    let descriptor = match install(NEW_LISTENER | WAIT_KILLABLE_RECV) {
        // Before Linux 5.19.
        Err(Errno::INVAL) => install(NEW_LISTENER)?,
        other => other?,
    };
    let descriptor = RawFd::try_from(descriptor).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel made this descriptor for us just now.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    id: u64,
    /// What it was called with.
    pub(crate) arguments: [u64; 6],
}

/// `struct seccomp_notif` of linux/seccomp.h.
#[repr(C)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    architecture: u32,
    instruction_pointer: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// `struct seccomp_notif_addfd`.
#[repr(C)]
struct AddDescriptor {
    id: u64,
    flags: u32,
    source: u32,
    number: u32,
    number_flags: u32,
}

/// `_IOWR('!', number, size)` and `_IOW('!', number, size)`.
const fn request(direction: libc::Ioctl, number: libc::Ioctl, size: usize) -> libc::Ioctl {
    (direction << 30) | ((size as libc::Ioctl) << 16) | ((b'!' as libc::Ioctl) << 8) | number
}
const READ_WRITE: libc::Ioctl = 3;
const WRITE: libc::Ioctl = 1;
const RECEIVE: libc::Ioctl = request(READ_WRITE, 0, size_of::<Notification>());
const SEND: libc::Ioctl = request(READ_WRITE, 1, size_of::<Response>());
const ADD_DESCRIPTOR: libc::Ioctl = request(WRITE, 3, size_of::<AddDescriptor>());

/// The next call that waits. `ENOENT` when the one that woke us was given up meanwhile.
pub(crate) fn next_call(listener: BorrowedFd<'_>) -> Result<Call> {
    // SAFETY: all-zero is a valid notification, and what the kernel wants to be given.
    let mut found: Notification = unsafe { std::mem::zeroed() };
    // SAFETY: the request number carries the size of `found`, which the kernel fills.
    let outcome = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut found) };
    check(outcome.into())?;
    Ok(Call {
        id: found.id,
        arguments: found.arguments,
    })
}

/// Lets a call fail.
pub(crate) fn refuse(listener: BorrowedFd<'_>, call: Call, error: Errno) -> Result<()> {
    respond(listener, call, 0, -error.raw_os_error())
}

/// Lets a call return a copy of `descriptor`.
pub(crate) fn give(
    listener: BorrowedFd<'_>,
    call: Call,
    descriptor: BorrowedFd<'_>,
    is_close_on_exec: bool,
) -> Result<()> {
    /// Answers in the same step.
    const FLAG_SEND: u32 = 1 << 1;
    let add = |flags: u32| {
        let added = AddDescriptor {
            id: call.id,
            flags,
            source: descriptor.as_raw_fd().cast_unsigned(),
            number: 0,
            number_flags: if is_close_on_exec {
                libc::O_CLOEXEC.cast_unsigned()
            } else {
                0
            },
        };
        // SAFETY: the request number carries the size of `added`, which the kernel only reads.
        let outcome =
            unsafe { libc::ioctl(listener.as_raw_fd(), ADD_DESCRIPTOR, &raw const added) };
        check(outcome.into())
    };
    match add(FLAG_SEND) {
        // Before Linux 5.14.
        Err(Errno::INVAL) => respond(listener, call, add(0)?, 0),
        other => other.map(drop),
    }
}

fn respond(listener: BorrowedFd<'_>, call: Call, value: i64, error: i32) -> Result<()> {
    let mut response = Response {
        id: call.id,
        value,
        error,
        flags: 0,
    };
    // SAFETY: the request number carries the size of `response`, which outlives the call.
    let outcome = unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw mut response) };
    check(outcome.into()).map(drop)
}
