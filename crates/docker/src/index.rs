//! What the engine has, in memory: every sandbox with its state, so that nobody who only looks
//! must ask the engine.
//!
//! States are written by the feed of events alone (see `feed`), in the order in which the engine
//! told them. Whoever changes something through the engine waits until its event has been here.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use std::sync::Arc;

use api::id::SandboxId;
use jiff::Timestamp;
use lifecycle::backend::{Error, Event, Exit, Observed, ObservedState};
use secrecy::SecretString;
use tokio::sync::{broadcast, watch};

/// Events that a slow listener may fall behind by before it must list.
const EVENTS_BEHIND_MAX: usize = 1024;

/// How long the engine's event may come after its answer. It is sent before the answer; only a
/// machine on its knees, or a lost connection, makes it late.
const EVENT_MAX: Duration = Duration::from_secs(5);

/// What a container is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Made, not started.
    Made,
    Running,
    Paused,
    Exited(Exit),
    /// Removed.
    Gone,
}

/// How the daemon inside is reached.
pub(crate) enum Reach {
    /// Its control socket, which the host made.
    Socket(OwnedFd),
    /// Over the network, where the sandbox has a kernel of its own or is not ours.
    Address(IpAddr),
    /// Not known, and why.
    Nowhere(&'static str),
}

/// One sandbox.
pub(crate) struct Sandbox {
    pub(crate) id: SandboxId,
    /// The engine's name for it.
    pub(crate) container: String,
    /// The image it stands on.
    pub(crate) image: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Which execd it runs.
    pub(crate) execd: String,
    /// Named volumes that go with it.
    pub(crate) volumes: Vec<String>,
    pub(crate) token: Option<SecretString>,
    pub(crate) reach: OnceLock<Reach>,
    pub(crate) started_at: OnceLock<Timestamp>,
    /// Its making was cut short.
    pub(crate) is_incomplete: bool,
    /// A process of it was killed for memory.
    is_oom: AtomicBool,
    /// Somebody here is removing it.
    pub(crate) is_leaving: AtomicBool,
    state: watch::Sender<State>,
    /// Held by whoever changes it.
    pub(crate) change: tokio::sync::Mutex<()>,
}

/// What a new [`Sandbox`] is made of.
pub(crate) struct Known {
    pub(crate) id: SandboxId,
    pub(crate) container: String,
    pub(crate) image: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) execd: String,
    pub(crate) volumes: Vec<String>,
    pub(crate) token: Option<SecretString>,
    pub(crate) is_incomplete: bool,
    pub(crate) state: State,
}

impl Sandbox {
    pub(crate) fn new(known: Known) -> Self {
        Self {
            id: known.id,
            container: known.container,
            image: known.image,
            labels: known.labels,
            execd: known.execd,
            volumes: known.volumes,
            token: known.token,
            reach: OnceLock::new(),
            started_at: OnceLock::new(),
            is_incomplete: known.is_incomplete,
            is_oom: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            state: watch::Sender::new(known.state),
            change: tokio::sync::Mutex::new(()),
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Waits until the engine has told what `is_reached` wants. `Err` when it does not come; the
    /// state is then as good as unknown.
    pub(crate) async fn until(
        &self,
        within: Duration,
        is_reached: impl FnMut(&State) -> bool,
    ) -> Result<State, ()> {
        let mut states = self.state.subscribe();
        match tokio::time::timeout(within, states.wait_for(is_reached)).await {
            Ok(Ok(state)) => Ok(state.clone()),
            _ => Err(()),
        }
    }

    /// Waits for the event of a change that the engine has confirmed, and takes the engine's word
    /// if the event stays away.
    pub(crate) async fn confirmed(&self, state: State) {
        let is_over = |now: &State| *now == state || matches!(now, State::Exited(_) | State::Gone);
        if self.until(EVENT_MAX, is_over).await.is_err() {
            tracing::warn!(sandbox_id = %self.id, "the engine's event is late");
            self.set(state);
        }
    }

    pub(crate) fn set(&self, state: State) {
        self.state.send_if_modified(|now| {
            let is_new = *now != state;
            *now = state;
            is_new
        });
    }

    /// Notes that memory ran out.
    pub(crate) fn note_oom(&self) {
        self.is_oom.store(true, Ordering::Relaxed);
    }

    pub(crate) fn was_oom(&self) -> bool {
        self.is_oom.load(Ordering::Relaxed)
    }

    pub(crate) fn observe(&self) -> Observed {
        let state = match self.state() {
            _ if self.is_incomplete => ObservedState::Incomplete,
            State::Made | State::Gone => ObservedState::Incomplete,
            State::Running => ObservedState::Running,
            State::Paused => ObservedState::Paused,
            State::Exited(exit) => ObservedState::Exited(exit),
        };
        Observed {
            id: self.id.clone(),
            state,
            labels: self.labels.clone(),
            started_at: self.started_at.get().copied(),
        }
    }
}

struct Entry {
    /// `None` until the engine has a container.
    sandbox: Option<Arc<Sandbox>>,
    /// Open while it is being made.
    making: Option<watch::Receiver<()>>,
}

/// All sandboxes.
pub(crate) struct Index {
    entries: Mutex<HashMap<SandboxId, Entry>>,
    events: broadcast::Sender<Event>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            events: broadcast::Sender::new(EVENTS_BEHIND_MAX),
        }
    }
}

impl Index {
    fn entries(&self) -> MutexGuard<'_, HashMap<SandboxId, Entry>> {
        self.entries
            .lock()
            .expect("no code panics with this lock held")
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Tells whoever listens; nobody may. Nobody hears of what is being made, or of what was
    /// removed on request.
    pub(crate) fn tell(&self, event: Event) {
        let id = match &event {
            Event::Exited { id, .. } | Event::OutOfMemory { id } | Event::Vanished { id } => id,
            Event::Resync => return drop(self.events.send(event)),
        };
        let is_told = self.entries().get(id).is_some_and(|entry| {
            let is_here = entry.making.is_none();
            let is_leaving = |s: &Arc<Sandbox>| s.is_leaving.load(Ordering::Relaxed);
            is_here && !entry.sandbox.as_ref().is_some_and(is_leaving)
        });
        if is_told {
            let _ = self.events.send(event);
        }
    }

    /// Reserves an id for whoever makes the sandbox, until the answer is dropped.
    pub(crate) fn claim(&self, id: &SandboxId) -> Result<watch::Sender<()>, Error> {
        let mut entries = self.entries();
        if entries.contains_key(id) {
            return Err(Error::Invalid {
                field: "id",
                message: format!("sandbox {id} exists already"),
            });
        }
        let (over, making) = watch::channel(());
        let entry = Entry {
            sandbox: None,
            making: Some(making),
        };
        entries.insert(id.clone(), entry);
        Ok(over)
    }

    /// From now on events reach the sandbox that is being made.
    pub(crate) fn expect(&self, sandbox: &Arc<Sandbox>) {
        if let Some(entry) = self.entries().get_mut(&sandbox.id) {
            entry.sandbox = Some(sandbox.clone());
        }
    }

    /// It is made.
    pub(crate) fn keep(&self, sandbox: &Arc<Sandbox>) {
        let entry = Entry {
            sandbox: Some(sandbox.clone()),
            making: None,
        };
        self.entries().insert(sandbox.id.clone(), entry);
    }

    pub(crate) fn forget(&self, id: &SandboxId) {
        self.entries().remove(id);
    }

    /// A sandbox that is not being made.
    pub(crate) fn here(&self, id: &SandboxId) -> Result<Arc<Sandbox>, Error> {
        match self.entries().get(id) {
            Some(Entry {
                sandbox: Some(sandbox),
                making: None,
            }) => Ok(sandbox.clone()),
            Some(_) => Err(Error::WrongState {
                state: "being created",
                wanted: "running",
            }),
            None => Err(Error::NotFound(id.clone())),
        }
    }

    /// The sandbox, after its making is over.
    pub(crate) async fn here_at_last(&self, id: &SandboxId) -> Option<Arc<Sandbox>> {
        loop {
            let mut over = match self.entries().get(id)? {
                Entry {
                    making: Some(over), ..
                } => over.clone(),
                Entry { sandbox, .. } => return sandbox.clone(),
            };
            let _ = over.changed().await;
        }
    }

    /// The sandbox that a container is, also while it is being made.
    pub(crate) fn of_container(&self, id: &SandboxId, container: &str) -> Option<Arc<Sandbox>> {
        let entries = self.entries();
        let sandbox = entries.get(id)?.sandbox.as_ref()?;
        (sandbox.container == container).then(|| sandbox.clone())
    }

    /// Somebody here is making a sandbox of this id.
    pub(crate) fn is_being_made(&self, id: &SandboxId) -> bool {
        self.entries()
            .get(id)
            .is_some_and(|entry| entry.making.is_some())
    }

    /// All that are not being made.
    pub(crate) fn all(&self) -> Vec<Arc<Sandbox>> {
        self.entries()
            .values()
            .filter(|entry| entry.making.is_none())
            .filter_map(|entry| entry.sandbox.clone())
            .collect()
    }
}
