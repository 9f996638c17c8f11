//! What headers of a message mean to the proxy itself.
//!
//! Which are forwarded is in `request_head` and `response_head`.

use api::endpoint::SECURE_ACCESS_HEADER;
use api::exec::ACCESS_TOKEN_HEADER;
use api::sandbox::ACCESS_RENEW_HEADER;

use crate::body::Length;
use crate::message::{Head, put_header};

/// Headers of one connection (RFC 9110 7.6.1), and of the length of one message.
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "content-length",
    "upgrade",
];

/// The sandbox tokens in a request, from any of the headers that may carry one.
pub(crate) fn tokens(request: Head<'_>) -> impl Iterator<Item = &[u8]> {
    [ACCESS_TOKEN_HEADER, SECURE_ACCESS_HEADER]
        .into_iter()
        .flat_map(move |name| request.values(name))
}

/// Whether a request asks not to prolong the sandbox's life.
pub fn skips_renewal(request: Head<'_>) -> bool {
    let mut values = request.values(ACCESS_RENEW_HEADER);
    values.any(|value| value.eq_ignore_ascii_case(b"skip"))
}

/// Whether the client waits for 100 Continue before it sends the body (RFC 9110 10.1.1).
pub(crate) fn expects_continue(request: Head<'_>) -> bool {
    let mut values = request.values("expect");
    request.is_1_1() && values.any(|value| value.eq_ignore_ascii_case(b"100-continue"))
}

/// The protocol that a request asks to switch to, or that a response switches to.
pub(crate) fn upgrade(message: Head<'_>) -> Option<&[u8]> {
    let is_asked = message
        .items("connection")
        .any(|option| option.eq_ignore_ascii_case("upgrade"));
    let mut protocols = message.values("upgrade");
    protocols.next().filter(|_| is_asked)
}

/// Appends the header that states a length.
pub(crate) fn put_length(out: &mut Vec<u8>, length: Length) {
    match length {
        Length::Exactly(bytes) => put_header(out, "content-length", bytes.to_string().as_bytes()),
        Length::Chunked => put_header(out, "transfer-encoding", b"chunked"),
        Length::UntilClosed => {}
    }
}

pub(crate) fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|one| one.eq_ignore_ascii_case(name))
}

/// Whether a header belongs to one connection, by its name or because `Connection` names it.
pub(crate) fn is_hop_by_hop(message: Head<'_>, name: &str) -> bool {
    is_one_of(name, &HOP_BY_HOP)
        || message
            .items("connection")
            .any(|option| option.eq_ignore_ascii_case(name))
}
