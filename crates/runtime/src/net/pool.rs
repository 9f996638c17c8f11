//! Keeps slots ready, makes one on the spot when none is, and sets up the host.
//!
//! One thread refills in the background; a taker that finds the pool empty makes its own slot on
//! a blocking thread, so an empty pool costs time and is never an error.

mod lead;

use std::collections::VecDeque;
use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use api::error_chain;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::claim::Claims;
use super::dns::{self, HostResolver};
use super::firewall;
use super::link;
use super::netlink::{Family, Socket};
use super::slot::{MakeError, Purpose, SlotFactory, in_namespace, set_sysctl};
use super::{Config, Dialer, Error, IDS_PER_SLOT, Network, PREFIX_MAX, Slot, SlotIndex};

/// Numbers tried when the interface of an earlier slot lingers. Numbers go round, so one still
/// dying is rare and this many in a row means something else is wrong.
const BUSY_TRIES: usize = 64;

/// The network slots of one server; cheap to clone. Ready slots are dropped with the last clone.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
    _lifetime: Arc<Lifetime>,
}

struct Inner {
    config: Config,
    factory: SlotFactory,
    claims: Claims,
    state: Mutex<State>,
    /// Signalled when something was taken or given back, and at the end.
    changed: Condvar,
    dialer: Dialer,
    resolv_conf: String,
    /// The slot of the DNS relay, where there is one.
    resolver: Option<SlotIndex>,
    stop: CancellationToken,
    tasks: TaskTracker,
    refiller: Mutex<Option<Thread>>,
}

#[derive(Default)]
struct State {
    outside: VecDeque<Slot>,
    gated: VecDeque<Slot>,
    none: VecDeque<Slot>,
    is_closing: bool,
    /// The last refill failed; it is tried again when something changes.
    has_refill_failed: bool,
}

/// Ends the background work when the last handle goes.
struct Lifetime(Arc<Inner>);

type Thread = std::thread::JoinHandle<()>;

impl Drop for Lifetime {
    fn drop(&mut self) {
        self.0.shut_down();
        self.0.tear_down();
    }
}

impl Pool {
    /// Sets up the host (forwarding, firewall, resolver) and begins to fill the pool. `in_use`
    /// are the slots of sandboxes that still exist; every other claim of this owner is dropped.
    ///
    /// Blocks for some milliseconds. Must be called within a tokio runtime. The host's side of
    /// everything is the network namespace of the calling thread.
    pub fn open(config: Config, in_use: &[SlotIndex]) -> Result<Self, Error> {
        let limit = validate(&config)?;
        let claims = Claims::open(&config.claims_dir, &config.owner, limit)?;
        let resolver_record = resolver_record(&config);
        let resolver_index = fs::read_to_string(&resolver_record)
            .ok()
            .and_then(|text| text.trim().parse::<SlotIndex>().ok());
        for index in claims.ours()? {
            if !in_use.contains(&index) && resolver_index != Some(index) {
                claims.release(index);
            }
        }
        for &index in in_use {
            if !claims.hold(index)? {
                tracing::error!(index, "another server has claimed the slot of our sandbox");
            }
        }
        turn_on_forwarding()?;
        let nameservers = config.nameservers.clone();
        let nameservers = nameservers.unwrap_or_else(|| HostResolver::read().ipv4());
        firewall::install(&config, &nameservers)?;
        let factory = SlotFactory::open(config.clone())?;
        let dialer = Dialer::open().map_err(|e| Error::kernel("starting threads", e))?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let relay = DnsRelay {
            claims: &claims,
            factory: &factory,
            record: resolver_record,
        };
        let (resolv_conf, resolver) = match &config.nameservers {
            Some(nameservers) => (
                nameservers
                    .iter()
                    .map(|address| format!("nameserver {address}\n"))
                    .collect(),
                None,
            ),
            None => relay.start(resolver_index, &stop, &tasks)?,
        };
        if let Some(earlier) = resolver_index.filter(|index| resolver != Some(*index)) {
            claims.release(earlier);
        }
        let inner = Arc::new(Inner {
            config,
            factory,
            claims,
            state: Mutex::default(),
            changed: Condvar::new(),
            dialer,
            resolv_conf,
            resolver,
            stop,
            tasks,
            refiller: Mutex::default(),
        });
        let refill = Arc::clone(&inner);
        let refiller = std::thread::Builder::new()
            .name("net-pool".to_owned())
            .spawn(move || refill.refill())
            .map_err(|e| Error::kernel("starting a thread", e))?;
        *inner
            .refiller
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(refiller);
        Ok(Self {
            _lifetime: Arc::new(Lifetime(Arc::clone(&inner))),
            inner,
        })
    }

    /// A slot for one sandbox: a ready one, or one made now.
    pub async fn take(&self, network: Network) -> Result<Slot, Error> {
        if let Some(slot) = self.inner.take_ready(network) {
            return Ok(slot);
        }
        let inner = Arc::clone(&self.inner);
        let made = tokio::task::spawn_blocking(move || inner.make(network)).await;
        made.map_err(|e| Error::kernel("making a slot", std::io::Error::other(e)))?
    }

    /// From now on slots that lead to the egress gate can be taken; `namespace` is the gate's.
    pub(crate) fn lead_to(&self, namespace: OwnedFd) {
        self.inner.factory.lead_to(namespace);
        self.inner.wake_refiller();
    }

    /// Whether slots can lead to a gate.
    pub(crate) fn has_gate(&self) -> bool {
        self.inner.factory.has_gate()
    }

    /// The address of a slot.
    pub(crate) fn address_of(&self, index: SlotIndex) -> Ipv4Addr {
        self.inner.config.addresses.of_slot(index)
    }

    /// Gives the number of a slot back. To be called when nothing of the sandbox is left.
    pub fn release(&self, index: SlotIndex) {
        self.inner.claims.release(index);
        self.inner.wake_refiller();
    }

    /// What `/etc/resolv.conf` says in a sandbox with a way outside.
    pub fn resolv_conf(&self) -> &str {
        &self.inner.resolv_conf
    }

    /// Opens connections into sandboxes.
    pub fn dialer(&self) -> &Dialer {
        &self.inner.dialer
    }

    /// The namespace of the host's side.
    pub fn host_namespace(&self) -> std::os::fd::BorrowedFd<'_> {
        self.inner.factory.host()
    }

    /// Ready slots, with and without a way outside.
    pub fn ready(&self) -> (usize, usize) {
        let state = self.inner.lock();
        (state.outside.len(), state.none.len())
    }

    /// Ends the background work, gives back what is ready and waits until that is done.
    pub async fn close(self) {
        self.inner.shut_down();
        let refiller = self
            .inner
            .refiller
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(refiller) = refiller {
            // Gives back the slot it may be making; ends within milliseconds.
            let _ = tokio::task::spawn_blocking(move || refiller.join()).await;
        }
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        self.inner.tear_down();
    }
}

#[cfg(test)]
impl Pool {
    /// A slot that is not from the ready ones.
    pub(super) fn make_for(&self, purpose: Purpose) -> Slot {
        make_any(
            &self.inner.claims,
            &self.inner.factory,
            Network::Outside,
            purpose,
        )
        .expect("a slot can be made")
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_ready(&self, network: Network) -> Option<Slot> {
        let mut state = self.lock();
        state.has_refill_failed = false;
        let slot = match network {
            Network::Outside => state.outside.pop_front(),
            Network::Gated => state.gated.pop_front(),
            Network::None => state.none.pop_front(),
        };
        self.changed.notify_one();
        slot
    }

    fn wake_refiller(&self) {
        self.lock().has_refill_failed = false;
        self.changed.notify_one();
    }

    fn make(&self, network: Network) -> Result<Slot, Error> {
        make_any(&self.claims, &self.factory, network, Purpose::Sandbox)
    }

    fn refill(&self) {
        while let Some(network) = self.next_wanted() {
            match self.make(network) {
                Ok(slot) => self.put(slot),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the pool of network slots could not be refilled"
                    );
                    self.lock().has_refill_failed = true;
                }
            }
        }
    }

    /// Waits until a slot is wanted; `None` at the end.
    fn next_wanted(&self) -> Option<Network> {
        let mut state = self.lock();
        loop {
            if state.is_closing {
                return None;
            }
            if !state.has_refill_failed {
                if state.outside.len() < self.config.ready_outside {
                    return Some(Network::Outside);
                }
                if self.factory.has_gate() && state.gated.len() < self.config.ready_gated {
                    return Some(Network::Gated);
                }
                if state.none.len() < self.config.ready_none {
                    return Some(Network::None);
                }
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put(&self, slot: Slot) {
        let mut state = self.lock();
        if state.is_closing {
            self.claims.release(slot.index);
            return;
        }
        match slot.network {
            Network::Outside => state.outside.push_back(slot),
            Network::Gated => state.gated.push_back(slot),
            Network::None => state.none.push_back(slot),
        }
    }

    /// Takes away what no sandbox needs any more: the relay's claim when none of this server is
    /// left, the firewall when none of any server is and no other server runs.
    fn tear_down(&self) {
        let refiller = self
            .refiller
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // Gives back the slot it may be making; ends within milliseconds.
        let _ = refiller.map(Thread::join);
        if let (Some(index), Ok(ours)) = (self.resolver, self.claims.ours())
            && ours == [index]
        {
            self.claims.release(index);
            let _ = fs::remove_file(resolver_record(&self.config));
        }
        let is_unused = self.claims.live().is_ok_and(|claimed| claimed.is_empty());
        if !is_unused || !self.claims.is_only_user() {
            return;
        }
        let removed = in_namespace(self.factory.host(), self.factory.host(), || {
            firewall::remove(&self.config)
        });
        if let Err(error) = removed.and_then(|removed| removed) {
            tracing::warn!(error = %error_chain(&error), "the firewall table was not removed");
        }
    }

    fn shut_down(&self) {
        self.stop.cancel();
        let mut state = self.lock();
        state.is_closing = true;
        let ready: Vec<Slot> = std::mem::take(&mut state.outside)
            .into_iter()
            .chain(std::mem::take(&mut state.gated))
            .chain(std::mem::take(&mut state.none))
            .collect();
        drop(state);
        self.changed.notify_all();
        for slot in ready {
            self.claims.release(slot.index);
        }
    }
}

fn make_any(
    claims: &Claims,
    factory: &SlotFactory,
    network: Network,
    purpose: Purpose,
) -> Result<Slot, Error> {
    for _ in 0..BUSY_TRIES {
        let index = claims.next()?;
        match factory.make(index, network, purpose) {
            Ok(slot) => return Ok(slot),
            Err(MakeError::InterfaceExists) => claims.release(index),
            Err(MakeError::Failed(error)) => {
                claims.release(index);
                return Err(error);
            }
        }
    }
    Err(Error::Config(format!(
        "the interface names of {BUSY_TRIES} slots in a row are taken by something else; choose \
         another prefix"
    )))
}

/// Where the number of the DNS relay's slot is kept.
fn resolver_record(config: &Config) -> PathBuf {
    config.owner.join("resolver-slot")
}

/// Refuses what cannot work; returns how many slots there are.
fn validate(config: &Config) -> Result<u32, Error> {
    let prefix = &config.prefix;
    if prefix.is_empty()
        || prefix.len() > PREFIX_MAX
        || !prefix.bytes().all(|b| b.is_ascii_alphanumeric())
    {
        return Err(Error::Config(format!(
            "the interface prefix {prefix:?} must be 1 to {PREFIX_MAX} letters and digits"
        )));
    }
    // The range after the last slot's is that of host paths.
    let ranges = (u32::MAX - config.first_id) / IDS_PER_SLOT - 1;
    if config.first_id < IDS_PER_SLOT || config.id_ranges == 0 || config.id_ranges > ranges {
        return Err(Error::Config(format!(
            "{} ranges of ids from {} on do not fit between the host's own ids (below \
             {IDS_PER_SLOT}) and 2^32",
            config.id_ranges, config.first_id
        )));
    }
    Ok(config.id_ranges.min(config.addresses.slots()))
}

fn turn_on_forwarding() -> Result<(), Error> {
    const NAME: &str = "net/ipv4/ip_forward";
    let path = format!("/proc/sys/{NAME}");
    let value =
        fs::read_to_string(&path).map_err(|e| Error::kernel(format!("reading {path}"), e))?;
    if value.trim() == "0" {
        set_sysctl(NAME, "1")?;
        tracing::info!(
            "turned on IPv4 forwarding on this host, which sandboxes need to reach the outside"
        );
    }
    Ok(())
}

/// The start of the DNS relay.
struct DnsRelay<'a> {
    claims: &'a Claims,
    factory: &'a SlotFactory,
    /// Keeps the relay's slot, because the sandboxes of an earlier life still ask there.
    record: PathBuf,
}

impl DnsRelay<'_> {
    /// Starts the relay if sandboxes need one; returns their resolv.conf and the relay's slot.
    fn start(
        self,
        earlier: Option<SlotIndex>,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Result<(String, Option<SlotIndex>), Error> {
        let host = HostResolver::read();
        let socket = Socket::open(Family::Route)
            .map_err(|e| Error::kernel("opening a netlink socket", e))?;
        let local: Vec<Ipv4Addr> = link::addresses(&socket)?
            .into_iter()
            .map(|found| found.destination)
            .collect();
        if !host.needs_relay(&local) {
            return Ok((host.for_sandboxes(None, &local), None));
        }
        let slot = self.slot(earlier, &socket)?;
        let address = slot
            .address
            .expect("a slot with a way outside has an address");
        let sockets = in_namespace(
            std::os::fd::AsFd::as_fd(&slot.net),
            self.factory.host(),
            || dns::Sockets::bind(address),
        )?
        .map_err(|e| Error::kernel(format!("listening on {address}:{}", dns::PORT), e))?;
        fs::write(&self.record, slot.index.to_string())
            .map_err(|e| Error::kernel(format!("writing {}", self.record.display()), e))?;
        // The sockets keep the namespace; the slot's own descriptors are not needed.
        tasks.spawn(dns::relay(sockets, dns::host_upstreams(), stop.clone()));
        Ok((host.for_sandboxes(Some(address), &local), Some(slot.index)))
    }

    fn slot(&self, earlier: Option<SlotIndex>, socket: &Socket) -> Result<Slot, Error> {
        if let Some(index) = earlier
            && self.claims.hold(index)?
        {
            // The relay of the last life may still be on its way out.
            let name = self.factory.interface_name(Purpose::Resolver, index);
            let _ = link::delete(socket, &name);
            match self
                .factory
                .make(index, Network::Outside, Purpose::Resolver)
            {
                Ok(slot) => return Ok(slot),
                Err(MakeError::InterfaceExists) => self.claims.release(index),
                Err(MakeError::Failed(error)) => return Err(error),
            }
        }
        if earlier.is_some() {
            tracing::warn!(
                "the address of the DNS relay is taken; names no longer resolve in sandboxes \
                 made by an earlier run of this server"
            );
        }
        make_any(
            self.claims,
            self.factory,
            Network::Outside,
            Purpose::Resolver,
        )
    }
}
