//! A tree of named tasks that ends as one: asked to stop from the top down, given a bounded time,
//! then dropped.
//!
//! [`Tasks`] owns a branch: dropping it asks its tasks to stop. [`Spawner`] is the handle to it
//! that can be cloned and kept by the tasks themselves. A task learns that it should stop from
//! [`Spawner::stopping`]; one that does not look is dropped at its next await point when the
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

/// A branch of the task tree. Dropping it asks every task in it to stop.
#[derive(Debug)]
pub struct Tasks(Spawner);

/// Starts tasks in a branch of the tree.
#[derive(Debug, Clone)]
pub struct Spawner {
    path: Arc<str>,
    stop: CancellationToken,
    kill: CancellationToken,
    /// This branch's own tracker last, its ancestors' before it: each must see the task.
    trackers: Arc<[TaskTracker]>,
    live: Arc<Mutex<Live>>,
}

#[derive(Debug, Default)]
struct Live {
    next: u64,
    names: BTreeMap<u64, String>,
}

impl Tasks {
    /// The root of a new tree.
    pub fn new(name: &str) -> Self {
        Self(Spawner {
            path: name.into(),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            trackers: [TaskTracker::new()].into(),
            live: Arc::default(),
        })
    }

    /// A handle to start tasks with.
    pub fn spawner(&self) -> Spawner {
        self.0.clone()
    }

    /// Asks every task in this branch to stop, waits up to `grace` for them, then drops the rest.
    /// Returns the names of those that had to be dropped.
    pub async fn shutdown(&self, grace: Duration) -> Vec<String> {
        let own = self.0.own_tracker();
        self.0.stop.cancel();
        own.close();
        if tokio::time::timeout(grace, own.wait()).await.is_ok() {
            return Vec::new();
        }
        let late = self.0.running();
        self.0.kill.cancel();
        let _ = tokio::time::timeout(DROP_WAIT, own.wait()).await;
        late
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.stop.cancel();
    }
}

impl Deref for Tasks {
    type Target = Spawner;

    fn deref(&self) -> &Spawner {
        &self.0
    }
}

impl Spawner {
    /// A branch below this one. It stops with this one, and this one waits for it.
    pub fn branch(&self, name: &str) -> Tasks {
        let trackers = self
            .trackers
            .iter()
            .cloned()
            .chain([TaskTracker::new()])
            .collect();
        Tasks(Self {
            path: format!("{}/{name}", self.path).into(),
            stop: self.stop.child_token(),
            kill: self.kill.child_token(),
            trackers,
            live: Arc::clone(&self.live),
        })
    }

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
        let entry = Entry::new(&self.live, format!("{}/{name}", self.path));
        let held: Vec<_> = self.trackers.iter().map(TaskTracker::token).collect();
        let kill = self.kill.clone();
        runtime.spawn(async move {
            let _held = (held, entry);
            tokio::select! {
                output = task => Some(output),
                () = kill.cancelled() => None,
            }
        })
    }

    /// Resolves when this branch has been asked to stop.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// The names of the tasks in this branch that have not ended, with their path in the tree.
    pub fn running(&self) -> Vec<String> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let below = |name: &&String| {
            name.strip_prefix(&*self.path)
                .is_some_and(|rest| rest.starts_with('/'))
        };
        live.names.values().filter(below).cloned().collect()
    }

    fn own_tracker(&self) -> &TaskTracker {
        self.trackers
            .last()
            .expect("a branch is made with its own tracker")
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
        let branch = tasks.branch("branch");
        let stopping = branch.stopping();
        let task = branch.spawn("polite", async move { stopping.cancelled().await });
        assert_eq!(tasks.running(), ["root/branch/polite"]);
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
    async fn stopping_a_branch_leaves_the_rest_alone() {
        let tasks = Tasks::new("root");
        let branch = tasks.branch("a");
        let inside = branch.spawn("inside", pending::<()>());
        let outside = tasks.spawn("outside", pending::<()>());
        assert_eq!(branch.shutdown(GRACE).await, ["root/a/inside"]);
        assert_eq!(inside.await.unwrap(), None);
        assert!(!outside.is_finished());
        assert!(!tasks.stopping().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_a_branch_asks_its_tasks_to_stop() {
        let tasks = Tasks::new("root");
        let branch = tasks.branch("a");
        let stopping = branch.stopping();
        let task = branch.spawn("inside", async move { stopping.cancelled().await });
        drop(branch);
        assert_eq!(task.await.unwrap(), Some(()));
    }
}
