//! The head of an HTTP/1 request (RFC 9112), and the head that is sent on in its place.
//!
//! A connection carries one request: the next one could be for another host. So the head that is sent on
//! says `Connection: close`, after which a server must not look at another request (RFC 9112, 9.6).

use super::{FIRST_BYTES_MAX, First, host_name};

/// Fields of one head; servers take a hundred or so.
const FIELDS_MAX: usize = 128;

/// A head that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// The host that it asks for; `None` where it asks for none or for an address.
    pub(crate) host: Option<String>,
    /// Where the body begins in what was read.
    pub(crate) length: usize,
    /// The head to send on.
    pub(crate) sent_on: Vec<u8>,
}

pub(super) fn first(bytes: &[u8]) -> First {
    // Servers skip empty lines before a request (RFC 9112, 2.2).
    let start = bytes.iter().position(|b| !matches!(b, b'\r' | b'\n'));
    let Some(start) = start else {
        return First::Unfinished;
    };
    let rest = &bytes[start..];
    let end = rest.iter().position(|b| *b == b'\n');
    let line = &rest[..end.unwrap_or(rest.len())];
    let is_text = |b: &u8| matches!(b, b'\t' | b'\r' | b' '..=b'~') || *b >= 0x80;
    if !line.iter().all(is_text) {
        return First::Other;
    }
    if end.is_none() {
        return First::Unfinished;
    }
    match is_request_line(line) {
        true => head(rest, start),
        false => First::Other,
    }
}

/// Whether a server could take the line for that of a request, however lenient it is.
fn is_request_line(line: &[u8]) -> bool {
    line.windows(5)
        .any(|five| five.eq_ignore_ascii_case(b"HTTP/"))
}

fn head(bytes: &[u8], skipped: usize) -> First {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < FIRST_BYTES_MAX => return First::Unfinished,
        _ => return First::Refused("it is not HTTP/1 as RFC 9112 has it"),
    };
    let (method, target) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
    if method.eq_ignore_ascii_case("CONNECT") {
        return First::Refused("it asks for a tunnel (CONNECT)");
    }
    let host = match host(target, request.headers) {
        Ok(host) => host,
        Err(why) => return First::Refused(why),
    };
    First::Http(Head {
        host,
        length: skipped + length,
        sent_on: sent_on(method, target, &request),
    })
}

/// The host in the one Host field, which must agree with that of the target where the target has one.
fn host(target: &str, fields: &[httparse::Header<'_>]) -> Result<Option<String>, &'static str> {
    let mut hosts = fields
        .iter()
        .filter(|it| it.name.eq_ignore_ascii_case("host"));
    let (field, another) = (hosts.next(), hosts.next());
    if another.is_some() {
        return Err("it has two Hosts");
    }
    let field = match field {
        Some(field) => Some(std::str::from_utf8(field.value).map_err(|_| "its Host is no text")?),
        None => None,
    };
    let authority = target.split_once("://").map(|(_, rest)| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        &rest[..end]
    });
    if let Some(authority) = authority
        && !field.is_some_and(|field| field.eq_ignore_ascii_case(authority))
    {
        return Err("its target names another host than its Host");
    }
    match field.map(without_port) {
        None => Ok(None),
        Some(host) if host.contains('@') => Err("its Host names a user"),
        Some(host) => Ok(host_name(host)),
    }
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn sent_on(method: &str, target: &str, request: &httparse::Request<'_, '_>) -> Vec<u8> {
    let version = request.version.unwrap_or(1);
    let mut head = format!("{method} {target} HTTP/1.{version}\r\n").into_bytes();
    let mut is_upgrade = false;
    for field in request.headers.iter() {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        is_upgrade |= is("upgrade");
        if is("connection") || is("keep-alive") || is("proxy-connection") {
            continue;
        }
        head.extend_from_slice(field.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(field.value);
        head.extend_from_slice(b"\r\n");
    }
    let connection: &[u8] = match is_upgrade {
        true => b"Connection: close, Upgrade\r\n\r\n",
        false => b"Connection: close\r\n\r\n",
    };
    head.extend_from_slice(connection);
    head
}
