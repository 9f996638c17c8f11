//! Many who wait for one pull.
//!
//! A pull belongs to nobody who waits for it: any may go, and only when the last has gone is it
//! cancelled. Each hears what happens from the moment it joined.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use lifecycle::backend::{Platform, PullProgress, RegistryAuth};
use secrecy::ExposeSecret as _;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::Error;
use super::digest::Digest;
use super::reference::Reference;
use super::store::Lease;

/// How a pull ended. The lease keeps the image until every waiter has its own.
type Outcome = Result<Arc<Lease>, Error>;

/// Pulls under way.
#[derive(Default)]
pub(super) struct Flights {
    active: Mutex<HashMap<Key, Arc<Flight>>>,
}

/// What makes two pulls the same. Credentials are part of it, or a caller without any would
/// receive what another's opened.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    reference: String,
    os: String,
    arch: String,
    credentials: Option<Digest>,
}

impl Key {
    pub(super) fn new(
        reference: &Reference,
        platform: &Platform,
        auth: Option<&RegistryAuth>,
    ) -> Self {
        let credentials = auth.map(|auth| {
            let text = format!("{}\0{}", auth.username, auth.password.expose_secret());
            Digest::of(text.as_bytes())
        });
        Self {
            reference: reference.to_string(),
            os: platform.os.clone(),
            arch: platform.arch.clone(),
            credentials,
        }
    }
}

/// One pull as its waiters see it.
pub(super) struct Flight {
    outcome: watch::Sender<Option<Outcome>>,
    listeners: Mutex<Listeners>,
    pub(super) cancel: CancellationToken,
}

#[derive(Default)]
struct Listeners {
    /// Told to those who join late.
    resolved: Option<PullProgress>,
    senders: Vec<mpsc::Sender<PullProgress>>,
}

impl Flight {
    pub(super) fn tell(&self, event: &PullProgress) {
        let mut listeners = self.listeners.lock().expect("no panic while held");
        if matches!(event, PullProgress::Resolved { .. }) {
            listeners.resolved = Some(event.clone());
        }
        // A full channel drops the report; a closed one drops the listener.
        listeners.senders.retain(|sender| {
            !matches!(
                sender.try_send(event.clone()),
                Err(mpsc::error::TrySendError::Closed(_))
            )
        });
    }

    fn listen(&self, sender: mpsc::Sender<PullProgress>) {
        let mut listeners = self.listeners.lock().expect("no panic while held");
        if let Some(resolved) = &listeners.resolved {
            let _ = sender.try_send(resolved.clone());
        }
        listeners.senders.push(sender);
    }
}

/// One who waits. The last to go takes the pull along.
pub(super) struct Waiter<'a> {
    flights: &'a Flights,
    key: Key,
    flight: Arc<Flight>,
    /// Taken only when the waiter goes.
    outcome: Option<watch::Receiver<Option<Outcome>>>,
}

impl Waiter<'_> {
    pub(super) async fn outcome(mut self) -> Outcome {
        let receiver = self.outcome.as_mut().expect("the waiter is here");
        match receiver.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().expect("it was waited for"),
            Err(_) => Err(Error::Cancelled),
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut active = self.flights.active();
        // Under the lock nobody joins, so nobody left now means nobody ever.
        drop(self.outcome.take());
        if self.flight.outcome.receiver_count() == 0 {
            self.flight.cancel.cancel();
            forget(&mut active, &self.key, &self.flight);
        }
    }
}

/// The pull's own end of a flight. However the pull ends, a panic included, its waiters hear of
/// it.
pub(super) struct Pilot {
    pub(super) flight: Arc<Flight>,
    key: Key,
}

impl Pilot {
    pub(super) fn land(self, flights: &Flights, outcome: Result<Lease, Error>) {
        forget(&mut flights.active(), &self.key, &self.flight);
        self.flight
            .outcome
            .send_replace(Some(outcome.map(Arc::new)));
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        self.flight.outcome.send_if_modified(|outcome| {
            let has_crashed = outcome.is_none();
            outcome.get_or_insert(Err(Error::Cancelled));
            has_crashed
        });
        self.flight
            .listeners
            .lock()
            .expect("no panic while held")
            .senders
            .clear();
    }
}

impl Flights {
    /// Joins the pull of this key; where there is none, whoever joins must fly it.
    pub(super) fn join(
        &self,
        key: Key,
        progress: Option<mpsc::Sender<PullProgress>>,
    ) -> (Waiter<'_>, Option<Pilot>) {
        let mut active = self.active();
        let mut pilot = None;
        let flight = Arc::clone(active.entry(key.clone()).or_insert_with(|| {
            let flight = Arc::new(Flight {
                outcome: watch::Sender::new(None),
                listeners: Mutex::default(),
                cancel: CancellationToken::new(),
            });
            pilot = Some(Pilot {
                flight: Arc::clone(&flight),
                key: key.clone(),
            });
            flight
        }));
        if let Some(sender) = progress {
            flight.listen(sender);
        }
        let outcome = Some(flight.outcome.subscribe());
        drop(active);
        (
            Waiter {
                flights: self,
                key,
                flight,
                outcome,
            },
            pilot,
        )
    }

    fn active(&self) -> MutexGuard<'_, HashMap<Key, Arc<Flight>>> {
        self.active.lock().expect("no panic while held")
    }
}

/// Takes a flight off the list, unless another has taken its place.
fn forget(active: &mut HashMap<Key, Arc<Flight>>, key: &Key, flight: &Arc<Flight>) {
    if active
        .get(key)
        .is_some_and(|listed| Arc::ptr_eq(listed, flight))
    {
        active.remove(key);
    }
}
