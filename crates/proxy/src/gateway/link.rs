//! Links for people, who cannot send a header when they open one: a code in the link, good for once, is
//! exchanged for a cookie of the sandbox's own host name, which lets the browser in until it ends.
//!
//! A code that was made before the process began is refused, because what was used then is forgotten.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api::id::SandboxId;
use api::signed_route::v2::{Claim, Purpose, Signature};
use api::signed_route::{from_base36, to_base36};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use rand::Rng as _;

use super::address::{Address, Addressing};
use super::keys::KeyRing;
use crate::message::Head;

/// The query parameter that carries the code.
pub(crate) const PARAMETER: &str = "opensandbox_code";

/// The cookie that a code becomes. A name that begins so is set by its own host alone, for all paths, and
/// never over a connection that others can read (RFC 6265bis 4.1.3.2); browsers take it from names under
/// `localhost` without TLS, too.
pub(crate) const COOKIE: &str = "__Host-opensandbox";

/// How long a code may be used after it was made, in seconds: a person who is sent a link opens it within
/// minutes, or asks for another.
pub const CODE_SECONDS: u64 = 600;

/// Used codes that are remembered. Each is forgotten when it would have ended.
const USED_MAX: usize = 64 * 1024;

/// The codes that were used.
#[derive(Debug)]
pub struct Codes {
    /// When codes began to be remembered, in milliseconds since the beginning of 1970.
    since: u64,
    used: Mutex<HashMap<String, u64>>,
}

/// Why a link lets nobody in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The code is none, not for this port, or was used.
    #[error("this link has been used, has ended, or was never one; ask for a new one")]
    Spent,
    /// There are too many links in use at once.
    #[error("too many links are being opened; try again in a few minutes")]
    Busy,
}

/// What a link is for.
#[derive(Debug, Clone, Copy)]
pub struct LinkTarget<'a> {
    /// The sandbox.
    pub id: &'a SandboxId,
    /// Its port.
    pub port: u16,
    /// What signatures for the sandbox must have been made with.
    pub epoch: u64,
}

impl LinkTarget<'_> {
    fn claim<'a>(&'a self, purpose: Purpose<'a>, expires: u64) -> Claim<'a> {
        Claim {
            purpose,
            sandbox_id: self.id.as_str(),
            port: Some(self.port),
            expires,
            epoch: self.epoch,
        }
    }
}

/// A path and query with a code, whose cookie will hold until `until`, in Unix seconds. `now` is the time
/// since the beginning of 1970.
pub fn with_code(
    path: &str,
    keys: &KeyRing,
    target: LinkTarget<'_>,
    until: u64,
    now: Duration,
) -> String {
    // The time of making stands in the nonce, and so in what is signed.
    let random = rand::rng().random::<u64>();
    let nonce = format!("{}.{random:016x}", to_base36(millis(now)));
    let expires = (now.as_secs() + CODE_SECONDS).min(until);
    let purpose = Purpose::Code {
        nonce: &nonce,
        until,
    };
    let signature = keys.sign(&target.claim(purpose, expires));
    let (until, expires) = (to_base36(until), to_base36(expires));
    let mark = if path.contains('?') { '&' } else { '?' };
    format!("{path}{mark}{PARAMETER}={nonce}-{until}-{expires}-{signature}")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Codes {
    /// Remembers codes from `now` on, the time since the beginning of 1970.
    pub fn new(now: Duration) -> Self {
        Self {
            since: millis(now),
            used: Mutex::default(),
        }
    }

    /// The response to a request whose link carries a code: a redirect to the same without it, with the
    /// cookie. `None` for a request without one.
    pub fn redeem(
        &self,
        request: Head<'_>,
        address: &Address,
        keys: &KeyRing,
        target: LinkTarget<'_>,
        now: Duration,
    ) -> Option<Result<Response<Bytes>, LinkError>> {
        let is_link = address.addressing == Addressing::Host && request.method() == "GET";
        let (code, location) = split(&address.route.path).filter(|_| is_link)?;
        Some(
            self.exchange(code, keys, target, now.as_secs())
                .map(|cookie| {
                    let mut response = Response::new(Bytes::new());
                    *response.status_mut() = StatusCode::SEE_OTHER;
                    let headers = response.headers_mut();
                    let location = HeaderValue::try_from(location);
                    let root = HeaderValue::from_static("/");
                    headers.insert(header::LOCATION, location.unwrap_or(root));
                    headers.insert(header::SET_COOKIE, cookie);
                    let (no_store, none) = ("no-store", "no-referrer");
                    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(no_store));
                    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static(none));
                    response
                }),
        )
    }

    fn exchange(
        &self,
        code: &str,
        keys: &KeyRing,
        target: LinkTarget<'_>,
        now: u64,
    ) -> Result<HeaderValue, LinkError> {
        let mut parts = code.splitn(4, '-');
        let mut part = || parts.next().ok_or(LinkError::Spent);
        let (nonce, until, expires, signature) = (part()?, part()?, part()?, part()?);
        let until = from_base36(until).ok_or(LinkError::Spent)?;
        let signature = Signature::parse(expires, signature).ok_or(LinkError::Spent)?;
        let claim = target.claim(Purpose::Code { nonce, until }, signature.expires);
        let verified = keys.verify(&signature, &claim, now);
        verified.map_err(|_| LinkError::Spent)?;
        self.take(nonce, signature.expires, now)?;
        let cookie = keys.sign(&target.claim(Purpose::Cookie, until));
        let age = until.saturating_sub(now);
        let text = format!(
            "{COOKIE}={}-{cookie}; Path=/; Max-Age={age}; Secure; HttpOnly; SameSite=Lax",
            to_base36(until)
        );
        text.try_into().map_err(|_| LinkError::Spent)
    }

    /// Takes a code that was verified, once.
    fn take(&self, nonce: &str, expires: u64, now: u64) -> Result<(), LinkError> {
        let made = nonce.split('.').next().and_then(from_base36);
        if made.is_none_or(|made| made < self.since) {
            return Err(LinkError::Spent);
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() >= USED_MAX {
            used.retain(|_, expires| *expires >= now);
        }
        if used.len() >= USED_MAX {
            return Err(LinkError::Busy);
        }
        match used.insert(nonce.to_owned(), expires) {
            None => Ok(()),
            Some(_) => Err(LinkError::Spent),
        }
    }
}

/// The code in a path's query, and the path without it.
fn split(path: &str) -> Option<(&str, String)> {
    let (path_only, query) = path.split_once('?')?;
    let own = |pair: &&str| {
        let name = pair.split_once('=').map(|(name, _)| name);
        name == Some(PARAMETER)
    };
    let (_, code) = query.split('&').find(own)?.split_once('=')?;
    let rest: Vec<&str> = query.split('&').filter(|pair| !own(pair)).collect();
    // More slashes than one at the beginning would be another host (RFC 3986 4.2).
    let path_only = format!("/{}", path_only.trim_start_matches('/'));
    Some(match rest.join("&") {
        rest if rest.is_empty() => (code, path_only),
        rest => (code, format!("{path_only}?{rest}")),
    })
}

/// The cookies of a request that a code became, verified or not.
pub(super) fn cookies(request: Head<'_>) -> impl Iterator<Item = Signature> {
    let pairs = request
        .values("cookie")
        .filter_map(|value| str::from_utf8(value).ok())
        .flat_map(|value| value.split(';'));
    pairs.filter_map(|pair| {
        let value = pair.trim().strip_prefix(COOKIE)?.strip_prefix('=')?;
        let (expires, signature) = value.split_once('-')?;
        Signature::parse(expires, signature)
    })
}

#[cfg(test)]
mod tests {
    use secrecy::SecretSlice;

    use super::*;
    use crate::gateway::HostNames;
    use crate::message::HeadParser;

    const NOW: Duration = Duration::from_secs(1_000_000);
    const UNTIL: u64 = 1_003_600;

    fn keys() -> KeyRing {
        let secret = SecretSlice::from(b"secret".to_vec());
        KeyRing::new('k', vec![('k', secret)]).unwrap()
    }

    /// What opening a link at a host comes to: the redirect and its cookie.
    fn open(
        codes: &Codes,
        host: &str,
        link: &str,
        now: Duration,
    ) -> Option<Result<(String, String), LinkError>> {
        let text = format!("GET {link} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let mut parser = HeadParser::default();
        assert_eq!(parser.parse_request(text.as_bytes()), Ok(true), "{text}");
        let request = parser.head(text.as_bytes());
        let address = HostNames::default().address(request).unwrap();
        let id = address.route.id.clone();
        let target = LinkTarget {
            id: &id,
            port: address.route.port,
            epoch: 0,
        };
        let opened = codes.redeem(request, &address, &keys(), target, now)?;
        Some(opened.map(|response| {
            assert_eq!(response.status(), 303);
            let header = |name| response.headers()[name].to_str().unwrap().to_owned();
            (header("location"), header("set-cookie"))
        }))
    }

    fn link(path: &str) -> String {
        let id = "a".parse().unwrap();
        let target = LinkTarget {
            id: &id,
            port: 80,
            epoch: 0,
        };
        with_code(path, &keys(), target, UNTIL, NOW)
    }

    #[test]
    fn a_code_becomes_a_cookie_once() {
        let codes = Codes::new(NOW);
        let link = link("/x?y=%20&z");
        let (location, cookie) = open(&codes, "a-80.localhost", &link, NOW).unwrap().unwrap();
        assert_eq!(location, "/x?y=%20&z");
        let (value, attributes) = cookie.split_once("; ").unwrap();
        assert!(value.starts_with("__Host-opensandbox="), "{value}");
        assert_eq!(
            attributes,
            "Path=/; Max-Age=3600; Secure; HttpOnly; SameSite=Lax"
        );
        let again = open(&codes, "a-80.localhost", &link, NOW);
        assert_eq!(again, Some(Err(LinkError::Spent)));
    }

    #[test]
    fn a_code_is_for_its_port_and_its_time_alone() {
        let codes = Codes::new(NOW);
        let link = link("/");
        for host in ["b-80.localhost", "a-81.localhost"] {
            let opened = open(&codes, host, &link, NOW);
            assert_eq!(opened, Some(Err(LinkError::Spent)), "{host}");
        }
        let late = NOW + Duration::from_secs(CODE_SECONDS + 1);
        let opened = open(&codes, "a-80.localhost", &link, late);
        assert_eq!(opened, Some(Err(LinkError::Spent)));
        for cut in 1..link.len() - "/?opensandbox_code=".len() {
            let cut = &link[..link.len() - cut];
            let opened = open(&codes, "a-80.localhost", cut, NOW);
            assert_eq!(opened, Some(Err(LinkError::Spent)), "{cut}");
        }
        // Elsewhere the host is everybody's, and a cookie would be, too.
        let path = format!("/a/80{link}");
        assert_eq!(open(&codes, "localhost", &path, NOW), None);
        let later = Codes::new(NOW + Duration::from_millis(1));
        let opened = open(&later, "a-80.localhost", &link, NOW);
        assert_eq!(
            opened,
            Some(Err(LinkError::Spent)),
            "made by a process before"
        );
        assert!(open(&codes, "a-80.localhost", &link, NOW).unwrap().is_ok());
    }

    #[test]
    fn a_link_leads_nowhere_else() {
        let codes = Codes::new(NOW);
        let (location, _) = open(&codes, "a-80.localhost", &link("//evil.example/x"), NOW)
            .unwrap()
            .unwrap();
        assert_eq!(location, "/evil.example/x");
    }

    #[test]
    fn the_memory_of_codes_is_bounded() {
        let codes = Codes::new(NOW);
        let made = to_base36(millis(NOW));
        for number in 0..USED_MAX {
            let taken = codes.take(&format!("{made}.{number}"), 100, 50);
            assert_eq!(taken, Ok(()));
        }
        let nonce = format!("{made}.x");
        assert_eq!(codes.take(&nonce, 100, 50), Err(LinkError::Busy));
        assert_eq!(
            codes.take(&nonce, 300, 101),
            Ok(()),
            "those that ended are forgotten"
        );
    }
}
