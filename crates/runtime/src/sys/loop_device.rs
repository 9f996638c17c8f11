//! Block devices whose content is a file.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};

/// From the kernel's `loop.h`.
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// How often a device that was free a moment ago may turn out to be taken by somebody else.
const TRIES_MAX: usize = 64;

/// The start of `struct loop_config` that is not zero: the file, and flags after the block size
/// and the first fields of `struct loop_info64`.
#[repr(C)]
struct LoopConfig {
    file: u32,
    block_size: u32,
    before_flags: [u64; 6],
    key_size: u32,
    flags: u32,
    rest: [u64; 30],
}

/// A block device that shows `file`, with its path. It goes by itself when it is no longer open
/// or mounted.
pub(crate) fn attach_loop_device(file: BorrowedFd<'_>) -> Result<(OwnedFd, String)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let control = rustix::fs::open("/dev/loop-control", flags, Mode::empty())?;
    for _ in 0..TRIES_MAX {
        // SAFETY: takes no argument and returns a number.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        if number < 0 {
            return Err(last_error());
        }
        let path = format!("/dev/loop{number}");
        let device = rustix::fs::open(&path, flags, Mode::empty())?;
        match configure(&device, file) {
            Ok(()) => return Ok((device, path)),
            Err(Errno::BUSY) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::BUSY)
}

fn configure(device: &OwnedFd, file: BorrowedFd<'_>) -> Result<()> {
    let config = LoopConfig {
        file: file.as_raw_fd().cast_unsigned(),
        block_size: 0,
        before_flags: [0; 6],
        key_size: 0,
        flags: LO_FLAGS_AUTOCLEAR,
        rest: [0; 30],
    };
    // SAFETY: the kernel reads a `struct loop_config`, whose size and layout `LoopConfig` has,
    // and writes nothing.
    let outcome = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if outcome < 0 {
        Err(last_error())
    } else {
        Ok(())
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

// The size the kernel reads.
const _: () = assert!(size_of::<LoopConfig>() == 304);
