//! What sandboxes may reach, as one nftables table on the host's side.
//!
//! Interfaces are matched by name prefix, so the rules are the same for one sandbox and for a
//! thousand. A sandbox reaches the outside through NAT. It does not reach: any address of the
//! host, whatever listens there or is forwarded from there; other sandboxes; link-local and
//! other special addresses, where clouds serve credentials; private networks, unless the operator
//! opened them, but for the nameservers that it was told; anything over IPv6. Nothing reaches
//! a sandbox that it did not ask for, neither from the host nor through it: its ports are opened
//! from inside its namespace. Packets that do not carry the sandbox's own address are dropped.
//!
//! The table stays when the server ends, because sandboxes outlive it. Tables of others are not
//! touched; note that a drop in any of them wins over an accept in ours.

use std::net::Ipv4Addr;

use super::nftables::{
    DELETE_TABLE, HOOK_FORWARD, HOOK_INPUT, HOOK_OUTPUT, HOOK_POSTROUTING, HOOK_PREROUTING, Match,
    NEW_TABLE, PROTOCOL_IPV6, Ruleset,
};
use super::{Config, Error};
use crate::protection::Protection;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const DNS_PORT: u16 = 53;

/// Before connection tracking and before anybody's destination NAT, which could turn an address
/// of the host into that of a service behind it.
const PRIORITY_RAW: i32 = -300;
const PRIORITY_FILTER: i32 = 0;
const PRIORITY_SOURCE_NAT: i32 = 100;

/// Connections of one sandbox that the host tracks at once. The table of connections is shared
/// by the whole host (65,536 entries and up), and one sandbox must not fill it; a crawler with a
/// thousand open connections still fits four times.
pub(crate) const CONNECTIONS_PER_SANDBOX: u32 = 4_096;

/// Destinations no sandbox may reach, whatever the routes say.
const DENIED: [(Ipv4Bytes, u8, &str); 7] = [
    ([0, 0, 0, 0], 8, "this network"),
    ([127, 0, 0, 0], 8, "loopback"),
    ([169, 254, 0, 0], 16, "link-local: cloud metadata"),
    (
        [192, 0, 0, 192],
        32,
        "cloud metadata outside the link-local range",
    ),
    (
        [100, 100, 100, 200],
        32,
        "cloud metadata outside the link-local range",
    ),
    (
        [168, 63, 129, 16],
        32,
        "cloud metadata outside the link-local range",
    ),
    ([224, 0, 0, 0], 3, "multicast, reserved and broadcast"),
];

type Ipv4Bytes = [u8; 4];

/// How the names of sandboxes' interfaces begin.
pub(super) fn sandbox_prefix(prefix: &str) -> String {
    format!("{prefix}-")
}

/// How the name of a resolver's interface begins.
pub(super) fn resolver_prefix(prefix: &str) -> String {
    format!("{prefix}dns")
}

/// Whether the rules keep sandboxes from this address wherever it is.
pub(crate) fn is_denied(address: Ipv4Addr) -> bool {
    DENIED.iter().any(|&(network, length, _)| {
        let mask = u32::MAX << (32 - length);
        address.to_bits() & mask == Ipv4Addr::from_octets(network).to_bits()
    })
}

/// Replaces the table in one step: there is no moment without rules. `nameservers` are those that sandboxes
/// ask.
pub(super) fn install(config: &Config, nameservers: &[Ipv4Addr]) -> Result<(), Error> {
    let mut ruleset = Ruleset::new(&config.prefix);
    ruleset.table(NEW_TABLE);
    ruleset.table(DELETE_TABLE);
    ruleset.table(NEW_TABLE);
    if Protection::Firewall.is_on() {
        limit_traffic(&mut ruleset, config, nameservers);
    }
    ruleset.chain("departure", "nat", HOOK_POSTROUTING, PRIORITY_SOURCE_NAT);
    ruleset.masquerade(
        "departure",
        config.addresses,
        &resolver_prefix(&config.prefix),
    );
    ruleset.apply()
}

/// Everything but the translation of addresses.
fn limit_traffic(ruleset: &mut Ruleset, config: &Config, nameservers: &[Ipv4Addr]) {
    ruleset.connection_set(CONNECTIONS_PER_SANDBOX);
    let from_sandbox = Match::InputName(sandbox_prefix(&config.prefix));
    let to_sandbox = Match::OutputName(sandbox_prefix(&config.prefix));
    let from_resolver = Match::InputName(resolver_prefix(&config.prefix));
    let to_resolver = Match::OutputName(resolver_prefix(&config.prefix));
    let answers = Match::Established;

    // Every packet of the host passes the hooks, also those between its own programs. So what is
    // not of a sandbox meets two comparisons there, and the rules are in chains of their own.
    ruleset.side_chain("from_inside");
    ruleset.drop("from_inside", &[&Match::Protocol(PROTOCOL_IPV6)]);
    ruleset.drop("from_inside", &[&Match::NotFrom(config.addresses)]);
    ruleset.drop("from_inside", &[&Match::ForeignSource]);
    ruleset.drop("from_inside", &[&Match::ToHost]);
    for (address, length, _) in DENIED {
        ruleset.drop("from_inside", &[&Match::To(address, length)]);
    }
    keep_from_private(ruleset, config, nameservers);
    ruleset.chain("arrival", "filter", HOOK_PREROUTING, PRIORITY_RAW);
    for from in [&from_sandbox, &from_resolver] {
        ruleset.jump("arrival", from, "from_inside");
    }

    ruleset.chain("to_host", "filter", HOOK_INPUT, PRIORITY_FILTER);
    ruleset.drop("to_host", &[&from_sandbox]);
    ruleset.drop("to_host", &[&from_resolver]);

    // The host's own processes reach sandboxes through their namespaces, where the caller has
    // been checked, and not by address. Only errors about packets in transit pass.
    ruleset.side_chain("to_inside");
    ruleset.accept("to_inside", &[&Match::Layer4(ICMP), &answers]);
    ruleset.drop("to_inside", &[]);
    ruleset.chain("from_host", "filter", HOOK_OUTPUT, PRIORITY_FILTER);
    for to in [&to_sandbox, &to_resolver] {
        ruleset.jump("from_host", to, "to_inside");
    }

    limit_forwarding(ruleset, config);
}

/// What the operator denies to everybody, and private networks. Our own range is one of those and is dealt with
/// where the direction is known (`limit_forwarding`).
fn keep_from_private(ruleset: &mut Ruleset, config: &Config, nameservers: &[Ipv4Addr]) {
    let to = |(network, length): (Ipv4Addr, u8)| Match::To(network.octets(), length);
    for range in &config.denied {
        ruleset.drop("from_inside", &[&to(*range)]);
    }
    for nameserver in nameservers {
        for protocol in [UDP, TCP] {
            let (protocol, port) = (Match::Layer4(protocol), Match::Port(DNS_PORT));
            let nameserver = to((*nameserver, 32));
            ruleset.accept("from_inside", &[&nameserver, &protocol, &port]);
        }
    }
    let own = (config.addresses.address(), config.addresses.length());
    for open in config.private.iter().copied().chain([own]) {
        ruleset.accept("from_inside", &[&to(open)]);
    }
    for range in egress::special::private_v4() {
        ruleset.drop("from_inside", &[&to(range)]);
    }
}

/// What passes through the host: to the outside, to the resolver, and the answers.
fn limit_forwarding(ruleset: &mut Ruleset, config: &Config) {
    let from_sandbox = Match::InputName(sandbox_prefix(&config.prefix));
    let to_sandbox = Match::OutputName(sandbox_prefix(&config.prefix));
    let from_resolver = Match::InputName(resolver_prefix(&config.prefix));
    let to_resolver = Match::OutputName(resolver_prefix(&config.prefix));
    let answers = Match::Established;
    ruleset.chain("through", "filter", HOOK_FORWARD, PRIORITY_FILTER);
    // Dropped here and not at arrival: connections are known only after tracking.
    ruleset.limit_connections("through", &from_sandbox, CONNECTIONS_PER_SANDBOX);
    for to in [&to_sandbox, &to_resolver] {
        ruleset.accept("through", &[to, &answers]);
    }
    for protocol in [UDP, TCP] {
        ruleset.accept(
            "through",
            &[
                &from_sandbox,
                &to_resolver,
                &Match::Layer4(protocol),
                &Match::Port(DNS_PORT),
            ],
        );
    }
    ruleset.drop("through", &[&to_sandbox]);
    ruleset.drop("through", &[&to_resolver]);
    // An address of our range that nobody has would leave by the host's default route.
    let (range, length) = (
        config.addresses.address().octets(),
        config.addresses.length(),
    );
    ruleset.drop("through", &[&from_sandbox, &Match::To(range, length)]);
    ruleset.drop("through", &[&from_resolver]);
}

/// Removes the table, if it is there.
pub(super) fn remove(config: &Config) -> Result<(), Error> {
    let mut ruleset = Ruleset::new(&config.prefix);
    // Made first so that the deletion cannot fail for want of it.
    ruleset.table(NEW_TABLE);
    ruleset.table(DELETE_TABLE);
    ruleset.apply()
}
