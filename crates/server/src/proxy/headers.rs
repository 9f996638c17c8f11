//! Which headers cross the proxy, and what becomes of them.
//!
//! Not forwarded: what belongs to one connection only (RFC 9110, 7.6.1), our own keys and tokens,
//! and what a client claims about its origin. Forwarded, unlike by the published server: cookies
//! and `Authorization`, without which no web application behind the proxy could log anyone in.

use std::net::SocketAddr;

use daemon::http::Peer;
use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};

use super::Route;

/// The header that carries a sandbox's token.
pub(crate) const ACCESS_TOKEN: &str = "X-EXECD-ACCESS-TOKEN";

const TOKEN: HeaderName = HeaderName::from_static("x-execd-access-token");
const SECURE_ACCESS: HeaderName = HeaderName::from_static("opensandbox-secure-access");
const ACCESS_RENEW: HeaderName = HeaderName::from_static("opensandbox-access-renew");
const API_KEY: HeaderName = HeaderName::from_static("open-sandbox-api-key");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Headers of one connection.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Tokens that a request shows, in any of the headers that may carry one.
pub(super) fn shown_tokens(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    [TOKEN, SECURE_ACCESS]
        .into_iter()
        .flat_map(|name| headers.get_all(name).iter().map(HeaderValue::as_bytes))
}

/// Whether this request is not to keep the sandbox alive.
pub(super) fn skips_renewal(headers: &HeaderMap) -> bool {
    headers
        .get(ACCESS_RENEW)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"skip"))
}

/// The protocol that a request asks to switch to.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_asked = connection_options(headers).any(|option| option.eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| is_asked).cloned()
}

fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Makes a client's headers those for the service inside.
pub(super) fn clean_request(
    headers: &mut HeaderMap,
    route: &Route,
    peer: Peer,
    upgrade: Option<HeaderValue>,
) {
    let host = headers.remove(header::HOST);
    remove_hop_by_hop(headers);
    for name in [
        TOKEN,
        SECURE_ACCESS,
        ACCESS_RENEW,
        API_KEY,
        header::FORWARDED,
        REAL_IP,
    ] {
        headers.remove(name);
    }
    remove_all(headers, |name| name.as_str().starts_with("x-forwarded-"));

    let inside = format!("localhost:{}", route.port);
    insert(headers, header::HOST, &inside);
    insert(headers, FORWARDED_PROTO, "http");
    insert(headers, FORWARDED_PREFIX, &route.prefix);
    if let Some(host) = host {
        headers.insert(FORWARDED_HOST, host);
    }
    if let Peer::Tcp(address) = peer {
        insert(headers, FORWARDED_FOR, &plain_ip(address));
    }
    if let Some(protocol) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
}

fn plain_ip(address: SocketAddr) -> String {
    address.ip().to_canonical().to_string()
}

/// Shows the daemon inside its token.
pub(super) fn add_token(headers: &mut HeaderMap, token: &SecretString) {
    if let Ok(mut value) = HeaderValue::from_str(token.expose_secret()) {
        value.set_sensitive(true);
        headers.insert(TOKEN, value);
    }
}

/// Makes the headers of an answer those for the client: a `Location` that is meant from the
/// service's root is put under the proxy's path.
pub(super) fn clean_response(headers: &mut HeaderMap, prefix: &str) {
    remove_hop_by_hop(headers);
    if let Entry::Occupied(mut location) = headers.entry(header::LOCATION) {
        let path = location.get().to_str().unwrap_or_default();
        let is_from_root = path.starts_with('/') && !path.starts_with("//");
        if is_from_root
            && !path.starts_with(&format!("{prefix}/"))
            && let Ok(moved) = HeaderValue::from_str(&format!("{prefix}{path}"))
        {
            location.insert(moved);
        }
    }
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = connection_options(headers)
        .filter_map(|name| name.parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

fn remove_all(headers: &mut HeaderMap, is_unwanted: impl Fn(&HeaderName) -> bool) {
    let unwanted: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_unwanted(name))
        .cloned()
        .collect();
    for name in unwanted {
        headers.remove(name);
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    let value = HeaderValue::from_str(value).expect("made of visible ASCII");
    headers.insert(name, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        list.iter().map(pair).collect()
    }

    fn cleaned(list: &[(&'static str, &'static str)]) -> Vec<String> {
        let route = Route::parse("/v1/sandboxes/a/proxy/80/x").unwrap();
        let peer = Peer::Tcp("192.0.2.1:5".parse().unwrap());
        let mut map = headers(list);
        clean_request(&mut map, &route, peer, upgrade(&headers(list)));
        let mut lines: Vec<String> = map
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn a_request_keeps_what_is_the_applications_and_nothing_else() {
        let lines = cleaned(&[
            ("host", "example.com:8080"),
            ("cookie", "a=1"),
            ("authorization", "Bearer x"),
            ("accept", "text/html"),
            ("accept", "application/json"),
            ("connection", "close, x-only-here"),
            ("x-only-here", "1"),
            ("keep-alive", "5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("open-sandbox-api-key", "secret"),
            ("x-execd-access-token", "secret"),
            ("opensandbox-secure-access", "secret"),
            ("opensandbox-access-renew", "skip"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-server", "evil"),
            ("forwarded", "for=6.6.6.6"),
            ("x-real-ip", "6.6.6.6"),
        ]);
        assert_eq!(
            lines,
            [
                "accept: application/json",
                "accept: text/html",
                "authorization: Bearer x",
                "cookie: a=1",
                "host: localhost:80",
                "x-forwarded-for: 192.0.2.1",
                "x-forwarded-host: example.com:8080",
                "x-forwarded-prefix: /v1/sandboxes/a/proxy/80",
                "x-forwarded-proto: http",
            ]
        );
    }

    #[test]
    fn an_upgrade_is_kept_when_the_connection_asks_for_it() {
        let lines = cleaned(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ]);
        assert!(
            lines.contains(&"connection: upgrade".to_owned()),
            "{lines:?}"
        );
        assert!(
            lines.contains(&"upgrade: websocket".to_owned()),
            "{lines:?}"
        );
        assert_eq!(upgrade(&headers(&[("upgrade", "websocket")])), None);
    }

    #[test]
    fn a_location_from_the_root_stays_inside_the_proxy() {
        for (sent, seen) in [
            ("/login", "/p/login"),
            ("/p/login", "/p/login"),
            ("login", "login"),
            ("//elsewhere/x", "//elsewhere/x"),
            ("http://elsewhere/x", "http://elsewhere/x"),
        ] {
            let mut map =
                HeaderMap::from_iter([(header::LOCATION, HeaderValue::from_static(sent))]);
            clean_response(&mut map, "/p");
            assert_eq!(map[header::LOCATION], seen, "{sent}");
        }
    }
}
