//! Which headers cross the proxy.

use api::exec::ACCESS_TOKEN_HEADER;
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{
        CONNECTION, EXPECT, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
        TRANSFER_ENCODING, UPGRADE,
    },
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// The protocol a message offers to switch to: an Upgrade header that its Connection header names.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let named = connection_options(headers).any(|option| option.eq_ignore_ascii_case("upgrade"));
    headers.get(UPGRADE).filter(|_| named).cloned()
}

/// Prepares a client's headers for the service.
pub(super) fn for_service(headers: &mut HeaderMap) {
    let upgrade = upgrade(headers);
    let trailers = headers
        .get_all(TE)
        .iter()
        .any(|te| te.to_str().is_ok_and(|te| te.contains("trailers")));
    strip(headers);
    headers.remove(ACCESS_TOKEN_HEADER);
    // The daemon has answered it, or will when the body is read.
    headers.remove(EXPECT);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    keep_upgrade(headers, upgrade);
}

/// Prepares a service's headers for the client.
pub(super) fn for_client(status: StatusCode, headers: &mut HeaderMap) {
    let upgrade = upgrade(headers).filter(|_| status == StatusCode::SWITCHING_PROTOCOLS);
    strip(headers);
    keep_upgrade(headers, upgrade);
}

fn keep_upgrade(headers: &mut HeaderMap, upgrade: Option<HeaderValue>) {
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
}

/// Takes out what concerns one connection only, the Connection header's own list included.
fn strip(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = connection_options(headers)
        .filter_map(|option| HeaderName::from_bytes(option.as_bytes()).ok())
        .collect();
    let known = [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
    ];
    for name in known.iter().chain(&listed) {
        headers.remove(name);
    }
}

fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|option| !option.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                value.parse().unwrap(),
            );
        }
        headers
    }

    #[test]
    fn what_belongs_to_one_connection_stays_on_it() {
        let mut headers = map(&[
            ("connection", "keep-alive, X-Private"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("te", "gzip, trailers"),
            ("proxy-authorization", "Basic x"),
            ("expect", "100-continue"),
            ("x-execd-access-token", "secret"),
            ("upgrade", "not-asked-for"),
            ("host", "example.org"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
        ]);
        for_service(&mut headers);
        assert_eq!(
            headers,
            map(&[
                ("te", "trailers"),
                ("host", "example.org"),
                ("cookie", "a=1"),
                ("cookie", "b=2")
            ])
        );
    }

    #[test]
    fn an_upgrade_crosses_only_when_meant() {
        let asked = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ];
        let kept = map(&[("connection", "upgrade"), ("upgrade", "websocket")]);
        let mut headers = map(&asked);
        for_service(&mut headers);
        assert_eq!(headers, kept);
        let mut headers = map(&asked);
        for_client(StatusCode::SWITCHING_PROTOCOLS, &mut headers);
        assert_eq!(headers, kept);
        let mut headers = map(&asked);
        for_client(StatusCode::OK, &mut headers);
        assert!(headers.is_empty());
    }
}
