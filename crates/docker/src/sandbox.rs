//! One sandbox as the engine told of it, in memory, so that nobody who only looks must ask the engine.
//!
//! States are written by the feed of events alone (see `feed`), in the order in which the engine
//! told them. Whoever changes something through the engine waits until its event has been here.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::id::SandboxId;
use jiff::Timestamp;
use lifecycle::backend::{Event, Exit, ObservedState, SandboxDetails};
use lifecycle::registry::{Registered, Registry};
use secrecy::SecretString;
use tokio::sync::watch;

/// How long the engine's event may come after its answer. It is sent before the answer; only a
/// machine on its knees, or a lost connection, makes it late.
pub(crate) const EVENT_MAX: Duration = Duration::from_secs(5);

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

    pub(crate) fn observe(&self) -> SandboxDetails {
        let state = match self.state() {
            _ if self.is_incomplete => ObservedState::Incomplete,
            State::Made | State::Gone => ObservedState::Incomplete,
            State::Running => ObservedState::Running,
            State::Paused => ObservedState::Paused,
            State::Exited(exit) => ObservedState::Exited(exit),
        };
        SandboxDetails {
            id: self.id.clone(),
            state,
            labels: self.labels.clone(),
            started_at: self.started_at.get().copied(),
        }
    }
}

impl Registered for Sandbox {
    fn id(&self) -> &SandboxId {
        &self.id
    }

    fn end(&self) -> Option<Event> {
        let id = self.id.clone();
        match self.state() {
            State::Exited(exit) => Some(Event::Exited { id, exit }),
            State::Gone => Some(Event::Vanished { id }),
            State::Made | State::Running | State::Paused => None,
        }
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }
}

/// The sandbox that a container is, also while it is being created.
pub(crate) fn of_container(
    sandboxes: &Registry<Sandbox>,
    id: &SandboxId,
    container: &str,
) -> Option<Arc<Sandbox>> {
    let found = sandboxes.find(id);
    found.filter(|sandbox| sandbox.container == container)
}
