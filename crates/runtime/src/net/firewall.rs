//! What sandboxes may reach, as one nftables table on the host's side.
//!
//! Interfaces are matched by name prefix, so the rules are the same for one sandbox and for a
//! thousand. A sandbox reaches the outside through NAT. It does not reach: any address of the
//! host, whatever listens there or is forwarded from there; other sandboxes; link-local and
//! other special addresses, where clouds serve credentials; anything over IPv6. Nothing reaches
//! a sandbox that it did not ask for, neither from the host nor through it: its ports are opened
//! from inside its namespace. Packets that do not carry the sandbox's own address are dropped.
//!
//! The table stays when the server ends, because sandboxes outlive it. Tables of others are not
//! touched; note that a drop in any of them wins over an accept in ours.

use std::net::Ipv4Addr;

use super::netlink::{APPEND, Attributes, Batch, CREATE, DUMP, Family, Socket};
use super::netlink::{attributes as parse_attributes, read_u32};
use super::{Config, Error, Ipv4Network};

const SUBSYSTEM_NFTABLES: u16 = 10 << 8;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = SUBSYSTEM_NFTABLES;
const DELETE_TABLE: u16 = SUBSYSTEM_NFTABLES | 2;
const NEW_CHAIN: u16 = SUBSYSTEM_NFTABLES | 3;
const GET_CHAIN: u16 = SUBSYSTEM_NFTABLES | 4;
const NEW_RULE: u16 = SUBSYSTEM_NFTABLES | 6;
const NEW_SET: u16 = SUBSYSTEM_NFTABLES | 9;

const FAMILY_INET: u8 = 1;
const PROTOCOL_IPV4: u8 = 2;
const PROTOCOL_IPV6: u8 = 10;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const DNS_PORT: u16 = 53;

const HOOK_PREROUTING: u32 = 0;
const HOOK_INPUT: u32 = 1;
const HOOK_FORWARD: u32 = 2;
const HOOK_OUTPUT: u32 = 3;
const HOOK_POSTROUTING: u32 = 4;
/// Before connection tracking and before anybody's destination NAT, which could turn an address
/// of the host into that of a service behind it.
const PRIORITY_RAW: i32 = -300;
const PRIORITY_FILTER: i32 = 0;
const PRIORITY_SOURCE_NAT: i32 = 100;

/// Connections of one sandbox that the host tracks at once. The table of connections is shared
/// by the whole host (65,536 entries and up), and one sandbox must not fill it; a crawler with a
/// thousand open connections still fits four times.
pub(super) const CONNECTIONS_PER_SANDBOX: u32 = 4_096;
const CONNECTION_SET: &str = "connections";

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
pub(super) fn is_denied(address: Ipv4Addr) -> bool {
    DENIED.iter().any(|&(network, length, _)| {
        let mask = u32::MAX << (32 - length);
        address.to_bits() & mask == Ipv4Addr::from_octets(network).to_bits()
    })
}

/// Replaces the table in one step: there is no moment without rules.
pub(super) fn install(config: &Config) -> Result<(), Error> {
    let mut ruleset = Ruleset::new(&config.prefix);
    ruleset.table(NEW_TABLE);
    ruleset.table(DELETE_TABLE);
    ruleset.table(NEW_TABLE);
    ruleset.connection_set();
    let from_sandbox = Match::InputName(sandbox_prefix(&config.prefix));
    let to_sandbox = Match::OutputName(sandbox_prefix(&config.prefix));
    let from_resolver = Match::InputName(resolver_prefix(&config.prefix));
    let to_resolver = Match::OutputName(resolver_prefix(&config.prefix));
    let answers = Match::Established;

    ruleset.chain("arrival", "filter", HOOK_PREROUTING, PRIORITY_RAW);
    for from in [&from_sandbox, &from_resolver] {
        ruleset.drop("arrival", &[from, &Match::Protocol(PROTOCOL_IPV6)]);
        ruleset.drop("arrival", &[from, &Match::NotFrom(config.addresses)]);
        ruleset.drop("arrival", &[from, &Match::ForeignSource]);
        ruleset.drop("arrival", &[from, &Match::ToHost]);
        for (address, length, _) in DENIED {
            ruleset.drop("arrival", &[from, &Match::To(address, length)]);
        }
    }

    ruleset.chain("to_host", "filter", HOOK_INPUT, PRIORITY_FILTER);
    ruleset.drop("to_host", &[&from_sandbox]);
    ruleset.drop("to_host", &[&from_resolver]);

    // The host's own processes reach sandboxes through their namespaces, where the caller has
    // been checked, and not by address. Only errors about packets in transit pass.
    ruleset.chain("from_host", "filter", HOOK_OUTPUT, PRIORITY_FILTER);
    for to in [&to_sandbox, &to_resolver] {
        ruleset.accept("from_host", &[to, &Match::Layer4(ICMP), &answers]);
        ruleset.drop("from_host", &[to]);
    }

    ruleset.chain("through", "filter", HOOK_FORWARD, PRIORITY_FILTER);
    // Dropped here and not at arrival: connections are known only after tracking.
    ruleset.limit_connections("through", &from_sandbox);
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
    ruleset.drop("through", &[&from_resolver]);

    ruleset.chain("departure", "nat", HOOK_POSTROUTING, PRIORITY_SOURCE_NAT);
    ruleset.masquerade(
        "departure",
        config.addresses,
        &resolver_prefix(&config.prefix),
    );
    ruleset.apply()
}

/// Removes the table, if it is there.
pub(super) fn remove(config: &Config) -> Result<(), Error> {
    let mut ruleset = Ruleset::new(&config.prefix);
    // Made first so that the deletion cannot fail for want of it.
    ruleset.table(NEW_TABLE);
    ruleset.table(DELETE_TABLE);
    ruleset.apply()
}

/// Base chains of other tables that drop what they do not know on its way through the host, as
/// `table/chain`: sandboxes have no way outside while one exists.
pub(super) fn foreign_forward_drops(prefix: &str) -> Result<Vec<String>, Error> {
    const TABLE: u16 = 1;
    const NAME: u16 = 3;
    const HOOK: u16 = 4;
    const POLICY: u16 = 5;
    const HOOK_NUMBER: u16 = 1;
    const POLICY_DROP: u32 = 0;
    let socket = Socket::open(Family::Netfilter)
        .map_err(|e| Error::kernel("opening a netfilter socket", e))?;
    let mut batch = Batch::default();
    batch.push(
        "listing nftables chains",
        GET_CHAIN,
        DUMP,
        &[0, 0, 0, 0],
        |_| {},
    );
    let mut found = Vec::new();
    for body in socket.dump(&batch)?.iter().filter(|body| body.len() > 4) {
        let (mut table, mut name) = (String::new(), String::new());
        let (mut hook, mut policy) = (None, None);
        for (kind, value) in parse_attributes(&body[4..]) {
            let text = || {
                String::from_utf8_lossy(value)
                    .trim_end_matches('\0')
                    .to_owned()
            };
            match kind {
                TABLE => table = text(),
                NAME => name = text(),
                HOOK => {
                    hook = parse_attributes(value)
                        .into_iter()
                        .find(|(kind, _)| *kind == HOOK_NUMBER)
                        .map(|(_, number)| read_u32(number, 0).to_be());
                }
                POLICY => policy = Some(read_u32(value, 0).to_be()),
                _ => {}
            }
        }
        if hook == Some(HOOK_FORWARD) && policy == Some(POLICY_DROP) && table != prefix {
            found.push(format!("{table}/{name}"));
        }
    }
    Ok(found)
}

/// One condition of a rule.
enum Match {
    InputName(String),
    OutputName(String),
    Protocol(u8),
    Layer4(u8),
    Port(u16),
    /// The source is outside the network.
    NotFrom(Ipv4Network),
    /// The way back to the source does not lead through the interface it came by.
    ForeignSource,
    /// The destination is an address of the host, on whatever interface.
    ToHost,
    To(Ipv4Bytes, u8),
    /// Belongs to a connection that was let through before.
    Established,
    /// Begins a connection.
    New,
}

const REGISTER: u32 = 1;
const VERDICT_REGISTER: u32 = 0;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const META_PROTOCOL: u32 = 15;
const META_LAYER4: u32 = 16;
const META_INPUT_NAME: u32 = 6;
const META_OUTPUT_NAME: u32 = 7;
const BASE_NETWORK: u32 = 1;
const BASE_TRANSPORT: u32 = 2;
const SOURCE_OFFSET: u32 = 12;
const DESTINATION_OFFSET: u32 = 16;

impl Match {
    fn write(&self, rule: &mut Attributes<'_>) {
        match self {
            Self::InputName(prefix) => {
                meta(rule, META_INPUT_NAME);
                // Compares as many bytes as it is given: a prefix.
                compare(rule, EQUAL, prefix.as_bytes());
            }
            Self::OutputName(prefix) => {
                meta(rule, META_OUTPUT_NAME);
                compare(rule, EQUAL, prefix.as_bytes());
            }
            Self::Protocol(family) => {
                meta(rule, META_PROTOCOL);
                compare(rule, EQUAL, &[*family]);
            }
            Self::Layer4(protocol) => {
                meta(rule, META_LAYER4);
                compare(rule, EQUAL, &[*protocol]);
            }
            Self::Port(port) => {
                payload(rule, BASE_TRANSPORT, 2, 2);
                compare(rule, EQUAL, &port.to_be_bytes());
            }
            Self::NotFrom(network) => {
                Self::Protocol(PROTOCOL_IPV4).write(rule);
                payload(rule, BASE_NETWORK, SOURCE_OFFSET, 4);
                mask(rule, network.mask().to_be_bytes());
                compare(rule, NOT_EQUAL, &network.address().octets());
            }
            Self::To(address, length) => {
                Self::Protocol(PROTOCOL_IPV4).write(rule);
                payload(rule, BASE_NETWORK, DESTINATION_OFFSET, 4);
                mask(rule, (u32::MAX << (32 - length)).to_be_bytes());
                compare(rule, EQUAL, address);
            }
            Self::ForeignSource => {
                const SOURCE_AND_INPUT: u32 = 0x1 | 0x8;
                const RESULT_OUTPUT_INTERFACE: u32 = 1;
                fib(rule, RESULT_OUTPUT_INTERFACE, SOURCE_AND_INPUT);
                compare(rule, EQUAL, &0_u32.to_ne_bytes());
            }
            Self::ToHost => {
                const DESTINATION: u32 = 0x2;
                const RESULT_ADDRESS_TYPE: u32 = 3;
                const LOCAL: u32 = 2;
                fib(rule, RESULT_ADDRESS_TYPE, DESTINATION);
                compare(rule, EQUAL, &LOCAL.to_ne_bytes());
            }
            Self::Established => connection_state(rule, 0x2 | 0x4),
            Self::New => connection_state(rule, 0x8),
        }
    }
}

/// A batch of nftables requests on one table.
struct Ruleset {
    table: String,
    batch: Batch,
}

impl Ruleset {
    fn new(table: &str) -> Self {
        let mut batch = Batch::default();
        batch.push(
            "beginning the firewall batch",
            BATCH_BEGIN,
            0,
            &[0, 0, 0, 10],
            |_| {},
        );
        Self {
            table: table.to_owned(),
            batch,
        }
    }

    fn apply(mut self) -> Result<(), Error> {
        self.batch.acknowledge_last();
        self.batch.push(
            "ending the firewall batch",
            BATCH_END,
            0,
            &[0, 0, 0, 10],
            |_| {},
        );
        let socket = Socket::open(Family::Netfilter)
            .map_err(|e| Error::kernel("opening a netfilter socket", e))?;
        Ok(socket.send_transaction(&self.batch)?)
    }

    fn table(&mut self, kind: u16) {
        let flags = if kind == NEW_TABLE { CREATE } else { 0 };
        self.batch
            .push("replacing the firewall table", kind, flags, &HEADER, |a| {
                a.text(1, &self.table);
            });
    }

    fn chain(&mut self, name: &str, kind: &str, hook: u32, priority: i32) {
        self.batch
            .push("making a firewall chain", NEW_CHAIN, CREATE, &HEADER, |a| {
                a.text(1, &self.table);
                a.text(3, name);
                a.nest(4, |a| {
                    a.u32_be(1, hook);
                    a.u32_be(2, priority.cast_unsigned());
                });
                a.text(7, kind);
            });
    }

    fn drop(&mut self, chain: &str, matches: &[&Match]) {
        const DROP: u32 = 0;
        self.rule(chain, matches, |rule| verdict(rule, DROP));
    }

    fn accept(&mut self, chain: &str, matches: &[&Match]) {
        const ACCEPT: u32 = 1;
        self.rule(chain, matches, |rule| verdict(rule, ACCEPT));
    }

    fn rule(&mut self, chain: &str, matches: &[&Match], action: impl FnOnce(&mut Attributes<'_>)) {
        let label = "adding a firewall rule";
        self.batch
            .push(label, NEW_RULE, CREATE | APPEND, &HEADER, |a| {
                a.text(1, &self.table);
                a.text(2, chain);
                a.nest(4, |rule| {
                    for condition in matches {
                        condition.write(rule);
                    }
                    action(rule);
                });
            });
    }

    /// The set that counts each sandbox's connections; the kernel adds and drops its elements.
    fn connection_set(&mut self) {
        const DYNAMIC: u32 = 0x20;
        const TYPE_IPV4_ADDRESS: u32 = 7;
        self.batch
            .push("making a firewall set", NEW_SET, CREATE, &HEADER, |a| {
                a.text(1, &self.table);
                a.text(2, CONNECTION_SET);
                a.u32_be(3, DYNAMIC);
                a.u32_be(4, TYPE_IPV4_ADDRESS);
                a.u32_be(5, 4);
                a.u32_be(10, 1);
                a.nest(17, connection_limit_expression);
            });
    }

    fn limit_connections(&mut self, chain: &str, from: &Match) {
        const ADD: u32 = 0;
        const DROP: u32 = 0;
        self.rule(chain, &[from, &Match::New], |rule| {
            Match::Protocol(PROTOCOL_IPV4).write(rule);
            payload(rule, BASE_NETWORK, SOURCE_OFFSET, 4);
            expression(rule, "dynset", |a| {
                a.text(1, CONNECTION_SET);
                a.u32_be(2, 1);
                a.u32_be(3, ADD);
                a.u32_be(4, REGISTER);
                a.nest(7, connection_limit_expression);
            });
            verdict(rule, DROP);
        });
    }

    /// Everything from the sandboxes' addresses leaves with the host's. What goes to a resolver
    /// stays as it is, so that it can tell sandboxes apart.
    fn masquerade(&mut self, chain: &str, network: Ipv4Network, resolvers: &str) {
        self.rule(chain, &[], |rule| {
            Match::Protocol(PROTOCOL_IPV4).write(rule);
            payload(rule, BASE_NETWORK, SOURCE_OFFSET, 4);
            mask(rule, network.mask().to_be_bytes());
            compare(rule, EQUAL, &network.address().octets());
            meta(rule, META_OUTPUT_NAME);
            compare(rule, NOT_EQUAL, resolvers.as_bytes());
            expression(rule, "masq", |_| {});
        });
    }
}

/// `struct nfgenmsg`: family, version, resource.
const HEADER: [u8; 4] = [FAMILY_INET, 0, 0, 0];

fn connection_state(rule: &mut Attributes<'_>, states: u32) {
    const KEY_STATE: u32 = 0;
    expression(rule, "ct", |a| {
        a.u32_be(1, REGISTER);
        a.u32_be(2, KEY_STATE);
    });
    mask(rule, states.to_ne_bytes());
    compare(rule, NOT_EQUAL, &0_u32.to_ne_bytes());
}

fn connection_limit_expression(a: &mut Attributes<'_>) {
    /// Matches above the limit and not below it.
    const INVERTED: u32 = 1;
    a.text(1, "connlimit");
    a.nest(2, |a| {
        a.u32_be(1, CONNECTIONS_PER_SANDBOX);
        a.u32_be(2, INVERTED);
    });
}

fn expression(rule: &mut Attributes<'_>, name: &str, data: impl FnOnce(&mut Attributes<'_>)) {
    rule.nest(1, |a| {
        a.text(1, name);
        a.nest(2, data);
    });
}

fn meta(rule: &mut Attributes<'_>, key: u32) {
    expression(rule, "meta", |a| {
        a.u32_be(1, REGISTER);
        a.u32_be(2, key);
    });
}

fn compare(rule: &mut Attributes<'_>, operation: u32, value: &[u8]) {
    expression(rule, "cmp", |a| {
        a.u32_be(1, REGISTER);
        a.u32_be(2, operation);
        a.nest(3, |a| a.bytes(1, value));
    });
}

fn payload(rule: &mut Attributes<'_>, header: u32, offset: u32, len: u32) {
    expression(rule, "payload", |a| {
        a.u32_be(1, REGISTER);
        a.u32_be(2, header);
        a.u32_be(3, offset);
        a.u32_be(4, len);
    });
}

fn mask(rule: &mut Attributes<'_>, mask: [u8; 4]) {
    expression(rule, "bitwise", |a| {
        a.u32_be(1, REGISTER);
        a.u32_be(2, REGISTER);
        a.u32_be(3, 4);
        a.nest(4, |a| a.bytes(1, &mask));
        a.nest(5, |a| a.bytes(1, &[0; 4]));
    });
}

fn fib(rule: &mut Attributes<'_>, result: u32, flags: u32) {
    expression(rule, "fib", |a| {
        a.u32_be(1, REGISTER);
        a.u32_be(2, result);
        a.u32_be(3, flags);
    });
}

fn verdict(rule: &mut Attributes<'_>, code: u32) {
    expression(rule, "immediate", |a| {
        a.u32_be(1, VERDICT_REGISTER);
        a.nest(2, |a| a.nest(2, |a| a.u32_be(1, code)));
    });
}
