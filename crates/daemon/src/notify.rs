//! Tells whoever started the process that it is ready, in the way service managers expect: one
//! datagram to the socket that `NOTIFY_SOCKET` names (sd_notify(3)).
//!
//! A starter can then wait for an event instead of asking again and again. Where the variable is
//! not set this does nothing; a failure to tell is never a reason to stop.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Letters of a status. A receiver reads 4 KiB at once.
const STATUS_CHARS_MAX: usize = 900;

/// Says that requests are answered from now on.
pub fn ready() {
    tell("READY=1\n");
}

/// Says why the process ends before it was ready, or in the middle of its work.
pub fn failed(reason: &str) {
    tell(&status(reason));
}

/// One line, and no more than any receiver takes at once.
fn status(reason: &str) -> String {
    let line: String = reason
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(STATUS_CHARS_MAX)
        .collect();
    format!("STATUS={line}\n")
}

/// Says that the process has begun to stop.
pub fn stopping() {
    tell("STOPPING=1\n");
}

fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(name.as_bytes(), state) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}

fn send(name: &[u8], state: &str) -> std::io::Result<()> {
    // A leading '@' means an abstract name.
    let address = match name.strip_prefix(b"@") {
        Some(rest) => SocketAddr::from_abstract_name(rest)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(state.as_bytes(), &address)
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_starter_hears_of_readiness() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let starter = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str().as_bytes(), "READY=1\n").unwrap();
        let mut heard = [0; 64];
        let size = starter.recv(&mut heard).unwrap();
        assert_eq!(&heard[..size], b"READY=1\n");
    }

    #[test]
    fn a_reason_is_one_line() {
        assert_eq!(status("no\ndisk\t!"), "STATUS=no disk !\n");
        assert_eq!(status(&"ä".repeat(5000)).chars().count(), 900 + 8);
    }

    #[test]
    fn a_name_that_is_too_long_is_an_error_not_a_panic() {
        assert!(send(&[b'x'; 4096], "READY=1\n").is_err());
    }
}
