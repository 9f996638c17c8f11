//! What both stores keep.

use std::sync::Arc;

use api::id::{SandboxId, SnapshotId};
use jiff::SignedDuration;
use lifecycle::event::{AuditEntry, AuditQuery};
use lifecycle::store::{Batch, BatchOutcome, KeyRecord, Store, Write};
use lifecycle::{ApiKey, ENDED_MAX, Ended, EndedRecord, Reason, Snapshot, SnapshotState, Tenant};
use secrecy::ExposeSecret;

use super::server::PostgresServer;
use super::{NOW, event, names, record, write};
use crate::store::{Postgres, Sqlite};

#[tokio::test]
async fn sqlite_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/er/store.db");
    let store = Sqlite::open(&path).await.unwrap();
    let identity = keeps_everything(&store).await;
    drop(store);
    let store = Sqlite::open(&path).await.unwrap();
    is_still_there(&store, &identity).await;
}

#[tokio::test]
async fn postgresql_keeps_the_contract() {
    let Some(server) = PostgresServer::start().await else {
        return;
    };
    let store = Postgres::open(&server.dsn()).await.unwrap();
    let identity = keeps_everything(&store).await;
    let second = Postgres::open(&server.dsn()).await;
    assert!(matches!(
        second.err(),
        Some(lifecycle::store::Error::Locked { .. })
    ));
    store.close().await;
    let store = Postgres::open(&server.dsn()).await.unwrap();
    is_still_there(&store, &identity).await;
}

async fn keeps_everything(store: &dyn Store) -> String {
    let empty = store.load().await.unwrap();
    assert!(empty.sandboxes.is_empty() && empty.snapshots.is_empty());
    assert!(!empty.is_settled);
    assert_eq!(empty.last_event, 0);
    sandboxes(store).await;
    snapshots(store).await;
    keys(store).await;
    events(store).await;
    audit(store).await;
    keys_and_tenants(store).await;
    ended(store).await;
    write(store, vec![Write::Settle]).await;
    store.health().await.unwrap();
    empty.identity
}

async fn is_still_there(store: &dyn Store, identity: &str) {
    let contents = store.load().await.unwrap();
    assert_eq!(contents.identity, identity);
    assert!(contents.is_settled);
    assert_eq!(names(&contents), ["kept"]);
    assert!(contents.last_event >= 5);
    assert_eq!(contents.snapshots.len(), 1);
}

async fn sandboxes(store: &dyn Store) {
    let (kept, gone) = (record("kept").await, record("gone").await);
    let writes = vec![
        Write::PutSandbox(kept.clone()),
        Write::PutSandbox(gone.clone()),
    ];
    write(store, writes).await;
    let mut changed = (*kept).clone();
    changed.sandbox.expires_at = Some(NOW + SignedDuration::from_hours(1));
    changed.sandbox.status.message = "it's \"quoted\" \u{1f980}".to_owned();
    let removal = Write::RemoveSandbox(gone.sandbox.id.clone());
    write(
        store,
        vec![Write::PutSandbox(changed.clone().into()), removal.clone()],
    )
    .await;
    write(store, vec![removal]).await;
    let contents = store.load().await.unwrap();
    assert_eq!(names(&contents), ["kept"]);
    let back = &contents.sandboxes[0].sandbox;
    assert_eq!(back.expires_at, changed.sandbox.expires_at);
    assert_eq!(back.status, changed.sandbox.status);
    assert_eq!(
        back.access_token.expose_secret(),
        kept.sandbox.access_token.expose_secret()
    );
}

async fn snapshots(store: &dyn Store) {
    let id: SnapshotId = "snap".parse().unwrap();
    let snapshot = Snapshot {
        id: id.clone(),
        tenant: lifecycle::Tenant::default(),
        sandbox_id: "box".parse().unwrap(),
        name: Some("base".to_owned()),
        state: SnapshotState::Ready,
        reason: "r".to_owned(),
        message: "m".to_owned(),
        last_transition_at: NOW,
        created_at: NOW,
        size_bytes: Some(7),
    };
    let other = Snapshot {
        id: "other".parse().unwrap(),
        ..snapshot.clone()
    };
    let writes = [&snapshot, &other].map(|s| Write::PutSnapshot(s.clone().into()));
    write(store, writes.into()).await;
    write(store, vec![Write::RemoveSnapshot(other.id)]).await;
    assert_eq!(store.load().await.unwrap().snapshots, [snapshot]);
}

async fn keys(store: &dyn Store) {
    let claim = |sandbox: &str, hours| {
        let record = KeyRecord {
            key: "who\nkey".to_owned(),
            fingerprint: "f".to_owned(),
            sandbox_id: sandbox.parse().unwrap(),
            expires_at: NOW + SignedDuration::from_hours(24 + hours),
        };
        Write::ClaimKey {
            record,
            now: NOW + SignedDuration::from_hours(hours),
        }
    };
    write(store, vec![claim("first", 0)]).await;
    write(store, vec![claim("first", 0)]).await;
    // A batch that is refused writes nothing; its neighbours are written.
    let ghost = record("ghost").await;
    let refused = Batch {
        writes: vec![claim("second", 1), Write::PutSandbox(ghost.clone())],
    };
    let neighbour = Batch {
        writes: vec![Write::AppendEvent(event(&ghost, "neighbour"))],
    };
    let outcomes = store
        .apply(&[neighbour.clone(), refused, neighbour])
        .await
        .unwrap();
    let first: SandboxId = "first".parse().unwrap();
    assert!(matches!(&outcomes[1], BatchOutcome::KeyTaken(used) if used.sandbox_id == first));
    assert!(matches!(
        (&outcomes[0], &outcomes[2]),
        (BatchOutcome::Written(_), BatchOutcome::Written(_))
    ));
    assert_eq!(names(&store.load().await.unwrap()), ["kept"]);
    // An expired use gives way, a released one too.
    write(store, vec![claim("third", 25)]).await;
    let used = store.key("who\nkey").await.unwrap().unwrap();
    assert_eq!(used.sandbox_id.as_str(), "third");
    assert_eq!(used.expires_at, NOW + SignedDuration::from_hours(49));
    write(store, vec![Write::ReleaseKeys(used.sandbox_id)]).await;
    assert_eq!(store.key("who\nkey").await.unwrap(), None);
    write(store, vec![claim("fourth", 0)]).await;
    let prune = Write::Prune {
        keys_before: NOW + SignedDuration::from_hours(100),
        ended_before: NOW,
        keep_events: 1000,
        keep_audit: 1000,
    };
    write(store, vec![prune]).await;
    assert_eq!(store.key("who\nkey").await.unwrap(), None);
}

async fn events(store: &dyn Store) {
    let of = record("events").await;
    let before = store.load().await.unwrap().last_event;
    let append = |n: i32| Write::AppendEvent(event(&of, &n.to_string()));
    let numbers = write(store, (0..10).map(append).collect()).await;
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]) && numbers[0] > before);
    let after = store.events_after(numbers[3], 4).await.unwrap();
    let messages: Vec<_> = after.iter().map(|e| e.message.as_str()).collect();
    assert_eq!(messages, ["4", "5", "6", "7"]);
    assert_eq!(after[0].id, numbers[4]);
    let last = store.events_of(&of.sandbox.id, 2).await.unwrap();
    assert_eq!(
        last.iter().map(|e| e.message.as_str()).collect::<Vec<_>>(),
        ["8", "9"]
    );
    let prune = Write::Prune {
        keys_before: NOW,
        ended_before: NOW,
        keep_events: 3,
        keep_audit: 1000,
    };
    write(store, vec![prune]).await;
    assert_eq!(store.oldest_event().await.unwrap(), Some(numbers[7]));
    let next = write(store, vec![append(10)]).await;
    assert!(next[0] > numbers[9], "numbers are never used again");
}

async fn audit(store: &dyn Store) {
    let entry = |n: usize| AuditEntry {
        id: 0,
        tenant: Tenant::default(),
        at: NOW,
        actor: ["ann", "bob"][n % 2].to_owned(),
        remote: Some("127.0.0.1".to_owned()),
        action: "sandbox.delete".to_owned(),
        target: (n != 4).then(|| format!("t{}", n % 3)),
        outcome: "ok".to_owned(),
        request_id: None,
        message: None,
    };
    write(
        store,
        (0..6).map(|n| Write::AppendAudit(entry(n))).collect(),
    )
    .await;
    let query = |target: Option<&str>, actor: Option<&str>, before, limit| AuditQuery {
        tenant: Tenant::default(),
        target: target.map(str::to_owned),
        actor: actor.map(str::to_owned),
        before,
        limit,
    };
    let all = store.audit(&query(None, None, None, 100)).await.unwrap();
    assert_eq!(all.len(), 6);
    assert!(
        all.windows(2).all(|pair| pair[0].id > pair[1].id),
        "newest first"
    );
    let page = store
        .audit(&query(None, Some("ann"), Some(all[1].id), 10))
        .await
        .unwrap();
    assert_eq!(
        page.iter().map(|e| e.target.as_deref()).collect::<Vec<_>>(),
        [Some("t2"), Some("t0")]
    );
    let of = store
        .audit(&query(Some("t2"), None, None, 1))
        .await
        .unwrap();
    assert_eq!((of.len(), of[0].actor.as_str()), (1, "bob"));
    let failed = AuditEntry {
        outcome: "FAILED".to_owned(),
        ..entry(5)
    };
    write(store, vec![Write::AmendAudit(failed)]).await;
    let of = store.audit(&query(Some("t2"), None, None, 9)).await;
    let outcomes: Vec<_> = of.unwrap().into_iter().map(|it| it.outcome).collect();
    assert_eq!(outcomes, ["FAILED", "ok"], "only the newest");
    let other: Tenant = "other".parse().unwrap();
    let theirs = AuditEntry {
        tenant: other.clone(),
        outcome: "THEIRS".to_owned(),
        ..entry(5)
    };
    write(store, vec![Write::AmendAudit(theirs.clone())]).await;
    write(store, vec![Write::AppendAudit(theirs)]).await;
    let ours = store.audit(&query(Some("t2"), None, None, 9)).await;
    let outcomes: Vec<_> = ours.unwrap().into_iter().map(|it| it.outcome).collect();
    assert_eq!(outcomes, ["FAILED", "ok"], "another tenant's are not there");
    let query = AuditQuery {
        tenant: other,
        ..query(None, None, None, 9)
    };
    assert_eq!(store.audit(&query).await.unwrap().len(), 1);
}

async fn keys_and_tenants(store: &dyn Store) {
    let key = |name: &str| ApiKey {
        id: "id".into(),
        name: name.into(),
        tenant: "other".parse().unwrap(),
        role: lifecycle::Role::User,
        scope: Arc::new(lifecycle::Scope {
            images: vec!["python*".to_owned()],
            ..lifecycle::Scope::default()
        }),
        hash: [7; 32],
        previous: Some(lifecycle::PreviousHash {
            hash: [8; 32],
            until: NOW,
        }),
        created_at: NOW,
        expires_at: Some(NOW),
        parent: Some("parent".into()),
        last_used_at: None,
    };
    let tenant = lifecycle::TenantRecord {
        name: "other".parse().unwrap(),
        created_at: NOW,
        is_given: false,
    };
    let touch = |id: &str| Write::TouchApiKey {
        id: id.into(),
        at: NOW.as_second(),
    };
    let put = |name| Write::PutApiKey(Arc::new(key(name)));
    let put_tenant = Write::PutTenant(Arc::new(tenant.clone()));
    write(
        store,
        vec![put("old"), touch("id"), touch("no"), put_tenant],
    )
    .await;
    write(store, vec![put("new")]).await;
    let kept = store.load().await.unwrap();
    let used = ApiKey {
        last_used_at: jiff::Timestamp::from_second(NOW.as_second()).ok(),
        ..key("new")
    };
    assert_eq!((kept.api_keys, kept.tenants), (vec![used], vec![tenant]));
    let remove_tenant = Write::RemoveTenant("other".parse().unwrap());
    write(store, vec![Write::RemoveApiKey("id".into()), remove_tenant]).await;
    let kept = store.load().await.unwrap();
    assert!(kept.api_keys.is_empty() && kept.tenants.is_empty());
}

async fn ended(store: &dyn Store) {
    let sandbox = record("gone").await.sandbox.clone();
    let gone = |at: i64| EndedRecord {
        ended: Ended {
            sandbox_id: sandbox.id.clone(),
            tenant: sandbox.tenant.clone(),
            origin: sandbox.origin.clone(),
            created_at: NOW,
            ended_at: NOW + SignedDuration::from_secs(at),
            reason: Reason::SandboxExpired,
            message: format!("{at}"),
        },
        // What a program may write, and a database refuse as text.
        logs: "nothing\0is lost\u{1F600}\n".to_owned(),
        is_truncated: true,
    };
    let put = |at| Write::PutEnded(Arc::new(gone(at)));
    write(store, vec![put(1)]).await;
    let kept = store.ended(&sandbox.id).await.unwrap();
    assert_eq!(kept, Some(gone(1)));
    assert_eq!(store.load().await.unwrap().ended, [gone(1).ended]);
    let more = (2..i64::from(ENDED_MAX) + 10).map(put).collect();
    write(store, more).await;
    let kept = store.load().await.unwrap().ended;
    assert_eq!(kept.len(), ENDED_MAX as usize);
    assert_eq!(kept[0].message, "10", "the oldest go first");
    let prune = Write::Prune {
        keys_before: NOW,
        ended_before: NOW + SignedDuration::from_secs(i64::from(ENDED_MAX)),
        keep_events: 1000,
        keep_audit: 1000,
    };
    write(store, vec![prune]).await;
    assert_eq!(store.load().await.unwrap().ended.len(), 10);
}
