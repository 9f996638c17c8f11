//! Where a kernel listens and how it learns of it: an address and five ports, and the file that
//! names them together with the key.
//!
//! The kernel binds the ports, so somebody else could take one between its choice here and the
//! kernel's bind. Two things prevent it. Each kernel has a loopback address of its own, chosen
//! among sixteen million; and the ports stay bound here until the kernel has them. A second
//! bind of a port that nobody listens on is allowed when both sides ask for it with
//! `SO_REUSEADDR`, which ZeroMQ's libraries do, while the kernel never gives such a port to a
//! process that asks for any.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use serde_json::json;

use super::message::Session;
use crate::state::{hex, random};

/// The sockets of a kernel.
#[derive(Debug, Clone, Copy)]
pub(super) enum Port {
    Shell,
    Iopub,
    Stdin,
    Control,
    /// Every kernel wants one; nobody connects to it.
    Heartbeat,
}

const PORTS: usize = 5;

/// An address for one kernel, and the file that tells it. Dropping it gives the ports up and
/// removes the file.
pub(super) struct Connection {
    address: Ipv4Addr,
    ports: [u16; PORTS],
    /// Bound and never listened on.
    _reserved: [OwnedFd; PORTS],
    file: File,
}

struct File(PathBuf);

impl Connection {
    /// Reserves ports and writes the file. Blocks on the disk.
    pub(super) fn open(session: &Session, directory: &Path) -> io::Result<Self> {
        let [a, b, c] = random::<3>();
        // 127.0.0.0/16 has tenants: 127.0.0.1, resolvers.
        let own = Ipv4Addr::new(127, a.clamp(1, 254), b, c.clamp(1, 254));
        let (address, reserved) = match reserve(own) {
            Ok(reserved) => (own, reserved),
            // A loopback interface with 127.0.0.1 alone.
            Err(_) => (Ipv4Addr::LOCALHOST, reserve(Ipv4Addr::LOCALHOST)?),
        };
        let ports = reserved.each_ref().map(|(_, port)| *port);
        let file = File(directory.join(format!("kernel-{}.json", hex(&random::<16>()))));
        let connection = Self {
            address,
            ports,
            _reserved: reserved.map(|(socket, _)| socket),
            file,
        };
        connection.write(session)?;
        Ok(connection)
    }

    pub(super) fn file(&self) -> &Path {
        &self.file.0
    }

    pub(super) fn address(&self, port: Port) -> SocketAddrV4 {
        SocketAddrV4::new(self.address, self.ports[port as usize])
    }

    /// The key is in it, so it is for this user alone.
    fn write(&self, session: &Session) -> io::Result<()> {
        let port = |port: Port| self.ports[port as usize];
        let text = json!({
            "transport": "tcp",
            "ip": self.address.to_string(),
            "shell_port": port(Port::Shell),
            "iopub_port": port(Port::Iopub),
            "stdin_port": port(Port::Stdin),
            "control_port": port(Port::Control),
            "hb_port": port(Port::Heartbeat),
            "key": session.key(),
            "signature_scheme": "hmac-sha256",
        });
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.file.0)?
            .write_all(text.to_string().as_bytes())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // The kernel, or somebody who cleans up, may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn reserve(address: Ipv4Addr) -> io::Result<[(OwnedFd, u16); PORTS]> {
    let mut all = Vec::with_capacity(PORTS);
    for _ in 0..PORTS {
        let socket = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddrV4::new(address, 0))?;
        let port = SocketAddrV4::try_from(rustix::net::getsockname(&socket)?)?.port();
        all.push((socket, port));
    }
    Ok(all.try_into().expect("as many as were asked for"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_file_is_private_and_goes_with_the_connection() {
        let directory = tempfile::tempdir().unwrap();
        let session = Session::new();
        let connection = Connection::open(&session, directory.path()).unwrap();
        let path = connection.file().to_owned();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(session.key()));
        drop(connection);
        assert!(!path.exists());
    }

    #[test]
    fn reserved_ports_are_for_whoever_is_told_and_for_nobody_by_chance() {
        let directory = tempfile::tempdir().unwrap();
        let connection = Connection::open(&Session::new(), directory.path()).unwrap();
        let address = connection.address(Port::Shell);
        // `std` sets SO_REUSEADDR on listeners, as ZeroMQ does.
        let kernel = std::net::TcpListener::bind(address).unwrap();
        drop(kernel);
        let chance = std::net::TcpListener::bind((*address.ip(), 0)).unwrap();
        let port = chance.local_addr().unwrap().port();
        assert!(!connection.ports.contains(&port));
    }

    #[test]
    fn two_kernels_never_share_a_place() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Connection::open(&Session::new(), directory.path()).unwrap();
        let (one, two) = (open(), open());
        assert_ne!(one.file(), two.file());
        assert_ne!(one.address(Port::Shell), two.address(Port::Shell));
    }
}
