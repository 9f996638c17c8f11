//! Keeps what a service says about "its" origin from reaching the origin, which all sandboxes and the
//! API share while services are told apart by path alone.
//!
//! A browser would take a header such as `Clear-Site-Data` for the word of the whole server, send a cookie
//! to every sandbox, and let a page of one sandbox read those of all others. So such headers are dropped,
//! cookies are confined to the path of the service, and documents get an origin of their own.

use crate::PageOrigin;
use crate::browser_link;
use crate::message::put_header;

/// The paths of an origin that a service worker may serve.
const SERVICE_WORKER_ALLOWED: &str = "service-worker-allowed";

/// Headers of a response that hold for a whole origin, or longer than the response.
const ORIGIN_WIDE: [&str; 17] = [
    SERVICE_WORKER_ALLOWED,
    "clear-site-data",
    "strict-transport-security",
    "alt-svc",
    "nel",
    "report-to",
    "reporting-endpoints",
    // The rest is newer, older, or of fewer browsers, and holds for the origin all the same.
    "accept-ch",
    "critical-ch",
    "expect-ct",
    "public-key-pins",
    "public-key-pins-report-only",
    "set-cookie2",
    "set-login",
    "use-as-dictionary",
    "sec-session-registration",
    "secure-session-registration",
];

/// Lets a document run scripts, but in an origin that is nobody else's (HTML, "sandboxed origin
/// browsing context flag"; CSP3 6.3.2).
const ISOLATED: &[u8] =
    b"sandbox allow-scripts allow-forms allow-popups allow-downloads allow-modals allow-pointer-lock";

/// Types of which no browser makes a document with scripts, but for XML of any kind, such as SVG. Whatever
/// else a response says that it is, a browser may show it as one.
const INERT_TYPES: [&[u8]; 9] = [
    b"application/json",
    b"application/octet-stream",
    b"application/pdf",
    b"application/javascript",
    b"application/wasm",
    b"text/css",
    b"text/event-stream",
    b"text/javascript",
    b"text/plain",
];
const INERT_KINDS: [&[u8]; 4] = [b"audio/", b"font/", b"image/", b"video/"];

/// Whether a header of a response holds for more than the service that sent it. Where that has an origin of
/// its own, only for service workers an origin is all that counts: cookies that `Clear-Site-Data` removes
/// are a whole domain's, and how the host is connected to is the gateway's to say.
pub(crate) fn is_origin_wide(name: &str, origin: PageOrigin) -> bool {
    let is_own = origin == PageOrigin::Own && name.eq_ignore_ascii_case(SERVICE_WORKER_ALLOWED);
    !is_own && ORIGIN_WIDE.iter().any(|one| one.eq_ignore_ascii_case(name))
}

/// Whether a browser may show a response with this `Content-Type` as a document that runs scripts.
pub(crate) fn may_be_document(value: &[u8]) -> bool {
    let essence = value.split(|byte| *byte == b';').next().unwrap_or(value);
    let essence = essence.trim_ascii();
    let is_kind = |kind: &&[u8]| {
        let start = essence.get(..kind.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(kind))
    };
    // Of a list a browser takes the last that it understands (Fetch, "extract a MIME type").
    let is_one = !value.contains(&b',');
    let is_xml = essence.contains(&b'+');
    let is_inert = INERT_TYPES
        .iter()
        .any(|inert| essence.eq_ignore_ascii_case(inert))
        || INERT_KINDS.iter().any(is_kind) && !is_xml;
    !(is_one && is_inert)
}

/// Appends the header that gives a document an origin of its own. A policy of the service's stays beside
/// it: a browser enforces each (CSP3 4.2.4).
pub(crate) fn put_isolation(out: &mut Vec<u8>) {
    put_header(out, "content-security-policy", ISOLATED);
}

/// Appends a cookie of the service's, so that the browser sends it to this service alone. Ours is not a
/// service's to set.
pub(crate) fn put_cookie(out: &mut Vec<u8>, name: &str, cookie: &[u8], prefix: &str) {
    let mut parts = cookie.split(|byte| *byte == b';');
    let pair = parts.next().unwrap_or_default();
    if browser_link::is_token_cookie(pair) {
        return;
    }
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(pair);
    if prefix.is_empty() {
        put_without_domain(out, parts);
        return;
    }
    let mut path: &[u8] = b"";
    for part in parts {
        let mut halves = part.splitn(2, |byte| *byte == b'=');
        let attribute = halves.next().unwrap_or_default().trim_ascii();
        if attribute.eq_ignore_ascii_case(b"path") {
            // The last one counts (RFC 6265 5.3).
            path = halves.next().unwrap_or_default().trim_ascii();
        } else if !attribute.eq_ignore_ascii_case(b"domain") {
            out.push(b';');
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b"; Path=");
    let is_inside = path
        .strip_prefix(prefix.as_bytes())
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    if !is_inside {
        out.extend_from_slice(prefix.as_bytes());
    }
    if path.starts_with(b"/") && (is_inside || path != b"/") {
        out.extend_from_slice(path);
    }
    out.extend_from_slice(b"\r\n");
}

/// Ends a cookie of a service whose host name is its own, or that no browser sees: it is for that host
/// alone, so that neighbours under one domain cannot write each other's.
fn put_without_domain<'a>(out: &mut Vec<u8>, attributes: impl Iterator<Item = &'a [u8]>) {
    for attribute in attributes {
        let mut halves = attribute.splitn(2, |byte| *byte == b'=');
        let name = halves.next().unwrap_or_default().trim_ascii();
        if !name.eq_ignore_ascii_case(b"domain") {
            out.push(b';');
            out.extend_from_slice(attribute);
        }
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie_at(value: &str, prefix: &str) -> String {
        let mut out = Vec::new();
        put_cookie(&mut out, "Set-Cookie", value.as_bytes(), prefix);
        String::from_utf8(out).unwrap()
    }

    fn cookie(value: &str) -> String {
        cookie_at(value, "/s/a/proxy/80")
    }

    #[test]
    fn a_cookie_of_an_own_host_loses_its_domain_alone() {
        for (sent, seen) in [
            ("a=1", "a=1"),
            ("a=1; Path=/x; HttpOnly", "a=1; Path=/x; HttpOnly"),
            (
                "a=1; Domain=.example.com; Secure; domain = x",
                "a=1; Secure",
            ),
        ] {
            assert_eq!(
                cookie_at(sent, ""),
                format!("Set-Cookie: {seen}\r\n"),
                "{sent}"
            );
        }
        for ours in [
            "__Host-opensandbox=x; Path=/; Secure",
            "=__host-opensandbox=x",
        ] {
            assert_eq!(cookie_at(ours, ""), "", "{ours}");
        }
    }

    #[test]
    fn an_own_origin_may_have_service_workers_and_nothing_more() {
        for (name, origin, is_dropped) in [
            ("Service-Worker-Allowed", PageOrigin::Own, false),
            ("Service-Worker-Allowed", PageOrigin::Shared, true),
            ("Service-Worker-Allowed", PageOrigin::Isolated, true),
            ("Clear-Site-Data", PageOrigin::Own, true),
            ("Alt-Svc", PageOrigin::Own, true),
            ("Content-Type", PageOrigin::Isolated, false),
        ] {
            assert_eq!(
                is_origin_wide(name, origin),
                is_dropped,
                "{name} {origin:?}"
            );
        }
    }

    #[test]
    fn a_cookie_stays_with_the_service_that_set_it() {
        for (sent, seen) in [
            ("a=1", "a=1; Path=/s/a/proxy/80"),
            ("a=1; Path=/", "a=1; Path=/s/a/proxy/80"),
            ("a=1; path=/x", "a=1; Path=/s/a/proxy/80/x"),
            (
                "a=1; Path=/s/b/proxy/80",
                "a=1; Path=/s/a/proxy/80/s/b/proxy/80",
            ),
            ("a=1; Path=/s/a/proxy/80", "a=1; Path=/s/a/proxy/80"),
            ("a=1; Path=/s/a/proxy/80/y", "a=1; Path=/s/a/proxy/80/y"),
            (
                "a=1; Path=/s/a/proxy/8080",
                "a=1; Path=/s/a/proxy/80/s/a/proxy/8080",
            ),
            ("a=1; Path=x", "a=1; Path=/s/a/proxy/80"),
            ("a=1; Path=/x; Path", "a=1; Path=/s/a/proxy/80"),
            ("a=1; Path=/s/a/proxy/80; PATH=/", "a=1; Path=/s/a/proxy/80"),
            (
                "a=1; Domain=.example.com; HttpOnly; domain = x ;SameSite=Lax",
                "a=1; HttpOnly;SameSite=Lax; Path=/s/a/proxy/80",
            ),
        ] {
            assert_eq!(cookie(sent), format!("Set-Cookie: {seen}\r\n"), "{sent}");
        }
    }

    #[test]
    fn no_service_sets_the_cookie_that_carries_the_token() {
        for sent in [
            "opensandbox-token=evil",
            " opensandbox-token = evil; Path=/",
            "opensandbox-token",
            // Browsers send a cookie without a name as its value alone.
            "=opensandbox-token=evil",
            "= opensandbox-token=evil",
            "==opensandbox-token=evil",
        ] {
            assert_eq!(cookie(sent), "", "{sent}");
        }
        assert_ne!(cookie("opensandbox-tokens=1"), "");
    }

    #[test]
    fn whatever_may_become_a_document_is_known() {
        for (value, may) in [
            ("text/html; charset=utf-8", true),
            ("image/svg+xml", true),
            ("IMAGE/SVG+XML;a", true),
            ("audio/x+xml", true),
            ("image/png, text/html", true),
            ("application/xhtml+xml", true),
            ("text/xml", true),
            ("multipart/x-mixed-replace;boundary=a", true),
            ("", true),
            ("nonsense", true),
            ("application/json", false),
            ("Text/Event-Stream", false),
            ("image/png", false),
            ("text/javascript;charset=utf-8", false),
        ] {
            assert_eq!(may_be_document(value.as_bytes()), may, "{value}");
        }
    }
}
