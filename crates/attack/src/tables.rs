//! The names of the nftables tables of a network namespace, asked over netlink.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink};

// From linux/netfilter/nf_tables.h and linux/netlink.h.
const GET_TABLE: u16 = 10 << 8 | 1;
const REQUEST_DUMP: u16 = 0x1 | 0x300;
const DONE: u16 = 3;
const ERROR: u16 = 2;
const TABLE_NAME: u16 = 1;

/// Asks on behalf of the namespace that it was made in, wherever the process is later.
#[derive(Debug)]
pub(crate) struct Tables(OwnedFd);

impl Tables {
    pub(crate) fn of_this_namespace() -> rustix::io::Result<Self> {
        let kind = Some(netlink::NETFILTER);
        rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, kind).map(Self)
    }

    /// Each as family and name.
    pub(crate) fn list(&self) -> rustix::io::Result<Vec<String>> {
        let mut request = Vec::new();
        request.extend(20_u32.to_ne_bytes());
        request.extend(GET_TABLE.to_ne_bytes());
        request.extend(REQUEST_DUMP.to_ne_bytes());
        // Sequence, port; then family, version and resource.
        request.extend([0; 12]);
        rustix::net::send(&self.0, &request, SendFlags::empty())?;
        let mut found = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let (length, _) = rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            if !read_messages(&buffer[..length], &mut found)? {
                found.sort();
                return Ok(found);
            }
        }
    }
}

/// Whether more will come.
fn read_messages(mut bytes: &[u8], found: &mut Vec<String>) -> rustix::io::Result<bool> {
    while bytes.len() >= 16 {
        let length = u32::from_ne_bytes(bytes[..4].try_into().map_err(|_| Errno::BADMSG)?) as usize;
        let kind = u16::from_ne_bytes([bytes[4], bytes[5]]);
        if length < 16 || length > bytes.len() {
            return Err(Errno::BADMSG);
        }
        match kind {
            DONE | ERROR => return Ok(false),
            _ => found.extend(table_name(&bytes[16..length])),
        }
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    Ok(true)
}

fn table_name(body: &[u8]) -> Option<String> {
    let family = body.first()?;
    let mut attributes = body.get(4..)?;
    while attributes.len() >= 4 {
        let length = usize::from(u16::from_ne_bytes([attributes[0], attributes[1]]));
        let kind = u16::from_ne_bytes([attributes[2], attributes[3]]);
        let value = attributes.get(4..length)?;
        if kind == TABLE_NAME {
            let name = String::from_utf8_lossy(value);
            return Some(format!("family {family} {}", name.trim_end_matches('\0')));
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_nonsense_is_not() {
        let mut message = vec![28, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        message.extend([2, 0, 0, 0, 8, 0, 1, 0, b'o', b's', b'b', 0]);
        message.extend([16, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut found = Vec::new();
        assert_eq!(read_messages(&message, &mut found), Ok(false));
        assert_eq!(found, ["family 2 osb"]);
        message[0] = 200;
        assert_eq!(read_messages(&message, &mut found), Err(Errno::BADMSG));
    }
}
