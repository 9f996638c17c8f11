//! Which headers cross the proxy, and what becomes of them.
//!
//! Not forwarded: what belongs to one connection only (RFC 9110, 7.6.1), our own keys and tokens,
//! and what a client claims about its origin. Forwarded, unlike by the published server: cookies
//! and `Authorization`, without which no web application behind the proxy could log anyone in.
//!
//! Every head is written anew from its parts, with a length of our own making: what one side wrote
//! is never what the other side reads.

use daemon::http::Peer;
use daemon::http::wire::{self, Length, Message, put_header};

use super::{Route, visitor};

/// The header that carries a sandbox's token.
pub(crate) const ACCESS_TOKEN: &str = api::exec::ACCESS_TOKEN_HEADER;

const SECURE_ACCESS: &str = api::endpoint::SECURE_ACCESS_HEADER;
const ACCESS_RENEW: &str = api::sandbox::ACCESS_RENEW_HEADER;
const REQUEST_ID: &str = "x-request-id";
const FORWARDED: &str = "x-forwarded-";

/// Headers of one connection, and of the length of one message.
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

/// Headers of a request that are for this server, or that only a proxy may say.
const OURS: [&str; 8] = [
    "host",
    ACCESS_TOKEN,
    SECURE_ACCESS,
    ACCESS_RENEW,
    api::sandbox::API_KEY_HEADER,
    "forwarded",
    "x-real-ip",
    // Answered by us, as soon as there is somebody to carry the body to.
    "expect",
];

/// Tokens that a request shows, in any of the headers that may carry one.
pub(super) fn shown_tokens(request: Message<'_>) -> impl Iterator<Item = &[u8]> {
    [ACCESS_TOKEN, SECURE_ACCESS]
        .into_iter()
        .flat_map(move |name| request.values(name))
}

/// Whether this request is not to keep the sandbox alive.
pub(super) fn skips_renewal(request: Message<'_>) -> bool {
    let mut values = request.values(ACCESS_RENEW);
    values.any(|value| value.eq_ignore_ascii_case(b"skip"))
}

/// Whether the client waits to be told before it sends the body.
pub(super) fn expects_continue(request: Message<'_>) -> bool {
    let mut values = request.values("expect");
    request.is_1_1() && values.any(|value| value.eq_ignore_ascii_case(b"100-continue"))
}

/// The protocol that a request asks, or an answer agrees, to switch to.
pub(super) fn upgrade(message: Message<'_>) -> Option<&[u8]> {
    let is_asked = message
        .items("connection")
        .any(|option| option.eq_ignore_ascii_case("upgrade"));
    let mut protocols = message.values("upgrade");
    protocols.next().filter(|_| is_asked)
}

/// What the service inside gets to see of a request.
pub(super) struct Outbound<'a> {
    pub(super) route: &'a Route,
    pub(super) peer: Peer,
    pub(super) length: Length,
    /// For the daemon inside.
    pub(super) token: Option<&'a str>,
    pub(super) upgrade: Option<&'a [u8]>,
}

/// Writes a client's request as one for the service inside.
pub(super) fn write_request(out: &mut Vec<u8>, request: Message<'_>, outbound: &Outbound<'_>) {
    let route = outbound.route;
    out.extend_from_slice(request.method().as_bytes());
    out.push(b' ');
    if !route.path.starts_with('/') {
        out.push(b'/');
    }
    out.extend_from_slice(route.path.as_bytes());
    // An older client must not get an answer that it cannot read.
    let version = if request.is_1_1() { "1.1" } else { "1.0" };
    out.extend_from_slice(format!(" HTTP/{version}\r\n").as_bytes());
    put_header(out, "host", format!("localhost:{}", route.port).as_bytes());
    for (name, value) in request.headers() {
        let is_dropped = is_one_of(name, &OURS)
            || name.len() > FORWARDED.len()
                && name.as_bytes()[..FORWARDED.len()].eq_ignore_ascii_case(FORWARDED.as_bytes());
        if is_dropped || is_hop_by_hop(request, name) {
            continue;
        }
        if name.eq_ignore_ascii_case("cookie") {
            if let Some(rest) = visitor::without_ours(value) {
                put_header(out, name, &rest);
            }
            continue;
        }
        put_header(out, name, value);
    }
    put_header(out, "x-forwarded-proto", b"http");
    put_header(out, "x-forwarded-prefix", route.prefix.as_bytes());
    if let Some(host) = request.values("host").next() {
        put_header(out, "x-forwarded-host", host);
    }
    if let Peer::Tcp(address) = outbound.peer {
        let address = address.ip().to_canonical().to_string();
        put_header(out, "x-forwarded-for", address.as_bytes());
    }
    if let Some(token) = outbound.token {
        put_header(out, ACCESS_TOKEN, token.as_bytes());
    }
    if let Some(protocol) = outbound.upgrade {
        put_header(out, "connection", b"upgrade");
        put_header(out, "upgrade", protocol);
    }
    let states_length = request.values("content-length").next().is_some();
    if outbound.length != Length::Exactly(0) || states_length {
        put_length(out, outbound.length);
    }
    out.extend_from_slice(b"\r\n");
}

/// What the client gets to see of an answer.
pub(super) struct Inbound<'a> {
    pub(super) prefix: &'a str,
    pub(super) length: Length,
    pub(super) is_for_head: bool,
    pub(super) keeps_open: bool,
    pub(super) request_id: &'a str,
}

/// Writes the answer of the service inside as one for the client. A `Location` that is meant from
/// the service's root is put under the proxy's path.
pub(super) fn write_answer(out: &mut Vec<u8>, answer: Message<'_>, inbound: &Inbound<'_>) {
    let status = answer.status();
    out.extend_from_slice(format!("HTTP/1.1 {status} {}\r\n", answer.reason()).as_bytes());
    let is_switched = status == 101;
    let mut has_date = false;
    for (name, value) in answer.headers() {
        if name.eq_ignore_ascii_case(REQUEST_ID) || is_hop_by_hop(answer, name) {
            continue;
        }
        has_date |= name.eq_ignore_ascii_case("date");
        if name.eq_ignore_ascii_case("location") && is_from_root(value, inbound.prefix) {
            put_header(out, name, &[inbound.prefix.as_bytes(), value].concat());
        } else {
            put_header(out, name, value);
        }
    }
    if !has_date {
        put_header(out, "date", wire::date().as_bytes());
    }
    put_header(out, REQUEST_ID, inbound.request_id.as_bytes());
    if is_switched {
        put_header(out, "connection", b"upgrade");
        for protocol in answer.values("upgrade") {
            put_header(out, "upgrade", protocol);
        }
    } else {
        write_length(out, answer, inbound);
        if !inbound.keeps_open {
            put_header(out, "connection", b"close");
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn write_length(out: &mut Vec<u8>, answer: Message<'_>, inbound: &Inbound<'_>) {
    // An answer without a body may still state the length that another one would have.
    if inbound.is_for_head || answer.status() == 304 {
        if let Ok(Some(length)) = answer.content_length() {
            put_length(out, Length::Exactly(length));
        }
    } else if answer.status() != 204 {
        put_length(out, inbound.length);
    }
}

fn put_length(out: &mut Vec<u8>, length: Length) {
    match length {
        Length::Exactly(bytes) => put_header(out, "content-length", bytes.to_string().as_bytes()),
        Length::Chunked => put_header(out, "transfer-encoding", b"chunked"),
        Length::UntilClosed => {}
    }
}

fn is_from_root(location: &[u8], prefix: &str) -> bool {
    let is_under_prefix = location
        .strip_prefix(prefix.as_bytes())
        .is_some_and(|rest| rest.first() == Some(&b'/'));
    location.starts_with(b"/") && !location.starts_with(b"//") && !is_under_prefix
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|one| one.eq_ignore_ascii_case(name))
}

/// Whether a header is of one connection, by its name or because `Connection` says so.
fn is_hop_by_hop(message: Message<'_>, name: &str) -> bool {
    is_one_of(name, &HOP_BY_HOP)
        || message
            .items("connection")
            .any(|option| option.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use daemon::http::wire::Head;

    use super::*;

    /// The lines that a request with these headers becomes, sorted.
    fn request(headers: &str) -> Vec<String> {
        let text = format!("POST /v1/sandboxes/a/proxy/80/x?y HTTP/1.1\r\n{headers}\r\n");
        let mut head = Head::default();
        assert_eq!(head.read_request(text.as_bytes()), Ok(true), "{text}");
        let message = head.of(text.as_bytes());
        let outbound = Outbound {
            route: &Route::parse(message.target()).unwrap(),
            peer: Peer::Tcp("192.0.2.1:5".parse().unwrap()),
            length: message.request_length().unwrap(),
            token: None,
            upgrade: upgrade(message),
        };
        let mut out = Vec::new();
        write_request(&mut out, message, &outbound);
        lines(out, "POST /x?y HTTP/1.1")
    }

    /// The lines that an answer with this status and these headers becomes, sorted.
    fn answer(status: u16, headers: &str, is_for_head: bool) -> Vec<String> {
        let text = format!("HTTP/1.1 {status} Fine\r\nDate: x\r\n{headers}\r\n");
        let mut head = Head::default();
        assert_eq!(head.read_answer(text.as_bytes()), Ok(true), "{text}");
        let message = head.of(text.as_bytes());
        let inbound = Inbound {
            prefix: "/p",
            length: message.answer_length(is_for_head).unwrap(),
            is_for_head,
            keeps_open: true,
            request_id: "ours",
        };
        let mut out = Vec::new();
        write_answer(&mut out, message, &inbound);
        let mut lines = lines(out, &format!("HTTP/1.1 {status} Fine"));
        lines.retain(|line| line != "Date: x" && line != "x-request-id: ours");
        lines
    }

    fn lines(head: Vec<u8>, first: &str) -> Vec<String> {
        let text = String::from_utf8(head).unwrap();
        let text = text
            .strip_suffix("\r\n\r\n")
            .expect("one empty line at the end");
        let mut lines: Vec<String> = text.split("\r\n").map(str::to_owned).collect();
        assert_eq!(lines.remove(0), first);
        lines.sort();
        lines
    }

    #[test]
    fn a_request_keeps_what_is_the_applications_and_nothing_else() {
        let lines = request(
            "Host: example.com:8080\r\nCookie: a=1; opensandbox-token=secret\r\n\
             Authorization: Bearer x\r\nAccept: text/html\r\nAccept: application/json\r\n\
             Connection: close, X-Only-Here\r\nx-only-here: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n\
             Trailer: a\r\nTransfer-Encoding: chunked\r\nUpgrade: h2c\r\nExpect: 100-continue\r\n\
             Open-Sandbox-Api-Key: secret\r\nX-Execd-Access-Token: secret\r\n\
             OpenSandbox-Secure-Access: secret\r\nOpenSandbox-Access-Renew: skip\r\n\
             X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Server: evil\r\nForwarded: for=6.6.6.6\r\n\
             X-Real-Ip: 6.6.6.6\r\nProxy-Authorization: secret\r\n",
        );
        assert_eq!(
            lines,
            [
                "Accept: application/json",
                "Accept: text/html",
                "Authorization: Bearer x",
                "Cookie: a=1",
                "host: localhost:80",
                "transfer-encoding: chunked",
                "x-forwarded-for: 192.0.2.1",
                "x-forwarded-host: example.com:8080",
                "x-forwarded-prefix: /v1/sandboxes/a/proxy/80",
                "x-forwarded-proto: http",
            ]
        );
    }

    #[test]
    fn nobody_can_name_away_what_we_say_of_a_request() {
        let lines = request(
            "Host: a\r\nContent-Length: 3\r\nConnection: x-forwarded-for, host, content-length\r\n",
        );
        for line in [
            "content-length: 3",
            "host: localhost:80",
            "x-forwarded-for: 192.0.2.1",
        ] {
            assert!(lines.iter().any(|own| own == line), "{lines:?}");
        }
    }

    #[test]
    fn an_upgrade_is_kept_when_the_connection_asks_for_it() {
        let lines = request("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n");
        for line in ["connection: upgrade", "upgrade: websocket"] {
            assert!(lines.iter().any(|own| own == line), "{lines:?}");
        }
        let lines = request("Upgrade: websocket\r\n");
        assert!(
            !lines.iter().any(|line| line.contains("upgrade")),
            "{lines:?}"
        );
    }

    #[test]
    fn an_answer_states_one_length_of_our_own_making() {
        let length = "Content-Length: 5\r\n";
        let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
        for (status, headers, is_for_head, seen) in [
            (200, length, false, vec!["content-length: 5"]),
            (
                200,
                "Content-Length: 5, 5\r\n",
                false,
                vec!["content-length: 5"],
            ),
            (200, both, false, vec!["transfer-encoding: chunked"]),
            (200, length, true, vec!["content-length: 5"]),
            (304, length, false, vec!["content-length: 5"]),
            (204, length, false, vec![]),
            (200, "", false, vec![]),
            (
                200,
                "Connection: a, close\r\nA: 1\r\nX-Request-Id: theirs\r\n",
                true,
                vec![],
            ),
        ] {
            assert_eq!(
                answer(status, headers, is_for_head),
                seen,
                "{status} {headers}"
            );
        }
        let switched = answer(101, "Connection: Upgrade\r\nUpgrade: websocket\r\n", false);
        assert_eq!(switched, ["connection: upgrade", "upgrade: websocket"]);
    }

    #[test]
    fn a_location_from_the_root_stays_inside_the_proxy() {
        for (sent, seen) in [
            ("/login", "/p/login"),
            ("/p/login", "/p/login"),
            ("/pp", "/p/pp"),
            ("login", "login"),
            ("//elsewhere/x", "//elsewhere/x"),
            ("http://elsewhere/x", "http://elsewhere/x"),
        ] {
            let lines = answer(
                302,
                &format!("Location: {sent}\r\nContent-Length: 0\r\n"),
                false,
            );
            assert_eq!(
                lines,
                [format!("Location: {seen}"), "content-length: 0".into()],
                "{sent}"
            );
        }
    }
}
