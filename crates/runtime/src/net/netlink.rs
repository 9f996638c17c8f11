//! Netlink messages: an encoder that packs many requests into one send, and a socket that waits
//! for the kernel's answer to all of them.
//!
//! Knows the framing shared by rtnetlink and nfnetlink and nothing of what the attributes mean.
//! The kernel works through a send before the system call returns, so no wait is involved.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

pub(super) const REQUEST: u16 = 0x1;
pub(super) const ACK: u16 = 0x4;
pub(super) const EXCL: u16 = 0x200;
pub(super) const CREATE: u16 = 0x400;
pub(super) const REPLACE: u16 = 0x100;
pub(super) const APPEND: u16 = 0x800;
pub(super) const DUMP: u16 = 0x300;

const ERROR: u16 = 0x2;
const DONE: u16 = 0x3;
const NESTED: u16 = 0x8000;
const HEADER_LEN: usize = 16;

/// The kernel splits dumps at this size when it is offered the room.
const RECEIVE_BYTES: usize = 32 * 1024;

/// Which subsystem a socket talks to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Family {
    Route,
    Netfilter,
}

/// Requests that go to the kernel in one send. Each has a label for error messages.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    labels: Vec<&'static str>,
    last_header: usize,
}

impl Batch {
    /// Adds a request: `header` is the family's fixed part, `attributes` writes the rest.
    pub(super) fn push(
        &mut self,
        label: &'static str,
        kind: u16,
        flags: u16,
        header: &[u8],
        attributes: impl FnOnce(&mut Attributes<'_>),
    ) {
        let start = self.bytes.len();
        self.last_header = start;
        let sequence = u32::try_from(self.labels.len()).expect("a batch has few messages");
        self.labels.push(label);
        self.bytes.extend_from_slice(&0_u32.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes
            .extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&0_u32.to_ne_bytes());
        self.bytes.extend_from_slice(header);
        pad(&mut self.bytes);
        attributes(&mut Attributes(&mut self.bytes));
        let len = u32::try_from(self.bytes.len() - start).expect("a message is small");
        self.bytes[start..start + 4].copy_from_slice(&len.to_ne_bytes());
    }

    /// Asks for an answer to the message added last.
    pub(super) fn acknowledge_last(&mut self) {
        let at = self.last_header + 6;
        let flags = u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]]) | ACK;
        self.bytes[at..at + 2].copy_from_slice(&flags.to_ne_bytes());
    }
}

/// Writes attributes.
pub(super) struct Attributes<'a>(&'a mut Vec<u8>);

impl Attributes<'_> {
    pub(super) fn bytes(&mut self, kind: u16, value: &[u8]) {
        let len = u16::try_from(value.len() + 4).expect("an attribute is small");
        self.0.extend_from_slice(&len.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        pad(self.0);
    }

    pub(super) fn u8(&mut self, kind: u16, value: u8) {
        self.bytes(kind, &[value]);
    }

    /// In the machine's byte order, as rtnetlink wants it.
    pub(super) fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    /// In network byte order, as nfnetlink wants it.
    pub(super) fn u32_be(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(super) fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes);
    }

    pub(super) fn nest(&mut self, kind: u16, inner: impl FnOnce(&mut Attributes<'_>)) {
        self.raw_nest(kind | NESTED, &[], inner);
    }

    /// A nest whose content starts with a fixed struct, or that must not carry the nested flag.
    pub(super) fn raw_nest(
        &mut self,
        kind: u16,
        header: &[u8],
        inner: impl FnOnce(&mut Attributes<'_>),
    ) {
        let start = self.0.len();
        self.0.extend_from_slice(&0_u16.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(header);
        pad(self.0);
        inner(&mut Attributes(self.0));
        let len = u16::try_from(self.0.len() - start).expect("an attribute is small");
        self.0[start..start + 2].copy_from_slice(&len.to_ne_bytes());
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Which request the kernel refused, and why.
#[derive(Debug)]
pub(super) struct NetlinkError {
    pub(super) label: &'static str,
    pub(super) errno: Errno,
}

impl NetlinkError {
    fn socket(errno: Errno) -> Self {
        Self {
            label: "talking to netlink",
            errno,
        }
    }
}

impl From<NetlinkError> for super::Error {
    fn from(refused: NetlinkError) -> Self {
        super::Error::kernel(refused.label, refused.errno)
    }
}

/// A netlink socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    pub(super) fn open(family: Family) -> io::Result<Self> {
        let protocol = match family {
            Family::Route => None,
            Family::Netfilter => Some(rustix::net::netlink::NETFILTER),
        };
        let fd = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        Ok(Self(fd))
    }

    /// Sends the batch and returns when the kernel has worked through all of it. Requests before
    /// and, with rtnetlink, after a refused one have been carried out.
    pub(super) fn send(&self, mut batch: Batch) -> Result<(), NetlinkError> {
        batch.acknowledge_last();
        let last = batch.labels.len() - 1;
        self.send_and_await(&batch, last)
    }

    /// Sends a batch of nftables requests, which takes effect whole or not at all. Its last
    /// message is the batch's end, which older kernels do not answer; the one before it must ask
    /// for the answer.
    pub(super) fn send_transaction(&self, batch: &Batch) -> Result<(), NetlinkError> {
        self.send_and_await(batch, batch.labels.len() - 2)
    }

    fn send_and_await(&self, batch: &Batch, last: usize) -> Result<(), NetlinkError> {
        self.send_bytes(&batch.bytes)?;
        let mut refused = None;
        loop {
            for message in self.receive()? {
                if message.kind != ERROR {
                    continue;
                }
                let sequence = message.sequence as usize;
                if let Some(errno) = message.errno()
                    && refused.is_none()
                {
                    let label = batch.labels.get(sequence).copied().unwrap_or("netlink");
                    refused = Some(NetlinkError { label, errno });
                }
                if sequence == last {
                    return refused.map_or(Ok(()), Err);
                }
            }
            // A refused nftables batch need not answer its last message: take what came.
            if let Some(refused) = refused {
                return Err(refused);
            }
        }
    }

    /// Sends one question and returns the body of the one answer.
    pub(super) fn ask(&self, batch: &Batch) -> Result<Vec<u8>, NetlinkError> {
        self.send_bytes(&batch.bytes)?;
        let label = batch.labels[0];
        let refused = |errno| NetlinkError { label, errno };
        let answer = self.receive()?.into_iter().next();
        match answer.ok_or(refused(Errno::BADMSG))? {
            message if message.kind == ERROR => {
                Err(refused(message.errno().unwrap_or(Errno::BADMSG)))
            }
            message => Ok(message.body),
        }
    }

    /// Sends one dump request and returns the bodies of the answers.
    pub(super) fn dump(&self, batch: &Batch) -> Result<Vec<Vec<u8>>, NetlinkError> {
        self.send_bytes(&batch.bytes)?;
        let mut bodies = Vec::new();
        loop {
            for message in self.receive()? {
                match message.kind {
                    DONE => return Ok(bodies),
                    ERROR => {
                        if let Some(errno) = message.errno() {
                            return Err(NetlinkError {
                                label: batch.labels[0],
                                errno,
                            });
                        }
                    }
                    _ => bodies.push(message.body),
                }
            }
        }
    }

    fn send_bytes(&self, bytes: &[u8]) -> Result<(), NetlinkError> {
        let sent =
            rustix::net::send(&self.0, bytes, SendFlags::empty()).map_err(NetlinkError::socket)?;
        debug_assert_eq!(sent, bytes.len(), "netlink takes a datagram whole");
        Ok(())
    }

    fn receive(&self) -> Result<Vec<Message>, NetlinkError> {
        let mut buffer = vec![0_u8; RECEIVE_BYTES];
        let (len, _) = rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::empty())
            .map_err(NetlinkError::socket)?;
        Ok(Message::parse_all(&buffer[..len]))
    }
}

/// A socket that hears of every interface that comes, goes or changes in its namespace.
pub(super) fn link_events() -> io::Result<OwnedFd> {
    const LINK_GROUP: u32 = 1;
    let socket = Socket::open(Family::Route)?;
    let address = rustix::net::netlink::SocketAddrNetlink::new(0, LINK_GROUP);
    rustix::net::bind(&socket.0, &address)?;
    Ok(socket.0)
}

/// Hears of every interface that comes, goes or changes.
#[cfg(test)]
pub(super) struct LinkMonitor(Socket);

#[cfg(test)]
impl LinkMonitor {
    pub(super) fn wait(&self) -> Result<(), NetlinkError> {
        match self.0.receive() {
            // More happened than the queue holds: look again, as after any other message.
            Err(NetlinkError {
                errno: Errno::NOBUFS,
                ..
            }) => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

#[cfg(test)]
impl Socket {
    pub(super) fn monitor_links(deadline: std::time::Duration) -> io::Result<LinkMonitor> {
        let socket = Self(link_events()?);
        rustix::net::sockopt::set_socket_timeout(
            &socket.0,
            rustix::net::sockopt::Timeout::Recv,
            Some(deadline),
        )?;
        Ok(LinkMonitor(socket))
    }
}

struct Message {
    kind: u16,
    sequence: u32,
    body: Vec<u8>,
}

impl Message {
    fn parse_all(mut bytes: &[u8]) -> Vec<Self> {
        let mut messages = Vec::new();
        while bytes.len() >= HEADER_LEN {
            let len = read_u32(bytes, 0) as usize;
            if len < HEADER_LEN || len > bytes.len() {
                break;
            }
            messages.push(Self {
                kind: u16::from_ne_bytes([bytes[4], bytes[5]]),
                sequence: read_u32(bytes, 8),
                body: bytes[HEADER_LEN..len].to_vec(),
            });
            bytes = &bytes[len.next_multiple_of(4).min(bytes.len())..];
        }
        messages
    }

    fn errno(&self) -> Option<Errno> {
        if self.body.len() < 4 {
            return Some(Errno::BADMSG);
        }
        match read_u32(&self.body, 0).cast_signed() {
            0 => None,
            negative => Some(Errno::from_raw_os_error(-negative)),
        }
    }
}

/// The attributes of an answer, after its fixed part.
pub(super) fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while bytes.len() >= 4 {
        let len = u16::from_ne_bytes([bytes[0], bytes[1]]) as usize;
        let kind = u16::from_ne_bytes([bytes[2], bytes[3]]) & !NESTED;
        if len < 4 || len > bytes.len() {
            break;
        }
        found.push((kind, &bytes[4..len]));
        bytes = &bytes[len.next_multiple_of(4).min(bytes.len())..];
    }
    found
}

/// A number in the machine's byte order; zero where the bytes end too early.
pub(super) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| {
        u32::from_ne_bytes(b.try_into().expect("four bytes were taken"))
    })
}
