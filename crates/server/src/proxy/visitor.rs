//! Lets a browser in, which can send no header of its own: a link with the token in its query is
//! answered with a cookie for that port and the same link without the token.
//!
//! The cookie is for this server's proxy alone: it goes to no other path and never into the
//! sandbox.

use std::borrow::Cow;

use axum::body::Body;
use daemon::http::wire::Message;
use http::{Response, StatusCode, header};

use super::Route;

/// The parameter of a link that carries the token.
const PARAMETER: &str = "opensandbox_token";

/// The cookie that carries it from then on.
const COOKIE: &str = "opensandbox-token";

/// The tokens that a request's cookies show.
pub(super) fn shown_in_cookie(request: Message<'_>) -> impl Iterator<Item = &[u8]> {
    request
        .values("cookie")
        .flat_map(pairs)
        .filter_map(|pair| pair.strip_prefix(COOKIE.as_bytes())?.strip_prefix(b"="))
}

fn pairs(cookies: &[u8]) -> impl Iterator<Item = &[u8]> {
    cookies.split(|byte| *byte == b';').map(<[u8]>::trim_ascii)
}

/// The application's cookies; `None` when there was only ours.
pub(super) fn without_ours(cookies: &[u8]) -> Option<Cow<'_, [u8]>> {
    let is_ours = |pair: &&[u8]| pair.split(|byte| *byte == b'=').next() == Some(COOKIE.as_bytes());
    if !pairs(cookies).any(|pair| is_ours(&pair)) {
        return Some(cookies.into());
    }
    let rest: Vec<&[u8]> = pairs(cookies).filter(|pair| !is_ours(pair)).collect();
    let rest = rest.join(&b"; "[..]);
    (!rest.is_empty()).then_some(rest.into())
}

/// The answer to a link that carries this token: the cookie, and where to go with it. `None` for
/// any other request.
pub(super) fn welcome(request: Message<'_>, route: &Route, token: &str) -> Option<Response<Body>> {
    if !matches!(request.method(), "GET" | "HEAD") {
        return None;
    }
    let (shown, location) = split(route)?;
    if !daemon::secret::equal(shown, token) {
        return None;
    }
    let cookie = format!(
        "{COOKIE}={token}; Path={}; HttpOnly; SameSite=Lax",
        route.prefix
    );
    Response::builder()
        .status(StatusCode::SEE_OTHER)
        .header(header::LOCATION, location)
        .header(header::SET_COOKIE, cookie)
        .header(header::CACHE_CONTROL, "no-store")
        .header(header::REFERRER_POLICY, "no-referrer")
        .body(Body::empty())
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
    fn only_our_cookie_is_taken_out() {
        for (sent, left) in [
            ("a=1; opensandbox-token=x; b=2", Some("a=1; b=2")),
            ("opensandbox-token=x", None),
            ("a=1", Some("a=1")),
            ("opensandbox-tokens=1", Some("opensandbox-tokens=1")),
        ] {
            let seen = without_ours(sent.as_bytes());
            assert_eq!(seen.as_deref(), left.map(str::as_bytes), "{sent}");
        }
    }

    #[test]
    fn the_token_is_taken_out_of_the_link() {
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
