//! The connection pool: idle keep-alive connections into sandboxes. The key has the sandbox and the
//! port, so that a connection of one sandbox can never be used for another, and the thread whose event
//! loop watches the connection, so that a request and its response never wake a second thread.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::ThreadId;
use std::time::Duration;

use api::id::SandboxId;
use tokio::io::AsyncRead;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Route;
use crate::exchange::Upstream;

/// Idle connections into a sandbox are closed after this long: well before the daemon inside
/// would close them, so that no request meets a connection that is just being closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Idle connections kept for one port of one sandbox. More than the published clients open at
/// once for one sandbox would only cost descriptors.
const IDLE_PER_KEY_MAX: usize = 32;

/// What a connection can be used for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    pub(crate) id: SandboxId,
    pub(crate) port: u16,
    pub(crate) thread: ThreadId,
}

impl PoolKey {
    /// For a request that is served by this thread.
    pub(crate) fn of(route: &Route) -> Self {
        Self {
            id: route.id.clone(),
            port: route.port,
            thread: std::thread::current().id(),
        }
    }
}

/// The connections.
pub(crate) struct Pool<S> {
    idle: Mutex<HashMap<PoolKey, Vec<Idle<S>>>>,
    /// Notified when a connection comes into an empty pool.
    filled: Notify,
}

struct Idle<S> {
    since: Instant,
    upstream: Upstream<S>,
}

impl<S> Default for Pool<S> {
    fn default() -> Self {
        Self {
            idle: Mutex::default(),
            filled: Notify::new(),
        }
    }
}

impl<S: AsyncRead + Unpin> Pool<S> {
    /// The connection that was used last among those that are still open.
    pub(crate) async fn take(&self, key: &PoolKey) -> Option<Upstream<S>> {
        poll_fn(|context| {
            // One by one, because a connection is not read from under the lock.
            while let Some(mut upstream) = self.pop(key) {
                if upstream.is_open(context) {
                    return Poll::Ready(Some(upstream));
                }
            }
            Poll::Ready(None)
        })
        .await
    }

    fn pop(&self, key: &PoolKey) -> Option<Upstream<S>> {
        let idle = self.lock().get_mut(key)?.pop()?;
        Some(idle.upstream)
    }

    /// Keeps a connection that could take a request.
    pub(crate) fn put(&self, key: PoolKey, upstream: Upstream<S>) {
        let mut idle = self.lock();
        let was_empty = idle.is_empty();
        let kept = idle.entry(key).or_default();
        if kept.len() < IDLE_PER_KEY_MAX {
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
    fn lock(&self) -> MutexGuard<'_, HashMap<PoolKey, Vec<Idle<S>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what has been idle for too long; returns when the next one will have been.
    fn expire(&self, now: Instant) -> Option<Instant> {
        let mut expired = Vec::new();
        let mut idle = self.lock();
        idle.retain(|_, kept| {
            // Ordered by time: the connection used last is at the end.
            let fresh = kept.partition_point(|it| it.since + IDLE_TIMEOUT <= now);
            expired.extend(kept.drain(..fresh));
            !kept.is_empty()
        });
        let next = idle.values().filter_map(|kept| kept.first());
        let next = next.map(|it| it.since + IDLE_TIMEOUT).min();
        drop(idle);
        // Closed here, outside the lock.
        drop(expired);
        next
    }
}

/// Closes what has been idle for too long, until the server stops. Sleeps while there is nothing.
pub(crate) async fn sweep<S: AsyncRead + Unpin>(pool: Arc<Pool<S>>, stopping: CancellationToken) {
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
