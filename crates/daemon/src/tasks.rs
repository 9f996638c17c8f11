//! Named tasks that end together: asked to stop, given a bounded time, then dropped.
//!
//! [`Tasks`] owns them: dropping it asks them to stop. [`TaskSpawner`] is the handle that can be cloned
//! and kept by the tasks themselves. A task learns that it should stop from
//! [`TaskSpawner::stopping`]; one that does not look is dropped at its next await point when the
//! grace period is over. Nothing here can end a task that never awaits.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long tasks that were told to end at once may take to be dropped. A task that is inside a
/// poll for longer is stuck, and waiting on would keep the process from ending.
const DROP_WAIT: Duration = Duration::from_secs(1);

/// The tasks of one process. Dropping it asks every one of them to stop.
#[derive(Debug)]
pub struct Tasks(TaskSpawner);

/// Starts tasks.
#[derive(Debug, Clone)]
pub struct TaskSpawner {
    name: Arc<str>,
    stop: CancellationToken,
    kill: CancellationToken,
    tracker: TaskTracker,
    live: Arc<Mutex<Live>>,
}

#[derive(Debug, Default)]
struct Live {
    next: u64,
    names: BTreeMap<u64, String>,
}

impl Tasks {
    /// No tasks yet. `name` comes before the names of the tasks, with a slash.
    pub fn new(name: &str) -> Self {
        Self(TaskSpawner {
            name: name.into(),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            tracker: TaskTracker::new(),
            live: Arc::default(),
        })
    }

    /// A handle to start tasks with.
    pub fn spawner(&self) -> TaskSpawner {
        self.0.clone()
    }

    /// Asks every task to stop, waits up to `grace` for them, then drops the rest.
    /// Returns the names of those that had to be dropped.
    pub async fn shutdown(&self, grace: Duration) -> Vec<String> {
        let tracker = &self.0.tracker;
        self.0.stop.cancel();
        tracker.close();
        if tokio::time::timeout(grace, tracker.wait()).await.is_ok() {
            return Vec::new();
        }
        let late = self.0.running();
        self.0.kill.cancel();
        let _ = tokio::time::timeout(DROP_WAIT, tracker.wait()).await;
        late
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.stop.cancel();
    }
}

impl Deref for Tasks {
    type Target = TaskSpawner;

    fn deref(&self) -> &TaskSpawner {
        &self.0
    }
}

impl TaskSpawner {
    /// Starts a task. The result is `None` if it was dropped at the end of a grace period.
    pub fn spawn<F>(&self, name: &'static str, task: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_on(&Handle::current(), name, task)
    }

    /// The same on another runtime.
    pub fn spawn_on<F>(
        &self,
        runtime: &Handle,
        name: &'static str,
        task: F,
    ) -> JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let entry = Entry::new(&self.live, format!("{}/{name}", self.name));
        let token = self.tracker.token();
        let kill = self.kill.clone();
        runtime.spawn(async move {
            let _held = (token, entry);
            tokio::select! {
                output = task => Some(output),
                () = kill.cancelled() => None,
            }
        })
    }

    /// Cancelled when the tasks are asked to stop.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// The names of the tasks that have not ended.
    pub fn running(&self) -> Vec<String> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.names.values().cloned().collect()
    }
}

/// A task's line in the list of live tasks; removed when the task ends, also by a panic.
struct Entry {
    live: Arc<Mutex<Live>>,
    id: u64,
}

impl Entry {
    fn new(live: &Arc<Mutex<Live>>, name: String) -> Self {
        let mut table = live.lock().unwrap_or_else(PoisonError::into_inner);
        let id = table.next;
        table.next += 1;
        table.names.insert(id, name);
        Self {
            live: Arc::clone(live),
            id,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.names.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_task_that_listens_ends_within_the_grace_period() {
        let tasks = Tasks::new("root");
        let stopping = tasks.stopping();
        let task = tasks.spawn("polite", async move { stopping.cancelled().await });
        assert_eq!(tasks.running(), ["root/polite"]);
        assert_eq!(tasks.shutdown(GRACE).await, Vec::<String>::new());
        assert_eq!(task.await.unwrap(), Some(()));
        assert!(tasks.running().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_listen_is_dropped_and_named() {
        let tasks = Tasks::new("root");
        let task = tasks.spawn("deaf", pending::<()>());
        let began = tokio::time::Instant::now();
        assert_eq!(tasks.shutdown(GRACE).await, ["root/deaf"]);
        assert!(began.elapsed() >= GRACE);
        assert_eq!(task.await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_the_owner_asks_its_tasks_to_stop() {
        let tasks = Tasks::new("root");
        let stopping = tasks.stopping();
        let task = tasks.spawn("inside", async move { stopping.cancelled().await });
        drop(tasks);
        assert_eq!(task.await.unwrap(), Some(()));
    }
}
