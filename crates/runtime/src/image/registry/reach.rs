//! Which addresses a pull may reach.
//!
//! A client names the registry, and a registry names where its blobs and its token service are.
//! Neither may use the server to ask what listens on this machine or on its link: services there
//! trust whoever reaches them, and clouds hand out credentials. What the operator names, as a
//! registry without TLS, as a mirror or as the default registry, may be reached wherever it is.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::image::Config;

/// Why an address is not reached; to follow the name of what was asked for.
pub(super) const REFUSAL: &str = "is on this machine or its link, where only registries that the \
                                  operator lists in embedded.insecure_registries are reached";

/// What the operator allows.
#[derive(Debug, Clone)]
pub(super) struct Reach {
    /// `host` or `host:port`.
    allowed: Arc<Vec<String>>,
}

impl Reach {
    pub(super) fn new(config: &Config) -> Self {
        let mirrors = config.mirrors.values().flatten();
        let named = mirrors
            .chain(&config.insecure_registries)
            .chain([&config.default_registry]);
        // A mirror may be written as a URL.
        let bare = |entry: &String| match entry.split_once("://") {
            Some((_, rest)) => rest.split('/').next().unwrap_or_default().to_owned(),
            None => entry.split('/').next().unwrap_or_default().to_owned(),
        };
        Self {
            allowed: Arc::new(named.map(bare).collect()),
        }
    }

    /// Whether a URL may be asked, as far as its text tells: names are judged when they are
    /// resolved.
    pub(super) fn may_ask(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        let is_local = host.eq_ignore_ascii_case("localhost")
            || host.to_ascii_lowercase().ends_with(".localhost")
            || literal.parse().is_ok_and(is_local);
        !is_local || self.is_allowed(host, url.port_or_known_default())
    }

    fn is_allowed(&self, host: &str, port: Option<u16>) -> bool {
        let with_port = port.map(|port| format!("{host}:{port}"));
        let matches = |entry: &String| entry == host || Some(entry) == with_port.as_ref();
        self.allowed.iter().any(matches)
    }

    /// Of the addresses that a name has, those that it may stand for.
    fn keep(&self, host: &str, mut found: Vec<SocketAddr>) -> Vec<SocketAddr> {
        // A proxy of the environment's may be on localhost; what a registry says was judged before.
        if !host.eq_ignore_ascii_case("localhost") && !self.is_named(host) {
            found.retain(|address| !is_local(address.ip()));
        }
        found
    }

    /// Whether the operator named this host with any port.
    fn is_named(&self, host: &str) -> bool {
        let name = |entry: &String| {
            entry == host
                || entry
                    .strip_prefix(host)
                    .is_some_and(|rest| rest.starts_with(':'))
        };
        self.allowed.iter().any(name)
    }
}

/// Resolves names as the system does, and leaves out addresses that a name must not stand for.
impl Resolve for Reach {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.clone();
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let kept = reach.keep(&host, found);
            if kept.is_empty() {
                return Err(format!("{host} {REFUSAL}").into());
            }
            Ok(Box::new(kept.into_iter()) as Addrs)
        })
    }
}

/// Loopback, link-local, unspecified, multicast, and the addresses of clouds' metadata services.
fn is_local(address: IpAddr) -> bool {
    /// fd00:ec2::254, the metadata service of one cloud.
    const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    match address {
        IpAddr::V4(address) => crate::net::is_denied(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => crate::net::is_denied(mapped),
            None => {
                address.is_loopback()
                    || address.is_unspecified()
                    || address.is_unicast_link_local()
                    || address.is_multicast()
                    || address == METADATA
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach() -> Reach {
        let mut config = Config {
            insecure_registries: vec!["127.0.0.1:5000".to_owned(), "localhost".to_owned()],
            ..Config::default()
        };
        let mirror = "http://[::1]:5001/mirror".to_owned();
        config.mirrors.insert("docker.io".to_owned(), vec![mirror]);
        Reach::new(&config)
    }

    #[test]
    fn only_what_the_operator_lists_is_reached_on_this_machine() {
        for (url, expected) in [
            ("https://registry.example/v2/", true),
            ("http://10.0.0.1:5000/v2/", true),
            ("http://127.0.0.1:5000/v2/", true),
            ("http://localhost:1/v2/", true),
            ("http://[::1]:5001/v2/", true),
            ("http://127.0.0.1:5001/v2/", false),
            ("http://127.0.0.2:5000/v2/", false),
            ("http://127.1:5001/v2/", false),
            ("http://0x7f000001:5001/v2/", false),
            ("http://0.0.0.0:5000/v2/", false),
            ("http://a.localhost/v2/", false),
            ("http://[::1]/v2/", false),
            ("http://[::ffff:127.0.0.1]:5001/v2/", false),
            ("http://[fe80::1]/v2/", false),
            ("http://169.254.169.254/latest/meta-data/", false),
            ("http://[fd00:ec2::254]/latest/meta-data/", false),
            ("http://100.100.100.200/", false),
        ] {
            assert_eq!(
                reach().may_ask(&Url::parse(url).unwrap()),
                expected,
                "{url}"
            );
        }
    }

    #[test]
    fn a_name_does_not_stand_for_this_machine() {
        let found: Vec<SocketAddr> = ["127.0.0.1:0", "[::1]:0", "192.0.2.7:0", "169.254.1.1:0"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        let kept = reach().keep("rebound.example", found.clone());
        assert_eq!(kept, found[2..3]);
        assert_eq!(reach().keep("localhost", found.clone()), found);
        let config = Config {
            insecure_registries: vec!["registry.here:5000".to_owned()],
            ..Config::default()
        };
        assert_eq!(
            Reach::new(&config).keep("registry.here", found.clone()),
            found
        );
    }
}
