//! What happens between creation and deletion.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use lifecycle::backend::{ConnectError, Exit, LogQuery, ObservedState, Target};
use lifecycle::fake::{Call, Fault, Gate};
use lifecycle::{
    CreateRequest, Error, Reason, SandboxFilter, SnapshotFilter, SnapshotState, State,
};

use crate::{EPOCH, World, local, settle};

fn exit(code: i32) -> Exit {
    Exit {
        code: Some(code),
        signal: None,
        oom_killed: false,
        at: None,
    }
}

#[tokio::test(start_paused = true)]
async fn pause_and_resume() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    let refused = world.service.resume(&id).await.unwrap_err();
    assert!(matches!(
        refused,
        Error::WrongState {
            state: State::Running,
            ..
        }
    ));
    world.service.pause(&id).await.unwrap();
    let paused = world.service.get(&id).unwrap();
    assert_eq!(
        (paused.status.state, paused.status.reason),
        (State::Paused, Reason::ContainerPaused)
    );
    assert!(matches!(
        world.service.pause(&id).await,
        Err(Error::WrongState { .. })
    ));
    let connect = world
        .service
        .connect(&id, Target::Control, Duration::from_secs(1))
        .await;
    assert!(matches!(connect, Err(Error::Connect(ConnectError::Paused))));
    world.service.resume(&id).await.unwrap();
    assert_eq!(world.service.get(&id).unwrap().status.state, State::Running);
    world
        .service
        .connect(&id, Target::Control, Duration::from_secs(1))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_delete_leaves_nothing_and_is_durable() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.service.delete(&id).await.unwrap();
    assert!(matches!(world.service.get(&id), Err(Error::NotFound(_))));
    assert!(matches!(
        world.service.delete(&id).await,
        Err(Error::NotFound(_))
    ));
    assert!(world.backend.sandboxes().is_empty());
    settle().await;
    assert!(world.store.text_of(&id).is_none());
    let events = world.service.events(&id, 100).await.unwrap();
    assert!(
        !events.is_empty(),
        "the story of a sandbox can be read after its end"
    );
}

#[tokio::test(start_paused = true)]
async fn two_deletes_at_once_both_succeed() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    let (gate, reached, open) = Gate::new();
    world.backend.fail_next(Call::Delete, Fault::Wait(gate));
    let (one, two) = (world.service.clone(), world.service.clone());
    let (a, b) = (id.clone(), id.clone());
    let first = tokio::spawn(async move { one.delete(&a).await });
    reached.await.unwrap();
    let second = tokio::spawn(async move { two.delete(&b).await });
    settle().await;
    assert_eq!(
        world.service.get(&id).unwrap().status.state,
        State::Stopping
    );
    open.send(()).unwrap();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(world.backend.calls(Call::Delete), 1);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_expires_on_the_second() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    tokio::time::advance(Duration::from_millis(599_990)).await;
    settle().await;
    assert_eq!(world.service.get(&id).unwrap().status.state, State::Running);
    tokio::time::advance(Duration::from_millis(20)).await;
    settle().await;
    assert!(world.service.get(&id).is_err(), "gone at its expiration");
    assert!(world.backend.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_paused_sandbox_expires_too() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.service.pause(&id).await.unwrap();
    tokio::time::advance(Duration::from_secs(601)).await;
    world.until_gone(&id).await;
}

#[tokio::test(start_paused = true)]
async fn renewal_moves_the_end_both_ways() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    let past = EPOCH - SignedDuration::from_secs(1);
    assert!(matches!(
        world.service.renew(&id, past).await,
        Err(Error::ExpirationInPast)
    ));
    let later = EPOCH + SignedDuration::from_secs(1200);
    assert_eq!(world.service.renew(&id, later).await.unwrap(), later);
    assert!(
        world
            .store
            .text_of(&id)
            .unwrap()
            .contains(&later.to_string()),
        "kept"
    );
    tokio::time::advance(Duration::from_secs(900)).await;
    settle().await;
    assert!(world.service.get(&id).is_ok());
    let sooner = EPOCH + SignedDuration::from_secs(910);
    world.service.renew(&id, sooner).await.unwrap();
    tokio::time::advance(Duration::from_secs(11)).await;
    world.until_gone(&id).await;
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_was_acknowledged_never_loses_against_the_expiry() {
    for moment in [599_999_u64, 600_000, 600_001] {
        let world = World::new().await;
        let id = world.running().await.id.clone();
        tokio::time::advance(Duration::from_millis(moment)).await;
        let later = EPOCH + SignedDuration::from_secs(1200);
        match world.service.renew(&id, later).await {
            Ok(_) => {
                tokio::time::advance(Duration::from_secs(60)).await;
                settle().await;
                assert_eq!(world.service.get(&id).unwrap().status.state, State::Running);
            }
            Err(error) => assert!(
                matches!(error, Error::NotFound(_) | Error::WrongState { .. }),
                "{moment}: {error}"
            ),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn manual_clean_up_never_expires_and_cannot_be_renewed() {
    let world = World::new().await;
    let request = CreateRequest::from_image("local");
    let id = world
        .service
        .create(request, None)
        .await
        .unwrap()
        .sandbox
        .id
        .clone();
    tokio::time::advance(Duration::from_secs(10 * 365 * 24 * 3600)).await;
    settle().await;
    assert!(world.service.get(&id).is_ok());
    let later = EPOCH + SignedDuration::from_hours(24 * 365 * 20);
    assert!(matches!(
        world.service.renew(&id, later).await,
        Err(Error::NoExpiration(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn access_renews_those_who_asked_for_it() {
    let world = World::new().await;
    let request = CreateRequest {
        renew_on_access: Some(Duration::from_secs(700)),
        ..local()
    };
    let id = world
        .service
        .create(request, None)
        .await
        .unwrap()
        .sandbox
        .id
        .clone();
    let other = world.running().await.id.clone();
    tokio::time::advance(Duration::from_secs(500)).await;
    for _ in 0..50 {
        world.service.touch(&id);
        world.service.touch(&other);
    }
    settle().await;
    let expires_at = world.service.get(&id).unwrap().expires_at;
    assert_eq!(expires_at, Some(EPOCH + SignedDuration::from_secs(1200)));
    let writes = world.store.groups_written();
    world.service.touch(&id);
    settle().await;
    assert_eq!(
        world.store.groups_written(),
        writes,
        "not again within the interval"
    );
    let unasked = world.service.get(&other).unwrap().expires_at;
    assert_eq!(unasked, Some(EPOCH + SignedDuration::from_secs(600)));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_entrypoint_is_told_apart() {
    let world = World::new().await;
    let cases = [
        (
            exit(0),
            State::Terminated,
            Reason::ContainerExited,
            "exit code 0",
        ),
        (
            exit(3),
            State::Failed,
            Reason::ContainerExitedError,
            "exit code 3",
        ),
        (
            Exit {
                code: None,
                signal: Some(11),
                oom_killed: false,
                at: None,
            },
            State::Failed,
            Reason::ContainerExitedError,
            "signal 11",
        ),
        (
            Exit {
                code: None,
                signal: Some(9),
                oom_killed: true,
                at: None,
            },
            State::Failed,
            Reason::ContainerOomKilled,
            "out of memory",
        ),
    ];
    for (exit, state, reason, text) in cases {
        let id = world.running().await.id.clone();
        world.backend.exit(&id, exit);
        let ended = world.until(&id, state).await;
        assert_eq!(ended.status.reason, reason);
        assert!(
            ended.status.message.contains(text),
            "{}",
            ended.status.message
        );
        let connect = world
            .service
            .connect(&id, Target::Control, Duration::from_secs(1))
            .await;
        assert!(matches!(connect, Err(Error::WrongState { .. })));
        assert!(matches!(
            world.service.pause(&id).await,
            Err(Error::WrongState { .. })
        ));
        world.service.delete(&id).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_vanishes_is_failed_whether_told_or_not() {
    for is_told in [true, false] {
        let world = World::new().await;
        let id = world.running().await.id.clone();
        world.backend.vanish(&id, is_told);
        if !is_told {
            tokio::time::advance(Duration::from_secs(61)).await;
        }
        let failed = world.until(&id, State::Failed).await;
        assert_eq!(failed.status.reason, Reason::ContainerVanished);
        world.service.delete(&id).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_behind_our_back_is_found_and_reported() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.backend.set_state(&id, ObservedState::Paused);
    world.backend.resync();
    world.until(&id, State::Paused).await;
    settle().await;
    let events = world.service.events(&id, 100).await.unwrap();
    assert!(
        events
            .iter()
            .any(|e| e.kind == lifecycle::event::EventKind::Repaired),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn metadata_is_merged_and_kept() {
    let world = World::new().await;
    let mut request = local();
    request.metadata = BTreeMap::from([
        ("a".to_owned(), "1".to_owned()),
        ("b".to_owned(), "2".to_owned()),
    ]);
    let id = world
        .service
        .create(request, None)
        .await
        .unwrap()
        .sandbox
        .id
        .clone();
    let patch = BTreeMap::from([
        ("a".to_owned(), None),
        ("c".to_owned(), Some("3".to_owned())),
    ]);
    let patched = world.service.patch_metadata(&id, patch).await.unwrap();
    let wanted = BTreeMap::from([
        ("b".to_owned(), "2".to_owned()),
        ("c".to_owned(), "3".to_owned()),
    ]);
    assert_eq!(patched.metadata, wanted);
    let world = world.restart().await;
    assert_eq!(world.service.get(&id).unwrap().metadata, wanted);
    let filter = SandboxFilter {
        states: vec![State::Running],
        metadata: wanted,
    };
    assert_eq!(world.service.list(&filter, 1, 10).total_items, 1);
    let filter = SandboxFilter {
        states: vec![State::Paused],
        ..filter
    };
    assert_eq!(world.service.list(&filter, 1, 10).total_items, 0);
}

#[tokio::test(start_paused = true)]
async fn many_patches_at_once_are_all_kept() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    let patches = (0..40).map(|n| {
        let patch = BTreeMap::from([(format!("k{n}"), Some(n.to_string()))]);
        world.service.patch_metadata(&id, patch)
    });
    let done = futures_util::future::join_all(patches).await;
    assert!(done.iter().all(Result::is_ok));
    assert_eq!(world.service.get(&id).unwrap().metadata.len(), 40);
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_made_listed_used_and_removed() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    let name = Some("base".to_owned());
    let snapshot = world
        .service
        .create_snapshot(&id, name.clone())
        .await
        .unwrap();
    assert_eq!(
        (snapshot.state, snapshot.reason.as_str()),
        (SnapshotState::Creating, "snapshot_accepted"),
        "however quick it was"
    );
    let snapshot = world.service.get_snapshot(&snapshot.id).unwrap();
    assert_eq!(snapshot.state, SnapshotState::Ready);
    assert_eq!(snapshot.size_bytes, Some(4096));
    let filter = SnapshotFilter {
        name,
        ..SnapshotFilter::default()
    };
    assert_eq!(world.service.list_snapshots(&filter, 1, 10).total_items, 1);
    let request = CreateRequest {
        source: lifecycle::backend::Source::Snapshot(snapshot.id.clone()),
        ..CreateRequest::from_image("")
    };
    let copy = world.service.create(request, None).await.unwrap().sandbox;
    let in_use = world
        .service
        .delete_snapshot(&snapshot.id)
        .await
        .unwrap_err();
    assert!(matches!(&in_use, Error::Backend(e)
        if matches!(**e, lifecycle::backend::Error::InUse { .. })));
    assert_eq!(
        world.service.get_snapshot(&snapshot.id).unwrap().state,
        SnapshotState::Ready
    );
    world.service.delete(&copy.id).await.unwrap();
    world.service.delete_snapshot(&snapshot.id).await.unwrap();
    assert!(matches!(
        world.service.get_snapshot(&snapshot.id),
        Err(Error::SnapshotNotFound(_))
    ));
    let world = world.restart().await;
    assert_eq!(
        world
            .service
            .list_snapshots(&SnapshotFilter::default(), 1, 10)
            .total_items,
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_a_paused_sandbox_is_refused_and_leaves_no_row() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.service.pause(&id).await.unwrap();
    let refused = world.service.create_snapshot(&id, None).await.unwrap_err();
    assert!(matches!(
        refused,
        Error::WrongState {
            action: "snapshot",
            ..
        }
    ));
    assert_eq!(
        world
            .service
            .list_snapshots(&SnapshotFilter::default(), 1, 10)
            .total_items,
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_pause_during_a_snapshot_waits_its_turn() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    let (gate, reached, open) = Gate::new();
    world.backend.fail_next(Call::Snapshot, Fault::Wait(gate));
    let service = world.service.clone();
    let of = id.clone();
    let snapshot = tokio::spawn(async move { service.create_snapshot(&of, None).await });
    reached.await.unwrap();
    let service = world.service.clone();
    let of = id.clone();
    let pause = tokio::spawn(async move { service.pause(&of).await });
    settle().await;
    assert_eq!(world.backend.calls(Call::Pause), 0);
    open.send(()).unwrap();
    snapshot.await.unwrap().unwrap();
    pause.await.unwrap().unwrap();
    assert_eq!(world.service.get(&id).unwrap().status.state, State::Paused);
}

#[tokio::test(start_paused = true)]
async fn logs_and_descriptions() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.backend.log(&id, "one\ntwo\nthree\n");
    let query = LogQuery {
        tail_lines: 2,
        since: None,
        max_bytes: 1024,
    };
    let logs = world.service.logs(&id, query).await.unwrap();
    assert_eq!((logs.text.as_str(), logs.truncated), ("two\nthree\n", true));
    assert!(
        world
            .service
            .describe(&id)
            .await
            .unwrap()
            .contains("running")
    );
    let gone = "gone".parse().unwrap();
    assert!(matches!(
        world.service.logs(&gone, query).await,
        Err(Error::NotFound(_))
    ));
}
