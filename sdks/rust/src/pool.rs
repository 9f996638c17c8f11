//! A pool of sandboxes on the client's side: some are kept ready, so that taking one costs one
//! request. The server sees nothing but sandboxes being made and ended.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::Client;
use crate::connect;
use crate::create::CreateSandbox;
use crate::error::{Error, Result};
use crate::sandbox::Sandbox;

/// Failures in a row after which the pool waits before it tries again, as in the other SDKs.
const DEGRADED_AFTER: u32 = 3;

/// How long it then waits. There is no event to wait for: the server is busy or away.
const DEGRADED_DELAY: Duration = Duration::from_secs(1);

/// What a pool keeps ready, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PoolConfig {
    /// What each sandbox is.
    pub sandbox: CreateSandbox,
    /// How many are kept ready.
    pub max_idle: usize,
    /// How many are made at the same time.
    pub warmup_concurrency: usize,
    /// One that was ready for longer is thrown away. It must live longer than this; the pool
    /// makes it so.
    pub idle_timeout: Duration,
    /// How long an idle sandbox may take to answer before it counts as dead.
    pub acquire_timeout: Duration,
    /// What to do when none is ready.
    pub policy: AcquirePolicy,
}

/// What to do when no sandbox is ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AcquirePolicy {
    /// Make one for this caller.
    #[default]
    Create,
    /// Fail with [`Error::PoolEmpty`].
    Fail,
}

impl PoolConfig {
    /// A pool of such sandboxes, this many ready.
    pub fn new(sandbox: CreateSandbox, max_idle: usize) -> Self {
        Self {
            sandbox,
            max_idle,
            warmup_concurrency: 8,
            idle_timeout: Duration::from_secs(24 * 3600),
            acquire_timeout: connect::READY_TIMEOUT,
            policy: AcquirePolicy::default(),
        }
    }

    /// What to do when none is ready.
    #[must_use]
    pub fn policy(mut self, policy: AcquirePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// How long one may be ready before it is thrown away.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// How many are made at the same time.
    #[must_use]
    pub fn warmup_concurrency(mut self, sandboxes: usize) -> Self {
        self.warmup_concurrency = sandboxes.max(1);
        self
    }
}

/// How a pool stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStatus {
    /// Ready.
    pub idle: usize,
    /// Being made.
    pub warming: usize,
    /// How many are to be ready.
    pub max_idle: usize,
    /// The last attempts to make one failed.
    pub is_degraded: bool,
}

/// Sandboxes that are kept ready. Dropping it stops making more, and leaves those that are ready
/// to their end; [`shutdown`](Self::shutdown) ends them.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    /// Nothing once it was shut down.
    keeper: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    config: PoolConfig,
    idle: Mutex<VecDeque<(Sandbox, Instant)>>,
    max_idle: AtomicUsize,
    warming: AtomicUsize,
    failures: AtomicUsize,
    is_closed: AtomicBool,
    /// Something was taken, or the size changed.
    wanted: Notify,
    /// One became ready, or could not be made.
    changed: Notify,
}

impl Pool {
    /// Begins to keep sandboxes ready.
    pub fn start(client: &Client, mut config: PoolConfig) -> Self {
        // An idle sandbox must outlive its time in the pool by at least one use.
        let lifetime = config.idle_timeout + crate::create::DEFAULT_LIFETIME;
        config.sandbox = config.sandbox.client(client).timeout(lifetime);
        let shared = Arc::new(Shared {
            client: client.clone(),
            max_idle: AtomicUsize::new(config.max_idle),
            config,
            idle: Mutex::new(VecDeque::new()),
            warming: AtomicUsize::new(0),
            failures: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            wanted: Notify::new(),
            changed: Notify::new(),
        });
        let keeper = tokio::spawn(keep(Arc::clone(&shared)));
        let keeper = Mutex::new(Some(keeper));
        Self { shared, keeper }
    }

    /// Takes a sandbox that is ready; it then lives for `lifetime` and belongs to the caller.
    pub async fn acquire(&self, lifetime: Duration) -> Result<Sandbox> {
        loop {
            if self.shared.is_closed.load(Ordering::Acquire) {
                return Err(Error::PoolClosed);
            }
            let Some(sandbox) = self.shared.take() else {
                break;
            };
            let timeout = self.shared.config.acquire_timeout;
            let usable = connect::ready(&sandbox, timeout, connect::ASK_AGAIN).await;
            match usable {
                Ok(()) if sandbox.renew(lifetime).await.is_ok() => return Ok(sandbox),
                // It died while it waited; the next may not have.
                _ => discard(sandbox).await,
            }
        }
        match self.shared.config.policy {
            AcquirePolicy::Fail => Err(Error::PoolEmpty),
            AcquirePolicy::Create => {
                let create = self.shared.config.sandbox.clone();
                create.timeout(lifetime).await
            }
        }
    }

    /// How it stands.
    pub fn status(&self) -> PoolStatus {
        PoolStatus {
            idle: self.shared.idle().len(),
            warming: self.shared.warming.load(Ordering::Acquire),
            max_idle: self.shared.max_idle.load(Ordering::Acquire),
            is_degraded: self.shared.failures.load(Ordering::Acquire) >= DEGRADED_AFTER as usize,
        }
    }

    /// Keeps this many ready from now on; what is too much is ended.
    pub async fn resize(&self, max_idle: usize) {
        self.shared.max_idle.store(max_idle, Ordering::Release);
        self.shared.wanted.notify_one();
        self.shared.changed.notify_waiters();
        loop {
            let surplus = {
                let mut idle = self.shared.idle();
                (idle.len() > max_idle).then(|| idle.pop_front()).flatten()
            };
            let Some((sandbox, _)) = surplus else { return };
            discard(sandbox).await;
        }
    }

    /// Waits until as many are ready as should be, or making them failed.
    pub async fn wait_until_warm(&self, timeout: Duration) -> Result<()> {
        let waiting = async {
            loop {
                let changed = self.shared.changed.notified();
                let status = self.status();
                if status.idle >= status.max_idle {
                    return Ok(());
                }
                if status.is_degraded {
                    return Err(Error::PoolEmpty);
                }
                changed.await;
            }
        };
        let limited = tokio::time::timeout(timeout, waiting).await;
        limited.map_err(|_| Error::Timeout {
            what: "warming the pool".to_owned(),
            after: timeout,
        })?
    }

    /// Stops, and ends every sandbox that is ready. Nothing can be acquired from then on.
    pub async fn shutdown(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.wanted.notify_one();
        let keeper = self
            .keeper
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(keeper) = keeper {
            // The keeper ends when what it is making is made.
            let _ = keeper.await;
        }
        while let Some(sandbox) = self.shared.take() {
            discard(sandbox).await;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.wanted.notify_one();
    }
}

impl Shared {
    fn idle(&self) -> std::sync::MutexGuard<'_, VecDeque<(Sandbox, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that waited longest, so that all are used.
    fn take(&self) -> Option<Sandbox> {
        let (sandbox, _) = self.idle().pop_front()?;
        self.wanted.notify_one();
        Some(sandbox)
    }

    /// Keeps one that was made, or gives it back where the pool was made smaller meanwhile.
    fn keep(&self, sandbox: Sandbox) -> Option<Sandbox> {
        let mut idle = self.idle();
        if idle.len() >= self.max_idle.load(Ordering::Acquire) {
            return Some(sandbox);
        }
        idle.push_back((sandbox, Instant::now()));
        None
    }

    fn missing(&self) -> usize {
        if self.is_closed.load(Ordering::Acquire) {
            return 0;
        }
        let present = self.idle().len() + self.warming.load(Ordering::Acquire);
        self.max_idle
            .load(Ordering::Acquire)
            .saturating_sub(present)
    }
}

async fn discard(sandbox: Sandbox) {
    // It ends by itself when this does not work.
    let _ = sandbox.kill().await;
}

/// Makes what is missing, throws away what waited too long.
async fn keep(shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(shared.config.warmup_concurrency.max(1)));
    while !shared.is_closed.load(Ordering::Acquire) {
        let wanted = shared.wanted.notified();
        while shared.missing() > 0 {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            // The pool may have become smaller while this waited for its turn.
            if shared.missing() == 0 {
                break;
            }
            shared.warming.fetch_add(1, Ordering::AcqRel);
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                warm(&shared).await;
                drop(place);
            });
        }
        let oldest = shared.idle().front().map(|(_, since)| *since);
        let expiry = oldest.map(|since| since + shared.config.idle_timeout);
        let expired = async {
            match expiry {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wanted => {}
            () = expired => {
                let old = shared.idle().pop_front();
                if let Some((sandbox, _)) = old {
                    discard(sandbox).await;
                }
            }
        }
    }
    // Everything under way has ended when all places are free again.
    let all = u32::try_from(shared.config.warmup_concurrency.max(1)).unwrap_or(u32::MAX);
    let _ = places.acquire_many(all).await;
}

async fn warm(shared: &Shared) {
    let made = shared.config.sandbox.clone().client(&shared.client).await;
    match made {
        Ok(sandbox) => {
            shared.failures.store(0, Ordering::Release);
            if let Some(surplus) = shared.keep(sandbox) {
                discard(surplus).await;
            }
        }
        Err(_) => {
            let failures = shared.failures.fetch_add(1, Ordering::AcqRel) + 1;
            shared.changed.notify_waiters();
            if failures >= DEGRADED_AFTER as usize {
                tokio::time::sleep(DEGRADED_DELAY).await;
            }
        }
    }
    shared.warming.fetch_sub(1, Ordering::AcqRel);
    shared.changed.notify_waiters();
    shared.wanted.notify_one();
}
