//! The head of a response as the client gets it.
//!
//! Dropped: hop-by-hop headers (RFC 9110 7.6.1), and what would hold for more than the service that said it
//! (`confine`). Written anew from its parts, as the head of a request is.

use crate::PageOrigin;
use crate::body::Length;
use crate::confine;
use crate::headers::{is_hop_by_hop, put_length};
use crate::message::{self, Head, put_header};

const REQUEST_ID: &str = "x-request-id";

/// What the head of a forwarded response has that the service's did not.
pub(crate) struct ForwardedResponse<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) length: Length,
    pub(crate) is_to_head: bool,
    pub(crate) keeps_alive: bool,
    pub(crate) request_id: &'a str,
    /// Whose origin the pages of the service have in a browser.
    pub(crate) origin: PageOrigin,
    /// A header that is added.
    pub(crate) header: Option<(&'static str, &'static str)>,
}

/// Writes the head of the service's response for the client. A `Location` from the service's root is
/// put under the proxy's path, and so are cookies.
pub(crate) fn write_response(
    out: &mut Vec<u8>,
    response: Head<'_>,
    forwarded: &ForwardedResponse<'_>,
) {
    let status = response.status();
    out.extend_from_slice(format!("HTTP/1.1 {status} {}\r\n", response.reason()).as_bytes());
    let is_switched = status == 101;
    let mut has_date = false;
    // Of the type that the client gets, not of one that `Connection` takes away.
    let (mut has_type, mut may_be_document) = (false, false);
    for (name, value) in response.headers() {
        if name.eq_ignore_ascii_case(REQUEST_ID)
            || is_hop_by_hop(response, name)
            || confine::is_origin_wide(name, forwarded.origin)
            || forwarded
                .header
                .is_some_and(|(own, _)| name.eq_ignore_ascii_case(own))
        {
            continue;
        }
        has_date |= name.eq_ignore_ascii_case("date");
        if name.eq_ignore_ascii_case("content-type") {
            has_type = true;
            may_be_document |= confine::may_be_document(value);
        }
        if name.eq_ignore_ascii_case("set-cookie") {
            confine::put_cookie(out, name, value, forwarded.prefix);
        } else if name.eq_ignore_ascii_case("location") && is_from_root(value, forwarded.prefix) {
            put_header(out, name, &[forwarded.prefix.as_bytes(), value].concat());
        } else {
            put_header(out, name, value);
        }
    }
    if !has_date {
        put_header(out, "date", message::date().as_bytes());
    }
    put_header(out, REQUEST_ID, forwarded.request_id.as_bytes());
    if let Some((name, value)) = forwarded.header {
        put_header(out, name, value.as_bytes());
    }
    if is_switched {
        put_header(out, "connection", b"upgrade");
        for protocol in response.values("upgrade") {
            put_header(out, "upgrade", protocol);
        }
    } else {
        if forwarded.origin == PageOrigin::Isolated && (may_be_document || !has_type) {
            confine::put_isolation(out);
        }
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

fn is_from_root(location: &[u8], prefix: &str) -> bool {
    let is_under_prefix = location
        .strip_prefix(prefix.as_bytes())
        .is_some_and(|rest| rest.first() == Some(&b'/'));
    location.starts_with(b"/") && !location.starts_with(b"//") && !is_under_prefix
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::HeadParser;

    /// The lines that a response with this status and these headers becomes, sorted.
    fn response(status: u16, headers: &str, is_to_head: bool) -> Vec<String> {
        let text = format!(
            "HTTP/1.1 {status} Fine\r\nDate: x\r\nContent-Type: text/plain\r\n{headers}\r\n"
        );
        let mut parser = HeadParser::default();
        assert_eq!(parser.parse_response(text.as_bytes()), Ok(true), "{text}");
        let message = parser.head(text.as_bytes());
        let forwarded = ForwardedResponse {
            prefix: "/p",
            length: message.response_length(is_to_head).unwrap(),
            is_to_head,
            keeps_alive: true,
            request_id: "ours",
            origin: PageOrigin::Isolated,
            header: None,
        };
        let mut out = Vec::new();
        write_response(&mut out, message, &forwarded);
        let mut lines = lines(out, &format!("HTTP/1.1 {status} Fine"));
        let dropped = ["Date: x", "x-request-id: ours", "Content-Type: text/plain"];
        lines.retain(|line| !dropped.contains(&line.as_str()));
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

    #[test]
    fn what_holds_for_a_whole_origin_is_not_a_services_to_say() {
        let lines = response(
            204,
            "Service-Worker-Allowed: /\r\nClear-Site-Data: \"*\"\r\nAlt-Svc: h3=\":1\"\r\n\
             Strict-Transport-Security: max-age=9\r\nNEL: {}\r\nReport-To: {}\r\n\
             Reporting-Endpoints: a=\"/\"\r\nset-cookie2: a=1\r\nX-Own: 1\r\n\
             Set-Cookie: a=1; Path=/\r\nSet-Cookie: opensandbox-token=x\r\n",
            false,
        );
        assert_eq!(lines, ["Set-Cookie: a=1; Path=/p", "X-Own: 1"]);
    }

    #[test]
    fn a_document_gets_an_origin_of_its_own() {
        let isolated = |headers: &str, origin| {
            let text = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: 0\r\n\r\n");
            let mut parser = HeadParser::default();
            assert_eq!(parser.parse_response(text.as_bytes()), Ok(true), "{text}");
            let forwarded = ForwardedResponse {
                prefix: "/p",
                length: Length::Exactly(0),
                is_to_head: false,
                keeps_alive: true,
                request_id: "ours",
                origin,
                header: None,
            };
            let mut out = Vec::new();
            write_response(&mut out, parser.head(text.as_bytes()), &forwarded);
            let text = String::from_utf8(out).unwrap();
            text.contains("content-security-policy: sandbox allow-scripts")
        };
        for headers in [
            "",
            "Content-Type: text/html\r\n",
            "Content-Type: application/json\r\nContent-Type: text/html\r\n",
            // A browser looks into what has no type.
            "Connection: content-type\r\nContent-Type: application/json\r\n",
            "Content-Type: text/html\r\nContent-Security-Policy: sandbox allow-same-origin\r\n",
        ] {
            assert!(isolated(headers, PageOrigin::Isolated), "{headers}");
            for origin in [PageOrigin::Shared, PageOrigin::Own] {
                assert!(!isolated(headers, origin), "{headers}");
            }
        }
        let json = "Content-Type: application/json\r\n";
        assert!(!isolated(json, PageOrigin::Isolated));
    }
}
