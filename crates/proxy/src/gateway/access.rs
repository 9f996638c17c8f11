//! Whether a request may go where it wants to.
//!
//! As the published gateway decides: a sandbox that asks for nothing is open; a token in the header for it
//! is right, or nothing else is looked at; without that header a signature counts. Besides, as everywhere
//! in this server: the token in the header that the daemon in the sandbox asks for, an API key, and the
//! cookie that a link became.

use std::time::Duration;

use api::endpoint::SECURE_ACCESS_HEADER;
use api::exec::ACCESS_TOKEN_HEADER;
use api::id::SandboxId;
use api::signed_route::v2::{Claim, Purpose};
use api::signed_route::{Signature, VerifyError};

use super::address::{Address, Addressing};
use super::attempts::Attempts;
use super::keys::KeyRing;
use super::link;
use crate::Peer;
use crate::message::Head;

/// A sandbox, as far as access to it goes.
#[derive(Debug, Clone, Copy)]
pub struct Protected<'a> {
    /// The sandbox.
    pub id: &'a SandboxId,
    /// Its token.
    pub token: &'a str,
    /// Whether whoever knows its id may go to its ports. Its daemon asks for the token all the same.
    pub is_open: bool,
    /// What signatures of version 2 must have been made with.
    pub epoch: u64,
}

/// What decides.
#[derive(Debug)]
pub struct Access {
    /// The keys of signatures; without any, none can be verified.
    pub keys: Option<KeyRing>,
    /// How long ahead a signature of version 1 may hold; zero is without limit.
    pub longest: Duration,
    /// Failed guesses.
    pub attempts: Attempts,
}

/// What a request got in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Right {
    /// Nothing was needed.
    Open,
    /// The sandbox's token.
    Token,
    /// An API key.
    ApiKey,
    /// A signature in its address.
    Signature,
    /// The cookie of a browser.
    Cookie,
}

/// A request that may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// By what.
    pub right: Right,
    /// Until when, in Unix seconds: a stream that is still open then is closed.
    pub until: Option<u64>,
}

/// Why a request may not pass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// It shows nothing.
    #[error(
        "access needs the sandbox's token or a signed route: send the headers that the endpoint was answered with"
    )]
    Missing,
    /// It shows a token that is not the sandbox's.
    #[error("the token in {SECURE_ACCESS_HEADER} is not this sandbox's")]
    Token,
    /// Its signature is wrong, or has expired.
    #[error(transparent)]
    Signature(#[from] VerifyError),
    /// Its signature would hold longer than the operator allows.
    #[error("the route's signature holds longer than this gateway allows; ask for a new endpoint")]
    TooLong,
    /// There is nothing to verify signatures with.
    #[error("this gateway has no keys for signed routes")]
    NoKeys,
    /// Too many wrong signatures.
    #[error("too many wrong signatures for this sandbox; wait {} s", .0.as_secs())]
    Throttled(Duration),
    /// An open sandbox was asked for by a name that is not the gateway's, as a web page does that had its
    /// own name point here.
    #[error(
        "this gateway is not known by the host name of the request; set ingress.gateway.address"
    )]
    StrangeHost,
}

impl Access {
    /// Decides. `shows_key` is whether the request shows an API key, and `now` the time in Unix seconds.
    pub fn decide(
        &self,
        request: Head<'_>,
        address: &Address,
        sandbox: &Protected<'_>,
        peer: Peer,
        shows_key: impl FnOnce() -> bool,
        now: u64,
    ) -> Result<Allowed, Denied> {
        let allow = |right, until| Ok(Allowed { right, until });
        if sandbox.is_open && !address.route.is_control() {
            return match address.is_known_host {
                true => allow(Right::Open, None),
                false => Err(Denied::StrangeHost),
            };
        }
        let is_token = |shown: &[u8]| daemon::secret::equal(shown, sandbox.token);
        let mut shown = request.values(SECURE_ACCESS_HEADER).peekable();
        if shown.peek().is_some() {
            return match shown.all(is_token) {
                true => allow(Right::Token, None),
                false => Err(Denied::Token),
            };
        }
        if request.values(ACCESS_TOKEN_HEADER).any(is_token) {
            return allow(Right::Token, None);
        }
        if shows_key() {
            return allow(Right::ApiKey, None);
        }
        if let Some(until) = self.cookie(request, address, sandbox, peer, now) {
            return allow(Right::Cookie, Some(until));
        }
        let signature = address.signature.ok_or(Denied::Missing)?;
        self.verify(&signature, address, sandbox, peer, now)?;
        allow(Right::Signature, Some(signature.expires()))
    }

    fn verify(
        &self,
        signature: &Signature,
        address: &Address,
        sandbox: &Protected<'_>,
        peer: Peer,
        now: u64,
    ) -> Result<(), Denied> {
        let keys = self.keys.as_ref().ok_or(Denied::NoKeys)?;
        let (id, port) = (sandbox.id, address.route.port);
        let signature = match signature {
            Signature::V1(signature) => signature,
            Signature::V2(signature) => {
                let claim = Claim {
                    purpose: Purpose::Route,
                    sandbox_id: id.as_str(),
                    port: Some(port),
                    expires: signature.expires,
                    epoch: sandbox.epoch,
                };
                return Ok(keys.verify(signature, &claim, now)?);
            }
        };
        if let Some(wait) = self.attempts.wait(peer.ip, id) {
            return Err(Denied::Throttled(wait));
        }
        let verified = keys.verify_v1(signature, (id.as_str(), port), now);
        if verified == Err(VerifyError::Wrong) {
            self.attempts.note(peer.ip, id);
        }
        verified?;
        let longest = self.longest.as_secs();
        let is_too_long = longest > 0 && signature.expires > now.saturating_add(longest);
        if is_too_long {
            Err(Denied::TooLong)
        } else {
            Ok(())
        }
    }

    /// Until when the cookie of a browser lets it in. A host name that is the sandbox's alone is needed:
    /// elsewhere the cookie is another's. And a page of the same host name: a browser also sends the cookie
    /// along with what a neighbour's page asks for (RFC 6265bis 5.2, "same-site" is not same origin).
    fn cookie(
        &self,
        request: Head<'_>,
        address: &Address,
        sandbox: &Protected<'_>,
        peer: Peer,
        now: u64,
    ) -> Option<u64> {
        let (Addressing::Host, Some(keys)) = (address.addressing, &self.keys) else {
            return None;
        };
        let mut cookies = link::cookies(request);
        let until = cookies.find_map(|cookie| {
            let claim = Claim {
                purpose: Purpose::Cookie,
                sandbox_id: sandbox.id.as_str(),
                port: Some(address.route.port),
                expires: cookie.expires,
                epoch: sandbox.epoch,
            };
            keys.verify(&cookie, &claim, now).ok()?;
            Some(cookie.expires)
        })?;
        is_own_page(request, address.host.as_deref()?, peer).then_some(until)
    }
}

/// Whether a request comes from a page of this host, or from a person who opens one.
fn is_own_page(request: Head<'_>, host: &str, peer: Peer) -> bool {
    let value = |name| request.values(name).next();
    if let Some(origin) = value("origin") {
        let scheme = if peer.is_https { "https" } else { "http" };
        // Ports that a scheme implies are not written in an origin (RFC 6454 6.2).
        let usual = if peer.is_https { ":443" } else { ":80" };
        let host = host.strip_suffix(usual).unwrap_or(host);
        return origin.eq_ignore_ascii_case(format!("{scheme}://{host}").as_bytes());
    }
    match value("sec-fetch-site") {
        None | Some(b"same-origin" | b"none") => true,
        Some(_) => {
            let is_document = value("sec-fetch-dest") == Some(b"document");
            let is_navigation = value("sec-fetch-mode") == Some(b"navigate");
            is_document && is_navigation && matches!(request.method(), "GET" | "HEAD")
        }
    }
}

#[cfg(test)]
mod tests;
