//! Addresses that sandboxes do not reach whatever their policy says: the machine itself, its neighbours on
//! the link, the places where clouds serve credentials, and private networks unless the operator opened
//! them. The ranges are those of the registries of IANA for special-purpose addresses (RFC 6890).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::egress::policy::Target;

use crate::judge::contains;

/// Why an address is not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// The machine itself, its link, a cloud's metadata, many receivers at once, or no address at all.
    Never,
    /// A private network, which an operator may open.
    Private,
}

const NEVER: [(&str, u8); 17] = [
    ("0.0.0.0", 8),
    ("127.0.0.0", 8),
    ("169.254.0.0", 16),
    // Clouds that serve metadata outside the link-local range.
    ("192.0.0.192", 32),
    ("100.100.100.200", 32),
    ("168.63.129.16", 32),
    ("224.0.0.0", 4),
    ("240.0.0.0", 4),
    // No address, loopback, and addresses of IPv4 in a form that RFC 4291 deprecates.
    ("::", 96),
    ("fe80::", 10),
    ("fec0::", 10),
    ("ff00::", 8),
    // The metadata of a cloud, in a private range.
    ("fd00:ec2::254", 128),
    ("fd20:ce::254", 128),
    // Teredo: the address of IPv4 in it is scrambled (RFC 4380).
    ("2001::", 32),
    // Discard-only (RFC 6666).
    ("100::", 64),
    // Local-use translation (RFC 8215).
    ("64:ff9b:1::", 48),
];

const PRIVATE: [(&str, u8); 8] = [
    ("10.0.0.0", 8),
    ("172.16.0.0", 12),
    ("192.168.0.0", 16),
    // Shared by providers (RFC 6598), and by many container networks.
    ("100.64.0.0", 10),
    ("192.0.0.0", 24),
    // Benchmarks (RFC 2544).
    ("198.18.0.0", 15),
    ("fc00::", 7),
    // Segment routing (RFC 9602).
    ("5f00::", 16),
];

/// The private networks of IPv4, for who filters packets by them.
pub fn private_v4() -> impl Iterator<Item = (Ipv4Addr, u8)> {
    let v4 = |(network, length): &(&str, u8)| Some((network.parse().ok()?, *length));
    PRIVATE.iter().filter_map(v4)
}

/// Whether an address is one of the special ones.
pub fn class(address: IpAddr) -> Option<Special> {
    let address = address.to_canonical();
    if let IpAddr::V6(v6) = address
        && let Some(inner) = translated(v6)
    {
        return class(IpAddr::V4(inner));
    }
    let is_in = |(network, length): &(&str, u8)| {
        network
            .parse()
            .is_ok_and(|network| contains(network, *length, address))
    };
    if NEVER.iter().any(is_in) {
        return Some(Special::Never);
    }
    PRIVATE.iter().any(is_in).then_some(Special::Private)
}

/// The address of IPv4 that a translator on the way would send to: NAT64 (RFC 6052) and 6to4 (RFC 3056).
fn translated(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = address.octets();
    let at = |start: usize| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|offset| octets[start + offset]);
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(at(12)),
        [0x2002, ..] => Some(at(2)),
        _ => None,
    }
}

/// Whether an address may be dialled. `private` are the private ranges that the operator opened; `own` is
/// never reached.
pub fn is_reachable(address: IpAddr, private: &[Target], own: &[Target]) -> bool {
    let is_in = |ranges: &[Target]| {
        ranges.iter().any(|range| match range {
            Target::Range {
                address: network,
                length,
            } => contains(*network, *length, address.to_canonical()),
            _ => false,
        })
    };
    if is_in(own) {
        return false;
    }
    match class(address) {
        None => true,
        Some(Special::Never) => false,
        Some(Special::Private) => is_in(private),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_known_in_every_disguise() {
        for text in [
            "0.0.0.0",
            "127.9.9.9",
            "169.254.169.254",
            "100.100.100.200",
            "255.255.255.255",
            "239.1.1.1",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "2001::1",
            "64:ff9b:1::1",
        ] {
            assert_eq!(class(text.parse().unwrap()), Some(Special::Never), "{text}");
        }
        for text in [
            "10.0.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "fc00::1",
            "fdff::1",
            "64:ff9b::a00:1",
            "2002:c0a8:101::",
            "198.19.0.1",
        ] {
            assert_eq!(
                class(text.parse().unwrap()),
                Some(Special::Private),
                "{text}"
            );
        }
        for text in [
            "1.1.1.1",
            "172.32.0.1",
            "192.0.2.1",
            "2001:db8::1",
            "2606:4700::1111",
        ] {
            assert_eq!(class(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn an_operator_opens_private_ranges_and_nothing_else() {
        let ranges = |texts: &[&str]| -> Vec<Target> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let open = ranges(&["10.0.0.0/8", "169.254.0.0/16", "fd00::/8"]);
        let own = ranges(&["10.88.0.0/16"]);
        let is = |text: &str| is_reachable(text.parse().unwrap(), &open, &own);
        assert!(is("10.1.2.3") && is("fd12::1") && is("192.0.2.1"));
        assert!(!is("192.168.0.1") && !is("169.254.169.254"));
        assert!(!is("10.88.0.5") && !is("::ffff:10.88.0.5") && !is("fd00:ec2::254"));
    }
}
