//! Writes nftables tables, chains, sets and rules as netlink messages.
//!
//! Knows how a condition is expressed, and nothing of what is let through: that is the
//! firewall's. Only what the firewall uses exists here. The numbers are those of
//! `linux/netfilter/nf_tables.h`.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::netlink::{APPEND, Attributes, Batch, CREATE, DUMP, Family, Socket};
use super::netlink::{attributes as parse_attributes, read_u32};
use super::{Error, Ipv4Network};

mod expression;

use expression::{
    compare, connection_limit_expression, connection_state, expression, fib, load, lookup, mask,
    meta, payload, payload_to, verdict,
};

const SUBSYSTEM_NFTABLES: u16 = 10 << 8;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
pub(super) const NEW_TABLE: u16 = SUBSYSTEM_NFTABLES;
pub(super) const DELETE_TABLE: u16 = SUBSYSTEM_NFTABLES | 2;
const NEW_CHAIN: u16 = SUBSYSTEM_NFTABLES | 3;
const GET_CHAIN: u16 = SUBSYSTEM_NFTABLES | 4;
const NEW_RULE: u16 = SUBSYSTEM_NFTABLES | 6;
const NEW_SET: u16 = SUBSYSTEM_NFTABLES | 9;
const NEW_SET_ELEMENT: u16 = SUBSYSTEM_NFTABLES | 12;
const DELETE_SET_ELEMENT: u16 = SUBSYSTEM_NFTABLES | 14;

const FAMILY_INET: u8 = 1;
const PROTOCOL_IPV4: u8 = 2;
pub(super) const PROTOCOL_IPV6: u8 = 10;

pub(super) const HOOK_PREROUTING: u32 = 0;
pub(super) const HOOK_INPUT: u32 = 1;
pub(super) const HOOK_FORWARD: u32 = 2;
pub(super) const HOOK_OUTPUT: u32 = 3;
pub(super) const HOOK_POSTROUTING: u32 = 4;

/// The set that counts connections.
const CONNECTION_SET: &str = "connections";

/// One condition of a rule.
pub(super) enum Match {
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
    To([u8; 4], u8),
    /// Belongs to a connection that was let through before.
    Established,
    /// Begins a connection.
    New,
    /// The source is in this set of addresses.
    FromSet(&'static str),
    /// Source and destination are in this set of pairs.
    PairInSet(&'static str),
}

const REGISTER: u32 = 1;
/// The first of the registers of four bytes, which are next to each other.
const REGISTER_32: u32 = 8;
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
            Self::FromSet(set) => {
                Self::Protocol(PROTOCOL_IPV4).write(rule);
                payload(rule, BASE_NETWORK, SOURCE_OFFSET, 4);
                lookup(rule, set, REGISTER);
            }
            Self::PairInSet(set) => {
                Self::Protocol(PROTOCOL_IPV4).write(rule);
                for (register, offset) in [
                    (REGISTER_32, SOURCE_OFFSET),
                    (REGISTER_32 + 1, DESTINATION_OFFSET),
                ] {
                    payload_to(rule, register, (BASE_NETWORK, offset, 4));
                }
                lookup(rule, set, REGISTER_32);
            }
        }
    }
}

/// A batch of nftables requests on one table.
pub(super) struct Ruleset {
    table: String,
    batch: Batch,
    /// Sets so far; each has a number within the batch, and 1 is that of the connections.
    sets: u32,
}

/// What is done with elements of a set.
#[derive(Debug, Clone, Copy)]
pub(super) enum SetChange {
    Add,
    /// Fails for all where one is not there.
    Remove,
}

/// What the elements of a set are.
#[derive(Debug, Clone, Copy)]
pub(super) enum SetShape {
    /// One address.
    Address,
    /// A source and a destination.
    Pair,
}

/// How a packet is refused.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reject {
    /// A TCP reset.
    Reset,
    /// An ICMP message that the destination is prohibited.
    Prohibited,
}

impl Ruleset {
    pub(super) fn new(table: &str) -> Self {
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
            sets: 1,
        }
    }

    pub(super) fn apply(self) -> Result<(), Error> {
        let socket = Socket::open(Family::Netfilter)
            .map_err(|e| Error::kernel("opening a netfilter socket", e))?;
        self.apply_on(&socket)
    }

    /// As [`Ruleset::apply`], in the namespace of a socket that is open.
    pub(super) fn apply_on(mut self, socket: &Socket) -> Result<(), Error> {
        self.batch.acknowledge_last();
        self.batch.push(
            "ending the firewall batch",
            BATCH_END,
            0,
            &[0, 0, 0, 10],
            |_| {},
        );
        Ok(socket.send_transaction(&self.batch)?)
    }

    /// Puts elements into a set, or takes them out; each is an address or two.
    pub(super) fn elements(&mut self, set: &str, elements: &[Vec<u8>], change: SetChange) {
        let (kind, flags) = match change {
            SetChange::Add => (NEW_SET_ELEMENT, CREATE),
            SetChange::Remove => (DELETE_SET_ELEMENT, 0),
        };
        self.batch
            .push("changing a firewall set", kind, flags, &HEADER, |a| {
                a.text(1, &self.table);
                a.text(2, set);
                a.nest(3, |a| {
                    for element in elements {
                        a.nest(1, |a| a.nest(1, |a| a.bytes(1, element)));
                    }
                });
            });
    }

    pub(super) fn table(&mut self, kind: u16) {
        let flags = if kind == NEW_TABLE { CREATE } else { 0 };
        self.batch
            .push("replacing the firewall table", kind, flags, &HEADER, |a| {
                a.text(1, &self.table);
            });
    }

    pub(super) fn chain(&mut self, name: &str, kind: &str, hook: u32, priority: i32) {
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

    /// A chain that packets come to from another one only.
    pub(super) fn side_chain(&mut self, name: &str) {
        self.batch
            .push("making a firewall chain", NEW_CHAIN, CREATE, &HEADER, |a| {
                a.text(1, &self.table);
                a.text(3, name);
            });
    }

    /// Sends packets through another chain, made before; those it lets pass come back.
    pub(super) fn jump(&mut self, chain: &str, condition: &Match, to: &str) {
        const JUMP: i32 = -3;
        self.rule(chain, &[condition], |rule| {
            expression(rule, "immediate", |a| {
                a.u32_be(1, VERDICT_REGISTER);
                a.nest(2, |a| {
                    a.nest(2, |a| {
                        a.u32_be(1, JUMP.cast_unsigned());
                        a.text(2, to);
                    });
                });
            });
        });
    }

    pub(super) fn drop(&mut self, chain: &str, matches: &[&Match]) {
        const DROP: u32 = 0;
        self.rule(chain, matches, |rule| verdict(rule, DROP));
    }

    pub(super) fn accept(&mut self, chain: &str, matches: &[&Match]) {
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
    pub(super) fn connection_set(&mut self, limit: u32) {
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
                a.nest(17, |a| connection_limit_expression(a, limit));
            });
    }

    pub(super) fn limit_connections(&mut self, chain: &str, from: &Match, limit: u32) {
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
                a.nest(7, |a| connection_limit_expression(a, limit));
            });
            verdict(rule, DROP);
        });
    }

    /// A set of addresses, or of pairs of them, that [`Ruleset::elements`] fills. Its elements go after `lifetime`.
    pub(super) fn address_set(&mut self, name: &str, shape: SetShape, lifetime: Option<Duration>) {
        const TIMEOUT: u32 = 0x10;
        const TYPE_IPV4_ADDRESS: u32 = 7;
        let (kind, length) = match shape {
            SetShape::Address => (TYPE_IPV4_ADDRESS, 4),
            // As nft(8) names a pair, six bits a part.
            SetShape::Pair => (TYPE_IPV4_ADDRESS << 6 | TYPE_IPV4_ADDRESS, 8),
        };
        self.sets += 1;
        let id = self.sets;
        self.batch
            .push("making a firewall set", NEW_SET, CREATE, &HEADER, |a| {
                a.text(1, &self.table);
                a.text(2, name);
                a.u32_be(3, if lifetime.is_some() { TIMEOUT } else { 0 });
                a.u32_be(4, kind);
                a.u32_be(5, length);
                a.u32_be(10, id);
                if let Some(lifetime) = lifetime {
                    let millis = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
                    a.bytes(11, &millis.to_be_bytes());
                }
            });
    }

    /// Answers with a refusal: a reset of a connection, or an ICMP message.
    pub(super) fn reject(&mut self, chain: &str, matches: &[&Match], with: Reject) {
        const ADMINISTRATIVELY_PROHIBITED: u8 = 3;
        self.rule(chain, matches, |rule| {
            expression(rule, "reject", |a| match with {
                Reject::Reset => {
                    a.u32_be(1, 1);
                    a.u8(2, 0);
                }
                Reject::Prohibited => {
                    a.u32_be(1, 2);
                    a.u8(2, ADMINISTRATIVELY_PROHIBITED);
                }
            });
        });
    }

    /// Sends packets to another address and port; the answers seem to come from the first.
    pub(super) fn redirect(&mut self, chain: &str, matches: &[&Match], to: (Ipv4Addr, u16)) {
        const DESTINATION_NAT: u32 = 1;
        const ADDRESS_REGISTER: u32 = 1;
        const PORT_REGISTER: u32 = 2;
        self.rule(chain, matches, |rule| {
            Match::Protocol(PROTOCOL_IPV4).write(rule);
            load(rule, ADDRESS_REGISTER, &to.0.octets());
            load(rule, PORT_REGISTER, &to.1.to_be_bytes());
            expression(rule, "nat", |a| {
                a.u32_be(1, DESTINATION_NAT);
                a.u32_be(2, u32::from(PROTOCOL_IPV4));
                a.u32_be(3, ADDRESS_REGISTER);
                a.u32_be(5, PORT_REGISTER);
            });
        });
    }

    /// Everything from the sandboxes' addresses leaves with the host's. What goes to a resolver
    /// stays as it is, so that it can tell sandboxes apart.
    pub(super) fn masquerade(&mut self, chain: &str, network: Ipv4Network, resolvers: &str) {
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

/// `struct nfgenmsg`: family, version, resource.
const HEADER: [u8; 4] = [FAMILY_INET, 0, 0, 0];
