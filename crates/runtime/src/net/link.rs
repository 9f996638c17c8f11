//! The rtnetlink requests that join a sandbox's network namespace to the host.
//!
//! Both ends know the other's hardware address from the start and never ask for it: a fresh
//! veth's first packet would otherwise wait for, and sometimes lose, an ARP exchange, and a
//! sandbox could answer for others.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::netlink::{Attributes, Batch, CREATE, DUMP, EXCL, NetlinkError, REPLACE, Socket};
use super::netlink::{attributes, read_u32};
use super::{Ipv4Network, SlotIndex};
use crate::protection::Protection;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_INET_CONF: u16 = 1;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const ADDR_GEN_NONE: u8 = 1;
const CONF_ACCEPT_REDIRECTS: u16 = 4;
const CONF_SEND_REDIRECTS: u16 = 6;
const CONF_RP_FILTER: u16 = 8;
const CONF_ACCEPT_SOURCE_ROUTE: u16 = 9;

const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IFF_UP: u32 = 0x1;
const IFF_NOARP: u32 = 0x80;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;
const TABLE_MAIN: u8 = 254;
const PROTO_STATIC: u8 = 4;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_LINK: u8 = 253;
const TYPE_UNICAST: u8 = 1;

const LOOPBACK_INDEX: u32 = 1;
/// What a sandbox calls its way out.
const INNER_NAME: &str = "eth0";
const INNER_INDEX: u32 = 2;
/// Host interfaces get fixed numbers from here on, so that the requests after the one that makes
/// the link can name it within the same send. The kernel numbers its own links upwards from 1.
const HOST_INDEX_FIRST: u32 = 0x4000_0000;

/// Everything that distinguishes one veth pair from another.
#[derive(Debug, Clone)]
pub(super) struct VethPair {
    pub(super) index: SlotIndex,
    pub(super) host_name: String,
    pub(super) address: Ipv4Addr,
    pub(super) gateway: Ipv4Addr,
    pub(super) mtu: u32,
    /// The host's kernel speaks IPv6.
    pub(super) has_ipv6: bool,
}

impl VethPair {
    fn host_index(&self) -> u32 {
        HOST_INDEX_FIRST + self.index
    }

    /// Locally administered addresses that say what they belong to: 02, `O`, end, slot.
    fn hardware_address(&self, end: u8) -> [u8; 6] {
        let [_, a, b, c] = self.index.to_be_bytes();
        [0x02, 0x4f, end, a, b, c]
    }

    fn outer_hardware(&self) -> [u8; 6] {
        self.hardware_address(0)
    }

    fn inner_hardware(&self) -> [u8; 6] {
        self.hardware_address(1)
    }

    /// Makes the pair and routes its address to it. `Errno::EXIST` when the host's end of an
    /// earlier slot with this number is not gone yet.
    pub(super) fn make(&self, host: &Socket, inside: BorrowedFd<'_>) -> Result<(), NetlinkError> {
        let mut link = Batch::default();
        let index = self.host_index();
        link.push(
            "making a veth pair",
            RTM_NEWLINK,
            CREATE | EXCL,
            &link_header(index, 0, 0),
            |a| {
                a.text(IFLA_IFNAME, &self.host_name);
                self.describe_end(a, &self.outer_hardware());
                a.nest(IFLA_LINKINFO, |a| {
                    a.text(IFLA_INFO_KIND, "veth");
                    a.nest(IFLA_INFO_DATA, |a| {
                        a.raw_nest(VETH_INFO_PEER, &link_header(INNER_INDEX, 0, 0), |a| {
                            a.text(IFLA_IFNAME, INNER_NAME);
                            self.describe_end(a, &self.inner_hardware());
                            a.u32(IFLA_NET_NS_FD, inside.as_raw_fd().cast_unsigned());
                        });
                    });
                });
            },
        );
        // On its own: the rest must not touch a link of that number which is somebody else's.
        host.send(link)?;

        let mut rest = Batch::default();
        rest.push(
            "configuring the veth",
            RTM_SETLINK,
            0,
            &link_header(index, 0, 0),
            |a| {
                a.nest(IFLA_AF_SPEC, |a| {
                    a.nest(u16::from(AF_INET), |a| {
                        a.nest(IFLA_INET_CONF, |a| {
                            a.u32(CONF_RP_FILTER, 1);
                            a.u32(CONF_ACCEPT_REDIRECTS, 0);
                            a.u32(CONF_SEND_REDIRECTS, 0);
                            a.u32(CONF_ACCEPT_SOURCE_ROUTE, 0);
                        });
                    });
                    if self.has_ipv6 {
                        a.nest(u16::from(AF_INET6), |a| {
                            a.u8(IFLA_INET6_ADDR_GEN_MODE, ADDR_GEN_NONE);
                        });
                    }
                });
            },
        );
        let up = IFF_UP | IFF_NOARP;
        rest.push(
            "bringing up the veth",
            RTM_SETLINK,
            0,
            &link_header(index, up, up),
            |_| {},
        );
        push_neighbour(&mut rest, index, self.address, &self.inner_hardware());
        push_link_route(&mut rest, index, self.address);
        host.send(rest)
    }

    /// Gives the inner end its address and routes.
    pub(super) fn configure_inside(&self, inside: &Socket) -> Result<(), NetlinkError> {
        let mut batch = Batch::default();
        push_loopback_up(&mut batch);
        let index = INNER_INDEX;
        batch.push(
            "giving eth0 its address",
            RTM_NEWADDR,
            CREATE | EXCL,
            &{
                let mut header = vec![AF_INET, 32, 0, SCOPE_UNIVERSE];
                header.extend_from_slice(&index.to_ne_bytes());
                header
            },
            |a| {
                a.bytes(IFA_LOCAL, &self.address.octets());
                a.bytes(IFA_ADDRESS, &self.address.octets());
            },
        );
        // Without ARP before the neighbour is told, which setting it would forget. A sandbox that
        // sends to many addresses would else fill the host's one table of neighbours with
        // questions; an entry of a link without ARP is the first to go when that is full.
        let flags = match Protection::NoArp.is_on() {
            true => IFF_UP | IFF_NOARP,
            false => IFF_UP,
        };
        batch.push(
            "bringing up eth0",
            RTM_SETLINK,
            0,
            &link_header(index, flags, flags),
            |_| {},
        );
        push_neighbour(&mut batch, index, self.gateway, &self.outer_hardware());
        push_link_route(&mut batch, index, self.gateway);
        let default = route_header(0, SCOPE_UNIVERSE);
        batch.push(
            "adding the default route",
            RTM_NEWROUTE,
            CREATE | EXCL,
            &default,
            |a| {
                a.bytes(RTA_GATEWAY, &self.gateway.octets());
                a.u32(RTA_OIF, index);
            },
        );
        inside.send(batch)
    }

    /// Makes the host's end able to send. It came up while the other end was down, so the kernel
    /// left its queue closed, and opens it in deferred work after the other end came up: until
    /// then packets into the sandbox are lost. Asking for the link's state does that work now
    /// (since Linux 6.8; before, the deferred work follows within a moment).
    pub(super) fn open_queue(&self, host: &Socket) -> Result<(), NetlinkError> {
        let mut batch = Batch::default();
        let header = link_header(self.host_index(), 0, 0);
        batch.push("reading the veth's state", RTM_GETLINK, 0, &header, |_| {});
        host.send(batch)
    }

    fn describe_end(&self, a: &mut Attributes<'_>, hardware: &[u8; 6]) {
        a.bytes(IFLA_ADDRESS, hardware);
        a.u32(IFLA_MTU, self.mtu);
        // A queue per processor, the default, is memory for nothing at a sandbox's rates.
        a.u32(IFLA_NUM_TX_QUEUES, 1);
        a.u32(IFLA_NUM_RX_QUEUES, 1);
    }
}

/// Brings up `lo` and nothing else.
pub(super) fn loopback_up(inside: &Socket) -> Result<(), NetlinkError> {
    let mut batch = Batch::default();
    push_loopback_up(&mut batch);
    inside.send(batch)
}

/// Removes a host interface by name; about 20 ms, so only where a name must be free at once.
pub(super) fn delete(host: &Socket, name: &str) -> Result<(), NetlinkError> {
    let mut batch = Batch::default();
    batch.push(
        "deleting a veth",
        RTM_DELLINK,
        0,
        &link_header(0, 0, 0),
        |a| {
            a.text(IFLA_IFNAME, name);
        },
    );
    host.send(batch)
}

/// A link of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mtu: u32,
}

/// The links of the namespace that `socket` is in.
pub(super) fn list(socket: &Socket) -> Result<Vec<Link>, NetlinkError> {
    let mut batch = Batch::default();
    batch.push(
        "listing links",
        RTM_GETLINK,
        DUMP,
        &link_header(0, 0, 0),
        |_| {},
    );
    let answers = socket.dump(&batch)?;
    Ok(answers
        .iter()
        .filter(|body| body.len() >= 16)
        .map(|body| {
            let mut link = Link {
                index: read_u32(body, 4),
                name: String::new(),
                mtu: 0,
            };
            for (kind, value) in attributes(&body[16..]) {
                match kind {
                    IFLA_IFNAME => {
                        link.name = String::from_utf8_lossy(value)
                            .trim_end_matches('\0')
                            .to_owned();
                    }
                    IFLA_MTU => link.mtu = read_u32(value, 0),
                    _ => {}
                }
            }
            link
        })
        .collect())
}

/// A route of the main table, or an address as a route of its own prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) destination: Ipv4Addr,
    pub(super) length: u8,
    pub(super) link: u32,
}

/// The IPv4 unicast routes of the main table.
pub(super) fn routes(socket: &Socket) -> Result<Vec<Route>, NetlinkError> {
    let mut batch = Batch::default();
    batch.push(
        "listing routes",
        RTM_GETROUTE,
        DUMP,
        &route_header(0, 0),
        |_| {},
    );
    let answers = socket.dump(&batch)?;
    Ok(answers
        .iter()
        .filter(|b| b.len() >= 12 && b[4] == TABLE_MAIN && b[7] == TYPE_UNICAST)
        .map(|body| {
            let mut route = Route {
                destination: Ipv4Addr::UNSPECIFIED,
                length: body[1],
                link: 0,
            };
            for (kind, value) in attributes(&body[12..]) {
                match (kind, <[u8; 4]>::try_from(value)) {
                    (RTA_DST, Ok(octets)) => route.destination = Ipv4Addr::from_octets(octets),
                    (RTA_OIF, Ok(_)) => route.link = read_u32(value, 0),
                    _ => {}
                }
            }
            route
        })
        .collect())
}

/// The IPv4 addresses of the namespace, with the length of their prefix.
pub(super) fn addresses(socket: &Socket) -> Result<Vec<Route>, NetlinkError> {
    let mut batch = Batch::default();
    batch.push(
        "listing addresses",
        RTM_GETADDR,
        DUMP,
        &[AF_INET, 0, 0, 0, 0, 0, 0, 0],
        |_| {},
    );
    let answers = socket.dump(&batch)?;
    let mut found = Vec::new();
    for body in answers.iter().filter(|b| b.len() >= 8) {
        for (kind, value) in attributes(&body[8..]) {
            if let (IFA_LOCAL, Ok(octets)) = (kind, <[u8; 4]>::try_from(value)) {
                found.push(Route {
                    destination: Ipv4Addr::from_octets(octets),
                    length: body[1],
                    link: read_u32(body, 4),
                });
            }
        }
    }
    Ok(found)
}

/// Whether packets to an address end on this host, or on many at once.
pub(super) fn is_local(socket: &Socket, address: IpAddr) -> Result<bool, NetlinkError> {
    let (family, length, octets) = match address {
        IpAddr::V4(v4) => (AF_INET, 32, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AF_INET6, 128, v6.octets().to_vec()),
    };
    let mut header = vec![family, length, 0, 0, 0, 0, 0, 0];
    header.extend_from_slice(&0_u32.to_ne_bytes());
    let mut batch = Batch::default();
    batch.push("looking up a route", RTM_GETROUTE, 0, &header, |a| {
        a.bytes(RTA_DST, &octets);
    });
    let answer = socket.ask(&batch)?;
    Ok(answer.get(7) != Some(&TYPE_UNICAST))
}

/// Gives the namespace's loopback an address, and brings it up.
pub(super) fn own_address(socket: &Socket, address: Ipv4Addr) -> Result<(), NetlinkError> {
    let mut batch = Batch::default();
    push_loopback_up(&mut batch);
    let mut header = vec![AF_INET, 32, 0, SCOPE_UNIVERSE];
    header.extend_from_slice(&LOOPBACK_INDEX.to_ne_bytes());
    let flags = CREATE | REPLACE;
    batch.push("giving lo an address", RTM_NEWADDR, flags, &header, |a| {
        a.bytes(IFA_LOCAL, &address.octets());
        a.bytes(IFA_ADDRESS, &address.octets());
    });
    socket.send(batch)
}

/// The size of packet that leaves the host by its default route; Ethernet's when it has none.
pub(super) fn uplink_mtu(socket: &Socket) -> Result<u32, NetlinkError> {
    const ETHERNET: u32 = 1500;
    let default = routes(socket)?.into_iter().find(|route| route.length == 0);
    let Some(default) = default else {
        return Ok(ETHERNET);
    };
    let uplink = list(socket)?
        .into_iter()
        .find(|link| link.index == default.link);
    Ok(uplink.map_or(ETHERNET, |link| link.mtu))
}

/// Routes that share an address with `network`, and are not of our own links.
pub(super) fn conflicts(
    socket: &Socket,
    network: Ipv4Network,
    own_prefix: &str,
) -> Result<Vec<(String, String)>, NetlinkError> {
    let links = list(socket)?;
    let name = |index: u32| {
        links
            .iter()
            .find(|l| l.index == index)
            .map_or("?", |l| l.name.as_str())
            .to_owned()
    };
    let mut found = Vec::new();
    for route in routes(socket)?.into_iter().chain(addresses(socket)?) {
        let link = name(route.link);
        let masked = match route.length {
            0 => continue,
            length => route.destination.to_bits() & (u32::MAX << (32 - length)),
        };
        let mask = network.mask() & (u32::MAX << (32 - route.length));
        if !link.starts_with(own_prefix) && masked & mask == network.address().to_bits() & mask {
            found.push((format!("{}/{}", route.destination, route.length), link));
        }
    }
    found.dedup();
    Ok(found)
}

fn push_loopback_up(batch: &mut Batch) {
    let header = link_header(LOOPBACK_INDEX, IFF_UP, IFF_UP);
    batch.push("bringing up lo", RTM_SETLINK, 0, &header, |_| {});
}

fn push_neighbour(batch: &mut Batch, link: u32, address: Ipv4Addr, hardware: &[u8; 6]) {
    let mut header = vec![AF_INET, 0, 0, 0];
    header.extend_from_slice(&link.to_ne_bytes());
    header.extend_from_slice(&NUD_PERMANENT.to_ne_bytes());
    header.extend_from_slice(&[0, 0]);
    batch.push(
        "adding a neighbour",
        RTM_NEWNEIGH,
        CREATE | REPLACE,
        &header,
        |a| {
            a.bytes(NDA_DST, &address.octets());
            a.bytes(NDA_LLADDR, hardware);
        },
    );
}

fn push_link_route(batch: &mut Batch, link: u32, address: Ipv4Addr) {
    let header = route_header(32, SCOPE_LINK);
    batch.push(
        "adding a route",
        RTM_NEWROUTE,
        CREATE | EXCL,
        &header,
        |a| {
            a.bytes(RTA_DST, &address.octets());
            a.u32(RTA_OIF, link);
        },
    );
}

/// `struct ifinfomsg`.
fn link_header(index: u32, flags: u32, change: u32) -> Vec<u8> {
    let mut header = vec![AF_UNSPEC, 0, 0, 0];
    header.extend_from_slice(&index.to_ne_bytes());
    header.extend_from_slice(&flags.to_ne_bytes());
    header.extend_from_slice(&change.to_ne_bytes());
    header
}

/// `struct rtmsg`.
fn route_header(length: u8, scope: u8) -> Vec<u8> {
    let mut header = vec![
        AF_INET,
        length,
        0,
        0,
        TABLE_MAIN,
        PROTO_STATIC,
        scope,
        TYPE_UNICAST,
    ];
    header.extend_from_slice(&0_u32.to_ne_bytes());
    header
}
