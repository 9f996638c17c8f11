//! Writes nftables tables, chains, sets and rules as netlink messages.
//!
//! Knows how a condition is expressed, and nothing of what is let through: that is the
//! firewall's. Only what the firewall uses exists here. The numbers are those of
//! `linux/netfilter/nf_tables.h`.

use super::netlink::{APPEND, Attributes, Batch, CREATE, DUMP, Family, Socket};
use super::netlink::{attributes as parse_attributes, read_u32};
use super::{Error, Ipv4Network};

const SUBSYSTEM_NFTABLES: u16 = 10 << 8;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
pub(super) const NEW_TABLE: u16 = SUBSYSTEM_NFTABLES;
pub(super) const DELETE_TABLE: u16 = SUBSYSTEM_NFTABLES | 2;
const NEW_CHAIN: u16 = SUBSYSTEM_NFTABLES | 3;
const GET_CHAIN: u16 = SUBSYSTEM_NFTABLES | 4;
const NEW_RULE: u16 = SUBSYSTEM_NFTABLES | 6;
const NEW_SET: u16 = SUBSYSTEM_NFTABLES | 9;

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
pub(super) struct Ruleset {
    table: String,
    batch: Batch,
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
        }
    }

    pub(super) fn apply(mut self) -> Result<(), Error> {
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

fn connection_state(rule: &mut Attributes<'_>, states: u32) {
    const KEY_STATE: u32 = 0;
    expression(rule, "ct", |a| {
        a.u32_be(1, REGISTER);
        a.u32_be(2, KEY_STATE);
    });
    mask(rule, states.to_ne_bytes());
    compare(rule, NOT_EQUAL, &0_u32.to_ne_bytes());
}

fn connection_limit_expression(a: &mut Attributes<'_>, limit: u32) {
    /// Matches above the limit and not below it.
    const INVERTED: u32 = 1;
    a.text(1, "connlimit");
    a.nest(2, |a| {
        a.u32_be(1, limit);
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
