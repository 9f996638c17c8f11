//! Connections into sandboxes that wait for their next request, kept by sandbox and port, so that
//! one sandbox's connections can never be used for another, and by the thread that watches them, so
//! that a request and its answer never wake a second one.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::ThreadId;
use std::time::Duration;

use api::id::SandboxId;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::relay::Upstream;

/// Idle connections into a sandbox are closed after this long: well before the daemon inside
/// would close them, so that no request meets a connection that is just being closed.
const IDLE: Duration = Duration::from_secs(30);

/// Idle connections kept for one port of one sandbox. More than the published clients open at
/// once for one sandbox would only cost descriptors.
const IDLE_PER_PLACE: usize = 32;

/// A port of a sandbox, as one thread reaches it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) id: SandboxId,
    pub(super) port: u16,
    pub(super) thread: ThreadId,
}

/// The connections.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<HashMap<Place, Vec<Idle>>>,
    /// Rung when the first connection comes in.
    filled: Notify,
}

struct Idle {
    since: Instant,
    upstream: Upstream,
}

impl Pool {
    /// The connection used last that is still open.
    pub(super) async fn take(&self, place: &Place) -> Option<Upstream> {
        poll_fn(|context| {
            // One by one, because looking at a connection must not happen under the lock.
            while let Some(mut upstream) = self.pop(place) {
                if upstream.is_open(context) {
                    return Poll::Ready(Some(upstream));
                }
            }
            Poll::Ready(None)
        })
        .await
    }

    fn pop(&self, place: &Place) -> Option<Upstream> {
        let idle = self.lock().get_mut(place)?.pop()?;
        Some(idle.upstream)
    }

    /// Keeps a connection that could take a request.
    pub(super) fn put(&self, place: Place, upstream: Upstream) {
        let mut idle = self.lock();
        let was_empty = idle.is_empty();
        let kept = idle.entry(place).or_default();
        if kept.len() < IDLE_PER_PLACE {
            kept.push(Idle {
                since: Instant::now(),
                upstream,
            });
        }
        drop(idle);
        if was_empty {
            self.filled.notify_one();
        }
    }

    // A panic while the lock is held cannot leave the map half changed, so poison is no danger.
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Vec<Idle>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out what has been idle for too long; answers when the next will have been.
    fn expire(&self, now: Instant) -> Option<Instant> {
        let mut expired = Vec::new();
        let mut idle = self.lock();
        idle.retain(|_, kept| {
            // The one used last is at the end.
            let fresh = kept.partition_point(|it| it.since + IDLE <= now);
            expired.extend(kept.drain(..fresh));
            !kept.is_empty()
        });
        let next = idle.values().filter_map(|kept| kept.first());
        let next = next.map(|it| it.since + IDLE).min();
        drop(idle);
        // Closed here, outside the lock.
        drop(expired);
        next
    }
}

/// Closes what has been idle for too long, until the server stops. Sleeps while there is nothing.
pub(super) async fn sweep(pool: Arc<Pool>, stopping: CancellationToken) {
    let sweep = async {
        loop {
            match pool.expire(Instant::now()) {
                Some(next) => tokio::time::sleep_until(next).await,
                None => pool.filled.notified().await,
            }
        }
    };
    stopping.run_until_cancelled(sweep).await;
}
