//! Compares what is recorded with what the backend has, and repairs every difference.
//!
//! The comparison is a pure function. It only points: an owner task that may be wrong is told to
//! look for itself, so that a list that was outdated when it arrived does no harm. Runs at
//! start, when the backend says it lost its view or our events lagged, and periodically.

use std::collections::HashMap;
use std::sync::Arc;

use api::id::SandboxId;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::backend::{Event as BackendEvent, ObservedState, SandboxDetails, SnapshotDetails};
use crate::caller::Tenant;
use crate::calls;
use crate::deadlines;
use crate::ended::ENDED_KEPT;
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::labels;
use crate::owner::{self, Command};
use crate::sandbox::{Reason, Snapshot, SnapshotFilter, SnapshotState, State};
use crate::shared::Shared;
use crate::snapshots;
use crate::store::{Batch, SandboxRecord, Write};

/// Events kept for readers that come back: days of ordinary use, some tens of MiB.
const KEEP_EVENTS: u32 = 100_000;

/// Audit entries kept.
const KEEP_AUDIT: u32 = 1_000_000;

/// Whose sandboxes are ours.
pub(crate) struct Identity<'a> {
    pub(crate) control_plane: &'a str,
    pub(crate) store: &'a str,
    /// Sandboxes of a lost store are taken over only by a store that is new itself.
    pub(crate) is_settled: bool,
}

/// A difference between record and backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The owner should look for itself.
    Differs(SandboxId),
    /// Of this store, but not recorded: a deletion or a creation that a crash cut short.
    Orphan(SandboxId),
    /// Of a store that was lost.
    Adopt(SandboxId),
    /// Of another store, which may be alive.
    Foreign(SandboxId),
}

/// What is recorded of one sandbox, as far as the comparison needs it.
pub(crate) type Known = HashMap<SandboxId, (State, Reason)>;

/// All differences.
pub(crate) fn compare(
    known: &Known,
    observed: &[SandboxDetails],
    us: &Identity<'_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen: HashMap<&SandboxId, &ObservedState> = HashMap::new();
    for sandbox in observed {
        seen.insert(&sandbox.id, &sandbox.state);
        if known.contains_key(&sandbox.id) {
            continue;
        }
        let label = |name: &str| sandbox.labels.get(name).map(String::as_str);
        if label(labels::CONTROL_PLANE) != Some(us.control_plane) {
            continue;
        }
        let is_half_made = sandbox.state == ObservedState::Incomplete;
        findings.push(match label(labels::STORE) == Some(us.store) {
            true => Finding::Orphan(sandbox.id.clone()),
            false if us.is_settled => Finding::Foreign(sandbox.id.clone()),
            false if is_half_made => Finding::Orphan(sandbox.id.clone()),
            false => Finding::Adopt(sandbox.id.clone()),
        });
    }
    for (id, (state, reason)) in known {
        if differs(*state, *reason, seen.get(id).copied()) {
            findings.push(Finding::Differs(id.clone()));
        }
    }
    findings
}

fn differs(state: State, reason: Reason, seen: Option<&ObservedState>) -> bool {
    match state {
        State::Running => seen != Some(&ObservedState::Running),
        State::Paused => seen != Some(&ObservedState::Paused),
        // On their way to somewhere; an owner that is stuck gets another chance to look.
        State::Pending | State::Pausing | State::Resuming | State::Stopping => true,
        State::Terminated => false,
        State::Failed => reason == Reason::ContainerStartFailed && seen.is_some(),
    }
}

/// One comparison and all repairs it calls for.
pub(crate) async fn once(shared: &Arc<Shared>, is_settled: bool) -> Result<(), Error> {
    let timeout = |action| Error::Timeout {
        action,
        after: deadlines::LIST,
    };
    let list = tokio::time::timeout(deadlines::LIST, shared.backend.list());
    let observed = list.await.map_err(|_| timeout("listing the sandboxes"))??;
    // Read after the list: a sandbox that is in the list and not here is really not recorded.
    let known: Known = shared
        .views()
        .iter()
        .map(|s| (s.id.clone(), (s.status.state, s.status.reason)))
        .collect();
    let us = Identity {
        control_plane: &shared.config.control_plane,
        store: &shared.identity,
        is_settled,
    };
    for finding in compare(&known, &observed, &us) {
        repair(shared, &finding, &observed).await;
    }
    // Read before the list: what was ready before the list was made must be in it.
    let recorded = shared.snapshots.matching(&SnapshotFilter::default());
    let list = tokio::time::timeout(deadlines::LIST, shared.backend.list_snapshots());
    let present = list.await.map_err(|_| timeout("listing the snapshots"))??;
    for snapshot in &recorded {
        let found = present.iter().find(|details| details.id == snapshot.id);
        mend_snapshot(shared, snapshot, found).await?;
    }
    if !is_settled {
        adopt_snapshots(shared, &present).await?;
    }
    Ok(())
}

async fn repair(shared: &Arc<Shared>, finding: &Finding, observed: &[SandboxDetails]) {
    let found = |id: &SandboxId| observed.iter().find(|it| it.id == *id);
    match finding {
        Finding::Differs(id) => {
            if let Ok(handle) = shared.handle(id) {
                handle.check();
            }
        }
        Finding::Orphan(id) => {
            let tenant = found(id).map(labels::tenant).unwrap_or_default();
            let message = "Found without a record and removed";
            tell(shared, id, tenant, "ORPHAN_REMOVED", message).await;
            calls::discard(shared.clone(), id.clone());
        }
        Finding::Foreign(id) => {
            tracing::debug!(sandbox_id = %id, "left alone: it belongs to another store");
        }
        Finding::Adopt(id) => match found(id).and_then(|o| labels::adopt(o, shared.clock.now())) {
            Some(sandbox) => {
                tracing::info!(sandbox_id = %id, "adopted: its store was lost");
                let record = SandboxRecord {
                    sandbox,
                    recipe: None,
                };
                owner::spawn(shared, record, owner::Origination::Adopt);
            }
            None => {
                let message = "Found without a record and without readable labels; left alone";
                tell(shared, id, Tenant::default(), "NOT_ADOPTED", message).await;
            }
        },
    }
}

async fn tell(shared: &Shared, id: &SandboxId, tenant: Tenant, reason: &str, message: &str) {
    tracing::info!(sandbox_id = %id, reason, message, "reconciliation");
    let event = Event {
        id: 0,
        at: shared.clock.now(),
        tenant,
        kind: EventKind::Repaired,
        sandbox_id: Some(id.clone()),
        snapshot_id: None,
        state: None,
        reason: reason.to_owned(),
        message: message.to_owned(),
        expires_at: None,
    };
    let batch = Batch {
        writes: vec![Write::AppendEvent(event)],
    };
    let _ = shared.journal.write_behind(batch).await;
}

async fn mend_snapshot(
    shared: &Arc<Shared>,
    snapshot: &Arc<Snapshot>,
    found: Option<&SnapshotDetails>,
) -> Result<(), Error> {
    let is_unchanged = shared
        .snapshots
        .get(&snapshot.id)
        .is_ok_and(|now| now == *snapshot);
    if !is_unchanged || shared.snapshots.is_under_way(&snapshot.id) {
        return Ok(());
    }
    let mend = |state, reason: &str, message: &str| Snapshot {
        state,
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_at: shared.clock.now(),
        size_bytes: found.map(|details| details.size_bytes),
        ..(**snapshot).clone()
    };
    let mended = match (snapshot.state, found) {
        (SnapshotState::Ready, None) => {
            let message = "The snapshot has disappeared from the backend";
            mend(SnapshotState::Failed, "snapshot_vanished", message)
        }
        // The others are left over from a server that died.
        (SnapshotState::Creating, Some(_)) => {
            let message = "Found ready after a restart";
            mend(SnapshotState::Ready, "snapshot_runtime_ready", message)
        }
        (SnapshotState::Creating, None) => {
            let message = "The server was restarted while the snapshot was made";
            mend(SnapshotState::Failed, "snapshot_interrupted", message)
        }
        (SnapshotState::Deleting, _) => {
            let message = "The snapshot could not be removed yet";
            let before = mend(SnapshotState::Ready, "snapshot_runtime_ready", message);
            if let Err(error) = snapshots::finish_deletion(shared, &before, snapshot, None).await {
                tracing::warn!(snapshot = %snapshot.id, error = %api::error_chain(&error), "could not be removed yet");
            }
            return Ok(());
        }
        (SnapshotState::Ready | SnapshotState::Failed, _) => return Ok(()),
    };
    snapshots::save(shared, &mended).await
}

/// Takes up the snapshots of a lost store. Of which sandbox they were is not known any more.
async fn adopt_snapshots(shared: &Arc<Shared>, present: &[SnapshotDetails]) -> Result<(), Error> {
    for details in present
        .iter()
        .filter(|d| shared.snapshots.get(&d.id).is_err())
    {
        let adopted = Snapshot {
            id: details.id.clone(),
            tenant: Tenant::default(),
            sandbox_id: "unknown".parse().expect("a word is a valid id"),
            name: None,
            state: SnapshotState::Ready,
            reason: "snapshot_adopted".to_owned(),
            message: "Found without a record and adopted".to_owned(),
            last_transition_at: shared.clock.now(),
            created_at: details.created_at,
            size_bytes: Some(details.size_bytes),
        };
        snapshots::save(shared, &adopted).await?;
    }
    Ok(())
}

/// Reconciles for ever: on what the backend tells, when we lag, and periodically.
pub(crate) async fn watch(
    shared: Arc<Shared>,
    mut events: broadcast::Receiver<BackendEvent>,
    mut is_settled: bool,
) {
    let mut next = Instant::now() + deadlines::RECONCILE;
    let mut prune_at = Instant::now();
    let mut is_listening = true;
    loop {
        let must_reconcile = tokio::select! {
            () = shared.stop.cancelled() => return,
            event = events.recv(), if is_listening => match event {
                Ok(event) => route(&shared, event),
                Err(RecvError::Lagged(count)) => {
                    tracing::warn!(count, "backend events were missed; comparing everything");
                    true
                }
                // No more events; the periodic comparison goes on and listens again.
                Err(RecvError::Closed) => {
                    is_listening = false;
                    false
                }
            },
            () = tokio::time::sleep_until(next) => true,
        };
        if !is_listening && must_reconcile {
            events = shared.backend.events();
            is_listening = true;
        }
        if must_reconcile {
            next = Instant::now() + deadlines::RECONCILE;
            is_settled = run(&shared, is_settled).await;
        }
        if Instant::now() >= prune_at {
            prune_at = Instant::now() + deadlines::PRUNE;
            prune(&shared).await;
        }
    }
}

/// One reconciliation with its outcome logged; whether the store is settled now.
pub(crate) async fn run(shared: &Arc<Shared>, is_settled: bool) -> bool {
    match once(shared, is_settled).await {
        Ok(()) if is_settled => true,
        Ok(()) => {
            let batch = Batch {
                writes: vec![Write::Settle],
            };
            shared.journal.write(batch).await.is_ok()
        }
        Err(error) => {
            tracing::warn!(error = %api::error_chain(&error), "could not reconcile; trying again later");
            is_settled
        }
    }
}

async fn prune(shared: &Shared) {
    let prune = Write::Prune {
        keys_before: shared.clock.now(),
        ended_before: shared.clock.now() - ENDED_KEPT,
        keep_events: KEEP_EVENTS,
        keep_audit: KEEP_AUDIT,
    };
    let _ = shared
        .journal
        .write_behind(Batch {
            writes: vec![prune],
        })
        .await;
}

/// Hands a backend event to the owner task it is about; whether everything must be compared.
fn route(shared: &Shared, event: BackendEvent) -> bool {
    let (id, command) = match event {
        BackendEvent::Exited { id, exit } => (id, Some(Command::Exited(exit))),
        BackendEvent::OutOfMemory { id } => (id, Some(Command::OutOfMemory)),
        BackendEvent::Vanished { id } => (id, None),
        BackendEvent::Resync => return true,
    };
    // Unknown ids are sandboxes of others or just deleted.
    if let Ok(handle) = shared.handle(&id) {
        let is_told =
            command.is_some_and(|command| handle.commands.try_send(command.into()).is_ok());
        if !is_told {
            handle.check();
        }
    }
    false
}
