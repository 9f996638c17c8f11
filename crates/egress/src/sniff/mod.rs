//! What the first bytes of a connection say about where it is meant to go: the name in a TLS ClientHello, or
//! the host of an HTTP request. Pure.

mod http;
mod tls;

pub(crate) use http::Head;

/// First bytes that are looked at. A ClientHello with the keys of a post-quantum exchange has some 2 KiB,
/// servers take heads of requests of 8 to 16 KiB.
pub(crate) const FIRST_BYTES_MAX: usize = 32 * 1024;

/// What the first bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum First {
    /// More has to come before anything can be said.
    Unfinished,
    /// A TLS ClientHello with the name in it, if it has one.
    Tls(Option<String>),
    /// The head of an HTTP request.
    Http(Head),
    /// What looks like TLS or HTTP and is not to be trusted; why.
    Refused(&'static str),
    /// Another protocol.
    Other,
}

/// Looks at the first bytes.
pub(crate) fn first(bytes: &[u8]) -> First {
    let found = match bytes.first() {
        None => First::Unfinished,
        Some(&tls::HANDSHAKE) => tls::first(bytes),
        Some(_) => http::first(bytes),
    };
    match found {
        First::Unfinished if bytes.len() >= FIRST_BYTES_MAX => {
            First::Refused("its first message is too long")
        }
        found => found,
    }
}

/// A host as it stands in a message, as rules have it; `None` for an address and for what is no name.
fn host_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let is_number = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
    let is_name = name.len() <= 253
        && name.split('.').all(is_label)
        // The last label of an address is a number, and no name ends with one.
        && !name.rsplit('.').next().is_some_and(is_number);
    is_name.then_some(name)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
