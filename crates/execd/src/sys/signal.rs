//! Signals as a descriptor, so that the event loop can wait for them like for anything else.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// Blocks `signals` for the whole process and returns a descriptor that becomes readable
/// when one arrives. Must be called before any thread is started, since threads inherit
/// the mask.
pub(crate) fn descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: the set is plain memory that the calls fill; signalfd returns a descriptor
    // that nobody else knows.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            fd if fd < 0 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// The number of a signal read from [`descriptor`]; the record begins with it.
pub(crate) fn read(descriptor: &OwnedFd) -> io::Result<i32> {
    let mut record = [0u8; size_of::<libc::signalfd_siginfo>()];
    rustix::io::read(descriptor, &mut record)?;
    Ok(i32::from_ne_bytes([
        record[0], record[1], record[2], record[3],
    ]))
}

/// Sends a signal to every process that this one may signal, except itself. Only for PID 1
/// of a namespace.
pub(crate) fn send_to_all(signal: i32) -> io::Result<()> {
    // SAFETY: takes two integers.
    if unsafe { libc::kill(-1, signal) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
