//! The head of a request as the service in the sandbox gets it.
//!
//! Dropped: hop-by-hop headers, which belong to one connection only (RFC 9110 7.6.1), our own keys and
//! tokens by name and by value, and what a client claims about its origin. Forwarded, unlike by the
//! published server: cookies and `Authorization`, without which no web application behind the proxy could
//! log anyone in.
//!
//! Every head is written anew from its parts, with one length that the proxy worked out: bytes of a
//! head are never copied from one side to the other.

use std::borrow::Cow;

use api::endpoint::{
    EGRESS_AUTH_HEADER, INGRESS_TO_HEADER, INGRESS_TO_HEADER_OLD, SECURE_ACCESS_HEADER,
};
use api::exec::ACCESS_TOKEN_HEADER;
use api::sandbox::{ACCESS_RENEW_HEADER, API_KEY_HEADER};

use crate::body::Length;
use crate::headers::{is_hop_by_hop, is_one_of, put_length};
use crate::message::{Head, put_header};
use crate::{Peer, Route, browser_link, secrets};

const FORWARDED_PREFIX: &str = "x-forwarded-";

/// Headers of a request that are meant for the proxy, or that only a proxy may set.
const NOT_FORWARDED: [&str; 11] = [
    "host",
    ACCESS_TOKEN_HEADER,
    SECURE_ACCESS_HEADER,
    ACCESS_RENEW_HEADER,
    API_KEY_HEADER,
    EGRESS_AUTH_HEADER,
    INGRESS_TO_HEADER,
    INGRESS_TO_HEADER_OLD,
    "forwarded",
    "x-real-ip",
    // The proxy sends 100 Continue itself, once it is connected to the service.
    "expect",
];

/// What the head of a forwarded request has that the client's did not.
pub(crate) struct ForwardedRequest<'a> {
    pub(crate) route: &'a Route,
    pub(crate) peer: Peer,
    pub(crate) length: Length,
    /// The sandbox's token, for its daemon.
    pub(crate) token: Option<&'a str>,
    pub(crate) upgrade: Option<&'a [u8]>,
}

/// Writes the head of a client's request for the service in the sandbox. `is_secret` knows the values that
/// must not get there.
pub(crate) fn write_request(
    out: &mut Vec<u8>,
    request: Head<'_>,
    forwarded: &ForwardedRequest<'_>,
    is_secret: impl Fn(&[u8]) -> bool,
) {
    let route = forwarded.route;
    write_request_line(out, request, route, &is_secret);
    put_header(out, "host", format!("localhost:{}", route.port).as_bytes());
    for (name, value) in request.headers() {
        let is_dropped =
            is_one_of(name, &NOT_FORWARDED) || starts_with_ignore_case(name, FORWARDED_PREFIX);
        if is_dropped || is_hop_by_hop(request, name) {
            continue;
        }
        if name.eq_ignore_ascii_case("cookie") {
            if let Some(rest) = browser_link::without_secrets(value, &is_secret) {
                put_header(out, name, &rest);
            }
        } else if !secrets::is_in_value(value, &is_secret) {
            put_header(out, name, value);
        }
    }
    let scheme = if forwarded.peer.is_https {
        "https"
    } else {
        "http"
    };
    put_header(out, "x-forwarded-proto", scheme.as_bytes());
    if !route.prefix.is_empty() {
        put_header(out, "x-forwarded-prefix", route.prefix.as_bytes());
    }
    let host = request.values("host").next();
    if let Some(host) = host.filter(|host| !secrets::is_in_value(host, &is_secret)) {
        put_header(out, "x-forwarded-host", host);
    }
    let address = forwarded.peer.ip.to_string();
    put_header(out, "x-forwarded-for", address.as_bytes());
    if let Some(token) = forwarded.token {
        put_header(out, ACCESS_TOKEN_HEADER, token.as_bytes());
    }
    let upgrade = forwarded.upgrade;
    if let Some(protocol) = upgrade.filter(|name| !secrets::is_in_value(name, &is_secret)) {
        put_header(out, "connection", b"upgrade");
        put_header(out, "upgrade", protocol);
    }
    let states_length = request.values("content-length").next().is_some();
    if forwarded.length != Length::Exactly(0) || states_length {
        put_length(out, forwarded.length);
    }
    out.extend_from_slice(b"\r\n");
}

fn write_request_line(
    out: &mut Vec<u8>,
    request: Head<'_>,
    route: &Route,
    is_secret: impl Fn(&[u8]) -> bool,
) {
    out.extend_from_slice(request.method().as_bytes());
    out.push(b' ');
    if !route.path.starts_with('/') {
        out.push(b'/');
    }
    out.extend_from_slice(without_secrets(&route.path, is_secret).as_bytes());
    // To a client of HTTP/1.0 the service must not send chunks.
    let version = if request.is_1_1() { "1.1" } else { "1.0" };
    out.extend_from_slice(format!(" HTTP/{version}\r\n").as_bytes());
}

/// A path whose query has no parameter that carries a token, by its name or by its value.
fn without_secrets(path: &str, is_secret: impl Fn(&[u8]) -> bool) -> Cow<'_, str> {
    let Some((path_only, query)) = path.split_once('?') else {
        return path.into();
    };
    let is_dropped = |parameter: &&str| {
        browser_link::is_token_parameter(parameter)
            || secrets::is_in_parameter(parameter, &is_secret)
    };
    if !query.split('&').any(|parameter| is_dropped(&parameter)) {
        return path.into();
    }
    let mut kept = path_only.to_owned();
    for (at, parameter) in query.split('&').filter(|it| !is_dropped(it)).enumerate() {
        kept.push(if at == 0 { '?' } else { '&' });
        kept.push_str(parameter);
    }
    kept.into()
}

fn starts_with_ignore_case(name: &str, prefix: &str) -> bool {
    let start = name.as_bytes().get(..prefix.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::upgrade;
    use crate::message::HeadParser;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    /// The request line and the other lines, sorted, that a request becomes.
    fn forwarded(line: &str, headers: &str) -> (String, Vec<String>) {
        let text = format!("{line}\r\n{headers}\r\n");
        let mut parser = HeadParser::default();
        assert_eq!(parser.parse_request(text.as_bytes()), Ok(true), "{text}");
        let message = parser.head(text.as_bytes());
        let forwarded = ForwardedRequest {
            route: &Route::parse(message.target()).unwrap(),
            peer: Peer {
                ip: "192.0.2.1".parse().unwrap(),
                is_https: false,
                user: None,
            },
            length: message.request_length().unwrap(),
            token: None,
            upgrade: upgrade(message),
        };
        let mut out = Vec::new();
        let is_secret = |value: &[u8]| value == TOKEN.as_bytes();
        write_request(&mut out, message, &forwarded, is_secret);
        let text = String::from_utf8(out).unwrap();
        let text = text
            .strip_suffix("\r\n\r\n")
            .expect("one empty line at the end");
        let mut lines: Vec<String> = text.split("\r\n").map(str::to_owned).collect();
        let first = lines.remove(0);
        lines.sort();
        (first, lines)
    }

    /// The lines that a request with these headers becomes, sorted.
    fn request(headers: &str) -> Vec<String> {
        let (line, lines) = forwarded("POST /v1/sandboxes/a/proxy/80/x?y HTTP/1.1", headers);
        assert_eq!(line, "POST /x?y HTTP/1.1");
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
             OpenSandbox-Ingress-To: a-80\r\nOPEN-SANDBOX-INGRESS: a-80-0-8ccd73a1a\r\n\
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
    fn no_value_of_ours_is_forwarded_wherever_it_stands() {
        let query = format!("a=1&key={TOKEN}&b=2&opensandbox_token=other");
        let (line, lines) = forwarded(
            &format!("POST /sandboxes/a/proxy/80/x?{query} HTTP/1.1"),
            &format!(
                "Host: {TOKEN}\r\nConnection: upgrade\r\nUpgrade: {TOKEN}\r\n\
                 Authorization: Bearer {TOKEN}\r\nX-Api-Key: {TOKEN}\r\nA: b\r\n\
                 Cookie: a=1; session={TOKEN}; {TOKEN}; b=2\r\nReferer: http://a/?t={TOKEN}\r\n\
                 Authorization: Basic OjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVm\r\n\
                 Sec-WebSocket-Protocol: v1, bearer.{TOKEN}\r\n"
            ),
        );
        assert_eq!(line, "POST /x?a=1&b=2 HTTP/1.1");
        lines
            .iter()
            .for_each(|line| assert!(!line.contains(TOKEN), "{line}"));
        let own = lines
            .iter()
            .filter(|line| !line.starts_with("x-forwarded-"));
        let own: Vec<_> = own.map(String::as_str).collect();
        assert_eq!(own, ["A: b", "Cookie: a=1; b=2", "host: localhost:80"]);
        for (target, seen) in [
            ("/x?opensandbox_token=t", "/x"),
            ("?opensandbox_token=t", "/"),
            ("?opensandbox%5Ftoken=t&a", "/?a"),
            ("/x?", "/x?"),
            ("/x?&&", "/x?&&"),
            ("/x?a=opensandbox_token", "/x?a=opensandbox_token"),
        ] {
            let (line, _) = forwarded(&format!("GET /sandboxes/a/proxy/80{target} HTTP/1.1"), "");
            assert_eq!(line, format!("GET {seen} HTTP/1.1"), "{target}");
        }
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
}
