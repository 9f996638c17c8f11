//! Tells systemd when the server is ready and when it is on its way out (sd_notify(3)).

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Requests are served from now on.
pub(crate) fn ready() {
    send("READY=1");
}

/// The server is on its way out.
pub(crate) fn stopping() {
    send("STOPPING=1");
}

fn send(state: &str) {
    if let Err(error) = try_send(state) {
        tracing::warn!(%error, state, "the service manager could not be told");
    }
}

/// Does nothing where no service manager asks for it.
fn try_send(state: &str) -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(&path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}
