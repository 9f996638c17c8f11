//! One sandbox as the cluster told of it, in memory, so that nobody who only looks must ask the API server.
//!
//! What is seen of it is written by the watch alone (see `feed`). Whoever changes something waits until the watch has
//! shown it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::id::SandboxId;
use lifecycle::backend::{Event, Exit, ObservedState, SandboxDetails};
use lifecycle::registry::Registered;
use secrecy::SecretString;
use tokio::sync::watch;

use crate::status::{Seen, State};

/// One sandbox.
pub(crate) struct Sandbox {
    pub(crate) id: SandboxId,
    /// The name of its pod and of its Secret.
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) token: Option<SecretString>,
    /// Named volumes that it has mounted.
    pub(crate) volumes: Vec<String>,
    /// Of these, those that go with it.
    pub(crate) leaving_volumes: Vec<String>,
    /// The pod's identity: another of the same name is another sandbox's.
    pub(crate) uid: OnceLock<String>,
    /// Somebody here is removing it.
    pub(crate) is_leaving: AtomicBool,
    seen: watch::Sender<Seen>,
    /// Held by whoever changes it.
    pub(crate) change: tokio::sync::Mutex<()>,
}

/// What a new [`Sandbox`] is made of.
pub(crate) struct Known {
    pub(crate) id: SandboxId,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) token: Option<SecretString>,
    pub(crate) volumes: Vec<String>,
    pub(crate) leaving_volumes: Vec<String>,
}

impl Sandbox {
    pub(crate) fn new(known: Known) -> Self {
        Self {
            id: known.id,
            name: known.name,
            labels: known.labels,
            token: known.token,
            volumes: known.volumes,
            leaving_volumes: known.leaving_volumes,
            uid: OnceLock::new(),
            is_leaving: AtomicBool::new(false),
            seen: watch::Sender::new(Seen::default()),
            change: tokio::sync::Mutex::new(()),
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    pub(crate) fn state(&self) -> State {
        self.seen.borrow().state.clone()
    }

    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.seen.borrow().address
    }

    /// Notes what the watch shows. What has ended has ended.
    pub(crate) fn see(&self, now: Seen) {
        self.seen.send_if_modified(|seen| {
            if seen.state == State::Gone || *seen == now {
                return false;
            }
            let ended = matches!(seen.state, State::Exited(_)).then(|| seen.state.clone());
            *seen = now;
            if let Some(ended) = ended
                && seen.state != State::Gone
            {
                seen.state = ended;
            }
            true
        });
    }

    /// Notes that the pod is removed.
    pub(crate) fn see_gone(&self) {
        self.seen.send_if_modified(|seen| {
            let is_new = seen.state != State::Gone;
            seen.state = State::Gone;
            is_new
        });
    }

    /// Waits until the watch has shown what `is_reached` wants. `Err` is the last that was seen.
    pub(crate) async fn until(
        &self,
        within: Duration,
        is_reached: impl FnMut(&Seen) -> bool,
    ) -> Result<Seen, Seen> {
        let mut seen = self.seen.subscribe();
        match tokio::time::timeout(within, seen.wait_for(is_reached)).await {
            Ok(Ok(seen)) => Ok(seen.clone()),
            _ => Err(self.seen()),
        }
    }

    pub(crate) fn observe(&self) -> SandboxDetails {
        let seen = self.seen();
        let state = match seen.state {
            State::Pending | State::Gone => ObservedState::Incomplete,
            State::Running => ObservedState::Running,
            State::Exited(exit) => ObservedState::Exited(exit),
        };
        SandboxDetails {
            id: self.id.clone(),
            state,
            labels: self.labels.clone(),
            started_at: seen.started_at,
        }
    }

    pub(crate) fn exit(&self) -> Option<Exit> {
        match self.state() {
            State::Exited(exit) => Some(exit),
            _ => None,
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
            State::Pending | State::Running => None,
        }
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    fn volumes(&self) -> &[String] {
        &self.volumes
    }
}

/// Whether nothing of it runs any more.
pub(crate) fn is_over(seen: &Seen) -> bool {
    matches!(seen.state, State::Exited(_) | State::Gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_final_and_told_once() {
        let sandbox = Sandbox::new(Known {
            id: "a".parse().unwrap(),
            name: "sandbox-a".to_owned(),
            labels: BTreeMap::new(),
            token: None,
            volumes: Vec::new(),
            leaving_volumes: Vec::new(),
        });
        let state = |state| Seen {
            state,
            ..Seen::default()
        };
        let exit = |code| Exit {
            code: Some(code),
            signal: None,
            oom_killed: false,
            at: None,
        };
        sandbox.see(state(State::Running));
        sandbox.see(state(State::Exited(exit(3))));
        // A kubelet that restarts may tell less than before.
        sandbox.see(state(State::Running));
        sandbox.see(state(State::Exited(exit(9))));
        assert_eq!(sandbox.exit(), Some(exit(3)));
        sandbox.see_gone();
        sandbox.see(state(State::Running));
        assert_eq!(sandbox.state(), State::Gone);
    }
}
