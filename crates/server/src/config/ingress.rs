//! Settings of the gateway: names and meanings follow the published server, but for those that a gateway
//! in the same program needs.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use daemon::config::{Described, Key, Problems, Setting, TomlValue};
use daemon::section;
use proxy::gateway::KeyRing;
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use serde::Deserialize;

use super::values::leaf;
use super::{TlsFiles, parse_host};

section! {
    /// How services in sandboxes are reached from outside.
    pub struct Ingress {
        /// direct: by paths of this server. gateway: besides, at a port of its own, by host names,
        /// headers and paths, and clients are told that.
        mode: IngressMode = IngressMode::Direct,
        /// The gateway, if there is one.
        gateway: Gateway = Gateway::default(),
        /// Addresses that let their holder in.
        secure_access: SecureAccess = SecureAccess::default(),
    }

    /// The gateway, if there is one.
    pub struct Gateway {
        /// Address to listen on.
        host: String = "127.0.0.1".to_owned(),
        /// Port to listen on; 0 takes any free one.
        port: u16 = 28888,
        /// What clients are told: with route.mode = "wildcard" a domain, as in
        /// *.sandboxes.example, else a host with or without a port. With https:// before it, where a
        /// proxy in front speaks TLS, links for browsers begin so. Default: the host that the client
        /// used to reach the server, with the gateway's port.
        address: Option<String> = None,
        /// Requests must show the sandbox's token, a signature or an API key. When false, whoever
        /// knows the id of a sandbox reaches its ports, as at the published gateway, unless it was
        /// created with secureAccess.
        require_token: bool = true,
        /// How clients are told to name a sandbox. The gateway understands all ways at once.
        route: GatewayRoute = GatewayRoute::default(),
        /// TLS, with a certificate for the names that the gateway is reached by, as in
        /// *.sandboxes.example. Default: the server's.
        tls: TlsFiles = TlsFiles::default(),
    }

    /// How clients are told to name a sandbox.
    pub struct GatewayRoute {
        /// wildcard (a label of the host name), header or uri (the beginning of the path).
        mode: RouteMode = RouteMode::Header,
    }

    /// Addresses that let their holder in.
    pub struct SecureAccess {
        /// The id of the key that signs; all keys verify.
        active_key: Option<String> = None,
        /// Keys for signed routes: [{ key_id = "a", key = "…base64…" }]. Default: one that the
        /// server makes and keeps with its data.
        keys: RouteKeys = RouteKeys::default(),
        /// How long ahead a route may be signed, in seconds; 0 is without limit.
        max_ttl_seconds: u64 = 86_400,
    }
}

/// Whether there is a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IngressMode {
    /// No.
    Direct,
    /// In this program.
    Gateway,
}

/// How clients are told to name a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteMode {
    /// By a label of the host name.
    Wildcard,
    /// By a header.
    Header,
    /// By the beginning of the path.
    Uri,
}

/// A key for signed routes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteKey {
    /// A digit or a lower case letter.
    pub key_id: String,
    /// The key, in base64.
    pub key: SecretString,
}

/// Keys for signed routes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct RouteKeys(pub Vec<RouteKey>);

impl SecureAccess {
    /// The keys, if the operator set any. The error says what is wrong with them.
    pub(crate) fn key_ring(&self) -> Result<Option<KeyRing>, String> {
        let (active, keys) = match (&self.active_key, &*self.keys.0) {
            (None, []) => return Ok(None),
            (Some(_), []) => return Err("active_key is set, and there are no keys".to_owned()),
            (None, [only]) => (&only.key_id, std::slice::from_ref(only)),
            (None, _) => return Err("active_key must name the key that signs".to_owned()),
            (Some(active), keys) => (active, keys),
        };
        let decoded = keys.iter().map(|key| Ok((id(&key.key_id)?, secret(key)?)));
        let decoded = decoded.collect::<Result<_, String>>()?;
        let ring = KeyRing::new(id(active)?, decoded);
        let wrong = "active_key must be one of the keys, and each key_id must be there once";
        ring.ok_or_else(|| wrong.to_owned()).map(Some)
    }
}

fn id(text: &str) -> Result<char, String> {
    let mut letters = text.chars();
    let is_id = |id: &char| id.is_ascii_digit() || id.is_ascii_lowercase();
    match (letters.next().filter(is_id), letters.next()) {
        (Some(id), None) => Ok(id),
        _ => Err(format!("key_id {text:?} must be one of 0-9 and a-z")),
    }
}

fn secret(key: &RouteKey) -> Result<SecretSlice<u8>, String> {
    let decoded = BASE64_STANDARD.decode(key.key.expose_secret().trim());
    match decoded {
        Ok(bytes) if !bytes.is_empty() => Ok(bytes.into()),
        _ => Err(format!(
            "the key {:?} must be base64 of at least one byte; `head -c 32 /dev/urandom | base64` \
             makes one",
            key.key_id
        )),
    }
}

impl Gateway {
    /// Where to listen.
    ///
    /// # Panics
    /// Before the settings were checked.
    pub(crate) fn listens_at(&self) -> SocketAddr {
        let host = parse_host(&self.host).expect("checked when the settings were read");
        SocketAddr::new(host, self.port)
    }

    /// Whether clients are told to use `https`, and the address without that.
    pub(crate) fn told(&self) -> Option<(bool, &str)> {
        let address = self.address.as_deref()?.trim_end_matches('/');
        Some(match address.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, address),
        })
    }

    /// The domain whose first label names a sandbox, with a port if it has one.
    pub(crate) fn wildcard(&self) -> Option<&str> {
        let (_, address) = self.told()?;
        address.strip_prefix("*.")
    }
}

pub(super) fn check(ingress: &Ingress, problems: &mut Problems) {
    let gateway = &ingress.gateway;
    if parse_host(&gateway.host).is_none() {
        problems.add(format!(
            "ingress.gateway.host must be an IP address or localhost, not {:?}",
            gateway.host
        ));
    }
    gateway.tls.check("ingress.gateway.tls", problems);
    let is_wildcard = gateway.route.mode == RouteMode::Wildcard;
    if is_wildcard && gateway.wildcard().is_none() {
        problems.add(
            "ingress.gateway.route.mode = \"wildcard\" needs ingress.gateway.address, as in \
             *.sandboxes.example",
        );
    }
    if let Some((_, address)) = gateway.told() {
        let name = address.strip_prefix("*.").unwrap_or(address);
        let is_host = |name: &str| {
            let authority = name.parse::<http::uri::Authority>();
            authority.is_ok() && !name.contains(['@', '*', '/'])
        };
        if !is_host(name) || (address.starts_with("*.") && !is_wildcard) {
            problems.add(format!(
                "ingress.gateway.address: {address:?} is not a host with or without a port, and \
                 not a domain as in *.sandboxes.example for route.mode = \"wildcard\""
            ));
        }
    }
    if let Err(problem) = ingress.secure_access.key_ring() {
        problems.add(format!("ingress.secure_access: {problem}"));
    }
}

leaf!(IngressMode, "direct or gateway", |mode| match mode {
    IngressMode::Direct => "direct".into(),
    IngressMode::Gateway => "gateway".into(),
});
leaf!(RouteMode, "wildcard, header or uri", |mode| match mode {
    RouteMode::Wildcard => "wildcard".into(),
    RouteMode::Header => "header".into(),
    RouteMode::Uri => "uri".into(),
});

impl Setting for RouteKeys {
    const KIND: &'static str = "a list of { key_id, key }";
    const IS_SECRET: bool = true;

    fn show(&self) -> Option<TomlValue> {
        Some(TomlValue::Array(Vec::new()))
    }
}

impl Described for RouteKeys {
    fn describe(&self, path: String, docs: &'static [&'static str], keys: &mut Vec<Key>) {
        Key::add(self, path, docs, keys);
    }
}
