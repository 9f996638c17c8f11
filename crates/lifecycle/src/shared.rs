//! What all tasks of the service share: the parts they use and the index of sandboxes.

use std::collections::HashMap;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, PoisonError, RwLock};

use api::id::SandboxId;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Rules;
use crate::backend::Backend;
use crate::clock::Clock;
use crate::control_plane::Config;
use crate::ended::EndedIndex;
use crate::error::{Absent, Error};
use crate::journal::Journal;
use crate::keys::KeyIndex;
use crate::names::Names;
use crate::owner::Message;
use crate::sandbox::Sandbox;
use crate::snapshots::Snapshots;
use crate::store::Store;
use crate::tenants::Tenants;
use crate::timers::Timers;

/// The parts, the index and the tasks.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) journal: Journal,
    pub(crate) timers: Timers,
    /// The store's name, which new sandboxes carry.
    pub(crate) identity: String,
    pub(crate) snapshots: Snapshots,
    /// What is known of sandboxes that are gone.
    pub(crate) ended: EndedIndex,
    pub(crate) names: Names,
    pub(crate) api_keys: Arc<KeyIndex>,
    pub(crate) tenants: Tenants,
    /// Held while keys or tenants are changed, so that changes come one after the other.
    pub(crate) key_changes: tokio::sync::Mutex<()>,
    /// One permit for each creation that the backend takes at once.
    pub(crate) creations: Arc<Semaphore>,
    /// Every task that must have ended before the journal may.
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    sandboxes: RwLock<HashMap<SandboxId, Handle>>,
    /// What may be asked for, now.
    rules: RwLock<Arc<Rules>>,
}

/// The way to a sandbox's owner task.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) commands: mpsc::Sender<Message>,
    pub(crate) view: watch::Receiver<Arc<Sandbox>>,
    /// Bumped to make the owner look at the backend.
    pub(crate) check: watch::Sender<u64>,
    /// When an access may renew next, in seconds of the wall clock.
    pub(crate) next_touch: Arc<AtomicI64>,
}

impl Handle {
    /// Makes the owner compare itself with the backend. Never waits.
    pub(crate) fn check(&self) {
        self.check.send_modify(|count| *count += 1);
    }
}

/// The parts a service is made of.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) journal: Journal,
    pub(crate) timers: Timers,
    pub(crate) identity: String,
    pub(crate) stop: CancellationToken,
}

/// What of the store is held in memory, besides sandboxes.
pub(crate) struct Indexes {
    pub(crate) snapshots: Snapshots,
    pub(crate) ended: EndedIndex,
    pub(crate) api_keys: KeyIndex,
    pub(crate) tenants: Tenants,
}

impl Shared {
    pub(crate) fn new(parts: Parts, indexes: Indexes) -> Shared {
        let creations = Arc::new(Semaphore::new(parts.backend.creations_max().max(1)));
        Shared {
            rules: RwLock::new(Arc::new(parts.config.rules.clone())),
            config: parts.config,
            backend: parts.backend,
            store: parts.store,
            clock: parts.clock,
            journal: parts.journal,
            timers: parts.timers,
            identity: parts.identity,
            snapshots: indexes.snapshots,
            ended: indexes.ended,
            names: Names::default(),
            api_keys: Arc::new(indexes.api_keys),
            tenants: indexes.tenants,
            key_changes: tokio::sync::Mutex::default(),
            creations,
            tasks: TaskTracker::new(),
            stop: parts.stop,
            sandboxes: RwLock::default(),
        }
    }

    /// What may be asked for.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&rules)
    }

    pub(crate) fn set_rules(&self, rules: Rules) {
        let mut held = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        *held = Arc::new(rules);
    }

    /// The handle of a sandbox.
    pub(crate) fn handle(&self, id: &SandboxId) -> Result<Handle, Error> {
        self.with_index(|index| index.get(id).cloned())
            .ok_or_else(|| self.absent(id))
    }

    /// A sandbox as it is now.
    pub(crate) fn view(&self, id: &SandboxId) -> Result<Arc<Sandbox>, Error> {
        self.with_index(|index| index.get(id).map(|handle| handle.view.borrow().clone()))
            .ok_or_else(|| self.absent(id))
    }

    /// There is no such sandbox; with what it was, where that is known.
    fn absent(&self, id: &SandboxId) -> Error {
        let ended = self.ended.get(id, self.clock.now());
        Error::NotFound(Absent {
            id: id.clone(),
            ended,
        })
    }

    /// All sandboxes as they are now.
    pub(crate) fn views(&self) -> Vec<Arc<Sandbox>> {
        self.with_index(|index| index.values().map(|h| h.view.borrow().clone()).collect())
    }

    pub(crate) fn count(&self) -> usize {
        self.with_index(HashMap::len)
    }

    pub(crate) fn insert(&self, id: SandboxId, handle: Handle) {
        let mut index = self
            .sandboxes
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        index.insert(id, handle);
    }

    pub(crate) fn remove(&self, id: &SandboxId) {
        let mut index = self
            .sandboxes
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        index.remove(id);
    }

    // A panic while the lock is held cannot leave a map half changed, so poison is no danger.
    fn with_index<T>(&self, read: impl FnOnce(&HashMap<SandboxId, Handle>) -> T) -> T {
        read(
            &self
                .sandboxes
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}
