//! One pull, shared by everyone who asks for the same image at once ("single flight").
//!
//! A pull belongs to nobody who waits for it: any may go, and only when the last has gone is it
//! cancelled. Each hears what happens from the moment it joined.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use api::image_reference::ImageReference;
use lifecycle::backend::{Platform, PullProgress, RegistryAuth};
use secrecy::ExposeSecret as _;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::Error;
use super::digest::Digest;
use super::store::Lease;

/// How a pull ended. The lease keeps the image until every waiter has its own.
type Outcome = Result<Arc<Lease>, Error>;

/// Pulls under way.
#[derive(Default)]
pub(super) struct SharedPulls {
    active: Mutex<HashMap<PullKey, Arc<SharedPull>>>,
}

/// What makes two pulls the same. Credentials are part of it, or a caller without any would
/// receive what another's opened.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct PullKey {
    reference: String,
    os: String,
    arch: String,
    credentials: Option<Digest>,
}

impl PullKey {
    pub(super) fn new(
        reference: &ImageReference,
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
pub(super) struct SharedPull {
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

impl SharedPull {
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
    pulls: &'a SharedPulls,
    key: PullKey,
    shared: Arc<SharedPull>,
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
        let mut active = self.pulls.active();
        // Under the lock nobody joins, so nobody left now means nobody ever.
        drop(self.outcome.take());
        if self.shared.outcome.receiver_count() == 0 {
            self.shared.cancel.cancel();
            forget(&mut active, &self.key, &self.shared);
        }
    }
}

/// The task that runs a shared pull. However the pull ends, a panic included, its waiters hear of
/// it.
pub(super) struct PullOwner {
    pub(super) shared: Arc<SharedPull>,
    key: PullKey,
}

impl PullOwner {
    pub(super) fn complete(self, pulls: &SharedPulls, outcome: Result<Lease, Error>) {
        forget(&mut pulls.active(), &self.key, &self.shared);
        self.shared
            .outcome
            .send_replace(Some(outcome.map(Arc::new)));
    }
}

impl Drop for PullOwner {
    fn drop(&mut self) {
        self.shared.outcome.send_if_modified(|outcome| {
            let has_crashed = outcome.is_none();
            outcome.get_or_insert(Err(Error::Cancelled));
            has_crashed
        });
        self.shared
            .listeners
            .lock()
            .expect("no panic while held")
            .senders
            .clear();
    }
}

impl SharedPulls {
    /// Joins the pull of this key; where there is none, whoever joins gets its owner and must run it.
    pub(super) fn join(
        &self,
        key: PullKey,
        progress: Option<mpsc::Sender<PullProgress>>,
    ) -> (Waiter<'_>, Option<PullOwner>) {
        let mut active = self.active();
        let mut owner = None;
        let shared = Arc::clone(active.entry(key.clone()).or_insert_with(|| {
            let shared = Arc::new(SharedPull {
                outcome: watch::Sender::new(None),
                listeners: Mutex::default(),
                cancel: CancellationToken::new(),
            });
            owner = Some(PullOwner {
                shared: Arc::clone(&shared),
                key: key.clone(),
            });
            shared
        }));
        if let Some(sender) = progress {
            shared.listen(sender);
        }
        let outcome = Some(shared.outcome.subscribe());
        drop(active);
        (
            Waiter {
                pulls: self,
                key,
                shared,
                outcome,
            },
            owner,
        )
    }

    fn active(&self) -> MutexGuard<'_, HashMap<PullKey, Arc<SharedPull>>> {
        self.active.lock().expect("no panic while held")
    }
}

/// Takes a pull off the list, unless another has taken its place.
fn forget(active: &mut HashMap<PullKey, Arc<SharedPull>>, key: &PullKey, shared: &Arc<SharedPull>) {
    if active
        .get(key)
        .is_some_and(|listed| Arc::ptr_eq(listed, shared))
    {
        active.remove(key);
    }
}
