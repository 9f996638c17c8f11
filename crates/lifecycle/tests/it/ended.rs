//! What is left of a sandbox that is gone, and how it is told.

use std::time::Duration;

use jiff::SignedDuration;
use lifecycle::backend::{Exit, LogQuery};
use lifecycle::event::{AuditEntry, AuditQuery};
use lifecycle::{ENDED_KEPT, Error, State};

use crate::{World, settle};

const ALL: LogQuery = LogQuery {
    tail_lines: 100,
    since: None,
    max_bytes: 1 << 20,
};

async fn audited(world: &World, id: &api::id::SandboxId) -> Vec<AuditEntry> {
    let query = AuditQuery {
        target: Some(id.to_string()),
        limit: 10,
        ..AuditQuery::default()
    };
    world.service.audit_entries(&query).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_reason_and_the_last_output_are_kept_for_a_day_and_across_a_restart() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.backend.log(&id, "one\ntwo\n");
    tokio::time::advance(Duration::from_secs(601)).await;
    world.until_gone(&id).await;
    settle().await;
    let world = world.restart().await;
    let absent = world.service.get(&id).unwrap_err();
    assert!(
        matches!(&absent, Error::NotFound(absent) if absent.ended.is_some()),
        "{absent}"
    );
    let told = absent.to_string();
    assert!(
        told.contains("SANDBOX_EXPIRED") && told.contains("lifetime"),
        "{told}"
    );
    let logs = world.service.logs(&id, ALL).await.unwrap();
    assert_eq!(logs.text, "one\ntwo\n");
    let mut followed = world.service.follow_logs(&id, ALL).await.unwrap();
    assert_eq!(followed.recv().await.as_deref(), Some("one\ntwo\n"));
    assert_eq!(followed.recv().await, None);
    world.clock.jump(ENDED_KEPT + SignedDuration::from_secs(1));
    assert!(world.service.logs(&id, ALL).await.is_err());
    let forgotten = world.service.get(&id).unwrap_err().to_string();
    assert!(!forgotten.contains("EXPIRED"), "{forgotten}");
}

#[tokio::test(start_paused = true)]
async fn how_an_entrypoint_ended_is_remembered_when_the_sandbox_is_deleted() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    let exit = Exit {
        code: Some(3),
        signal: None,
        oom_killed: false,
        at: None,
    };
    world.backend.exit(&id, exit);
    world.until(&id, State::Failed).await;
    world.service.delete(&id).await.unwrap();
    let told = world.service.get(&id).unwrap_err().to_string();
    assert!(told.contains("exit code 3"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_asked_for_is_in_the_audit_trail() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.backend.out_of_memory(&id);
    settle().await;
    tokio::time::advance(Duration::from_secs(601)).await;
    world.until_gone(&id).await;
    settle().await;
    let told: Vec<_> = audited(&world, &id)
        .await
        .into_iter()
        .rev()
        .map(|entry| (entry.actor, entry.action, entry.message.is_some()))
        .collect();
    let by_system = |action: &str| ("system".to_owned(), action.to_owned(), true);
    assert_eq!(
        told,
        [by_system("sandbox.oom"), by_system("sandbox.expire")]
    );
}
