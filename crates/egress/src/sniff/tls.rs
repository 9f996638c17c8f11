//! The ClientHello of TLS 1.0 to 1.3 (RFC 8446, 4.1.2), in however many records it comes.

use super::{First, host_name};

/// The type of a record that holds a handshake message; also the first byte of every such connection.
pub(super) const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
/// The true name is hidden in it (RFC 9849), and the one in the open says nothing.
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
/// RFC 8446, 5.1.
const RECORD_BYTES_MAX: usize = 1 << 14;

pub(super) fn first(bytes: &[u8]) -> First {
    match handshake(bytes) {
        Ok(Some(hello)) => match name(&hello) {
            Some(Ok(name)) => First::Tls(name),
            Some(Err(why)) => First::Refused(why),
            None => First::Refused("its ClientHello is malformed"),
        },
        Ok(None) => First::Unfinished,
        Err(why) => First::Refused(why),
    }
}

/// The body of the ClientHello, put together from its records; `None` until it is whole.
fn handshake(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let mut message = Vec::new();
    loop {
        if let [kind, a, b, c, rest @ ..] = &message[..] {
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            if *kind != CLIENT_HELLO {
                return Err("it does not begin with a ClientHello");
            }
            if rest.len() >= length {
                return Ok(Some(rest[..length].to_vec()));
            }
        }
        let [kind, major, _, high, low, rest @ ..] = bytes else {
            return Ok(None);
        };
        let length = usize::from(*high) << 8 | usize::from(*low);
        if *kind != HANDSHAKE || *major != 3 || length == 0 || length > RECORD_BYTES_MAX {
            return Err("its first record is not of a TLS handshake");
        }
        let Some(part) = rest.get(..length) else {
            // What there is of the record may be enough to see that it is no ClientHello.
            return Ok(None);
        };
        message.extend_from_slice(part);
        bytes = &rest[length..];
    }
}

/// The name in a ClientHello. `None` where it is malformed.
fn name(hello: &[u8]) -> Option<Result<Option<String>, &'static str>> {
    const VERSION_AND_RANDOM: usize = 2 + 32;
    let rest = hello.get(VERSION_AND_RANDOM..)?;
    let (_session, rest) = vector8(rest)?;
    let (_ciphers, rest) = vector16(rest)?;
    let (_compression, rest) = vector8(rest)?;
    if rest.is_empty() {
        return Some(Ok(None));
    }
    let (mut extensions, after) = vector16(rest)?;
    if !after.is_empty() {
        return None;
    }
    let mut found = None;
    while !extensions.is_empty() {
        let (kind, rest) = u16_of(extensions)?;
        let (body, rest) = vector16(rest)?;
        match kind {
            ENCRYPTED_CLIENT_HELLO => {
                return Some(Err("it hides its name (Encrypted ClientHello)"));
            }
            SERVER_NAME if found.is_some() => return None,
            SERVER_NAME => found = Some(server_name(body)?),
            _ => {}
        }
        extensions = rest;
    }
    match found {
        None => Some(Ok(None)),
        Some(name) => Some(Ok(Some(name))),
    }
}

/// RFC 6066, 3: a list of one name of the kind host name.
fn server_name(body: &[u8]) -> Option<String> {
    const HOST_NAME: u8 = 0;
    let (list, after) = vector16(body)?;
    let (kind, rest) = list.split_first()?;
    let (name, more) = vector16(rest)?;
    if *kind != HOST_NAME || !more.is_empty() || !after.is_empty() {
        return None;
    }
    host_name(std::str::from_utf8(name).ok()?)
}

fn u16_of(bytes: &[u8]) -> Option<(u16, &[u8])> {
    match bytes {
        [high, low, rest @ ..] => Some((u16::from_be_bytes([*high, *low]), rest)),
        _ => None,
    }
}

fn vector8(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

fn vector16(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = u16_of(bytes)?;
    rest.split_at_checked(usize::from(length))
}
