//! The nouns of the control plane in the words of the contract.

use std::collections::BTreeMap;

use api::event::{AuditEvent, AuditOutcome, LifecycleEvent, LifecycleEventKind};
use api::sandbox as wire;
use api::snapshot as wire_snapshot;
use jiff::Timestamp;
use lifecycle::event::{AuditEntry, Event, EventKind};
use lifecycle::{Origin, Page, Sandbox, Snapshot, SnapshotState, State};

/// A sandbox.
pub(super) fn sandbox(sandbox: &Sandbox) -> wire::Sandbox {
    let (image, snapshot_id) = match &sandbox.origin {
        Origin::Image(uri) => (
            Some(wire::ImageSpec {
                uri: uri.clone(),
                auth: None,
            }),
            None,
        ),
        Origin::Snapshot(id) => (None, Some(id.clone())),
    };
    wire::Sandbox {
        id: sandbox.id.clone(),
        image,
        snapshot_id,
        image_digest: sandbox.image_digest.clone(),
        platform: platform(sandbox),
        status: status(sandbox),
        metadata: some_map(&sandbox.metadata),
        extensions: some_map(&sandbox.extensions),
        allocation: None,
        entrypoint: sandbox.entrypoint.clone(),
        expires_at: sandbox.expires_at.map(micros),
        created_at: micros(sandbox.created_at),
    }
}

/// The answer to a create.
pub(super) fn created(sandbox: &Sandbox) -> wire::CreateSandboxResponse {
    wire::CreateSandboxResponse {
        id: sandbox.id.clone(),
        status: status(sandbox),
        metadata: some_map(&sandbox.metadata),
        extensions: some_map(&sandbox.extensions),
        image_digest: sandbox.image_digest.clone(),
        platform: platform(sandbox),
        expires_at: sandbox.expires_at.map(micros),
        created_at: micros(sandbox.created_at),
        entrypoint: sandbox.entrypoint.clone(),
    }
}

/// Instants are written to the microsecond, as by the published server: some clients cannot read
/// more digits.
pub(super) fn micros(at: Timestamp) -> Timestamp {
    let exact = at.as_microsecond();
    Timestamp::from_microsecond(exact).unwrap_or(at)
}

type Map = BTreeMap<String, String>;

fn some_map(map: &Map) -> Option<Map> {
    (!map.is_empty()).then(|| map.clone())
}

fn platform(sandbox: &Sandbox) -> Option<wire::PlatformSpec> {
    let platform = sandbox.platform.as_ref()?;
    Some(wire::PlatformSpec {
        os: platform.os.clone(),
        arch: platform.arch.clone(),
    })
}

fn status(sandbox: &Sandbox) -> wire::SandboxStatus {
    wire::SandboxStatus {
        state: state(sandbox.status.state),
        reason: Some(sandbox.status.reason.as_str().to_owned()),
        message: Some(sandbox.status.message.clone()).filter(|message| !message.is_empty()),
        last_transition_at: Some(micros(sandbox.status.last_transition_at)),
    }
}

fn state(state: State) -> wire::SandboxState {
    match state {
        State::Pending => wire::SandboxState::Pending,
        State::Running => wire::SandboxState::Running,
        State::Pausing => wire::SandboxState::Pausing,
        State::Paused => wire::SandboxState::Paused,
        State::Resuming => wire::SandboxState::Resuming,
        State::Stopping => wire::SandboxState::Stopping,
        State::Terminated => wire::SandboxState::Terminated,
        State::Failed => wire::SandboxState::Failed,
    }
}

/// A state of the contract; `None` for one that no sandbox here is ever in.
pub(super) fn known_state(state: wire::SandboxState) -> Option<State> {
    state.as_str().parse().ok()
}

/// A snapshot.
pub(super) fn snapshot(snapshot: &Snapshot) -> wire_snapshot::Snapshot {
    wire_snapshot::Snapshot {
        id: snapshot.id.clone(),
        sandbox_id: snapshot.sandbox_id.clone(),
        name: snapshot.name.clone(),
        status: wire_snapshot::SnapshotStatus {
            state: snapshot_state(snapshot.state),
            reason: Some(snapshot.reason.clone()),
            message: Some(snapshot.message.clone()).filter(|message| !message.is_empty()),
            last_transition_at: Some(micros(snapshot.last_transition_at)),
        },
        created_at: micros(snapshot.created_at),
    }
}

fn snapshot_state(state: SnapshotState) -> wire_snapshot::SnapshotState {
    wire_snapshot::SnapshotState::from_wire(state.as_str())
}

/// A state of the contract; `None` for one that no snapshot here is ever in.
pub(super) fn known_snapshot_state(state: wire_snapshot::SnapshotState) -> Option<SnapshotState> {
    use SnapshotState::{Creating, Deleting, Failed, Ready};
    [Creating, Ready, Failed, Deleting]
        .into_iter()
        .find(|known| known.as_str() == state.as_str())
}

/// Where a page stands.
pub(super) fn pagination<T>(page: &Page<T>) -> wire::PaginationInfo {
    wire::PaginationInfo::of(page.page.into(), page.page_size.into(), page.total_items)
}

/// An event of the stream; `None` for those that are of no interest outside.
pub(super) fn event(event: &Event) -> Option<LifecycleEvent> {
    let kind = match event.kind {
        EventKind::Created => LifecycleEventKind::SandboxCreated,
        EventKind::StateChanged | EventKind::PullProgress => LifecycleEventKind::SandboxState,
        EventKind::Deleted => LifecycleEventKind::SandboxDeleted,
        EventKind::Renewed => LifecycleEventKind::SandboxRenewed,
        EventKind::MetadataChanged => LifecycleEventKind::SandboxMetadata,
        EventKind::OutOfMemory => LifecycleEventKind::SandboxOutOfMemory,
        EventKind::SnapshotChanged => LifecycleEventKind::SnapshotState,
        EventKind::SnapshotDeleted => LifecycleEventKind::SnapshotDeleted,
        EventKind::Repaired if event.sandbox_id.is_some() => LifecycleEventKind::SandboxState,
        EventKind::Repaired | EventKind::ClockJumped => return None,
    };
    let status = event.state.map(|now| wire::SandboxStatus {
        state: state(now),
        reason: Some(event.reason.clone()),
        message: Some(event.message.clone()),
        last_transition_at: Some(micros(event.at)),
    });
    Some(LifecycleEvent {
        id: u64::try_from(event.id).unwrap_or_default(),
        at: micros(event.at),
        kind,
        sandbox_id: event.sandbox_id.clone(),
        snapshot_id: event.snapshot_id.clone(),
        status,
        snapshot_status: None,
        expires_at: event.expires_at.map(micros),
    })
}

/// A line of the audit trail.
pub(super) fn audit_event(entry: &AuditEntry) -> AuditEvent {
    let code = (entry.outcome != AuditEntry::OK).then(|| entry.outcome.clone());
    AuditEvent {
        id: u64::try_from(entry.id).unwrap_or_default(),
        at: micros(entry.at),
        actor: entry.actor.clone(),
        action: entry.action.clone(),
        resource: entry.target.clone(),
        outcome: outcome(code.as_deref()),
        code,
        message: entry.message.clone(),
        request_id: entry.request_id.as_deref().and_then(|id| id.parse().ok()),
        client: entry.remote.clone(),
    }
}

/// A change that failed for a fault of ours is a failure; any other was refused.
fn outcome(code: Option<&str>) -> AuditOutcome {
    use api::error::ErrorCode as Code;
    match code.map(Code::from_wire) {
        None => AuditOutcome::Success,
        // A status, where the answer had no code.
        Some(None) if code.is_some_and(|it| it.starts_with('4')) => AuditOutcome::Refused,
        // What its client gave up, and the reason of a sandbox that ended: no codes of the contract.
        Some(None) => AuditOutcome::Failure,
        Some(Some(
            Code::SandboxInternalError
            | Code::Unavailable
            | Code::BackendTimeout
            | Code::DockerSandboxStartFailed
            | Code::DockerSandboxImagePullFailed
            | Code::SnapshotRuntimeCreateFailed,
        )) => AuditOutcome::Failure,
        Some(_) => AuditOutcome::Refused,
    }
}
