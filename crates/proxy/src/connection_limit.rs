//! How many connections are open, and which gives way when there are too many: the oldest of those whose
//! client has not shown a key or token yet.
//!
//! Anybody who reaches the port can open connections and send nothing, or half a head. So strangers have a
//! share of the connections, each of their addresses a share of that, and whoever comes next is let in at
//! the cost of the stranger who has waited longest. A client that has shown what it must is never closed
//! for want of room.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A stranger this young is not closed: of a burst of connections that come at once, each has this long for
/// its first request.
const GRACE: Duration = Duration::from_secs(1);

/// The part of all connections that strangers may have, and of that the part that one address may have.
const STRANGERS_PART: usize = 2;
const PER_ADDRESS_PART: usize = 2;

/// The connections of a listener.
pub(crate) struct ConnectionLimit {
    max: usize,
    state: Mutex<State>,
    /// Notified when a connection has closed or has become a known client's.
    changed: Notify,
}

#[derive(Default)]
struct State {
    open: usize,
    /// By the order in which they came.
    strangers: BTreeMap<u64, Stranger>,
    by_address: HashMap<IpAddr, usize>,
    next: u64,
}

struct Stranger {
    address: IpAddr,
    /// Whether connections of the same address are counted.
    is_counted: bool,
    since: Instant,
    closing: CancellationToken,
}

/// Whether another connection can be accepted.
#[derive(Debug, PartialEq, Eq)]
enum Accept {
    Now,
    /// When there is a change, and at the latest then.
    Later(Instant),
}

impl ConnectionLimit {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Waits until another connection can be accepted, if need be by closing one.
    pub(crate) async fn room(&self) {
        while let Accept::Later(at) = self.make_room(Instant::now()) {
            let _ = tokio::time::timeout_at(at, self.changed.notified()).await;
        }
    }

    /// Waits until a connection has closed, at most for `timeout`.
    pub(crate) async fn closed(&self, timeout: Duration) {
        let _ = tokio::time::timeout(timeout, self.changed.notified()).await;
    }

    fn make_room(&self, now: Instant) -> Accept {
        let mut state = self.lock();
        let is_full = state.open >= self.max;
        if !is_full && state.strangers.len() < self.strangers_max() {
            return Accept::Now;
        }
        let oldest = state.strangers.first_key_value();
        match oldest.map(|(number, stranger)| (*number, stranger.since)) {
            None => Accept::Later(now + GRACE),
            Some((_, since)) if since + GRACE > now => Accept::Later(since + GRACE),
            Some((number, _)) => {
                state.evict(number);
                // Of all connections it is one until it has closed.
                if is_full {
                    Accept::Later(now + GRACE)
                } else {
                    Accept::Now
                }
            }
        }
    }

    /// A permit for a connection that was accepted; `None` where its address has too many. `is_counted`:
    /// the address stands for one client.
    pub(crate) fn open(
        self: &Arc<Self>,
        address: IpAddr,
        is_counted: bool,
        stopping: &CancellationToken,
    ) -> Option<ConnectionPermit> {
        let now = Instant::now();
        let mut state = self.lock();
        let has = state.by_address.get(&address).copied().unwrap_or_default();
        if is_counted && has >= self.strangers_max().div_ceil(PER_ADDRESS_PART) {
            let mut own = state.strangers.iter();
            let (number, oldest) = own.find(|(_, it)| it.is_counted && it.address == address)?;
            if oldest.since + GRACE > now {
                return None;
            }
            let number = *number;
            state.evict(number);
        }
        if is_counted {
            *state.by_address.entry(address).or_default() += 1;
        }
        state.open += 1;
        state.next += 1;
        let number = state.next;
        let closing = stopping.child_token();
        state.strangers.insert(
            number,
            Stranger {
                address,
                is_counted,
                since: now,
                closing: closing.clone(),
            },
        );
        Some(ConnectionPermit(Arc::new(Inner {
            limit: Arc::clone(self),
            number,
            is_known: AtomicBool::new(false),
            stopping: stopping.clone(),
            closing,
        })))
    }

    fn strangers_max(&self) -> usize {
        self.max.div_ceil(STRANGERS_PART)
    }

    // A panic while the lock is held cannot leave the counts half changed, so poison is no danger.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn evict(&mut self, number: u64) {
        if let Some(stranger) = self.forget(number) {
            stranger.closing.cancel();
            tracing::debug!(address = %stranger.address, "closed a connection without a key, for want of room");
        }
    }

    fn forget(&mut self, number: u64) -> Option<Stranger> {
        let stranger = self.strangers.remove(&number)?;
        if stranger.is_counted
            && let Some(count) = self.by_address.get_mut(&stranger.address)
        {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&stranger.address);
            }
        }
        Some(stranger)
    }
}

/// The permit of one connection; an extension of every request to the API. Clones are the same.
#[derive(Clone)]
pub struct ConnectionPermit(Arc<Inner>);

struct Inner {
    limit: Arc<ConnectionLimit>,
    number: u64,
    is_known: AtomicBool,
    stopping: CancellationToken,
    closing: CancellationToken,
}

impl ConnectionPermit {
    /// Notes that the client has shown a key or token. Its connection is not closed for want of room any
    /// more.
    pub fn mark_known(&self) {
        let inner = &self.0;
        if inner.is_known.load(Ordering::Relaxed) || inner.is_known.swap(true, Ordering::Relaxed) {
            return;
        }
        inner.limit.lock().forget(inner.number);
        inner.limit.changed.notify_one();
    }

    /// Cancelled when the server stops, or the connection has to give way.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }

    /// Cancelled when the server stops.
    pub(crate) fn server_stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    /// Whether the connection has to give way while the server goes on.
    pub(crate) fn is_evicted(&self) -> bool {
        self.0.closing.is_cancelled() && !self.0.stopping.is_cancelled()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut state = self.limit.lock();
        state.open -= 1;
        state.forget(self.number);
        drop(state);
        self.limit.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn limit(max: usize) -> (Arc<ConnectionLimit>, CancellationToken) {
        (
            Arc::new(ConnectionLimit::new(max)),
            CancellationToken::new(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_stranger_gives_way_once_it_had_its_time() {
        let (limit, stopping) = limit(8);
        let open = |address| limit.open(address, false, &stopping).unwrap();
        let strangers: Vec<ConnectionPermit> = (0..4).map(|_| open(HERE)).collect();
        let full = Accept::Later(Instant::now() + GRACE);
        assert_eq!(limit.make_room(Instant::now()), full);
        strangers[0].mark_known();
        assert_eq!(limit.make_room(Instant::now()), Accept::Now);
        let fifth = open(THERE);
        tokio::time::advance(GRACE).await;
        limit.room().await;
        let is_closed: Vec<_> = strangers.iter().map(ConnectionPermit::is_evicted).collect();
        assert_eq!(is_closed, [false, true, false, false]);
        assert!(!fifth.is_evicted());
        // Nobody is closed twice, and whoever is known not at all.
        strangers[1].mark_known();
        drop(strangers);
        drop(fifth);
        let state = limit.lock();
        assert_eq!((state.open, state.strangers.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn known_clients_may_have_all_connections_and_the_rest_wait() {
        let (limit, stopping) = limit(2);
        let known: Vec<ConnectionPermit> = (0..2)
            .map(|_| {
                let permit = limit.open(HERE, false, &stopping).unwrap();
                permit.mark_known();
                permit
            })
            .collect();
        let mut waiting = std::pin::pin!(limit.room());
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(known);
        waiting.await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_its_share_and_takes_no_other() {
        let (limit, stopping) = limit(16);
        let open = |address| limit.open(address, true, &stopping);
        let other = open(THERE).unwrap();
        let own: Vec<ConnectionPermit> = (0..4).map(|_| open(HERE).unwrap()).collect();
        assert!(open(HERE).is_none(), "a fifth at once");
        tokio::time::advance(GRACE).await;
        let fifth = open(HERE).unwrap();
        assert!(own[0].is_evicted() && !own[1].is_evicted() && !other.is_evicted());
        own[1].mark_known();
        assert!(open(HERE).is_some(), "a known one does not count");
        drop((own, fifth, other));
        assert!(limit.lock().by_address.is_empty());
    }

    #[tokio::test]
    async fn a_server_that_stops_evicts_nobody() {
        let (limit, stopping) = limit(4);
        let permit = limit.open(HERE, true, &stopping).unwrap();
        stopping.cancel();
        assert!(permit.closing().is_cancelled() && !permit.is_evicted());
    }
}
