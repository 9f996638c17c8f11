//! Access for browsers, which cannot send a header when a person opens a link: a link with the
//! sandbox's token in its query is redirected to the same link without it, with the token in a cookie
//! for that port of that sandbox.
//!
//! The proxy removes the cookie from what it forwards.

use std::borrow::Cow;

use bytes::Bytes;
use http::{Response, StatusCode, header};

use crate::gateway::link;
use crate::message::Head;
use crate::{Peer, Route, secrets};

/// The query parameter of a link that carries the token.
const PARAMETER: &str = "opensandbox_token";

/// The cookie that carries the token after the redirect.
const COOKIE: &str = "opensandbox-token";

/// The sandbox tokens in a request's cookies.
pub(crate) fn cookie_tokens(request: Head<'_>) -> impl Iterator<Item = &[u8]> {
    request
        .values("cookie")
        .flat_map(pairs)
        .filter_map(|pair| pair.strip_prefix(COOKIE.as_bytes())?.strip_prefix(b"="))
}

fn pairs(cookies: &[u8]) -> impl Iterator<Item = &[u8]> {
    cookies.split(|byte| *byte == b';').map(<[u8]>::trim_ascii)
}

/// Whether a cookie, as `name=value`, is one of ours, which carry a token or the right to one port. Browsers send a cookie that has
/// no name as its value alone, so that is looked at too.
pub(crate) fn is_token_cookie(pair: &[u8]) -> bool {
    let mut parts = pair.split(|byte| *byte == b'=').map(<[u8]>::trim_ascii);
    let first = parts.find(|part| !part.is_empty()).unwrap_or_default();
    // Browsers take the beginning `__Host-` in any case (RFC 6265bis 5.4).
    first == COOKIE.as_bytes() || first.eq_ignore_ascii_case(link::COOKIE.as_bytes())
}

/// Whether a parameter of a query, as it stands in it, is one that carries a token or a code.
pub(crate) fn is_token_parameter(parameter: &str) -> bool {
    let name = parameter.split('=').next().unwrap_or(parameter);
    let is_ours = |name: &[u8]| name == PARAMETER.as_bytes() || name == link::PARAMETER.as_bytes();
    is_ours(name.as_bytes()) || name.contains('%') && is_ours(&secrets::percent_decode(name))
}

/// The value of a Cookie header without the token, and without any other secret; `None` when nothing else
/// is in it.
pub(crate) fn without_secrets(
    cookies: &[u8],
    is_secret: impl Fn(&[u8]) -> bool,
) -> Option<Cow<'_, [u8]>> {
    let is_ours = |pair: &&[u8]| is_token_cookie(pair) || secrets::is_in_value(pair, &is_secret);
    if !pairs(cookies).any(|pair| is_ours(&pair)) {
        return Some(cookies.into());
    }
    let rest: Vec<&[u8]> = pairs(cookies).filter(|pair| !is_ours(pair)).collect();
    let rest = rest.join(&b"; "[..]);
    (!rest.is_empty()).then_some(rest.into())
}

/// The redirect for a link that carries this token, with the cookie. `None` for any other request.
pub fn redirect(
    request: Head<'_>,
    peer: Peer,
    route: &Route,
    token: &str,
) -> Option<Response<Bytes>> {
    if !matches!(request.method(), "GET" | "HEAD") {
        return None;
    }
    let (shown, location) = split(route)?;
    if !daemon::secret::equal(shown, token) {
        return None;
    }
    // A browser that reached us by TLS must not show it without.
    let secure = if peer.is_https { "; Secure" } else { "" };
    let cookie = format!(
        "{COOKIE}={token}; Path={}; HttpOnly; SameSite=Lax{secure}",
        route.prefix
    );
    Response::builder()
        .status(StatusCode::SEE_OTHER)
        .header(header::LOCATION, location)
        .header(header::SET_COOKIE, cookie)
        .header(header::CACHE_CONTROL, "no-store")
        .header(header::REFERRER_POLICY, "no-referrer")
        .body(Bytes::new())
        .ok()
}

/// The token in a query, and the link without it.
fn split(route: &Route) -> Option<(&str, String)> {
    let (path, query) = route.path.split_once('?')?;
    let own = |pair: &&str| {
        pair.split_once('=')
            .is_some_and(|(name, _)| name == PARAMETER)
    };
    let (_, token) = query.split('&').find(own)?.split_once('=')?;
    let rest: Vec<&str> = query.split('&').filter(|pair| !own(pair)).collect();
    let location = match rest.join("&") {
        rest if rest.is_empty() => format!("{}{path}", route.prefix),
        rest => format!("{}{path}?{rest}", route.prefix),
    };
    Some((token, location))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tokens_cookie_is_removed() {
        for (sent, left) in [
            ("a=1; opensandbox-token=x; b=2", Some("a=1; b=2")),
            ("opensandbox-token=x", None),
            ("a=1", Some("a=1")),
            ("opensandbox-tokens=1", Some("opensandbox-tokens=1")),
        ] {
            let seen = without_secrets(sent.as_bytes(), |_| false);
            assert_eq!(seen.as_deref(), left.map(str::as_bytes), "{sent}");
        }
    }

    #[test]
    fn the_token_is_removed_from_the_link() {
        for (link, location) in [
            ("/x?opensandbox_token=t", "/x"),
            ("/x?a=1&opensandbox_token=t&b=%20", "/x?a=1&b=%20"),
        ] {
            let route = Route::parse(&format!("/sandboxes/a/proxy/80{link}")).unwrap();
            let location = format!("/sandboxes/a/proxy/80{location}");
            assert_eq!(split(&route), Some(("t", location)), "{link}");
        }
        let route = Route::parse("/sandboxes/a/proxy/80/x?a=opensandbox_token").unwrap();
        assert_eq!(split(&route), None);
    }
}
