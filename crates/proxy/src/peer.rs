//! Who sent a request: the address of the connection, or, where that is a proxy that the operator
//! trusts, what the proxy says about its client. Over a unix socket it is a user of this machine.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::connection::Client;
use crate::message::Head;

/// Proxies in a row that are followed back to the client.
const HOPS_MAX: usize = 16;

/// The headers in which a proxy tells of its client (MDN, "X-Forwarded-For").
const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// The sender of a request; an extension of every request to the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The client's IP address; an IPv4 address also where it reached an IPv6 socket.
    pub ip: IpAddr,
    /// Whether the client speaks TLS, to us or to a proxy that the operator trusts.
    pub is_https: bool,
    /// The user at the other end of a unix socket, as the kernel knows it (SO_PEERCRED, unix(7)).
    pub user: Option<u32>,
}

/// The proxies whose word about their clients is taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(pub Vec<Network>);

/// An IP address, or all that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

/// Why a text is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write an IP address, or a network as in 10.0.0.0/8")]
pub struct ParseNetworkError;

impl FromStr for Network {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Self, ParseNetworkError> {
        let (address, bits) = text
            .split_once('/')
            .map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| ParseNetworkError)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => width,
            Some(bits) => bits.parse().map_err(|_| ParseNetworkError)?,
        };
        if bits > width {
            return Err(ParseNetworkError);
        }
        Ok(Self { address, bits })
    }
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        let is_same = |differing: u32| differing >= self.bits;
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                is_same((own.to_bits() ^ other.to_bits()).leading_zeros())
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                is_same((own.to_bits() ^ other.to_bits()).leading_zeros())
            }
            _ => false,
        }
    }
}

impl TrustedProxies {
    /// Whether the operator trusts what this address says about its clients.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// The sender of a request that came over a connection of `client`.
    pub(crate) fn peer_of(&self, client: Client, request: Head<'_>) -> Peer {
        self.peer(client, |name| request.values(name).collect())
    }

    /// The same for a request that the HTTP library has parsed.
    pub(crate) fn peer_of_parsed(&self, client: Client, headers: &http::HeaderMap) -> Peer {
        self.peer(client, |name| {
            let values = headers.get_all(name).iter();
            values.map(http::HeaderValue::as_bytes).collect()
        })
    }

    /// Goes back from the connection through proxies that are trusted to the first address that is
    /// not: what stands before that was written by who knows whom.
    fn peer<'a>(&self, client: Client, values: impl Fn(&'static str) -> Vec<&'a [u8]>) -> Peer {
        let mut ip = client.address.to_canonical();
        let user = client.user;
        // Nobody can be trusted to speak for others over a socket that is for one user.
        if user.is_some() || !self.contains(ip) {
            return Peer {
                ip,
                is_https: client.is_tls,
                user,
            };
        }
        let scheme = values(FORWARDED_PROTO);
        let scheme = scheme
            .last()
            .and_then(|value| value.rsplit(|byte| *byte == b',').next());
        let is_https = scheme.map_or(client.is_tls, |scheme| {
            scheme.trim_ascii().eq_ignore_ascii_case(b"https")
        });
        let lines = values(FORWARDED_FOR);
        let hops = lines
            .iter()
            .rev()
            .flat_map(|line| line.rsplit(|byte| *byte == b','));
        for hop in hops.take(HOPS_MAX) {
            let Some(told) = parse_hop(hop) else { break };
            ip = told;
            if !self.contains(ip) {
                break;
            }
        }
        Peer { ip, is_https, user }
    }
}

/// What one client has all of: its IPv4 address, or the 2^64 addresses of its IPv6 network.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::from([a, b, c, d, 0, 0, 0, 0])
            }
        },
        IpAddr::V4(_) => address,
    }
}

/// An element of X-Forwarded-For: an address, by some proxies with a port.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(hop).ok()?.trim();
    let address = text.trim_matches(['[', ']']).parse().ok();
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    address
        .or_else(with_port)
        .map(|ip: IpAddr| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::message::HeadParser;

    fn peer(trusted: &[&str], from: &str, headers: &str) -> (String, bool) {
        let trusted = trusted.iter().map(|network| network.parse().unwrap());
        let trusted = TrustedProxies(trusted.collect());
        let text = format!("GET / HTTP/1.1\r\n{headers}\r\n");
        let mut parser = HeadParser::default();
        assert_eq!(parser.parse_request(text.as_bytes()), Ok(true), "{text}");
        let user = from.strip_prefix("user ").map(|id| id.parse().unwrap());
        let address = match user {
            Some(_) => Ipv4Addr::LOCALHOST.into(),
            None => from.parse().unwrap(),
        };
        let peer = |is_tls| {
            let client = Client {
                address,
                is_tls,
                user,
            };
            trusted.peer_of(client, parser.head(text.as_bytes()))
        };
        // What a trusted proxy says of its client counts more than that the proxy itself speaks TLS to us.
        let (over_tls, peer) = (peer(true), peer(false));
        assert_eq!(
            over_tls.is_https,
            peer.is_https || user.is_some() || !says_scheme(&trusted, address, headers)
        );
        assert_eq!(peer.user, user);
        (peer.ip.to_string(), peer.is_https)
    }

    fn says_scheme(trusted: &TrustedProxies, from: IpAddr, headers: &str) -> bool {
        trusted.contains(from.to_canonical()) && headers.contains("Proto")
    }

    #[test]
    fn only_a_trusted_proxy_speaks_for_its_client() {
        let told = "X-Forwarded-For: 6.6.6.6, 192.0.2.7\r\nX-Forwarded-Proto: https\r\n";
        for (trusted, from, headers, ip, is_https) in [
            (&[][..], "10.0.0.1", told, "10.0.0.1", false),
            (&["10.0.0.2"], "10.0.0.1", told, "10.0.0.1", false),
            (&["10.0.0.1"], "10.0.0.1", told, "192.0.2.7", true),
            (&["10.0.0.0/8"], "::ffff:10.9.9.9", told, "192.0.2.7", true),
            (&["10.0.0.0/8"], "10.0.0.1", "", "10.0.0.1", false),
            (&["127.0.0.0/8"], "user 1000", told, "127.0.0.1", false),
            // Through two proxies that are trusted, and none that is not.
            (
                &["10.0.0.0/8", "192.0.2.7"],
                "10.0.0.1",
                told,
                "6.6.6.6",
                true,
            ),
            (
                &["10.0.0.1"],
                "10.0.0.1",
                "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: [2001:db8::7]:99\r\n",
                "2001:db8::7",
                false,
            ),
            (
                &["10.0.0.1"],
                "10.0.0.1",
                "X-Forwarded-For: 6.6.6.6, unknown\r\nX-Forwarded-Proto: https, http\r\n",
                "10.0.0.1",
                false,
            ),
        ] {
            let seen = peer(trusted, from, headers);
            assert_eq!(seen, (ip.to_owned(), is_https), "{trusted:?} {headers}");
        }
    }

    #[test]
    fn networks_are_parsed_and_compared_by_their_bits() {
        for wrong in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "/8",
            "10.0.0.0/x",
            "a",
        ] {
            assert_eq!(wrong.parse::<Network>(), Err(ParseNetworkError), "{wrong}");
        }
        for (network, address, is_inside) in [
            ("0.0.0.0/0", "8.8.8.8", true),
            ("0.0.0.0/0", "::1", false),
            ("10.1.0.0/16", "10.1.255.1", true),
            ("10.1.0.0/16", "10.2.0.1", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("::1", "::1", true),
            ("::1", "::2", false),
        ] {
            let network: Network = network.parse().unwrap();
            let address = address.parse().unwrap();
            assert_eq!(network.contains(address), is_inside, "{network:?}");
        }
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let one: IpAddr = "2001:db8:1:2:3::4".parse().unwrap();
        let other: IpAddr = "2001:db8:1:2:ffff::9".parse().unwrap();
        assert_eq!(network_of(one), network_of(other));
        assert_ne!(
            network_of(one),
            network_of("2001:db8:1:3::4".parse().unwrap())
        );
        assert_eq!(
            network_of("::ffff:192.0.2.1".parse().unwrap()),
            "192.0.2.1".parse::<IpAddr>().unwrap()
        );
    }
}
