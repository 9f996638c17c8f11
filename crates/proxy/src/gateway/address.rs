//! Which sandbox and port a request means.
//!
//! In this order: the header for it, its old name, the first label of a host name that is the gateway's,
//! the path. A host name that is one sandbox's never leads into another: a page there could then show
//! the other's as its own.

use std::net::IpAddr;

use api::endpoint::{INGRESS_TO_HEADER, INGRESS_TO_HEADER_OLD};
use api::signed_route::{self, RouteError, Signature};

use crate::Route;
use crate::message::Head;

/// The name under which every browser reaches its own machine, with any label before it and without
/// DNS (RFC 6761 6.3).
const LOCALHOST: &str = "localhost";

/// The host names of a gateway.
#[derive(Debug, Clone, Default)]
pub struct HostNames {
    /// The domain whose first label names a sandbox, if there is one besides `localhost`.
    pub base: Option<String>,
    /// Names of the gateway itself, under which nothing but headers and paths name sandboxes.
    pub own: Vec<String>,
}

/// How a request named its sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Addressing {
    /// By a label of its host name.
    Host,
    /// By a header.
    Header,
    /// By the beginning of its path.
    Path,
}

/// What a request named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// How.
    pub addressing: Addressing,
    /// The sandbox, its port and the path there.
    pub route: Route,
    /// The signature that the address carries.
    pub signature: Option<Signature>,
    /// The host name and port that the request was sent to, in lower case.
    pub host: Option<String>,
    /// Whether that is a name of the gateway's, or an IP address: nobody else can have such a name point
    /// here and call what they then get their own.
    pub is_known_host: bool,
}

/// Why a request names no sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text that should name one does not.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The text names what cannot be a sandbox.
    #[error("the sandbox id in the route is not an id")]
    BadId,
    /// Two parts of the request name different things.
    #[error("the request is ambiguous: {0}")]
    Ambiguous(&'static str),
    /// The target cannot be forwarded.
    #[error("the request's target must be a path whose characters are percent-encoded")]
    Path,
}

/// What a host name says.
enum Host<'a> {
    /// It is a sandbox's; the label that says which.
    Label(&'a str),
    /// It is the gateway's own, or an address.
    Own,
    /// It is not ours.
    Strange,
}

impl HostNames {
    fn read<'a>(&self, host: &'a str) -> Host<'a> {
        let name = without_port(host);
        let name = name.strip_suffix('.').unwrap_or(name);
        let bases = self.base.as_deref().into_iter().chain([LOCALHOST]);
        for base in bases {
            let label = name
                .strip_suffix(base)
                .and_then(|rest| rest.strip_suffix('.'));
            match label {
                Some(label) if !label.contains('.') => return Host::Label(label),
                _ if name == base => return Host::Own,
                _ => {}
            }
        }
        let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        if is_address || self.own.iter().any(|own| own == name) {
            Host::Own
        } else {
            Host::Strange
        }
    }

    /// Reads what a request names.
    pub fn address(&self, request: Head<'_>) -> Result<Address, AddressError> {
        let (host, target) = host_and_target(request)?;
        let read = host.as_deref().map_or(Host::Own, |host| self.read(host));
        let label = match read {
            Host::Label(label) => Some(signed_route::Route::parse_host(label)?),
            Host::Own | Host::Strange => None,
        };
        let is_known_host = !matches!(read, Host::Strange);
        let (addressing, named, prefix, path) = match (header_route(request)?, label) {
            (Some(named), Some(label)) if !is_same(&named, &label) => {
                return Err(AddressError::Ambiguous(
                    "its host name and its header name different ports",
                ));
            }
            // What is named twice is an origin of its own all the same.
            (Some(named), Some(_)) => (Addressing::Host, named, "", target),
            (Some(named), None) => (Addressing::Header, named, "", target),
            (None, Some(named)) => (Addressing::Host, named, "", target),
            (None, None) => {
                let end = target.find('?').unwrap_or(target.len());
                let (named, rest) = signed_route::Route::parse_path(&target[..end])?;
                // Where nothing follows the route, the rest is a slash that the target does not have.
                let named_bytes = named.path().len();
                let rest_bytes = if named_bytes < end { rest.len() } else { 0 };
                let (prefix, path) = target.split_at(end - rest_bytes);
                (Addressing::Path, named, prefix, path)
            }
        };
        let id = named.sandbox_id.parse();
        Ok(Address {
            addressing,
            route: Route {
                id: id.map_err(|_| AddressError::BadId)?,
                port: named.port,
                prefix: prefix.to_owned(),
                path: path.to_owned(),
            },
            signature: named.signature,
            host,
            is_known_host,
        })
    }
}

impl Address {
    /// The same where a signature means nothing: what looks like one in a path is the service's own.
    #[must_use]
    pub fn without_signature(mut self) -> Self {
        self.signature = None;
        if self.addressing == Addressing::Path {
            let route = &mut self.route;
            let kept = format!("/{}/{}", route.id, route.port).len();
            let behind = route.prefix.split_off(kept);
            route.path.insert_str(0, &behind);
        }
        self
    }
}

/// The host in lower case and the target without an origin: a target in absolute form says where the
/// request goes whatever `Host` says (RFC 9112 3.2.2).
fn host_and_target(request: Head<'_>) -> Result<(Option<String>, &str), AddressError> {
    let target = request.target();
    let target = target.split('#').next().unwrap_or(target);
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(AddressError::Path);
    }
    let mut hosts = request.values("host");
    let sent = hosts.next();
    if hosts.next().is_some() {
        return Err(AddressError::Ambiguous("it has two Host headers"));
    }
    let lower = |host: &[u8]| String::from_utf8_lossy(host).trim().to_ascii_lowercase();
    let absolute = ["http://", "https://"].iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    });
    let Some(absolute) = absolute else {
        if !target.starts_with('/') {
            return Err(AddressError::Path);
        }
        return Ok((sent.map(lower), target));
    };
    let end = absolute.find(['/', '?']).unwrap_or(absolute.len());
    let (authority, path) = absolute.split_at(end);
    Ok((Some(lower(authority.as_bytes())), path))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The route in the header, or in the header's old name.
fn header_route(request: Head<'_>) -> Result<Option<signed_route::Route>, AddressError> {
    for name in [INGRESS_TO_HEADER, INGRESS_TO_HEADER_OLD] {
        let mut values = request.values(name).filter(|value| !value.is_empty());
        let Some(value) = values.next() else { continue };
        if values.any(|other| other != value) {
            return Err(AddressError::Ambiguous("its header names two ports"));
        }
        let text = str::from_utf8(value).map_err(|_| AddressError::BadId)?;
        return Ok(Some(signed_route::Route::parse_host(text.trim())?));
    }
    Ok(None)
}

fn is_same(one: &signed_route::Route, other: &signed_route::Route) -> bool {
    one.sandbox_id == other.sandbox_id && one.port == other.port
}

#[cfg(test)]
mod tests;
