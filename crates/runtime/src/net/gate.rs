//! The network namespace of the egress gate: where the other ends of sandboxes with a policy are.
//!
//! It has no way outside and forwards nothing. What sandboxes send there is dropped, refused, or delivered
//! to the gate's own sockets: questions for names, and connections, whatever address they were meant for.
//! So nothing of such a sandbox passes that the gate does not carry, also while there is none. Neither a
//! rule nor a route is made for a sandbox; two sets say which connections are refused at once instead of by
//! the gate, so that a program sees what it expects of an address that it may not reach.

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

use super::firewall::{CONNECTIONS_PER_SANDBOX, sandbox_prefix};
use super::netlink::{Family, Socket, link_events};
use super::nftables::{
    DELETE_TABLE, HOOK_FORWARD, HOOK_INPUT, HOOK_PREROUTING, Match, NEW_TABLE, PROTOCOL_IPV6,
    Reject, Ruleset, SetChange, SetShape,
};
use super::slot::set_sysctl;
use super::{Config, Error, dns, link};

const TABLE: &str = "gate";
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Where the gate accepts connections in its namespace. No other port of it is reached.
const CONNECTIONS_PORT: u16 = 1;
/// Before connection tracking.
const PRIORITY_RAW: i32 = -300;
/// After connection tracking and before the destination is changed.
const PRIORITY_ADMISSION: i32 = -150;
const PRIORITY_DESTINATION_NAT: i32 = -100;
const PRIORITY_FILTER: i32 = 0;
/// Sandboxes whose connections the gate sees, whatever address they are to.
const OPEN: &str = "open";
/// Sandboxes and the addresses that they were told for a name.
const TOLD: &str = "told";
/// How long the kernel lets a sandbox connect to an address that it was told. The gate itself remembers
/// what it told for minutes, and tells the kernel again before this is over.
pub(crate) const TOLD_LIFETIME: Duration = Duration::from_secs(2 * 3600);

/// A new namespace. The caller's thread stays where it is.
pub(crate) fn make_namespace() -> io::Result<OwnedFd> {
    let made = std::thread::spawn(|| {
        crate::sys::unshare_namespaces(rustix::thread::UnshareFlags::NEWNET)?;
        Ok(std::fs::File::open("/proc/thread-self/ns/net")?.into())
    });
    made.join()
        .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

/// Moves this thread into the namespace, for good.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    let network = Some(rustix::thread::LinkNameSpaceType::Network);
    Ok(rustix::thread::move_into_link_name_space(
        namespace, network,
    )?)
}

/// What the gate holds in its namespace.
pub(crate) struct Inside {
    pub(crate) sockets: egress::Sockets,
    pub(crate) links: Links,
    pub(crate) sets: Sets,
}

/// Sets up the namespace that this thread is in, also where an earlier gate has done so.
pub(crate) fn set_up(config: &Config) -> Result<Inside, Error> {
    let route =
        Socket::open(Family::Route).map_err(|e| Error::kernel("opening a netlink socket", e))?;
    let gateway = config.addresses.gateway();
    link::own_address(&route, gateway)?;
    set_sysctl("net/ipv4/ip_forward", "0")?;
    install(config)?;
    let bind = |port: u16| {
        TcpListener::bind((gateway, port))
            .map_err(|e| Error::kernel(format!("listening on {gateway}:{port}"), e))
    };
    let udp = UdpSocket::bind((gateway, dns::PORT))
        .map_err(|e| Error::kernel(format!("listening on {gateway}:{}", dns::PORT), e))?;
    let events = link_events().map_err(|e| Error::kernel("listening to links", e))?;
    let netfilter = Socket::open(Family::Netfilter)
        .map_err(|e| Error::kernel("opening a netfilter socket", e))?;
    Ok(Inside {
        sockets: egress::Sockets {
            connections: bind(CONNECTIONS_PORT)?,
            names: udp,
            names_tcp: bind(dns::PORT)?,
        },
        links: Links {
            events,
            route,
            prefix: sandbox_prefix(&config.prefix),
        },
        sets: Sets(netfilter),
    })
}

fn install(config: &Config) -> Result<(), Error> {
    let mut ruleset = Ruleset::new(TABLE);
    ruleset.table(NEW_TABLE);
    ruleset.table(DELETE_TABLE);
    ruleset.table(NEW_TABLE);
    ruleset.connection_set(CONNECTIONS_PER_SANDBOX);
    ruleset.address_set(OPEN, SetShape::Address, None);
    ruleset.address_set(TOLD, SetShape::Pair, Some(TOLD_LIFETIME));
    let from_sandbox = Match::InputName(sandbox_prefix(&config.prefix));
    let (tcp, udp) = (Match::Layer4(TCP), Match::Layer4(UDP));
    let names = Match::Port(dns::PORT);

    ruleset.chain("arrival", "filter", HOOK_PREROUTING, PRIORITY_RAW);
    ruleset.drop("arrival", &[&from_sandbox, &Match::Protocol(PROTOCOL_IPV6)]);
    ruleset.drop(
        "arrival",
        &[&from_sandbox, &Match::NotFrom(config.addresses)],
    );
    ruleset.drop("arrival", &[&from_sandbox, &Match::ForeignSource]);

    ruleset.chain("admission", "filter", HOOK_PREROUTING, PRIORITY_ADMISSION);
    ruleset.accept("admission", &[&Match::Established]);
    for protocol in [&udp, &tcp] {
        ruleset.accept("admission", &[&from_sandbox, protocol, &names]);
    }
    ruleset.accept("admission", &[&from_sandbox, &tcp, &Match::FromSet(OPEN)]);
    ruleset.accept("admission", &[&from_sandbox, &tcp, &Match::PairInSet(TOLD)]);
    ruleset.reject("admission", &[&from_sandbox, &tcp], Reject::Reset);
    ruleset.reject("admission", &[&from_sandbox, &udp], Reject::Prohibited);
    ruleset.drop("admission", &[&from_sandbox]);

    let gateway = config.addresses.gateway();
    ruleset.chain(
        "diversion",
        "nat",
        HOOK_PREROUTING,
        PRIORITY_DESTINATION_NAT,
    );
    for protocol in [&udp, &tcp] {
        let to = (gateway, dns::PORT);
        ruleset.redirect("diversion", &[&from_sandbox, protocol, &names], to);
    }
    let to = (gateway, CONNECTIONS_PORT);
    ruleset.redirect("diversion", &[&from_sandbox, &tcp], to);

    ruleset.chain("to_gate", "filter", HOOK_INPUT, PRIORITY_FILTER);
    ruleset.limit_connections("to_gate", &from_sandbox, CONNECTIONS_PER_SANDBOX);
    ruleset.chain("through", "filter", HOOK_FORWARD, PRIORITY_FILTER);
    ruleset.drop("through", &[]);
    ruleset.apply()
}

/// The sandboxes' ends in the namespace.
pub(crate) struct Links {
    /// Readable when a link came or went.
    pub(crate) events: OwnedFd,
    route: Socket,
    prefix: String,
}

impl Links {
    /// How many sandboxes lead here.
    pub(crate) fn count(&self) -> usize {
        let links = link::list(&self.route).unwrap_or_default();
        let ours = links
            .iter()
            .filter(|link| link.name.starts_with(&self.prefix));
        ours.count()
    }
}

/// The sets of the namespace.
pub(crate) struct Sets(Socket);

impl Sets {
    /// Lets a sandbox connect to addresses that it is told for a name. `is_known` where it was before.
    pub(crate) fn tell(
        &self,
        sandbox: Ipv4Addr,
        addresses: &[Ipv4Addr],
        is_known: bool,
    ) -> Result<(), Error> {
        let elements: Vec<Vec<u8>> = addresses
            .iter()
            .map(|address| [sandbox.octets(), address.octets()].concat())
            .collect();
        if is_known {
            // What is there keeps its time, on kernels before 6.12 at least: so out, and in again. One that
            // has gone meanwhile makes this fail, and is put in all the same.
            for element in &elements {
                let _ = self.change(TOLD, std::slice::from_ref(element), SetChange::Remove);
            }
        }
        self.change(TOLD, &elements, SetChange::Add)
    }

    /// Lets the gate see all connections of a sandbox, or only those to addresses that it was told.
    pub(crate) fn open(&self, sandbox: Ipv4Addr, is_open: bool) -> Result<(), Error> {
        let element = [sandbox.octets().to_vec()];
        if is_open {
            return self.change(OPEN, &element, SetChange::Add);
        }
        match self.change(OPEN, &element, SetChange::Remove) {
            Err(Error::Kernel { source, .. })
                if Errno::from_io_error(&source) == Some(Errno::NOENT) =>
            {
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn change(&self, set: &str, elements: &[Vec<u8>], change: SetChange) -> Result<(), Error> {
        if elements.is_empty() {
            return Ok(());
        }
        let mut ruleset = Ruleset::new(TABLE);
        ruleset.elements(set, elements, change);
        ruleset.apply_on(&self.0)
    }
}

/// Answers where an address of the host's namespace leads.
pub(crate) struct Routes(Socket);

impl Routes {
    /// In the namespace of the calling thread.
    pub(crate) fn open() -> io::Result<Self> {
        Socket::open(Family::Route).map(Self)
    }

    /// Whether packets to this address end on the host itself; also where the kernel does not know.
    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        link::is_local(&self.0, address).unwrap_or(true)
    }
}

impl AsFd for Links {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
