//! Who asked for a change is written together with the change.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use lifecycle::event::{AuditEntry, AuditQuery};
use lifecycle::fake::{Call, Fault, StoreFault};
use lifecycle::{AuditContext, Caller, Service, store};

use crate::{World, local};

fn asked(action: &str) -> AuditContext {
    AuditContext::new(AuditEntry {
        tenant: lifecycle::Tenant::default(),
        id: 0,
        at: Timestamp::UNIX_EPOCH,
        actor: "somebody".to_owned(),
        remote: None,
        action: action.to_owned(),
        target: None,
        outcome: String::new(),
        request_id: None,
        message: None,
    })
}

fn acting(world: &World, audit: &AuditContext) -> Service {
    let caller = Caller::operator("somebody").with_audit(audit.clone());
    world.control.for_caller(caller)
}

#[tokio::test(start_paused = true)]
async fn every_change_is_one_write_with_who_asked_for_it() {
    let world = World::new().await;
    let by = ["create", "patch", "renew", "snapshot", "forget", "delete"].map(asked);
    let [create, patch, renew, snapshot, forget, delete] = &by;
    let on = |by: &AuditContext| acting(&world, by);

    let made = on(create).create(local(), None).await.unwrap();
    let id = &made.sandbox.id;
    let label = BTreeMap::from([("a".to_owned(), Some("b".to_owned()))]);
    on(patch).patch_metadata(id, label).await.unwrap();
    let later = made.sandbox.expires_at.unwrap() + Duration::from_secs(60);
    on(renew).renew(id, later).await.unwrap();
    let kept = on(snapshot).create_snapshot(id, None).await.unwrap();
    on(forget).delete_snapshot(&kept.id).await.unwrap();
    on(delete).delete(id).await.unwrap();

    for by in &by {
        assert!(by.is_recorded(), "{by:?}");
    }
    let names = ["create", "patch", "renew", "snapshot", "forget", "delete"];
    let wanted = names.map(|name| (name.to_owned(), true));
    assert_eq!(world.store.audited(), wanted);
    let query = AuditQuery {
        target: Some(id.to_string()),
        limit: 10,
        ..AuditQuery::default()
    };
    let entries = world.service.audit_entries(&query).await.unwrap();
    let outcomes: Vec<_> = entries.iter().map(|entry| &*entry.outcome).collect();
    assert_eq!(outcomes, [AuditEntry::OK; 4]);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_done_is_not_recorded_as_done() {
    let world = World::new().await;
    let made = world.running().await;
    let renew = asked("renew");
    let past = made.created_at - Duration::from_secs(60);
    let service = acting(&world, &renew);
    service.renew(&made.id, past).await.unwrap_err();
    assert!(!renew.is_recorded());

    let full = store::Error::Full {
        store: "memory",
        location: "nowhere".into(),
    };
    world.store.fail_next(StoreFault::Refuse(full));
    let patch = asked("patch");
    let service = acting(&world, &patch);
    let label = BTreeMap::from([("a".to_owned(), Some("b".to_owned()))]);
    service.patch_metadata(&made.id, label).await.unwrap_err();
    assert!(!patch.is_recorded());

    // Later writes of the same sandbox do not bring it back.
    let later = made.expires_at.unwrap() + Duration::from_secs(60);
    world.service.renew(&made.id, later).await.unwrap();
    assert_eq!(world.store.audited(), []);
}

#[tokio::test(start_paused = true)]
async fn a_creation_is_recorded_when_it_is_accepted() {
    let world = World::new().await;
    world.backend.fail_next(Call::Create, Fault::Hang);
    let create = asked("create");
    let service = acting(&world, &create);
    let pending = service.create(local(), None).await.unwrap();
    assert!(create.is_recorded());
    assert_eq!(world.store.audited(), [("create".to_owned(), true)]);
    world.service.get(&pending.sandbox.id).unwrap();
}
