//! Keeps web pages from using this program.
//!
//! The browser next to it runs whatever page an agent opens, and a page may send requests and open
//! WebSockets to loopback. So a request that a browser made for a page of another origin is refused, and
//! so is one under a host name of somebody's own (DNS rebinding). Programs, and people who come through
//! the sandbox's endpoint, pass: a page cannot add the headers of the proxy without asking first, and is
//! never answered when it asks.

use std::net::IpAddr;

use http::{HeaderMap, Method};

use crate::error::{Error, Result};

const FORWARDED_HOST: &str = "x-forwarded-host";
const FORWARDED_PROTO: &str = "x-forwarded-proto";
const FORWARDED_PREFIX: &str = "x-forwarded-prefix";

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Under which address the caller knows this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outside {
    pub(crate) is_secure: bool,
    pub(crate) host: String,
    pub(crate) prefix: String,
}

impl Outside {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let host = text(headers, FORWARDED_HOST).or_else(|| text(headers, "host"));
        Self {
            is_secure: text(headers, FORWARDED_PROTO) == Some("https"),
            host: host.unwrap_or("localhost").to_owned(),
            prefix: text(headers, FORWARDED_PREFIX)
                .unwrap_or_default()
                .trim_end_matches('/')
                .to_owned(),
        }
    }

    /// The address of a WebSocket here, as it is from outside.
    pub(crate) fn websocket(&self, path: &str) -> String {
        let scheme = if self.is_secure { "wss" } else { "ws" };
        format!("{scheme}://{}{}{path}", self.host, self.prefix)
    }
}

/// Refuses what a page of another origin caused.
pub(crate) fn check(method: &Method, headers: &HeaderMap) -> Result<()> {
    let refused = |why: &str| {
        Err(Error::Forbidden(format!(
            "{why}. Pages of other origins may not use the desktop; programs and the sandbox's endpoint may"
        )))
    };
    let host = text(headers, "host").unwrap_or_default();
    let forwarded = text(headers, FORWARDED_HOST);
    if forwarded.is_none() && !is_address(host) {
        return refused("the request names a host that is neither localhost nor an address");
    }
    if let Some(origin) = headers.get("origin") {
        let origin = origin.to_str().unwrap_or_default();
        let authority = origin
            .split_once("://")
            .map_or("", |(_, authority)| authority);
        if authority != forwarded.unwrap_or(host) {
            return refused("the request comes from a page of another origin");
        }
    }
    // A link that a person follows is a navigation, and what it gets is theirs to see.
    let is_visit = method == Method::GET && text(headers, "sec-fetch-mode") == Some("navigate");
    match text(headers, "sec-fetch-site") {
        Some("cross-site" | "same-site") if !is_visit => {
            refused("the request comes from a page of another origin")
        }
        _ => Ok(()),
    }
}

/// Whether a `Host` is `localhost` or a number, which no name server decides.
fn is_address(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|&(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    fn check(pairs: &[(&'static str, &'static str)], passes: bool) {
        let seen = super::check(&Method::GET, &headers(pairs)).is_ok();
        assert_eq!(seen, passes, "{pairs:?}");
    }

    #[test]
    fn programs_and_visitors_pass_and_foreign_pages_do_not() {
        check(&[("host", "127.0.0.1:6080")], true);
        check(&[("host", "localhost:6080")], true);
        check(&[("host", "[::1]:6080")], true);
        check(
            &[
                ("host", "localhost:6080"),
                ("origin", "http://localhost:6080"),
            ],
            true,
        );
        check(
            &[
                ("host", "localhost:6080"),
                ("x-forwarded-host", "osb.example:80"),
                ("origin", "https://osb.example:80"),
            ],
            true,
        );
        check(
            &[
                ("host", "localhost:6080"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
            ],
            true,
        );
        check(&[("host", "evil.example:6080")], false);
        check(
            &[
                ("host", "evil.example:6080"),
                ("origin", "http://evil.example:6080"),
            ],
            false,
        );
        check(
            &[
                ("host", "localhost:6080"),
                ("origin", "https://evil.example"),
            ],
            false,
        );
        check(&[("host", "localhost:6080"), ("origin", "null")], false);
        check(
            &[
                ("host", "localhost:6080"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "no-cors"),
            ],
            false,
        );
        check(
            &[
                ("host", "localhost:6080"),
                ("x-forwarded-host", "osb.example"),
                ("origin", "https://evil.example"),
            ],
            false,
        );
    }

    #[test]
    fn addresses_are_those_of_outside() {
        let direct = Outside::of(&headers(&[("host", "127.0.0.1:9222")]));
        assert_eq!(direct.websocket("/cdp"), "ws://127.0.0.1:9222/cdp");
        let proxied = Outside::of(&headers(&[
            ("host", "localhost:9222"),
            ("x-forwarded-host", "osb.example"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-prefix", "/sandboxes/a/proxy/9222"),
        ]));
        assert_eq!(
            proxied.websocket("/cdp"),
            "wss://osb.example/sandboxes/a/proxy/9222/cdp"
        );
    }
}
