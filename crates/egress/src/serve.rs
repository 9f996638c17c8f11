//! The gate as a whole: its table of sandboxes, what holds for all of them, and its three listeners.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use api::egress::policy::EgressPolicy;
use tokio::net::{TcpListener, UdpSocket, UnixListener};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, watch};

use crate::control::{self, Entry, Settings};
use crate::dns::{self, Answer, Resolver, Upstreams};
use crate::judge::{Judge, Port};
use crate::sandbox::Sandbox;
use crate::{gate, special};

/// Descriptors that a connection costs: two sockets and two pipes.
const DESCRIPTORS_PER_CONNECTION: u64 = 6;
/// Descriptors that are kept for everything else: listeners, questions for names.
const DESCRIPTORS_KEPT: u64 = 4_096;
/// Connections of all sandboxes at once, where the limit on descriptors allows them.
const CONNECTIONS_MAX: u64 = 65_536;

/// The sockets of the gate, where sandboxes arrive. Their peers' addresses are true: what carries another
/// one is dropped before.
pub struct Sockets {
    /// Every connection of a sandbox, redirected here; its socket knows where it was meant to go.
    pub connections: std::net::TcpListener,
    /// Questions for names.
    pub names: std::net::UdpSocket,
    /// The same over TCP.
    pub names_tcp: std::net::TcpListener,
}

/// What the gate has to know of the machine it runs on.
pub trait Host: Send + Sync + 'static {
    /// Whether packets to this address end on the machine itself. Where that cannot be known, it is.
    fn is_local(&self, address: IpAddr) -> bool;

    /// A sandbox is about to be told these addresses for a name: its connections there must reach the gate.
    /// `is_known` where it was told them before.
    fn tell(&self, sandbox: IpAddr, addresses: &[IpAddr], is_known: bool) -> io::Result<()>;

    /// Whether connections of a sandbox must reach the gate whatever address they are to, or only those to
    /// addresses that it was told. The others may be refused before.
    fn open(&self, sandbox: IpAddr, is_open: bool) -> io::Result<()>;
}

/// What the parts of the gate share.
pub(crate) struct Shared {
    host: Box<dyn Host>,
    resolver: Resolver,
    table: RwLock<Table>,
    room: Arc<Semaphore>,
}

#[derive(Default)]
struct Table {
    settings: Settings,
    sandboxes: HashMap<IpAddr, (Arc<Sandbox>, EgressPolicy)>,
}

/// Serves sandboxes until no server is connected to `control` and `sandboxes`, the number of those that can
/// still reach the gate, is zero.
pub async fn serve(
    sockets: Sockets,
    control: UnixListener,
    host: Box<dyn Host>,
    upstreams: Upstreams,
    sandboxes: watch::Receiver<usize>,
) -> io::Result<()> {
    let shared = Arc::new(Shared {
        host,
        resolver: Resolver::new(upstreams),
        table: RwLock::default(),
        room: Arc::new(Semaphore::new(connections_max())),
    });
    sockets.connections.set_nonblocking(true)?;
    sockets.names.set_nonblocking(true)?;
    sockets.names_tcp.set_nonblocking(true)?;
    let connections = TcpListener::from_std(sockets.connections)?;
    let names = UdpSocket::from_std(sockets.names)?;
    let names_tcp = TcpListener::from_std(sockets.names_tcp)?;
    tokio::spawn(dns::serve(names, names_tcp, shared.clone()));
    tokio::spawn(gate::serve(connections, shared.clone()));
    control::serve(control, shared, sandboxes).await;
    Ok(())
}

/// As many as the limit on descriptors has room for.
fn connections_max() -> usize {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = limit.saturating_sub(DESCRIPTORS_KEPT) / DESCRIPTORS_PER_CONNECTION;
    usize::try_from(room.clamp(64, CONNECTIONS_MAX)).unwrap_or(64)
}

impl Shared {
    /// The sandbox with this address.
    pub(crate) fn sandbox(&self, address: IpAddr) -> Option<Arc<Sandbox>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let (sandbox, _) = table.sandboxes.get(&address.to_canonical())?;
        Some(sandbox.clone())
    }

    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Room for one more connection; waits for it.
    pub(crate) async fn room(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.room.clone().acquire_owned().await
    }

    /// Whether an address may be dialled for any sandbox at all.
    pub(crate) fn is_reachable(&self, address: IpAddr) -> bool {
        let is_open = {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            let Settings { private, own, .. } = &table.settings;
            special::is_reachable(address, private, own)
        };
        is_open && !self.host.is_local(address)
    }

    /// The addresses of a name that may be dialled at this port.
    pub(crate) async fn addresses(
        &self,
        name: &str,
        port: u16,
        judge: &Judge,
    ) -> Result<Vec<IpAddr>, dns::ResolveError> {
        let answers: Vec<Arc<Answer>> = self.resolver.addresses(name).await?;
        let is_denied = |address: &IpAddr| {
            judge
                .address(*address, Port::Tcp(port))
                .is_some_and(|verdict| !verdict.is_allowed())
        };
        let allowed = answers
            .iter()
            .filter(|answer| !dns::has_denied_alias(answer, judge));
        let addresses = allowed.flat_map(|answer| answer.addresses.iter().copied());
        Ok(addresses.filter(|address| !is_denied(address)).collect())
    }

    /// Tells a sandbox addresses for a name: first the host, then it is remembered.
    pub(crate) fn tell(
        &self,
        sandbox: &Sandbox,
        addresses: &[IpAddr],
        (name, ttl): (&str, Duration),
    ) -> io::Result<()> {
        let (new, known) = sandbox.untold(addresses)?;
        for (addresses, is_known) in [(new, false), (known, true)] {
            if !addresses.is_empty() {
                self.host.tell(sandbox.address, &addresses, is_known)?;
            }
        }
        sandbox.remember(addresses, name, ttl);
        Ok(())
    }

    /// Takes other settings; every sandbox is judged by them from now on.
    pub(crate) fn configure(&self, settings: Settings) -> io::Result<()> {
        let mut table = self.write();
        for (sandbox, policy) in table.sandboxes.values() {
            let judge = Judge::new(&settings.always, policy);
            self.host.open(sandbox.address, judge.sees_addresses())?;
            sandbox.replace(judge);
        }
        table.settings = settings;
        Ok(())
    }

    /// Makes a sandbox known, or changes its policy.
    pub(crate) fn set(&self, entry: Entry) -> io::Result<()> {
        let mut table = self.write();
        let judge = Judge::new(&table.settings.always, &entry.policy);
        self.host.open(entry.address, judge.sees_addresses())?;
        match table.sandboxes.get_mut(&entry.address) {
            Some((sandbox, policy)) if sandbox.id == entry.id => {
                sandbox.replace(judge);
                *policy = entry.policy;
            }
            _ => {
                let sandbox = Arc::new(Sandbox::new(entry.id, entry.address, judge));
                let known = (sandbox, entry.policy);
                if let Some((earlier, _)) = table.sandboxes.insert(entry.address, known) {
                    earlier.end();
                }
            }
        }
        Ok(())
    }

    /// Forgets a sandbox: what comes from its address is refused.
    pub(crate) fn forget(&self, address: IpAddr) -> io::Result<()> {
        if let Some((sandbox, _)) = self.write().sandboxes.remove(&address) {
            sandbox.end();
        }
        self.host.open(address, false)
    }

    /// Forgets every sandbox but these.
    pub(crate) fn keep(&self, addresses: &[IpAddr]) -> io::Result<()> {
        let gone: Vec<IpAddr> = {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            let known = table.sandboxes.keys().copied();
            known
                .filter(|address| !addresses.contains(address))
                .collect()
        };
        gone.into_iter()
            .try_for_each(|address| self.forget(address))
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}
