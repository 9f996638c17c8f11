//! The network of sandboxes: a pool of slots, the host's firewall, name resolution, and sockets
//! opened inside a sandbox from outside it.
//!
//! A [`Slot`] is a user namespace with its own range of 65,536 ids and a network namespace that
//! belongs to it, joined to the host by a routed veth pair (no bridge: a bridge ends at 1,023
//! ports). Nothing of a slot outlives the processes and descriptors that hold its namespaces:
//! when the last one goes the kernel removes namespace, veth and route in one batch. So there is
//! nothing to take down after a crash but the slot's claim, a file that keeps a range of ids and
//! an address from being handed out twice (`claim`).
//!
//! Filtering sits on the host's side only, in one nftables table that matches interfaces by name
//! prefix (`firewall`): adding a sandbox changes no rule, and root inside a sandbox, who owns
//! the inner end, cannot touch it.
//!
//! Not here: which sandbox holds which slot (the caller keeps the index in the sandbox's own
//! record and names the indexes in use to [`Pool::open`]), and any policy by domain name: sandboxes
//! that have one lead to the egress gate, whose namespace is made in `gate`.

mod address;
mod claim;
mod dial;
mod dns;
mod firewall;
pub(crate) mod gate;
mod link;
mod netlink;
mod nftables;
mod pool;
mod slot;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use api::egress::policy::{EgressPolicy, PolicyMode};
use lifecycle::backend;
use serde::{Deserialize, Serialize};

pub use address::Ipv4Network;
pub use dial::{DialError, Dialer};
pub(crate) use firewall::{CONNECTIONS_PER_SANDBOX, is_denied};
pub use pool::Pool;
pub(crate) use slot::make_mapping;

/// How many ids a sandbox has: everything a 16-bit uid can name, as in any container image.
pub const IDS_PER_SLOT: u32 = 65_536;

/// How slots are made.
#[derive(Debug, Clone)]
pub struct Config {
    /// Begins the name of every host interface made here and names the nftables table. At most
    /// [`PREFIX_MAX`] letters and digits.
    pub prefix: String,
    /// Where addresses come from; the first usable one is every sandbox's gateway.
    pub addresses: Ipv4Network,
    /// The first host id of slot 0; slot `n` starts `n * 65536` later.
    pub first_id: u32,
    /// How many ranges of ids may be used from `first_id` on.
    pub id_ranges: u32,
    /// Where claims are kept. Every server on this host that uses the same addresses or ids must
    /// name the same directory. On a tmpfs, because a reboot ends every sandbox.
    pub claims_dir: PathBuf,
    /// Who makes the claims: the server's data directory. A claim whose owner no longer exists
    /// is free.
    pub owner: PathBuf,
    /// Slots with a way outside that are kept ready.
    pub ready_outside: usize,
    /// Slots that lead to the egress gate that are kept ready.
    pub ready_gated: usize,
    /// Slots without one that are kept ready.
    pub ready_none: usize,
    /// Nameservers for the sandboxes in place of the host's own.
    pub nameservers: Option<Vec<Ipv4Addr>>,
    /// Private networks that sandboxes may reach, as addresses with the bits that count.
    pub private: Vec<(Ipv4Addr, u8)>,
    /// Networks that no sandbox may reach, besides the special ones.
    pub denied: Vec<(Ipv4Addr, u8)>,
}

/// The longest prefix: an interface name has 15 characters, of which `dns` and the slot's number
/// take eight.
pub const PREFIX_MAX: usize = 7;

impl Config {
    /// The defaults for a server whose state is in `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            prefix: "osb".to_owned(),
            addresses: Ipv4Network::new(Ipv4Addr::new(10, 88, 0, 0), 16)
                .expect("a constant network is well formed"),
            // 0x7000_0000 to 0x7FFD_FFFF is the last stretch below 2^31 that systemd's list of
            // id ranges leaves free, and above what subuid files hand out.
            first_id: 0x7000_0000,
            // One less than fit: the last is `host_path_ids`.
            id_ranges: 4_093,
            claims_dir: PathBuf::from("/run/opensandbox/slots"),
            owner: data_dir.into(),
            // A burst of 32 creations finds its slots ready; each costs about 0.4 MiB.
            ready_outside: 32,
            ready_gated: 8,
            ready_none: 4,
            nameservers: None,
            private: Vec::new(),
            denied: Vec::new(),
        }
    }
}

impl Config {
    /// The range of ids, after those of the slots, that users of sandboxes have as owners of files
    /// in host paths. One for all sandboxes, so that the next one finds the files of the last.
    pub(crate) fn host_path_ids(&self) -> std::ops::Range<u32> {
        let first = self.first_id + self.id_ranges * IDS_PER_SLOT;
        first..first + IDS_PER_SLOT
    }
}

/// What a slot's network leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// The outside through NAT; not other sandboxes, the host's services or link-local addresses.
    Outside,
    /// The egress gate and nothing else: what the gate does not carry does not pass.
    Gated,
    /// Nothing but its own loopback.
    None,
}

impl Network {
    /// The network that a policy asks for. Without a gate, one with rules is refused: nothing else would
    /// enforce them.
    pub(crate) fn of_policy(policy: &EgressPolicy, has_gate: bool) -> Result<Self, backend::Error> {
        if has_gate && policy.mode() == PolicyMode::Enforcing {
            return Ok(Self::Gated);
        }
        Ok(match backend::all_or_nothing("embedded", policy)? {
            true => Self::Outside,
            false => Self::None,
        })
    }
}

/// A slot's number: decides its ids, its address and its interface's name.
pub type SlotIndex = u32;

/// A user namespace with its ids and a network namespace with its address, ready for one
/// sandbox. Dropping it closes the descriptors; once no process is left in the namespaces either
/// they are gone. The claim stays until [`Pool::release`].
#[derive(Debug)]
pub struct Slot {
    /// The number to keep in the sandbox's record.
    pub index: SlotIndex,
    /// The host's id of the sandbox's root, for users and groups alike; [`IDS_PER_SLOT`] of them.
    pub first_id: u32,
    /// The user namespace, already mapped.
    pub user: OwnedFd,
    /// The network namespace: `lo` is up, and with [`Network::Outside`] `eth0` has its address
    /// and a default route. Owned by `user`.
    pub net: OwnedFd,
    /// What it leads to.
    pub network: Network,
    /// The address of `eth0`; `None` with [`Network::None`].
    pub address: Option<Ipv4Addr>,
}

/// Why a slot could not be made or the network could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot work.
    #[error("the sandbox network is misconfigured: {0}")]
    Config(String),
    /// Every slot is claimed.
    #[error(
        "all {0} network slots are in use; delete sandboxes, or give the server a larger \
         address pool or id range"
    )]
    Exhausted(u32),
    /// The kernel refused a step.
    #[error("{action} failed")]
    Kernel {
        /// What was being done.
        action: String,
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    fn kernel(action: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::Kernel {
            action: action.into(),
            source: source.into(),
        }
    }
}

/// Where the egress gate looks names up: at these nameservers, or at the host's own.
pub(crate) fn dns_upstreams(nameservers: Option<Vec<Ipv4Addr>>) -> egress::Upstreams {
    match nameservers {
        None => dns::host_upstreams(),
        Some(nameservers) => {
            let port = dns::PORT;
            let addresses = nameservers.into_iter().map(|it| (it, port).into());
            let addresses: Vec<std::net::SocketAddr> = addresses.collect();
            std::sync::Arc::new(move || addresses.clone())
        }
    }
}

/// What stands in the way of the sandboxes' network on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Routes and addresses of the host within the address pool, each with its interface.
    pub(crate) conflicts: Vec<(String, String)>,
    /// Chains of others that drop forwarded packets by default.
    pub(crate) forward_drops: Vec<String>,
    /// Sandboxes cannot ask the host's nameservers themselves.
    pub(crate) needs_relay: bool,
}

/// Looks at the host without changing it.
pub(crate) fn examine(config: &Config) -> Result<Findings, Error> {
    let socket = netlink::Socket::open(netlink::Family::Route)
        .map_err(|e| Error::kernel("opening a netlink socket", e))?;
    let local: Vec<Ipv4Addr> = link::addresses(&socket)?
        .into_iter()
        .map(|found| found.destination)
        .collect();
    Ok(Findings {
        conflicts: link::conflicts(&socket, config.addresses, &config.prefix)?,
        forward_drops: nftables::foreign_forward_drops(&config.prefix)?,
        needs_relay: dns::HostResolver::read().needs_relay(&local),
    })
}
