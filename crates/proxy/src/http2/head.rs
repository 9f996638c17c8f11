//! Heads of HTTP/2 as heads of HTTP/1.1, and back (RFC 9113 8.3, 8.2).
//!
//! Strict where what is harmless in one version would be something else in the other: what would end a line, frame a
//! body or ask for another protocol in HTTP/1.1 (RFC 9113 10.3). The library refuses most of that; it is refused
//! here all the same, because nothing else stands between a client's bytes and those that a service reads.

use std::fmt::Write as _;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};

use crate::headers::is_one_of;
use crate::message::{Head, put_header};

/// Headers of one connection of HTTP/1.1, which have no place in HTTP/2 (RFC 9113 8.2.2).
const CONNECTION_SPECIFIC: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "te",
    "http2-settings",
];

/// The head of a request as a client of HTTP/1.1 would write it. `is_whole`: it has no body.
pub(super) fn request_as_http1(request: &Parts, is_whole: bool) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::with_capacity(1024);
    let method = request.method.as_str();
    let target = match (&request.method, request.uri.path_and_query()) {
        (&Method::CONNECT, None) => request.uri.authority().map_or("*", |it| it.as_str()),
        (_, Some(path)) if is_target(path.as_str()) => path.as_str(),
        _ => return Err(":path is neither a path nor *"),
    };
    out.extend_from_slice(format!("{method} {target} HTTP/1.1\r\n").as_bytes());
    if let Some(host) = host(request)? {
        put_header(&mut out, "host", host);
    }
    let mut cookies = Vec::new();
    for (name, value) in &request.headers {
        let is_trailers_only = name == header::TE && value.as_bytes() == b"trailers";
        if is_one_of(name.as_str(), &CONNECTION_SPECIFIC) && !is_trailers_only {
            return Err("a header belongs to connections of HTTP/1.1 (RFC 9113 8.2.2)");
        }
        let bytes = value.as_bytes();
        if bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err("a header has a character that ends lines");
        }
        if name == header::COOKIE {
            // One header in HTTP/1.1, where it is looked through as one (RFC 9113 8.2.3).
            if !cookies.is_empty() {
                cookies.extend_from_slice(b"; ");
            }
            cookies.extend_from_slice(bytes);
        } else if name != header::HOST && !is_trailers_only {
            put_header(&mut out, name.as_str(), bytes);
        }
    }
    if !cookies.is_empty() {
        put_header(&mut out, "cookie", &cookies);
    }
    let lengths = request.headers.get_all(header::CONTENT_LENGTH);
    match (is_whole, lengths.iter().next()) {
        (true, Some(_)) if lengths.iter().any(|length| !is_zero(length.as_bytes())) => {
            return Err("it states the length of a body that it has not");
        }
        (false, None) => put_header(&mut out, "transfer-encoding", b"chunked"),
        _ => {}
    }
    out.extend_from_slice(b"\r\n");
    Ok(out)
}

/// Whether it can stand between the spaces of a request line, and names nothing but a path.
fn is_target(target: &str) -> bool {
    let is_path = target.starts_with('/') || target == "*";
    is_path && target.bytes().all(|byte| byte > b' ' && byte != 0x7f)
}

fn is_zero(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|byte| *byte == b'0')
}

/// What the request says of its host, in one place or in two that agree (RFC 9113 8.3.1).
fn host(request: &Parts) -> Result<Option<&[u8]>, &'static str> {
    let authority = request.uri.authority().map(|it| it.as_str().as_bytes());
    if authority.is_some_and(|it| it.contains(&b'@')) {
        return Err(":authority has a user");
    }
    let mut hosts = request.headers.get_all(header::HOST).iter();
    let host = hosts.next().map(HeaderValue::as_bytes);
    if hosts.next().is_some() {
        return Err("it has Host twice");
    }
    match (authority, host) {
        (Some(one), Some(other)) if !one.eq_ignore_ascii_case(other) => {
            Err(":authority and Host differ")
        }
        (authority, host) => Ok(authority.or(host)),
    }
}

/// A request for a service that speaks HTTP/2, from the head that one of HTTP/1.1 would get.
pub(super) fn request_from_http1(head: Head<'_>) -> Result<Request<()>, http::Error> {
    let host = head.values("host").next().unwrap_or(b"localhost");
    let authority = String::from_utf8_lossy(host);
    let mut request = Request::builder()
        .method(head.method())
        .uri(format!("http://{authority}{}", head.target()))
        .body(())?;
    let headers = head
        .headers()
        .filter(|(name, _)| !name.eq_ignore_ascii_case("host"));
    put_headers(request.headers_mut(), headers)?;
    // The service's trailers reach the client (RFC 9110 10.1.4).
    let trailers = HeaderValue::from_static("trailers");
    request.headers_mut().insert(header::TE, trailers);
    Ok(request)
}

/// A response for the client, from the head that one of HTTP/1.1 would get.
pub(super) fn response_from_http1(head: Head<'_>) -> Result<Response<()>, http::Error> {
    let mut response = Response::builder().status(head.status()).body(())?;
    put_headers(response.headers_mut(), head.headers())?;
    Ok(response)
}

/// A service's response as one of HTTP/1.1 would write it.
pub(super) fn response_as_http1(response: &http::response::Parts) -> Vec<u8> {
    let mut line = String::with_capacity(1024);
    // Writing to a string cannot fail.
    let _ = write!(line, "HTTP/1.1 {} \r\n", response.status.as_u16());
    let mut out = line.into_bytes();
    for (name, value) in &response.headers {
        if !is_one_of(name.as_str(), &CONNECTION_SPECIFIC) {
            put_header(&mut out, name.as_str(), value.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
    out
}

fn put_headers<'a>(
    into: &mut HeaderMap,
    headers: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Result<(), http::Error> {
    for (name, value) in headers {
        if !is_one_of(name, &CONNECTION_SPECIFIC) {
            let name = HeaderName::from_bytes(name.as_bytes())?;
            into.append(name, HeaderValue::from_bytes(value)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(request: http::request::Builder, is_whole: bool) -> Result<String, &'static str> {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        request_as_http1(&parts, is_whole).map(|head| String::from_utf8(head).unwrap())
    }

    fn get(uri: &str) -> http::request::Builder {
        Request::builder().uri(uri)
    }

    #[test]
    fn a_request_becomes_one_of_http_1_1() {
        let request = get("https://a.example:8/x?y=%0d")
            .header("cookie", "a=1")
            .header("te", "trailers")
            .header("x-own", "1")
            .header("cookie", "b=2");
        assert_eq!(
            head(request, true).unwrap(),
            "GET /x?y=%0d HTTP/1.1\r\nhost: a.example:8\r\nx-own: 1\r\ncookie: a=1; b=2\r\n\r\n"
        );
        let chunked = head(get("http://a/").method("POST"), false).unwrap();
        assert!(chunked.contains("transfer-encoding: chunked"), "{chunked}");
        let stated = get("http://a/")
            .method("POST")
            .header("content-length", "3");
        let stated = head(stated, false).unwrap();
        assert!(!stated.contains("transfer-encoding"), "{stated}");
        let same = get("http://a/").header("host", "A");
        assert_eq!(
            head(same, true).unwrap(),
            "GET / HTTP/1.1\r\nhost: a\r\n\r\n"
        );
    }

    #[test]
    fn what_would_be_something_else_in_http_1_1_is_refused() {
        for (name, value) in [
            ("connection", "close"),
            ("connection", "x-own"),
            ("keep-alive", "5"),
            ("proxy-connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("te", "gzip"),
            ("http2-settings", "AAMAAABkAAQAAP__"),
            ("host", "b"),
            ("content-length", "3"),
        ] {
            let refused = head(get("http://a/").header(name, value), true);
            assert!(refused.is_err(), "{name}: {value}");
        }
        assert!(head(get("http://u:p@a/"), true).is_err());
        let twice = get("http://a/").header("host", "a").header("host", "a");
        assert!(head(twice, true).is_err());
    }
}
