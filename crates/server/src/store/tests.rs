//! Both stores against the same contract, and what each does when its ground gives way.

mod contract;
mod cost;
mod crash;
mod faults;
mod server;

use std::sync::Arc;

use jiff::Timestamp;
use lifecycle::event::{Event, EventKind};
use lifecycle::fake::{Backend, Clock};
use lifecycle::store::{Batch, BatchOutcome, Contents, SandboxRecord, Store, Write};
use lifecycle::{Caller, Config, ControlPlane, CreateRequest};

pub(super) const NOW: Timestamp = Timestamp::constant(1_800_000_000, 123_456_000);

/// A record as the service writes it.
pub(super) async fn record(metadata: &str) -> Arc<SandboxRecord> {
    let store = lifecycle::fake::Store::new();
    let control = ControlPlane::start(
        Config::default(),
        Arc::new(Backend::new()),
        Arc::new(store.clone()),
        Arc::new(Clock::starting_at(NOW)),
    )
    .await
    .unwrap();
    let mut request = CreateRequest::from_image("local");
    request.timeout = Some(std::time::Duration::from_secs(600));
    request
        .metadata
        .insert("name".to_owned(), metadata.to_owned());
    let service = control.for_caller(Caller::server());
    let sandbox = service.create(request, None).await.unwrap().sandbox;
    control.shutdown(std::time::Duration::from_secs(5)).await;
    Arc::new(SandboxRecord {
        sandbox: (*sandbox).clone(),
        recipe: None,
    })
}

pub(super) fn event(record: &SandboxRecord, message: &str) -> Event {
    Event {
        tenant: lifecycle::Tenant::default(),
        id: 0,
        at: NOW,
        kind: EventKind::StateChanged,
        sandbox_id: Some(record.sandbox.id.clone()),
        snapshot_id: None,
        state: Some(record.sandbox.status.state),
        reason: "R".to_owned(),
        message: message.to_owned(),
        expires_at: None,
    }
}

/// One batch that must be written; the numbers of its events.
pub(super) async fn write(store: &dyn Store, writes: Vec<Write>) -> Vec<i64> {
    match &store.apply(&[Batch { writes }]).await.unwrap()[..] {
        [BatchOutcome::Written(numbers)] => numbers.clone(),
        other => panic!("{other:?}"),
    }
}

/// As text, because records hold secrets that cannot be compared.
pub(super) fn names(contents: &Contents) -> Vec<String> {
    contents
        .sandboxes
        .iter()
        .map(|r| r.sandbox.metadata["name"].clone())
        .collect()
}
