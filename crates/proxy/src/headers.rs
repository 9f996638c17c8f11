//! Which headers of requests and responses the proxy forwards, drops and adds.
//!
//! Dropped: hop-by-hop headers, which belong to one connection only (RFC 9110 7.6.1), our own keys and
//! tokens, and what a client claims about its origin. Forwarded, unlike by the published server: cookies
//! and `Authorization`, without which no web application behind the proxy could log anyone in.
//!
//! Every head is written anew from its parts, with one length that the proxy worked out: bytes of a
//! head are never copied from one side to the other.

use api::endpoint::SECURE_ACCESS_HEADER;
use api::exec::ACCESS_TOKEN_HEADER;
use api::sandbox::{ACCESS_RENEW_HEADER, API_KEY_HEADER};

use crate::body::Length;
use crate::message::{self, Head, put_header};
use crate::{Peer, Route, browser_link};

const REQUEST_ID: &str = "x-request-id";
const FORWARDED_PREFIX: &str = "x-forwarded-";

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

/// Headers of a request that are meant for the proxy, or that only a proxy may set.
const NOT_FORWARDED: [&str; 8] = [
    "host",
    ACCESS_TOKEN_HEADER,
    SECURE_ACCESS_HEADER,
    ACCESS_RENEW_HEADER,
    API_KEY_HEADER,
    "forwarded",
    "x-real-ip",
    // The proxy sends 100 Continue itself, once it is connected to the service.
    "expect",
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

/// What the head of a forwarded request has that the client's did not.
pub(crate) struct ForwardedRequest<'a> {
    pub(crate) route: &'a Route,
    pub(crate) peer: Peer,
    pub(crate) length: Length,
    /// The sandbox's token, for its daemon.
    pub(crate) token: Option<&'a str>,
    pub(crate) upgrade: Option<&'a [u8]>,
}

/// Writes the head of a client's request for the service in the sandbox.
pub(crate) fn write_request(
    out: &mut Vec<u8>,
    request: Head<'_>,
    forwarded: &ForwardedRequest<'_>,
) {
    let route = forwarded.route;
    out.extend_from_slice(request.method().as_bytes());
    out.push(b' ');
    if !route.path.starts_with('/') {
        out.push(b'/');
    }
    out.extend_from_slice(route.path.as_bytes());
    // To a client of HTTP/1.0 the service must not send chunks.
    let version = if request.is_1_1() { "1.1" } else { "1.0" };
    out.extend_from_slice(format!(" HTTP/{version}\r\n").as_bytes());
    put_header(out, "host", format!("localhost:{}", route.port).as_bytes());
    for (name, value) in request.headers() {
        let is_dropped =
            is_one_of(name, &NOT_FORWARDED) || starts_with_ignore_case(name, FORWARDED_PREFIX);
        if is_dropped || is_hop_by_hop(request, name) {
            continue;
        }
        if name.eq_ignore_ascii_case("cookie") {
            if let Some(rest) = browser_link::without_token(value) {
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
    let address = forwarded.peer.ip().to_string();
    put_header(out, "x-forwarded-for", address.as_bytes());
    if let Some(token) = forwarded.token {
        put_header(out, ACCESS_TOKEN_HEADER, token.as_bytes());
    }
    if let Some(protocol) = forwarded.upgrade {
        put_header(out, "connection", b"upgrade");
        put_header(out, "upgrade", protocol);
    }
    let states_length = request.values("content-length").next().is_some();
    if forwarded.length != Length::Exactly(0) || states_length {
        put_length(out, forwarded.length);
    }
    out.extend_from_slice(b"\r\n");
}

/// What the head of a forwarded response has that the service's did not.
pub(crate) struct ForwardedResponse<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) length: Length,
    pub(crate) is_to_head: bool,
    pub(crate) keeps_alive: bool,
    pub(crate) request_id: &'a str,
}

/// Writes the head of the service's response for the client. A `Location` from the service's root is
/// put under the proxy's path.
pub(crate) fn write_response(
    out: &mut Vec<u8>,
    response: Head<'_>,
    forwarded: &ForwardedResponse<'_>,
) {
    let status = response.status();
    out.extend_from_slice(format!("HTTP/1.1 {status} {}\r\n", response.reason()).as_bytes());
    let is_switched = status == 101;
    let mut has_date = false;
    for (name, value) in response.headers() {
        if name.eq_ignore_ascii_case(REQUEST_ID) || is_hop_by_hop(response, name) {
            continue;
        }
        has_date |= name.eq_ignore_ascii_case("date");
        if name.eq_ignore_ascii_case("location") && is_from_root(value, forwarded.prefix) {
            put_header(out, name, &[forwarded.prefix.as_bytes(), value].concat());
        } else {
            put_header(out, name, value);
        }
    }
    if !has_date {
        put_header(out, "date", message::date().as_bytes());
    }
    put_header(out, REQUEST_ID, forwarded.request_id.as_bytes());
    if is_switched {
        put_header(out, "connection", b"upgrade");
        for protocol in response.values("upgrade") {
            put_header(out, "upgrade", protocol);
        }
    } else {
        write_response_length(out, response, forwarded);
        if !forwarded.keeps_alive {
            put_header(out, "connection", b"close");
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn write_response_length(out: &mut Vec<u8>, response: Head<'_>, forwarded: &ForwardedResponse<'_>) {
    // A response to HEAD and a 304 state the length that a GET would have (RFC 9110 8.6).
    if forwarded.is_to_head || response.status() == 304 {
        if let Ok(Some(length)) = response.content_length() {
            put_length(out, Length::Exactly(length));
        }
    } else if response.status() != 204 {
        put_length(out, forwarded.length);
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

fn starts_with_ignore_case(name: &str, prefix: &str) -> bool {
    let start = name.as_bytes().get(..prefix.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|one| one.eq_ignore_ascii_case(name))
}

/// Whether a header belongs to one connection, by its name or because `Connection` names it.
fn is_hop_by_hop(message: Head<'_>, name: &str) -> bool {
    is_one_of(name, &HOP_BY_HOP)
        || message
            .items("connection")
            .any(|option| option.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::HeadParser;

    /// The lines that a request with these headers becomes, sorted.
    fn request(headers: &str) -> Vec<String> {
        let text = format!("POST /v1/sandboxes/a/proxy/80/x?y HTTP/1.1\r\n{headers}\r\n");
        let mut parser = HeadParser::default();
        assert_eq!(parser.parse_request(text.as_bytes()), Ok(true), "{text}");
        let message = parser.head(text.as_bytes());
        let forwarded = ForwardedRequest {
            route: &Route::parse(message.target()).unwrap(),
            peer: Peer("192.0.2.1:5".parse().unwrap()),
            length: message.request_length().unwrap(),
            token: None,
            upgrade: upgrade(message),
        };
        let mut out = Vec::new();
        write_request(&mut out, message, &forwarded);
        lines(out, "POST /x?y HTTP/1.1")
    }

    /// The lines that a response with this status and these headers becomes, sorted.
    fn response(status: u16, headers: &str, is_to_head: bool) -> Vec<String> {
        let text = format!("HTTP/1.1 {status} Fine\r\nDate: x\r\n{headers}\r\n");
        let mut parser = HeadParser::default();
        assert_eq!(parser.parse_response(text.as_bytes()), Ok(true), "{text}");
        let message = parser.head(text.as_bytes());
        let forwarded = ForwardedResponse {
            prefix: "/p",
            length: message.response_length(is_to_head).unwrap(),
            is_to_head,
            keeps_alive: true,
            request_id: "ours",
        };
        let mut out = Vec::new();
        write_response(&mut out, message, &forwarded);
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
    fn connection_options_cannot_remove_headers_of_the_proxy() {
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
    fn a_response_states_one_length_that_the_proxy_worked_out() {
        let length = "Content-Length: 5\r\n";
        let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
        for (status, headers, is_to_head, seen) in [
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
                response(status, headers, is_to_head),
                seen,
                "{status} {headers}"
            );
        }
        let switched = response(101, "Connection: Upgrade\r\nUpgrade: websocket\r\n", false);
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
            let lines = response(
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
