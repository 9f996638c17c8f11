//! execd as a descriptor that nobody can write through.
//!
//! The program is copied once per server into sealed memory. A process in a sandbox can open the
//! file it runs from (`/proc/1/exe`), so the file must not be one of the host's: what a seal
//! forbids, no privilege allows.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use lifecycle::backend::Error;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

/// Not yet in rustix; before 6.3 the kernel knows no such flag and every memory file is
/// executable.
const MFD_EXEC: MemfdFlags = MemfdFlags::from_bits_retain(0x10);

/// Copies the program at `path` into sealed memory.
pub(crate) fn seal(path: &Path) -> Result<OwnedFd, Error> {
    let unavailable = |message: String| Error::Unavailable {
        backend: "embedded",
        message,
    };
    let mut source = File::open(path).map_err(|error| {
        unavailable(format!(
            "execd is not at {}: {error}; install it beside osb or set its path",
            path.display()
        ))
    })?;
    copy(&mut source).map_err(|error| {
        unavailable(format!(
            "execd at {} cannot be loaded: {error}",
            path.display()
        ))
    })
}

fn copy(source: &mut File) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = match rustix::fs::memfd_create("execd", flags | MFD_EXEC) {
        Err(Errno::INVAL) => rustix::fs::memfd_create("execd", flags),
        other => other,
    }?;
    let mut memory = File::from(memory);
    io::copy(source, &mut memory)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&memory, seals)?;
    // Opened anew for reading only: the kernel does not execute a file that is open for writing.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory));
    Ok(File::open(path)?.into())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn the_sealed_program_cannot_be_changed_by_anybody() {
        let program = seal(&std::env::current_exe().unwrap()).unwrap();
        let path = format!("/proc/self/fd/{}", program.as_raw_fd());
        let writer = File::options().write(true).open(path).unwrap();
        assert_eq!(rustix::io::write(&writer, b"x"), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&writer, 0), Err(Errno::PERM));
    }

    #[test]
    fn a_missing_execd_says_where_it_was_looked_for() {
        let error = seal(Path::new("/nonexistent/execd")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/execd"));
    }
}
