//! The sandboxes of a backend in memory, and the events about them: what every backend keeps in the
//! same way.
//!
//! An id is reserved before anything of its sandbox is made, so that no two creations make one sandbox,
//! and the reservation ends with the creation, however that ends: finished, failed, panicked or dropped.
//! So nobody waits for a creation that is over.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::id::SandboxId;
use tokio::sync::{broadcast, watch};

use crate::backend::{Error, Event};

/// Events that a slow listener may fall behind by before it must list.
const EVENTS_BEHIND_MAX: usize = 1024;

/// A sandbox as its backend keeps it.
pub trait Registered: Send + Sync + 'static {
    /// The sandbox's id, which never changes.
    fn id(&self) -> &SandboxId;

    /// The event of its end, where it has ended or is gone already.
    fn end(&self) -> Option<Event>;

    /// The backend removes it on request, so that nobody is told of its end.
    fn is_leaving(&self) -> bool {
        false
    }

    /// Names of the volumes that it has mounted.
    fn volumes(&self) -> &[String] {
        &[]
    }
}

/// All sandboxes of a backend.
pub struct Registry<S> {
    entries: Mutex<HashMap<SandboxId, Entry<S>>>,
    events: broadcast::Sender<Event>,
}

struct Entry<S> {
    /// `None` until there is something that events can be about.
    sandbox: Option<Arc<S>>,
    /// `None` once the creation is over.
    creation: Option<PendingCreation>,
}

struct PendingCreation {
    outcome: watch::Receiver<CreationState>,
    volumes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CreationState {
    Pending,
    /// Finished, or failed and undone: the entry says which.
    Settled,
    /// Panicked or dropped half-way. What it had made by then may be left.
    CutShort,
}

impl<S> Default for Registry<S> {
    fn default() -> Registry<S> {
        Registry {
            entries: Mutex::default(),
            events: broadcast::Sender::new(EVENTS_BEHIND_MAX),
        }
    }
}

impl<S> fmt::Debug for Registry<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sandboxes = self.entries().len();
        f.debug_struct("Registry")
            .field("sandboxes", &sandboxes)
            .finish_non_exhaustive()
    }
}

impl<S> Registry<S> {
    // No code that runs with the lock held leaves the map half changed, so poison is no danger.
    fn entries(&self) -> MutexGuard<'_, HashMap<SandboxId, Entry<S>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Registered> Registry<S> {
    /// Makes a sandbox: reserves its id, runs `creation`, and keeps what it made. `volumes` are the named
    /// volumes that it is made with.
    ///
    /// A creation that fails must have undone what it did.
    pub async fn create<T>(
        &self,
        id: &SandboxId,
        volumes: Vec<String>,
        creation: impl Future<Output = Result<(Arc<S>, T), Error>>,
    ) -> Result<T, Error> {
        let reservation = self.reserve(id, volumes)?;
        let made = creation.await;
        let (sandbox, details) = match made {
            Ok((sandbox, details)) => (Some(sandbox), Ok(details)),
            Err(error) => (None, Err(error)),
        };
        reservation.settle(sandbox);
        details
    }

    fn reserve(&self, id: &SandboxId, volumes: Vec<String>) -> Result<Reservation<'_, S>, Error> {
        let mut entries = self.entries();
        if entries.contains_key(id) {
            return Err(Error::Invalid {
                field: "id",
                message: format!("sandbox {id} exists already"),
            });
        }
        let (outcome, watched) = watch::channel(CreationState::Pending);
        let creation = PendingCreation {
            outcome: watched,
            volumes,
        };
        let entry = Entry {
            sandbox: None,
            creation: Some(creation),
        };
        entries.insert(id.clone(), entry);
        Ok(Reservation {
            registry: self,
            id: id.clone(),
            outcome,
            is_settled: false,
        })
    }

    /// From now on [`Registry::find`] has a sandbox that is being created.
    pub fn attach(&self, sandbox: &Arc<S>) {
        if let Some(entry) = self.entries().get_mut(sandbox.id()) {
            entry.sandbox = Some(sandbox.clone());
        }
    }

    /// Keeps a sandbox that was found, not created.
    pub fn insert(&self, sandbox: Arc<S>) {
        let id = sandbox.id().clone();
        let entry = Entry {
            sandbox: Some(sandbox),
            creation: None,
        };
        self.entries().insert(id, entry);
    }

    /// Drops a sandbox; its id may be used again.
    pub fn remove(&self, id: &SandboxId) {
        self.entries().remove(id);
    }

    /// A sandbox that is not being created.
    pub fn get(&self, id: &SandboxId) -> Result<Arc<S>, Error> {
        match self.entries().get(id) {
            Some(Entry {
                sandbox: Some(sandbox),
                creation: None,
            }) => Ok(sandbox.clone()),
            Some(_) => Err(Error::WrongState {
                state: "being created",
                wanted: "running",
            }),
            None => Err(Error::NotFound(id.clone())),
        }
    }

    /// A sandbox, after its creation is over where it is being created. An error where that was cut short,
    /// so that nobody takes what may be left of it for nothing.
    pub async fn get_settled(&self, id: &SandboxId) -> Result<Option<Arc<S>>, Error> {
        loop {
            let mut outcome = match self.entries().get(id) {
                None => return Ok(None),
                Some(Entry {
                    creation: Some(creation),
                    ..
                }) => creation.outcome.clone(),
                Some(entry) => return Ok(entry.sandbox.clone()),
            };
            // A reservation settles its entry before it says so: the next turn finds another entry or none.
            let over = outcome
                .wait_for(|outcome| *outcome != CreationState::Pending)
                .await;
            match over.as_deref() {
                Ok(CreationState::Settled) => {}
                _ => return Err(cut_short(id)),
            }
        }
    }

    /// A sandbox, also one that is being created and [attached](Registry::attach).
    pub fn find(&self, id: &SandboxId) -> Option<Arc<S>> {
        self.entries().get(id)?.sandbox.clone()
    }

    /// Whether this very sandbox is kept, not another of the same id.
    pub fn contains(&self, sandbox: &Arc<S>) -> bool {
        let kept = self.get(sandbox.id());
        kept.is_ok_and(|kept| Arc::ptr_eq(&kept, sandbox))
    }

    /// Whether a sandbox of this id is being created here.
    pub fn is_being_created(&self, id: &SandboxId) -> bool {
        let entries = self.entries();
        entries
            .get(id)
            .is_some_and(|entry| entry.creation.is_some())
    }

    /// All sandboxes but those that are being created: of them only their creator may know.
    pub fn all(&self) -> Vec<Arc<S>> {
        let entries = self.entries();
        let settled = entries.values().filter(|entry| entry.creation.is_none());
        settled.filter_map(|entry| entry.sandbox.clone()).collect()
    }

    /// Does something about a named volume, given the sandboxes that have it, before another can be
    /// created with it.
    pub fn with_users<T>(&self, volume: &str, act: impl FnOnce(Vec<SandboxId>) -> T) -> T {
        let entries = self.entries();
        let uses = |entry: &Entry<S>| {
            let of_creation = entry.creation.iter().flat_map(|it| &it.volumes);
            let of_sandbox = entry.sandbox.iter().flat_map(|it| it.volumes());
            of_creation.chain(of_sandbox).any(|name| name == volume)
        };
        let users = entries.iter().filter(|(_, entry)| uses(entry));
        act(users.map(|(id, _)| id.clone()).collect())
    }

    /// Events from now on.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Tells whoever listens. Nobody is told of a sandbox that is being created, because its creator does
    /// not know of it yet, or of one that is removed on request.
    pub fn tell(&self, event: Event) {
        let is_told = match event.sandbox() {
            None => true,
            Some(id) => self.get(id).is_ok_and(|sandbox| !sandbox.is_leaving()),
        };
        if is_told {
            // Nobody listening is fine.
            let _ = self.events.send(event);
        }
    }
}

fn cut_short(id: &SandboxId) -> Error {
    Error::Internal(format!(
        "the creation of sandbox {id} panicked or was dropped; what it left is removed when the server \
         starts again"
    ))
}

/// An id whose sandbox is being created. Dropped unsettled, it tells those who wait that the creation was
/// cut short.
struct Reservation<'a, S: Registered> {
    registry: &'a Registry<S>,
    id: SandboxId,
    outcome: watch::Sender<CreationState>,
    is_settled: bool,
}

impl<S: Registered> Reservation<'_, S> {
    /// The creation is over, with a sandbox or undone.
    fn settle(mut self, sandbox: Option<Arc<S>>) {
        self.is_settled = true;
        let Some(sandbox) = sandbox else {
            return self.registry.remove(&self.id);
        };
        self.registry.insert(sandbox.clone());
        // From here on its end is told; one that came sooner is told now.
        if let Some(event) = sandbox.end() {
            let is_gone = matches!(event, Event::Vanished { .. });
            self.registry.tell(event);
            if is_gone {
                self.registry.remove(&self.id);
            }
        }
    }
}

impl<S: Registered> Drop for Reservation<'_, S> {
    fn drop(&mut self) {
        let outcome = if self.is_settled {
            CreationState::Settled
        } else {
            self.registry.remove(&self.id);
            CreationState::CutShort
        };
        self.outcome.send_replace(outcome);
    }
}

#[cfg(test)]
mod tests;
