//! Makes one slot: the namespaces, the ids, the veth pair.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::link::{self, VethPair};
use super::netlink::{Family, Socket};
use super::{Config, Error, IDS_PER_SLOT, Network, Slot, SlotIndex};
use crate::sys::userns::Holder;

/// Makes slots; holds what all of them have in common.
pub(super) struct SlotFactory {
    config: Config,
    /// The namespace the host's ends are in: that of the thread that opened the pool.
    host: OwnedFd,
    /// The namespace of the egress gate, where the other ends of [`Network::Gated`] slots are.
    gate: OnceLock<OwnedFd>,
    mtu: u32,
    has_ipv6: bool,
}

/// What a slot is for; decides the name of its interface, and so which rules meet it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Sandbox,
    Resolver,
}

/// Why a slot was not made.
pub(super) enum MakeError {
    /// The interface of an earlier slot of this number still exists: try another number.
    InterfaceExists,
    Failed(Error),
}

impl From<Error> for MakeError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl SlotFactory {
    pub(super) fn open(config: Config) -> Result<Self, Error> {
        let host = open_file("/proc/thread-self/ns/net")?;
        let socket = Socket::open(Family::Route)
            .map_err(|e| Error::kernel("opening a netlink socket", e))?;
        let mtu = link::uplink_mtu(&socket)?;
        let has_ipv6 = fs::exists("/proc/sys/net/ipv6").unwrap_or(false);
        Ok(Self {
            config,
            host,
            gate: OnceLock::new(),
            mtu,
            has_ipv6,
        })
    }

    pub(super) fn host(&self) -> BorrowedFd<'_> {
        self.host.as_fd()
    }

    /// From now on [`Network::Gated`] slots can be made.
    pub(super) fn lead_to(&self, gate: OwnedFd) {
        // A second gate of this server's life takes over the namespace of the first.
        let _ = self.gate.set(gate);
    }

    pub(super) fn has_gate(&self) -> bool {
        self.gate.get().is_some()
    }

    pub(super) fn interface_name(&self, purpose: Purpose, index: SlotIndex) -> String {
        match purpose {
            Purpose::Sandbox => format!(
                "{}{index}",
                super::firewall::sandbox_prefix(&self.config.prefix)
            ),
            Purpose::Resolver => format!(
                "{}{index}",
                super::firewall::resolver_prefix(&self.config.prefix)
            ),
        }
    }

    /// Makes the slot `index`, which the caller has claimed. On failure nothing is left of it:
    /// the descriptors are closed and the kernel removes the rest.
    pub(super) fn make(
        &self,
        index: SlotIndex,
        network: Network,
        purpose: Purpose,
    ) -> Result<Slot, MakeError> {
        let first_id = self.config.first_id + index * IDS_PER_SLOT;
        let (user, net) = make_namespaces(first_id)?;
        let inside = in_namespace(net.as_fd(), self.host(), || {
            self.prepare_inside(first_id, network)
        })??;
        let address = match network {
            Network::None => {
                link::loopback_up(&inside).map_err(Error::from)?;
                None
            }
            Network::Outside | Network::Gated => {
                let outer = self.outer_end(network)?;
                let pair = self.pair(index, self.interface_name(purpose, index));
                self.join(&pair, outer, (net.as_fd(), &inside))?;
                Some(pair.address)
            }
        };
        Ok(Slot {
            index,
            first_id,
            user,
            net,
            network,
            address,
        })
    }

    /// Has the network of a slot that is in use lead elsewhere. What it led to before is cut off first; where
    /// this fails, it leads nowhere.
    pub(super) fn lead(
        &self,
        index: SlotIndex,
        net: BorrowedFd<'_>,
        to: Network,
    ) -> Result<(), Error> {
        let name = self.interface_name(Purpose::Sandbox, index);
        let gate = self.gate.get().map(AsFd::as_fd);
        for outer in [Some(self.host()), gate].into_iter().flatten() {
            let socket = self.socket_in(outer)?;
            match link::delete(&socket, &name) {
                Err(refused) if refused.errno != rustix::io::Errno::NODEV => {
                    return Err(refused.into());
                }
                _ => {}
            }
        }
        if to == Network::None {
            return Ok(());
        }
        let outer = self.outer_end(to)?;
        let inside = in_namespace(net, self.host(), || {
            self.keep_from_ipv6()?;
            Socket::open(Family::Route).map_err(|e| Error::kernel("opening a netlink socket", e))
        })??;
        let pair = self.pair(index, name);
        self.join(&pair, outer, (net, &inside))
            .map_err(|error| match error {
                MakeError::Failed(error) => error,
                MakeError::InterfaceExists => Error::Config(format!(
                    "the sandbox or the host has an interface in the place of {}",
                    pair.host_name
                )),
            })
    }

    /// The names of the interfaces that sandboxes have in the gate's namespace.
    pub(super) fn gated_names(&self) -> Result<Vec<String>, Error> {
        let Some(gate) = self.gate.get() else {
            return Ok(Vec::new());
        };
        let links = link::list(&self.socket_in(gate.as_fd())?)?;
        Ok(links.into_iter().map(|link| link.name).collect())
    }

    fn socket_in(&self, namespace: BorrowedFd<'_>) -> Result<Socket, Error> {
        in_namespace(namespace, self.host(), || Socket::open(Family::Route))?
            .map_err(|e| Error::kernel("opening a netlink socket", e))
    }

    /// The namespace of the end that a sandbox does not have.
    fn outer_end(&self, network: Network) -> Result<BorrowedFd<'_>, Error> {
        match (network, self.gate.get()) {
            (Network::Gated, Some(gate)) => Ok(gate.as_fd()),
            (Network::Gated, None) => Err(Error::Config(
                "there is no egress gate to lead a sandbox to".to_owned(),
            )),
            _ => Ok(self.host()),
        }
    }

    fn pair(&self, index: SlotIndex, host_name: String) -> VethPair {
        VethPair {
            index,
            host_name,
            address: self.config.addresses.of_slot(index),
            gateway: self.config.addresses.gateway(),
            mtu: self.mtu,
            has_ipv6: self.has_ipv6,
        }
    }

    fn join(
        &self,
        pair: &VethPair,
        outer: BorrowedFd<'_>,
        (net, inside): (BorrowedFd<'_>, &Socket),
    ) -> Result<(), MakeError> {
        let host = in_namespace(outer, self.host(), || Socket::open(Family::Route))?
            .map_err(|e| Error::kernel("opening a netlink socket", e))?;
        match pair.make(&host, net) {
            Ok(()) => {}
            Err(refused) if refused.errno == rustix::io::Errno::EXIST => {
                return Err(MakeError::InterfaceExists);
            }
            Err(refused) => return Err(Error::from(refused).into()),
        }
        pair.configure_inside(inside).map_err(Error::from)?;
        pair.open_queue(&host).map_err(Error::from)?;
        Ok(())
    }

    /// Runs in the new namespace, before its veth exists.
    fn prepare_inside(&self, first_id: u32, network: Network) -> Result<Socket, Error> {
        // The sandbox's root may not hold CAP_NET_BIND_SERVICE; every port is its own anyway.
        set_sysctl("net/ipv4/ip_unprivileged_port_start", "0")?;
        // Lets `ping` work without raw sockets. The kernel reads the ids as the writer's.
        let last = first_id + IDS_PER_SLOT - 1;
        set_sysctl("net/ipv4/ping_group_range", &format!("{first_id} {last}"))?;
        if network != Network::None {
            self.keep_from_ipv6()?;
        }
        Socket::open(Family::Route).map_err(|e| Error::kernel("opening a netlink socket", e))
    }

    /// For links made from now on in this thread's namespace: `eth0` has no IPv6, `lo` keeps `::1`.
    fn keep_from_ipv6(&self) -> Result<(), Error> {
        if !self.has_ipv6 {
            return Ok(());
        }
        set_sysctl("net/ipv6/conf/default/disable_ipv6", "1")
    }
}

pub(super) fn make_namespaces(first_id: u32) -> Result<(OwnedFd, OwnedFd), Error> {
    let holder =
        Holder::spawn(first_id).map_err(|e| Error::kernel("making a user namespace", e))?;
    let map = format!("0 {first_id} {IDS_PER_SLOT}");
    write_maps(&holder, &map, &map)?;
    let proc = format!("/proc/{}/ns", holder.pid().as_raw_nonzero());
    Ok((
        open_file(&format!("{proc}/user"))?,
        open_file(&format!("{proc}/net"))?,
    ))
}

/// A user namespace that is only a mapping of ids, for a mount that shows owners through it.
pub(crate) fn make_mapping(first_id: u32, users: &str, groups: &str) -> Result<OwnedFd, Error> {
    let holder = Holder::spawn_without_network(first_id)
        .map_err(|e| Error::kernel("making a user namespace", e))?;
    write_maps(&holder, users, groups)?;
    open_file(&format!("/proc/{}/ns/user", holder.pid().as_raw_nonzero()))
}

fn write_maps(holder: &Holder, users: &str, groups: &str) -> Result<(), Error> {
    for (file, map) in [("uid_map", users), ("gid_map", groups)] {
        let path = format!("/proc/{}/{file}", holder.pid().as_raw_nonzero());
        write_once(&path, map).map_err(|e| Error::kernel(format!("mapping ids in {file}"), e))?;
    }
    Ok(())
}

/// Runs `work` with this thread in the network namespace `inside`, and brings it back to `host`.
pub(super) fn in_namespace<T>(
    inside: BorrowedFd<'_>,
    host: BorrowedFd<'_>,
    work: impl FnOnce() -> T,
) -> Result<T, Error> {
    let network = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(inside, network)
        .map_err(|e| Error::kernel("entering a network namespace", e))?;
    let result = work();
    if let Err(error) = move_into_link_name_space(host, network) {
        // A thread of the server left inside a sandbox's network would send the host's traffic
        // there. The kernel has no reason to refuse; if it does, stopping is the safe answer.
        tracing::error!(error = %api::error_chain(&error), "a thread could not return to the host's network namespace");
        std::process::abort();
    }
    Ok(result)
}

/// Sets a kernel parameter of the network namespace that this thread is in.
pub(super) fn set_sysctl(name: &str, value: &str) -> Result<(), Error> {
    write_once(&format!("/proc/sys/{name}"), value)
        .map_err(|e| Error::kernel(format!("setting {name} to {value}"), e))
}

fn write_once(path: &str, text: &str) -> io::Result<()> {
    // Id maps take exactly one write.
    fs::OpenOptions::new()
        .write(true)
        .open(path)?
        .write_all(text.as_bytes())
}

fn open_file(path: &str) -> Result<OwnedFd, Error> {
    File::open(path)
        .map(OwnedFd::from)
        .map_err(|e| Error::kernel(format!("opening {path}"), e))
}
