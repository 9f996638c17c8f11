//! A wall clock that follows the runtime's time, which tests can pause, and that can be set.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

/// A clock for tests. Clones share it.
#[derive(Clone)]
pub struct Clock {
    inner: Arc<Inner>,
}

struct Inner {
    epoch: Timestamp,
    start: Instant,
    offset: Mutex<SignedDuration>,
    jumps: watch::Sender<u64>,
}

impl Clock {
    /// A clock that shows `epoch` now.
    pub fn starting_at(epoch: Timestamp) -> Clock {
        let (jumps, _) = watch::channel(0);
        let offset = Mutex::new(SignedDuration::ZERO);
        Clock {
            inner: Arc::new(Inner {
                epoch,
                start: Instant::now(),
                offset,
                jumps,
            }),
        }
    }

    /// Sets the wall clock by this much, as an administrator would.
    pub fn jump(&self, by: SignedDuration) {
        *self
            .inner
            .offset
            .lock()
            .unwrap_or_else(PoisonError::into_inner) += by;
        self.inner.jumps.send_modify(|count| *count += 1);
    }

    fn offset(&self) -> SignedDuration {
        *self
            .inner
            .offset
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl crate::clock::Clock for Clock {
    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.inner.start.elapsed()).expect("a short test");
        self.inner.epoch + elapsed + self.offset()
    }

    fn uptime(&self) -> Duration {
        self.inner.start.elapsed()
    }

    async fn wait_until(&self, deadline: Option<Timestamp>) {
        let mut jumps = self.inner.jumps.subscribe();
        let Some(deadline) = deadline else {
            let _ = jumps.changed().await;
            return;
        };
        let span = Duration::try_from(deadline.duration_since(self.now())).unwrap_or_default();
        tokio::select! {
            () = tokio::time::sleep(span) => {}
            _ = jumps.changed() => {}
        }
    }
}
