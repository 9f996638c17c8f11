//! One pull, shared by everyone who asks for the same image at once ("single flight"). It belongs to
//! nobody who waits, and goes on when they leave: the
//! engine keeps what it has got, and somebody will ask again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use lifecycle::backend::{Error, PullProgress};
use tokio::sync::{mpsc, watch};

/// Why a pull failed; every waiter gets a copy.
#[derive(Debug, Clone)]
pub(crate) enum PullError {
    NotFound(String),
    Unauthorized(String),
    Full(String),
    Failed { message: String, is_transient: bool },
}

impl PullError {
    pub(crate) fn into_error(self, reference: &str) -> Error {
        let reference = reference.to_owned();
        match self {
            Self::NotFound(message) => Error::ImageNotFound { reference, message },
            Self::Unauthorized(message) => Error::ImageUnauthorized { reference, message },
            Self::Full(message) => crate::engine::exhausted(&message),
            Self::Failed {
                message,
                is_transient,
            } => Error::ImagePull {
                reference,
                message,
                is_transient,
            },
        }
    }
}

type Outcome = Result<(), PullError>;

/// What makes two pulls the same: image, platform and a digest of the credentials, or a caller
/// without any would be let in by another's.
pub(crate) type Key = (String, String, Option<[u8; 32]>);

/// One pull.
pub(crate) struct SharedPull {
    outcome: watch::Sender<Option<Outcome>>,
    listeners: Mutex<Vec<mpsc::Sender<PullProgress>>>,
}

impl SharedPull {
    /// Tells everybody. A full channel drops the report; a closed one drops the listener.
    pub(crate) fn tell(&self, report: &PullProgress) {
        let mut listeners = self.listeners.lock().expect("no panic while held");
        listeners.retain(|listener| {
            let sent = listener.try_send(report.clone());
            !matches!(sent, Err(mpsc::error::TrySendError::Closed(_)))
        });
    }
}

/// Pulls under way.
#[derive(Default)]
pub(crate) struct SharedPulls {
    active: Mutex<HashMap<Key, Arc<SharedPull>>>,
}

impl SharedPulls {
    fn active(&self) -> MutexGuard<'_, HashMap<Key, Arc<SharedPull>>> {
        self.active.lock().expect("no panic while held")
    }

    /// Joins the pull of `key`, which `start` begins where there is none, and waits for its end.
    pub(crate) async fn join(
        self: &Arc<Self>,
        key: Key,
        progress: Option<mpsc::Sender<PullProgress>>,
        start: impl FnOnce(Arc<SharedPull>) -> futures_util::future::BoxFuture<'static, Outcome>,
    ) -> Outcome {
        let mut outcome = {
            let mut active = self.active();
            let shared = active.entry(key.clone()).or_insert_with(|| {
                let shared = Arc::new(SharedPull {
                    outcome: watch::Sender::new(None),
                    listeners: Mutex::default(),
                });
                let (pulls, pull) = (self.clone(), start(shared.clone()));
                let ending = shared.clone();
                tokio::spawn(async move {
                    let ended = tokio::spawn(pull).await.unwrap_or_else(|panic| {
                        Err(PullError::Failed {
                            message: panic.to_string(),
                            is_transient: false,
                        })
                    });
                    pulls.active().remove(&key);
                    ending.outcome.send_replace(Some(ended));
                });
                shared
            });
            if let Some(progress) = progress {
                let mut listeners = shared.listeners.lock().expect("no panic while held");
                listeners.push(progress);
            }
            shared.outcome.subscribe()
        };
        let ended = outcome.wait_for(Option::is_some).await;
        let ended = ended.expect("the pull's own task has the other end");
        ended.clone().expect("it was waited for")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn many_share_one_pull_and_others_have_their_own() {
        let pulls = Arc::new(SharedPulls::default());
        let ending = Arc::new(AtomicUsize::new(0));
        let (go, wait) = watch::channel(false);
        let join = |key: Key| {
            let (pulls, ending, mut wait) = (pulls.clone(), ending.clone(), wait.clone());
            tokio::spawn(async move {
                let start = move |_| {
                    ending.fetch_add(1, Ordering::SeqCst);
                    async move {
                        let _ = wait.wait_for(|go| *go).await;
                        Err(PullError::NotFound("x".to_owned()))
                    }
                    .boxed()
                };
                pulls.join(key, None, start).await
            })
        };
        let key = |secret: Option<[u8; 32]>| ("image".to_owned(), String::new(), secret);
        let first = join(key(None));
        let second = join(key(None));
        let third = join(key(Some([1; 32])));
        while pulls.active().len() < 2 {
            tokio::task::yield_now().await;
        }
        // One who leaves takes nothing along.
        first.abort();
        go.send_replace(true);
        assert!(matches!(second.await, Ok(Err(PullError::NotFound(_)))));
        assert!(matches!(third.await, Ok(Err(PullError::NotFound(_)))));
        assert_eq!(ending.load(Ordering::SeqCst), 2);
        assert!(pulls.active().is_empty());
    }
}
