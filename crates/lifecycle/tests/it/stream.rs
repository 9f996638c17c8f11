//! The live event stream and the audit trail.

use std::time::Duration;

use lifecycle::Live;
use lifecycle::event::{AuditEntry, AuditQuery, EventKind};

use crate::{EPOCH, World, settle};

async fn next(stream: &mut lifecycle::Subscription) -> Live {
    tokio::time::timeout(Duration::from_secs(5), stream.next())
        .await
        .expect("an event comes")
        .expect("the service is up")
        .expect("the store answers")
}

async fn next_event(stream: &mut lifecycle::Subscription) -> lifecycle::event::Event {
    match next(stream).await {
        Live::Event(event) => (*event).clone(),
        Live::Gap { after } => panic!("a gap after {after}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_back_misses_nothing() {
    let world = World::new().await;
    let mut live = world.service.subscribe(None).await.unwrap();
    let id = world.running().await.id.clone();
    let created = next_event(&mut live).await;
    assert_eq!(
        (created.kind, created.sandbox_id.as_ref()),
        (EventKind::Created, Some(&id))
    );
    drop(live);
    world.service.pause(&id).await.unwrap();
    world.service.delete(&id).await.unwrap();
    let mut resumed = world.service.subscribe(Some(created.id)).await.unwrap();
    let mut last = created.id;
    let mut states = Vec::new();
    loop {
        let event = next_event(&mut resumed).await;
        assert!(event.id > last, "in order, each once");
        last = event.id;
        states.push((event.kind, event.state.map(|state| state.as_str())));
        if event.kind == EventKind::Deleted {
            break;
        }
    }
    let wanted = ["Running", "Pausing", "Paused", "Stopping"];
    let seen: Vec<_> = states
        .iter()
        .filter(|(kind, _)| *kind == EventKind::StateChanged)
        .filter_map(|(_, state)| *state)
        .collect();
    assert_eq!(seen, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_falls_behind_reads_from_the_store() {
    let world = World::new().await;
    let mut live = world.service.subscribe(None).await.unwrap();
    let id = world.running().await.id.clone();
    for _ in 0..2000 {
        world.backend.out_of_memory(&id);
        if world.store.groups_written() % 8 == 0 {
            settle().await;
        }
        tokio::task::yield_now().await;
    }
    settle().await;
    world.service.delete(&id).await.unwrap();
    let mut last = 0;
    loop {
        let event = next_event(&mut live).await;
        assert!(
            event.id == last + 1 || last == 0,
            "{} after {last}",
            event.id
        );
        last = event.id;
        if event.kind == EventKind::Deleted {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_number_from_a_lost_store_is_a_gap_and_not_silence() {
    let world = World::new().await;
    let mut live = world.service.subscribe(Some(9_999)).await.unwrap();
    assert!(matches!(next(&mut live).await, Live::Gap { after: 9_999 }));
    let id = world.running().await.id.clone();
    assert_eq!(next_event(&mut live).await.sandbox_id, Some(id));
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_service() {
    let world = World::new().await;
    let mut live = world.service.subscribe(None).await.unwrap();
    world.control.shutdown(Duration::from_secs(1)).await;
    assert!(live.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_audit_trail_is_kept_and_read_page_by_page() {
    let world = World::new().await;
    for n in 0..5 {
        let entry = AuditEntry {
            tenant: lifecycle::Tenant::default(),
            id: 0,
            at: EPOCH,
            actor: if n % 2 == 0 { "ann" } else { "bob" }.to_owned(),
            remote: None,
            action: "sandbox.create".to_owned(),
            target: Some(format!("s{n}")),
            outcome: "ok".to_owned(),
            request_id: None,
            message: None,
        };
        world.control.audit(entry).await.unwrap();
    }
    let world = world.restart().await;
    let query = AuditQuery {
        actor: Some("ann".to_owned()),
        limit: 2,
        ..AuditQuery::default()
    };
    let first = world.service.audit_entries(&query).await.unwrap();
    let targets = |page: &[AuditEntry]| {
        page.iter()
            .filter_map(|e| e.target.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(targets(&first), ["s4", "s2"]);
    let query = AuditQuery {
        before: Some(first[1].id),
        ..query
    };
    assert_eq!(
        targets(&world.service.audit_entries(&query).await.unwrap()),
        ["s0"]
    );
}
