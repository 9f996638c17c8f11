//! Snapshots: their index, their making and their removal.
//!
//! A snapshot is recorded before the backend makes it, so that a crash leaves a row to find it
//! by. The making itself runs through the sandbox's owner task, which keeps it apart from
//! pausing and deletion.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use api::id::{SandboxId, SnapshotId};
use tokio::sync::oneshot;

use crate::admission;
use crate::backend::{self, SnapshotDetails};
use crate::caller::{AuditContext, Caller};
use crate::deadlines;
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::owner::{Command, Message};
use crate::sandbox::{Snapshot, SnapshotFilter, SnapshotState, State};
use crate::shared::Shared;
use crate::store::{Batch, Write};

/// The index of snapshots.
#[derive(Default)]
pub(crate) struct Snapshots {
    index: RwLock<HashMap<SnapshotId, Arc<Snapshot>>>,
    /// Those this process makes or removes right now. Others in a passing state were left over
    /// by a server that died.
    under_way: Mutex<HashSet<SnapshotId>>,
}

impl Snapshots {
    pub(crate) fn new(snapshots: Vec<Snapshot>) -> Snapshots {
        let index = snapshots
            .into_iter()
            .map(|s| (s.id.clone(), Arc::new(s)))
            .collect();
        Snapshots {
            index: RwLock::new(index),
            under_way: Mutex::default(),
        }
    }

    pub(crate) fn get(&self, id: &SnapshotId) -> Result<Arc<Snapshot>, Error> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        index
            .get(id)
            .cloned()
            .ok_or_else(|| Error::SnapshotNotFound(id.clone()))
    }

    pub(crate) fn is_under_way(&self, id: &SnapshotId) -> bool {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(id)
    }

    fn set_under_way(&self, id: &SnapshotId, is_under_way: bool) {
        let mut under_way = self
            .under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if is_under_way {
            under_way.insert(id.clone());
        } else {
            under_way.remove(id);
        }
    }

    /// All that match, newest first.
    pub(crate) fn matching(&self, filter: &SnapshotFilter) -> Vec<Arc<Snapshot>> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<_> = index
            .values()
            .filter(|s| matches(s, filter))
            .cloned()
            .collect();
        drop(index);
        found.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        found
    }

    pub(crate) fn put(&self, snapshot: Arc<Snapshot>) {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.insert(snapshot.id.clone(), snapshot);
    }

    pub(crate) fn remove(&self, id: &SnapshotId) {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.remove(id);
    }

    /// Moves a snapshot from one of `from` to `Deleting`, once.
    fn claim_deletion(&self, deleting: Snapshot) -> Result<Arc<Snapshot>, Error> {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        let Some(current) = index.get(&deleting.id) else {
            return Err(Error::SnapshotNotFound(deleting.id));
        };
        if current.state == SnapshotState::Creating {
            let (id, state) = (deleting.id, current.state);
            let wanted = "Ready or Failed";
            return Err(Error::SnapshotWrongState {
                id,
                action: "delete",
                state,
                wanted,
            });
        }
        let deleting = Arc::new(deleting);
        index.insert(deleting.id.clone(), deleting.clone());
        Ok(deleting)
    }
}

impl Shared {
    /// Whether a snapshot exists for this caller. To whom a part of the tenant's sandboxes exists, only
    /// snapshots of those do, while the sandbox is there.
    pub(crate) fn sees_snapshot(&self, caller: &Caller, snapshot: &Snapshot) -> bool {
        let of_whole = admission::sees_all_of(caller, &snapshot.tenant);
        let of_part = || {
            let sandbox = self.view(&snapshot.sandbox_id);
            sandbox.is_ok_and(|it| it.tenant == snapshot.tenant && admission::sees(caller, &it))
        };
        of_whole || of_part()
    }

    /// A snapshot as this caller sees it.
    pub(crate) fn snapshot_of(
        &self,
        caller: &Caller,
        id: &SnapshotId,
    ) -> Result<Arc<Snapshot>, Error> {
        let snapshot = self.snapshots.get(id)?;
        match self.sees_snapshot(caller, &snapshot) {
            true => Ok(snapshot),
            false => Err(Error::SnapshotNotFound(id.clone())),
        }
    }
}

fn matches(snapshot: &Snapshot, filter: &SnapshotFilter) -> bool {
    let sandbox = filter
        .sandbox_id
        .as_ref()
        .is_none_or(|id| *id == snapshot.sandbox_id);
    let name = filter
        .name
        .as_ref()
        .is_none_or(|name| snapshot.name.as_ref() == Some(name));
    sandbox && name && (filter.states.is_empty() || filter.states.contains(&snapshot.state))
}

/// Records and begins a snapshot; answers it as it is after a short wait.
pub(crate) async fn create(
    shared: &Arc<Shared>,
    sandbox: &SandboxId,
    name: Option<String>,
    by: Option<&AuditContext>,
) -> Result<Arc<Snapshot>, Error> {
    let handle = shared.handle(sandbox)?;
    let tenant = {
        let sandbox = handle.view.borrow();
        let state = sandbox.status.state;
        if state != State::Running {
            return Err(Error::WrongState {
                id: sandbox.id.clone(),
                action: "snapshot",
                state,
                why: sandbox.status.why_ended(),
                wanted: "Running",
            });
        }
        sandbox.tenant.clone()
    };
    let now = shared.clock.now();
    let id = uuid::Uuid::new_v4().to_string();
    let snapshot = Snapshot {
        id: id.try_into().expect("a UUID is a valid id"),
        tenant,
        sandbox_id: sandbox.clone(),
        name,
        state: SnapshotState::Creating,
        reason: "snapshot_accepted".to_owned(),
        message: "The snapshot is being made".to_owned(),
        last_transition_at: now,
        created_at: now,
        size_bytes: None,
    };
    shared.snapshots.set_under_way(&snapshot.id, true);
    if let Err(error) = save_for(shared, &snapshot, by).await {
        shared.snapshots.remove(&snapshot.id);
        shared.snapshots.set_under_way(&snapshot.id, false);
        return Err(error);
    }
    let (done, mut outcome) = oneshot::channel();
    let (task_shared, commands) = (shared.clone(), handle.commands);
    let creating = snapshot.clone();
    // In a task of its own: the client may go away, the snapshot is made all the same.
    shared.tasks.spawn(async move {
        let result = run(&commands, &creating).await;
        let id = creating.id.clone();
        let result = conclude(&task_shared, creating, result).await;
        task_shared.snapshots.set_under_way(&id, false);
        let _ = done.send(result);
    });
    match tokio::time::timeout(deadlines::SNAPSHOT_ANSWER, &mut outcome).await {
        // The answer says that it was accepted, however quick it was: the published clients know no other, and
        // ask for the snapshot until it is ready.
        Ok(Ok(Ok(made))) if made.state == SnapshotState::Ready => Ok(Arc::new(snapshot)),
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(Error::ShuttingDown),
        Err(_) => shared.snapshots.get(&snapshot.id),
    }
}

async fn run(
    commands: &tokio::sync::mpsc::Sender<Message>,
    snapshot: &Snapshot,
) -> Result<SnapshotDetails, Error> {
    let (reply, answer) = oneshot::channel();
    let command = Command::Snapshot {
        snapshot: snapshot.id.clone(),
        reply,
    };
    let gone = || Error::NotFound(snapshot.sandbox_id.clone().into());
    commands.send(command.into()).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

/// Keeps how a snapshot went. What was refused leaves no row behind.
async fn conclude(
    shared: &Shared,
    mut snapshot: Snapshot,
    result: Result<SnapshotDetails, Error>,
) -> Result<Arc<Snapshot>, Error> {
    snapshot.last_transition_at = shared.clock.now();
    match result {
        Ok(details) => {
            snapshot.state = SnapshotState::Ready;
            snapshot.reason = "snapshot_runtime_ready".to_owned();
            snapshot.message = "The snapshot is ready".to_owned();
            snapshot.size_bytes = Some(details.size_bytes);
        }
        Err(error @ (Error::WrongState { .. } | Error::NotFound(_) | Error::Busy(_))) => {
            remove(shared, &snapshot, "refused").await?;
            return Err(error);
        }
        Err(error) => {
            snapshot.state = SnapshotState::Failed;
            snapshot.reason = "snapshot_runtime_failed".to_owned();
            snapshot.message = api::error_chain(&error).to_string();
        }
    }
    save(shared, &snapshot).await?;
    shared.snapshots.get(&snapshot.id)
}

/// Removes a snapshot nothing stands on.
pub(crate) async fn delete(
    shared: &Arc<Shared>,
    id: &SnapshotId,
    by: Option<AuditContext>,
) -> Result<(), Error> {
    let current = shared.snapshots.get(id)?;
    let deleting = shared.snapshots.claim_deletion(Snapshot {
        state: SnapshotState::Deleting,
        reason: "snapshot_deleting".to_owned(),
        message: "The snapshot is being removed".to_owned(),
        last_transition_at: shared.clock.now(),
        ..(*current).clone()
    })?;
    let (done, outcome) = oneshot::channel();
    let task_shared = shared.clone();
    shared.snapshots.set_under_way(id, true);
    shared.tasks.spawn(async move {
        let result = finish_deletion(&task_shared, &current, &deleting, by.as_ref()).await;
        task_shared.snapshots.set_under_way(&deleting.id, false);
        let _ = done.send(result);
    });
    outcome.await.unwrap_or(Err(Error::ShuttingDown))
}

/// Removes a snapshot that is `Deleting`. On failure it is what it was before.
pub(crate) async fn finish_deletion(
    shared: &Shared,
    before: &Snapshot,
    deleting: &Snapshot,
    by: Option<&AuditContext>,
) -> Result<(), Error> {
    save_for(shared, deleting, by).await?;
    let removal = shared.backend.delete_snapshot(&deleting.id);
    let removed = match tokio::time::timeout(deadlines::DELETE_SNAPSHOT, removal).await {
        Ok(Ok(()) | Err(backend::Error::SnapshotNotFound(_))) => Ok(()),
        Ok(Err(error)) => Err(Error::from(error)),
        Err(_) => {
            let after = deadlines::DELETE_SNAPSHOT;
            Err(Error::Timeout {
                action: "removing the snapshot",
                after,
            })
        }
    };
    match removed {
        Ok(()) => remove(shared, deleting, "deleted").await,
        Err(error) => {
            save(shared, before).await?;
            Err(error)
        }
    }
}

/// Makes a snapshot's state durable and shows it.
pub(crate) async fn save(shared: &Shared, snapshot: &Snapshot) -> Result<(), Error> {
    save_for(shared, snapshot, None).await
}

/// The same, with who asked for it.
async fn save_for(
    shared: &Shared,
    snapshot: &Snapshot,
    by: Option<&AuditContext>,
) -> Result<(), Error> {
    let snapshot = Arc::new(snapshot.clone());
    let event = event(shared, &snapshot, EventKind::SnapshotChanged);
    shared.snapshots.put(snapshot.clone());
    let entry = by.map(|by| by.write(snapshot.id.as_str()));
    let mut writes = vec![Write::PutSnapshot(snapshot), Write::AppendEvent(event)];
    writes.extend(entry);
    shared.journal.write(Batch { writes }).await?;
    if let Some(by) = by {
        by.set_recorded();
    }
    Ok(())
}

async fn remove(shared: &Shared, snapshot: &Snapshot, reason: &str) -> Result<(), Error> {
    let mut event = event(shared, snapshot, EventKind::SnapshotDeleted);
    reason.clone_into(&mut event.reason);
    shared.snapshots.remove(&snapshot.id);
    let writes = vec![
        Write::RemoveSnapshot(snapshot.id.clone()),
        Write::AppendEvent(event),
    ];
    shared.journal.write(Batch { writes }).await.map(drop)
}

fn event(shared: &Shared, snapshot: &Snapshot, kind: EventKind) -> Event {
    Event {
        id: 0,
        at: shared.clock.now(),
        tenant: snapshot.tenant.clone(),
        kind,
        sandbox_id: Some(snapshot.sandbox_id.clone()),
        snapshot_id: Some(snapshot.id.clone()),
        state: None,
        reason: snapshot.reason.clone(),
        message: snapshot.message.clone(),
        expires_at: None,
    }
}
