//! Lets a browser in, which can send no header of its own: a link with the token in its query is
//! answered with a cookie for that port and the same link without the token.
//!
//! The cookie is for this server's proxy alone: it goes to no other path and never into the
//! sandbox.

use axum::body::Body;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};

use super::Route;

/// The parameter of a link that carries the token.
const PARAMETER: &str = "opensandbox_token";

/// The cookie that carries it from then on.
const COOKIE: &str = "opensandbox-token";

/// The token that a request's cookie shows.
pub(super) fn shown_in_cookie(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    pairs(headers)
        .filter_map(|pair| pair.strip_prefix(COOKIE)?.strip_prefix('='))
        .map(str::as_bytes)
}

fn pairs(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .map(str::trim)
}

/// Removes our cookie and leaves the application's.
pub(super) fn strip_cookie(headers: &mut HeaderMap) {
    let is_ours = |pair: &str| pair.split('=').next() == Some(COOKIE);
    if !pairs(headers).any(is_ours) {
        return;
    }
    let rest: Vec<&str> = pairs(headers).filter(|pair| !is_ours(pair)).collect();
    let rest = HeaderValue::from_str(&rest.join("; ")).expect("parts of a header make a header");
    headers.remove(header::COOKIE);
    if !rest.is_empty() {
        headers.insert(header::COOKIE, rest);
    }
}

/// The answer to a link that carries this token: the cookie, and where to go with it. `None` for
/// any other request.
pub(super) fn welcome<B>(
    request: &Request<B>,
    route: &Route,
    token: &str,
) -> Option<Response<Body>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let (shown, location) = split(request.uri())?;
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
fn split(uri: &Uri) -> Option<(&str, String)> {
    let query = uri.query()?;
    let own = |pair: &&str| {
        pair.split_once('=')
            .is_some_and(|(name, _)| name == PARAMETER)
    };
    let (_, token) = query.split('&').find(own)?.split_once('=')?;
    let rest: Vec<&str> = query.split('&').filter(|pair| !own(pair)).collect();
    let location = match rest.join("&") {
        rest if rest.is_empty() => uri.path().to_owned(),
        rest => format!("{}?{rest}", uri.path()),
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
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, HeaderValue::from_static(sent));
            strip_cookie(&mut headers);
            let seen = headers
                .get(header::COOKIE)
                .map(|value| value.to_str().unwrap());
            assert_eq!(seen, left, "{sent}");
        }
    }

    #[test]
    fn the_token_is_taken_out_of_the_link() {
        for (link, location) in [
            ("/p/x?opensandbox_token=t", "/p/x"),
            ("/p/x?a=1&opensandbox_token=t&b=%20", "/p/x?a=1&b=%20"),
        ] {
            let uri: Uri = link.parse().unwrap();
            assert_eq!(split(&uri), Some(("t", location.to_owned())), "{link}");
        }
        assert_eq!(split(&"/p/x?a=opensandbox_token".parse().unwrap()), None);
    }
}
