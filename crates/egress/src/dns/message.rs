//! DNS messages (RFC 1035), as far as the gate has to understand them: one question, and the addresses and
//! aliases of an answer. Nothing is passed on that was not read here, but for records without addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const TYPE_A: u16 = 1;
pub(crate) const TYPE_CNAME: u16 = 5;
pub(crate) const TYPE_AAAA: u16 = 28;
const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;

pub(crate) const NO_ERROR: u8 = 0;
pub(crate) const FORMAT_ERROR: u8 = 1;
pub(crate) const SERVER_FAILURE: u8 = 2;
pub(crate) const NO_SUCH_NAME: u8 = 3;
pub(crate) const NOT_IMPLEMENTED: u8 = 4;

const HEADER_BYTES: usize = 12;
/// A name has at most this many bytes on the wire (RFC 1035, 3.1).
const NAME_BYTES_MAX: usize = 255;
/// Jumps that are followed within one name; a name has at most this many labels.
const JUMPS_MAX: usize = 128;
/// What a client without EDNS takes over UDP.
pub(crate) const UDP_BYTES_PLAIN: usize = 512;
/// What the gate says it takes; larger messages are often lost in pieces (the DNS Flag Day of 2020).
pub(crate) const UDP_BYTES_OURS: u16 = 1232;

/// A question of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) id: u16,
    wants_recursion: bool,
    /// In lower case, without the dot at the end.
    pub(crate) name: String,
    pub(crate) kind: u16,
    /// As it was sent, for the answer: some clients compare the case of letters.
    question: Vec<u8>,
    /// What the client takes over UDP, where it speaks EDNS.
    pub(crate) udp_bytes: Option<u16>,
}

/// Why a message is not a question that can be answered, with the code to say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotAQuery {
    pub(crate) id: u16,
    pub(crate) code: u8,
}

/// Reads a question. `None` for what deserves no answer: an answer, or less than a header.
pub(crate) fn read_query(bytes: &[u8]) -> Option<Result<Query, NotAQuery>> {
    const RESPONSE: u8 = 0x80;
    const OPERATION: u8 = 0x78;
    let id = u16_at(bytes, 0)?;
    let counts = [4, 6, 8, 10].map(|at| u16_at(bytes, at));
    let (flags, [Some(1), Some(0), Some(0), Some(_)]) = (*bytes.get(2)?, counts) else {
        let is_response = bytes.get(2).is_some_and(|flags| flags & RESPONSE != 0);
        let code = FORMAT_ERROR;
        return (bytes.len() >= HEADER_BYTES && !is_response)
            .then_some(Err(NotAQuery { id, code }));
    };
    if flags & RESPONSE != 0 {
        return None;
    }
    let refuse = |code| Some(Err(NotAQuery { id, code }));
    if flags & OPERATION != 0 {
        return refuse(NOT_IMPLEMENTED);
    }
    let Some((name, end)) = read_name(bytes, HEADER_BYTES) else {
        return refuse(FORMAT_ERROR);
    };
    let (Some(kind), Some(class)) = (u16_at(bytes, end), u16_at(bytes, end + 2)) else {
        return refuse(FORMAT_ERROR);
    };
    if class != CLASS_IN {
        return refuse(NOT_IMPLEMENTED);
    }
    // The name of a question is never compressed: there is nothing before it.
    if end - HEADER_BYTES > NAME_BYTES_MAX || bytes[HEADER_BYTES..end].iter().any(|b| *b >= 0xC0) {
        return refuse(FORMAT_ERROR);
    }
    Some(Ok(Query {
        id,
        wants_recursion: flags & 1 != 0,
        name,
        kind,
        question: bytes[HEADER_BYTES..end + 4].to_vec(),
        udp_bytes: edns(&bytes[end + 4..]),
    }))
}

/// The size in the OPT record (RFC 6891), where it is the first of the additional ones.
fn edns(rest: &[u8]) -> Option<u16> {
    (rest.first() == Some(&0) && u16_at(rest, 1) == Some(TYPE_OPT)).then(|| u16_at(rest, 3))?
}

/// A question of the gate to a nameserver.
pub(crate) fn write_query(id: u16, name: &str, kind: u16) -> Option<Vec<u8>> {
    let mut message = id.to_be_bytes().to_vec();
    // Recursion is desired; one question and one additional record.
    message.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    for label in name.split('.') {
        let length = u8::try_from(label.len())
            .ok()
            .filter(|it| (1..64).contains(it))?;
        message.push(length);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&CLASS_IN.to_be_bytes());
    message.push(0);
    message.extend_from_slice(&TYPE_OPT.to_be_bytes());
    message.extend_from_slice(&UDP_BYTES_OURS.to_be_bytes());
    message.extend_from_slice(&[0; 6]);
    (message.len() <= usize::from(UDP_BYTES_OURS)).then_some(message)
}

/// An answer to a sandbox.
pub(crate) struct Reply<'a> {
    pub(crate) code: u8,
    pub(crate) addresses: &'a [IpAddr],
    pub(crate) ttl: u32,
    /// Says that it was not allowed, to clients that can hear it (RFC 8914, code 17).
    pub(crate) is_filtered: bool,
}

impl Query {
    /// The answer as it is sent. Never longer than a few kilobytes: addresses are few.
    pub(crate) fn reply(&self, reply: &Reply<'_>) -> Vec<u8> {
        let mut message = self.header(reply.code);
        let mut count = 0_u16;
        for address in reply.addresses {
            let (kind, data): (u16, Vec<u8>) = match address {
                IpAddr::V4(v4) => (TYPE_A, v4.octets().to_vec()),
                IpAddr::V6(v6) => (TYPE_AAAA, v6.octets().to_vec()),
            };
            // The name is that of the question, which stands after the header.
            message.extend_from_slice(&[0xC0, 12]);
            message.extend_from_slice(&kind.to_be_bytes());
            message.extend_from_slice(&CLASS_IN.to_be_bytes());
            message.extend_from_slice(&reply.ttl.to_be_bytes());
            message.extend_from_slice(&u16::try_from(data.len()).unwrap_or(0).to_be_bytes());
            message.extend_from_slice(&data);
            count += 1;
        }
        message[6..8].copy_from_slice(&count.to_be_bytes());
        if self.udp_bytes.is_some() {
            self.say_edns(&mut message, reply.is_filtered);
        }
        message
    }

    fn header(&self, code: u8) -> Vec<u8> {
        const RESPONSE: u8 = 0x80;
        const RECURSION_AVAILABLE: u8 = 0x80;
        let mut message = self.id.to_be_bytes().to_vec();
        message.push(RESPONSE | u8::from(self.wants_recursion));
        message.push(RECURSION_AVAILABLE | code);
        message.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
        message.extend_from_slice(&self.question);
        message
    }

    fn say_edns(&self, message: &mut Vec<u8>, is_filtered: bool) {
        const EXTENDED_ERROR: u16 = 15;
        const FILTERED: u16 = 17;
        message[11] = 1;
        message.push(0);
        message.extend_from_slice(&TYPE_OPT.to_be_bytes());
        message.extend_from_slice(&UDP_BYTES_OURS.to_be_bytes());
        message.extend_from_slice(&[0; 4]);
        let mut options = Vec::new();
        if is_filtered {
            options.extend_from_slice(&EXTENDED_ERROR.to_be_bytes());
            options.extend_from_slice(&2_u16.to_be_bytes());
            options.extend_from_slice(&FILTERED.to_be_bytes());
        }
        message.extend_from_slice(&u16::try_from(options.len()).unwrap_or(0).to_be_bytes());
        message.extend_from_slice(&options);
    }

    /// What is sent in place of an answer that does not fit: ask again over TCP.
    pub(crate) fn truncated(&self) -> Vec<u8> {
        const TRUNCATED: u8 = 0x02;
        let mut message = self.header(NO_ERROR);
        message[2] |= TRUNCATED;
        message
    }

    /// A nameserver's whole answer to this question, made the sandbox's. `None` where it is the answer to
    /// another question.
    pub(crate) fn adopt(&self, answer: &[u8]) -> Option<Vec<u8>> {
        let (name, end) = read_name(answer, HEADER_BYTES)?;
        if name != self.name || u16_at(answer, end)? != self.kind {
            return None;
        }
        let mut message = answer.to_vec();
        message[..2].copy_from_slice(&self.id.to_be_bytes());
        Some(message)
    }
}

/// An answer that says only that there is none.
pub(crate) fn refusal(refused: &NotAQuery) -> Vec<u8> {
    let mut message = refused.id.to_be_bytes().to_vec();
    message.extend_from_slice(&[0x80, 0x80 | refused.code, 0, 0, 0, 0, 0, 0, 0, 0]);
    message
}

/// What a nameserver answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) code: u8,
    pub(crate) is_truncated: bool,
    /// The addresses of the name at the end of the chain of aliases.
    pub(crate) addresses: Vec<IpAddr>,
    /// The aliases that were followed, in order.
    pub(crate) aliases: Vec<String>,
    /// How long it may be kept, in seconds.
    pub(crate) ttl: u32,
}

struct Record {
    owner: String,
    kind: u16,
    ttl: u32,
    data: Data,
}

enum Data {
    Address(IpAddr),
    Alias(String),
    Other,
}

/// Reads the answer to a question. `None` where it is not the answer to it, or no message. Records that do
/// not belong to the name or to one of its aliases are not looked at, so an answer says nothing about other
/// names.
pub(crate) fn read_answer(bytes: &[u8], id: u16, name: &str, kind: u16) -> Option<Found> {
    const RESPONSE: u8 = 0x80;
    const TRUNCATED: u8 = 0x02;
    const ALIASES_MAX: usize = 16;
    let flags = *bytes.get(2)?;
    if u16_at(bytes, 0)? != id || flags & RESPONSE == 0 || u16_at(bytes, 4)? != 1 {
        return None;
    }
    let (asked, mut at) = read_name(bytes, HEADER_BYTES)?;
    if asked != name || u16_at(bytes, at)? != kind {
        return None;
    }
    at += 4;
    let mut found = Found {
        code: bytes.get(3)? & 0x0F,
        is_truncated: flags & TRUNCATED != 0,
        ttl: u32::MAX,
        ..Found::default()
    };
    let mut records = Vec::new();
    for _ in 0..u16_at(bytes, 6)? {
        let Some((record, end)) = read_record(bytes, at) else {
            // A message that was cut short has what fitted.
            if found.is_truncated {
                break;
            }
            return None;
        };
        records.push(record);
        at = end;
    }
    let mut owner = name.to_owned();
    while let Some(record) = records
        .iter()
        .find(|record| record.owner == owner && matches!(record.data, Data::Alias(_)))
    {
        let Data::Alias(target) = &record.data else {
            break;
        };
        if found.aliases.len() >= ALIASES_MAX || found.aliases.contains(target) {
            return None;
        }
        found.ttl = found.ttl.min(record.ttl);
        found.aliases.push(target.clone());
        owner = target.clone();
    }
    for record in records
        .iter()
        .filter(|it| it.owner == owner && it.kind == kind)
    {
        if let Data::Address(address) = record.data {
            found.ttl = found.ttl.min(record.ttl);
            found.addresses.push(address);
        }
    }
    Some(found)
}

fn read_record(bytes: &[u8], at: usize) -> Option<(Record, usize)> {
    let (owner, at) = read_name(bytes, at)?;
    let (kind, class) = (u16_at(bytes, at)?, u16_at(bytes, at + 2)?);
    let ttl = u32::from_be_bytes(bytes.get(at + 4..at + 8)?.try_into().ok()?);
    let length = usize::from(u16_at(bytes, at + 8)?);
    let start = at + 10;
    let data = bytes.get(start..start + length)?;
    let data = match kind {
        _ if class != CLASS_IN => Data::Other,
        TYPE_A => Data::Address(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).into()),
        TYPE_AAAA => Data::Address(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?).into()),
        TYPE_CNAME => Data::Alias(read_name(bytes, start)?.0),
        _ => Data::Other,
    };
    let record = Record {
        owner,
        kind,
        ttl,
        data,
    };
    Some((record, start + length))
}

/// A name in lower case without the dot at its end, and where what follows it begins. Labels have letters,
/// digits, `-` and `_`: a name with anything else is no host's, and a dot within a label would be read as
/// two.
fn read_name(bytes: &[u8], start: usize) -> Option<(String, usize)> {
    let (mut at, mut end, mut name) = (start, None, String::new());
    for _ in 0..JUMPS_MAX {
        let length = usize::from(*bytes.get(at)?);
        match length {
            0 => return Some((name, end.unwrap_or(at + 1))),
            1..=63 => {
                let label = bytes.get(at + 1..at + 1 + length)?;
                if !name.is_empty() {
                    name.push('.');
                }
                for byte in label {
                    if !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
                        return None;
                    }
                    name.push(char::from(byte.to_ascii_lowercase()));
                }
                if name.len() > NAME_BYTES_MAX {
                    return None;
                }
                at += 1 + length;
            }
            0xC0.. => {
                let target = (length & 0x3F) << 8 | usize::from(*bytes.get(at + 1)?);
                end = end.or(Some(at + 2));
                // Only backwards, so that it ends.
                if target >= at {
                    return None;
                }
                at = target;
            }
            _ => return None,
        }
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
