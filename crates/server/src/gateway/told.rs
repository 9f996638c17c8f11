//! What clients are told of the gateway: the endpoint of a port, signed or with headers, and links for
//! browsers.

use std::collections::BTreeMap;

use api::endpoint::{Endpoint, INGRESS_TO_HEADER, SECURE_ACCESS_HEADER};
use api::exec::ACCESS_TOKEN_HEADER;
use api::signed_route::v2::{Claim, Purpose};
use api::signed_route::{Route, Signature};
use lifecycle::Sandbox;
use proxy::gateway::KeyRing;
use proxy::gateway::link::{LinkTarget, with_code};
use secrecy::ExposeSecret as _;

use super::{ROUTE_EPOCH, Shared, now};
use crate::config::RouteMode;

/// The longest label of a host name (RFC 1035 2.3.4).
const LABEL_BYTES_MAX: usize = 63;

/// What a client asks to be told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The sandbox.
    pub(crate) sandbox: &'a Sandbox,
    /// Its port.
    pub(crate) port: u16,
    /// The host and port by which the client reached the server.
    pub(crate) host: &'a str,
    /// Until when the route, or the link, lets its holder in, in Unix seconds.
    pub(crate) expires: Option<u64>,
    /// Whether the signature is for every port; `None` where the client leaves its kind to us.
    pub(crate) is_for_all_ports: Option<bool>,
    /// Whether a link for a browser is wanted, too.
    pub(crate) link: bool,
}

/// Why a client cannot be told what it asks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTold {
    /// The end is not in the future.
    #[error("expires: must be later than now")]
    Past,
    /// The end is too far away.
    #[error(
        "expires: is more than {0} seconds ahead, which is the most that this server allows (ingress.secure_access.max_ttl_seconds)"
    )]
    TooFar(u64),
    /// The label would be too long.
    #[error(
        "expires: the signed host name would have a label of {0} characters, and {LABEL_BYTES_MAX} are the most; leave scope out, or expire earlier"
    )]
    TooLong(usize),
    /// There is no host name for a page.
    #[error(
        "link: pages need a host name of their own; set ingress.gateway.address to https://*.DOMAIN with route.mode = \"wildcard\", or reach the gateway on this machine by localhost"
    )]
    NoOrigin,
}

/// How long a link's cookie lasts where the client does not say: a working day.
const LINK_SECONDS: u64 = 8 * 3600;

impl Shared {
    /// The endpoint of a port.
    pub(crate) fn endpoint(&self, asked: &Asked<'_>) -> Result<Endpoint, NotTold> {
        self.check_expiry(asked.expires)?;
        let keys = self.access.keys.as_ref();
        let signature = match (asked.expires, keys) {
            (Some(expires), Some(keys)) if !asked.link => Some(self.sign(keys, asked, expires)),
            _ => None,
        };
        let route = Route {
            sandbox_id: asked.sandbox.id.to_string(),
            port: asked.port,
            signature,
        };
        let mut headers = BTreeMap::new();
        if signature.is_none() {
            let token = asked.sandbox.access_token.expose_secret();
            // Whoever knows one of them goes by it: the daemon's clients, and those of secured sandboxes.
            for name in [ACCESS_TOKEN_HEADER, SECURE_ACCESS_HEADER] {
                headers.insert(name.to_owned(), token.to_owned());
            }
        }
        let endpoint = match self.settings.gateway.route.mode {
            RouteMode::Wildcard => {
                let label = route.host_label();
                if label.len() > LABEL_BYTES_MAX {
                    return Err(NotTold::TooLong(label.len()));
                }
                let base = self.settings.gateway.wildcard().unwrap_or_default();
                format!("{label}.{base}")
            }
            RouteMode::Uri => format!("{}{}", self.address(asked.host), route.path()),
            RouteMode::Header => {
                headers.insert(INGRESS_TO_HEADER.to_owned(), route.host_label());
                self.address(asked.host)
            }
        };
        let link = asked.link.then(|| self.link(asked)).transpose()?;
        Ok(Endpoint {
            endpoint,
            headers: (!headers.is_empty()).then_some(headers),
            link,
        })
    }

    fn check_expiry(&self, expires: Option<u64>) -> Result<(), NotTold> {
        let (now, longest) = (now().as_secs(), self.access.longest.as_secs());
        match expires {
            Some(expires) if expires <= now => Err(NotTold::Past),
            Some(expires) if longest > 0 && expires > now.saturating_add(longest) => {
                Err(NotTold::TooFar(longest))
            }
            _ => Ok(()),
        }
    }

    /// Signs with version 2 where the client asks for something that only it has, or where both the key
    /// and the form of the route are ours to choose; else with version 1, which every gateway verifies.
    fn sign(&self, keys: &KeyRing, asked: &Asked<'_>, expires: u64) -> Signature {
        let id = asked.sandbox.id.as_str();
        let is_own_key = self.settings.secure_access.keys.0.is_empty();
        let is_label = self.settings.gateway.route.mode == RouteMode::Wildcard;
        if asked.is_for_all_ports.is_none() && (!is_own_key || is_label) {
            return keys.sign_v1(id, asked.port, expires);
        }
        let is_for_all_ports = asked.is_for_all_ports.unwrap_or(false);
        Signature::V2(keys.sign(&Claim {
            purpose: Purpose::Route,
            sandbox_id: id,
            port: (!is_for_all_ports).then_some(asked.port),
            expires,
            epoch: ROUTE_EPOCH,
        }))
    }

    /// What the operator says, or else the host by which the client reached the server, with our port.
    fn address(&self, host: &str) -> String {
        if let Some((_, address)) = self.settings.gateway.told() {
            return address.to_owned();
        }
        let authority = host.parse::<http::uri::Authority>();
        let name = authority
            .as_ref()
            .map_or(host, |authority| authority.host());
        format!("{name}:{}", self.port)
    }

    /// A link for a browser to a host name that is this port's alone.
    fn link(&self, asked: &Asked<'_>) -> Result<String, NotTold> {
        let (id, port, now) = (&asked.sandbox.id, asked.port, now());
        let gateway = &self.settings.gateway;
        let wildcard = gateway.told().zip(gateway.wildcard());
        let origin = match wildcard {
            Some(((is_https, _), base)) if is_https || self.is_tls => {
                format!("https://{id}-{port}.{base}")
            }
            // Browsers take our cookie without TLS from names under localhost alone.
            Some((_, base)) if is_localhost(base) => format!("http://{id}-{port}.{base}"),
            None if is_localhost(asked.host) => {
                let scheme = if self.is_tls { "https" } else { "http" };
                format!("{scheme}://{id}-{port}.localhost:{}", self.port)
            }
            _ => return Err(NotTold::NoOrigin),
        };
        let keys = self.access.keys.as_ref().ok_or(NotTold::NoOrigin)?;
        let until = asked.expires.unwrap_or(now.as_secs() + LINK_SECONDS);
        let target = LinkTarget {
            id,
            port,
            epoch: ROUTE_EPOCH,
        };
        Ok(format!(
            "{origin}{}",
            with_code("/", keys, target, until, now)
        ))
    }
}

/// Whether a host, with or without a port, is reached on the machine itself.
fn is_localhost(host: &str) -> bool {
    let Ok(authority) = host.parse::<http::uri::Authority>() else {
        return false;
    };
    let name = authority.host().trim_matches(['[', ']']);
    let is_loopback = name
        .parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    is_loopback || name == "localhost" || name.ends_with(".localhost")
}
