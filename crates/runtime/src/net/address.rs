//! The block of IPv4 addresses that slots are numbered from.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::SlotIndex;

/// An IPv4 network, for example `10.88.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ipv4Network {
    network: u32,
    length: u8,
}

/// A text that is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an IPv4 network; write it as 10.88.0.0/16, with no host bits set")]
pub struct InvalidNetwork(String);

/// The network's own address and the gateway's come before the first slot's.
const RESERVED_FRONT: u32 = 2;
/// The broadcast address.
const RESERVED_BACK: u32 = 1;

impl Ipv4Network {
    /// A network of 1 to 30 bits with no host bits set: anything longer has no room for a slot.
    pub fn new(network: Ipv4Addr, length: u8) -> Result<Self, InvalidNetwork> {
        let candidate = Self {
            network: network.to_bits(),
            length,
        };
        if !(1..=30).contains(&length) || candidate.network & !candidate.mask() != 0 {
            return Err(InvalidNetwork(format!("{network}/{length}")));
        }
        Ok(candidate)
    }

    /// How many slots have an address.
    pub fn slots(self) -> u32 {
        (!self.mask()) + 1 - RESERVED_FRONT - RESERVED_BACK
    }

    /// What a sandbox routes everything through. No interface carries this address: it only
    /// names the host's end of the veth.
    pub fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network + 1)
    }

    pub(super) fn of_slot(self, index: SlotIndex) -> Ipv4Addr {
        debug_assert!(index < self.slots(), "slots are claimed below the limit");
        Ipv4Addr::from_bits(self.network + RESERVED_FRONT + index)
    }

    /// The first address of the network.
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network)
    }

    pub(super) fn length(self) -> u8 {
        self.length
    }

    pub(super) fn mask(self) -> u32 {
        u32::MAX << (32 - self.length)
    }

    /// Whether two networks share an address.
    pub fn overlaps(self, other: Self) -> bool {
        let mask = self.mask() & other.mask();
        self.network & mask == other.network & mask
    }
}

impl fmt::Display for Ipv4Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.length)
    }
}

impl FromStr for Ipv4Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let parsed = text.split_once('/').and_then(|(network, length)| {
            Self::new(network.parse().ok()?, length.parse().ok()?).ok()
        });
        parsed.ok_or_else(|| InvalidNetwork(text.to_owned()))
    }
}

impl TryFrom<String> for Ipv4Network {
    type Error = InvalidNetwork;

    fn try_from(text: String) -> Result<Self, InvalidNetwork> {
        text.parse()
    }
}

impl From<Ipv4Network> for String {
    fn from(network: Ipv4Network) -> Self {
        network.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_lie_between_gateway_and_broadcast() {
        let network: Ipv4Network = "192.0.2.8/29".parse().unwrap();
        assert_eq!(network.gateway(), Ipv4Addr::new(192, 0, 2, 9));
        assert_eq!(network.slots(), 5);
        assert_eq!(network.of_slot(0), Ipv4Addr::new(192, 0, 2, 10));
        assert_eq!(network.of_slot(4), Ipv4Addr::new(192, 0, 2, 14));
    }

    #[test]
    fn malformed_networks_are_refused() {
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.1/8",
            "10.0.0.0/31",
            "10.0.0.0/0",
            "10.0.0.0/33",
            "x/8",
        ] {
            assert!(text.parse::<Ipv4Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn overlap_is_symmetric_containment() {
        let check = |a: &str, b: &str, expected: bool| {
            let (a, b): (Ipv4Network, Ipv4Network) = (a.parse().unwrap(), b.parse().unwrap());
            assert_eq!(a.overlaps(b), expected, "{a} {b}");
            assert_eq!(b.overlaps(a), expected, "{b} {a}");
        };
        check("10.0.0.0/8", "10.88.0.0/16", true);
        check("10.88.0.0/16", "10.89.0.0/16", false);
        check("10.88.0.0/16", "10.88.0.0/16", true);
    }
}
