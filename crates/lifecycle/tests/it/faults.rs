//! Calls that hang or fail: every one ends, and the state stays honest.

use std::time::Duration;

use lifecycle::backend::{Error as BackendError, LogQuery, ObservedState, Target};
use lifecycle::fake::{Call, Fault, Gate, StoreFault};
use lifecycle::{Error, Reason, SandboxFilter, State, store};

use crate::{World, local, remote, settle};

fn broken() -> Fault {
    Fault::Fail(BackendError::Unavailable {
        backend: "fake",
        message: "down".to_owned(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_hangs_is_pending_then_failed() {
    let world = World::new().await;
    world.backend.fail_next(Call::Create, Fault::Hang);
    let sandbox = world.service.create(local(), None).await.unwrap().sandbox;
    assert_eq!(sandbox.status.state, State::Pending);
    let failed = world.until(&sandbox.id, State::Failed).await;
    assert_eq!(failed.status.reason, Reason::ContainerStartFailed);
    assert!(
        failed.status.message.contains("did not finish"),
        "{}",
        failed.status.message
    );
    world.service.delete(&sandbox.id).await.unwrap();
    settle().await;
    assert!(world.backend.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_succeeds_after_it_was_given_up_is_taken_back() {
    let world = World::new().await;
    // It is given up half-way between two reconciliations, which would find it as well.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let (gate, reached, open) = Gate::new();
    world.backend.fail_next(Call::Create, Fault::Wait(gate));
    let id = world
        .service
        .create(local(), None)
        .await
        .unwrap()
        .sandbox
        .id
        .clone();
    reached.await.unwrap();
    world.until(&id, State::Failed).await;
    open.send(()).unwrap();
    settle().await;
    assert!(
        world.backend.sandboxes().is_empty(),
        "nothing runs that was called failed"
    );
    assert_eq!(world.service.get(&id).unwrap().status.state, State::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_delete_during_a_pull_does_not_wait_for_it() {
    let world = World::new().await;
    world.backend.fail_next(Call::Pull, Fault::Hang);
    let id = world
        .service
        .create(remote(), None)
        .await
        .unwrap()
        .sandbox
        .id
        .clone();
    let begun = tokio::time::Instant::now();
    world.service.delete(&id).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(world.backend.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_delete_during_a_creation_that_hangs_goes_ahead_and_leaves_nothing() {
    let world = World::new().await;
    let (gate, reached, open) = Gate::new();
    world.backend.fail_next(Call::Create, Fault::Wait(gate));
    let service = world.service.clone();
    let asked = tokio::spawn(async move { service.create(local(), None).await });
    reached.await.unwrap();
    let id = world.service.list(&SandboxFilter::default(), 1, 1).items[0]
        .id
        .clone();
    let begun = tokio::time::Instant::now();
    world.service.delete(&id).await.unwrap();
    assert!(begun.elapsed() <= Duration::from_secs(10));
    assert!(matches!(asked.await.unwrap(), Err(Error::NotFound(_))));
    let _ = open.send(());
    settle().await;
    assert!(world.backend.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_fails_is_told_and_tried_again_until_it_works() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    for _ in 0..3 {
        world.backend.fail_next(Call::Delete, broken());
    }
    assert!(matches!(
        world.service.delete(&id).await,
        Err(Error::Backend(_))
    ));
    let stopping = world.service.get(&id).unwrap();
    assert_eq!(stopping.status.state, State::Stopping);
    assert!(stopping.status.message.contains("could not be deleted yet"));
    world.until_gone(&id).await;
    assert!(world.backend.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_hangs_ends_for_the_caller_and_is_tried_again() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.backend.fail_next(Call::Delete, Fault::Hang);
    let begun = tokio::time::Instant::now();
    assert!(matches!(
        world.service.delete(&id).await,
        Err(Error::Timeout { .. })
    ));
    assert!(
        begun.elapsed() <= Duration::from_secs(30),
        "clients wait 30 s"
    );
    world.until_gone(&id).await;
    assert!(world.backend.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_hangs_ends_in_what_the_backend_says() {
    for (fault, wanted) in [
        (Fault::Hang, State::Running),
        (Fault::WorkAndHang, State::Paused),
    ] {
        let world = World::new().await;
        let id = world.running().await.id.clone();
        world.backend.fail_next(Call::Pause, fault);
        assert!(matches!(
            world.service.pause(&id).await,
            Err(Error::Timeout { .. })
        ));
        world.until(&id, wanted).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_fails_leaves_it_running() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.backend.fail_next(Call::Pause, broken());
    assert!(matches!(
        world.service.pause(&id).await,
        Err(Error::Backend(_))
    ));
    assert_eq!(world.service.get(&id).unwrap().status.state, State::Running);
}

#[tokio::test(start_paused = true)]
async fn a_resume_that_fails_leaves_it_paused() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.service.pause(&id).await.unwrap();
    world.backend.fail_next(Call::Resume, broken());
    assert!(matches!(
        world.service.resume(&id).await,
        Err(Error::Backend(_))
    ));
    assert_eq!(world.service.get(&id).unwrap().status.state, State::Paused);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_lies_about_nothing_while_it_is_down_changes_nothing() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.backend.set_policy(Some(|call| {
        matches!(call, Call::List | Call::Inspect).then(broken)
    }));
    world.backend.resync();
    tokio::time::advance(Duration::from_secs(300)).await;
    settle().await;
    assert_eq!(world.service.get(&id).unwrap().status.state, State::Running);
}

#[tokio::test(start_paused = true)]
async fn one_sandbox_that_hangs_holds_up_no_other() {
    let world = World::new().await;
    let stuck = world.running().await.id.clone();
    world.backend.fail_next(Call::Pause, Fault::Hang);
    let service = world.service.clone();
    let of = stuck.clone();
    let asked = tokio::spawn(async move { service.pause(&of).await });
    settle().await;
    let begun = tokio::time::Instant::now();
    for _ in 0..20 {
        let id = world.running().await.id.clone();
        world.service.pause(&id).await.unwrap();
        world.service.delete(&id).await.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(
        world.service.get(&stuck).unwrap().status.state,
        State::Pausing
    );
    asked.abort();
}

#[tokio::test(start_paused = true)]
async fn more_questions_than_fit_are_refused_not_queued_for_ever() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    let (gate, reached, open) = Gate::new();
    world.backend.fail_next(Call::Snapshot, Fault::Wait(gate));
    let service = world.service.clone();
    let of = id.clone();
    let snapshot = tokio::spawn(async move { service.create_snapshot(&of, None).await });
    reached.await.unwrap();
    let asked: Vec<_> = (0..200)
        .map(|_| {
            let (service, of) = (world.service.clone(), id.clone());
            tokio::spawn(async move { service.pause(&of).await })
        })
        .collect();
    settle().await;
    open.send(()).unwrap();
    snapshot.await.unwrap().unwrap();
    let mut busy = 0;
    for answer in asked {
        if let Err(Error::Busy(_)) = answer.await.unwrap() {
            busy += 1;
        }
    }
    assert!(busy > 100, "{busy}");
}

#[tokio::test(start_paused = true)]
async fn questions_to_a_hanging_backend_end() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.backend.fail_next(Call::Connect, Fault::Hang);
    world.backend.fail_next(Call::Logs, Fault::Hang);
    world.backend.fail_next(Call::Health, Fault::Hang);
    let connect = world
        .service
        .connect(&id, Target::Control, Duration::ZERO)
        .await;
    assert!(matches!(connect, Err(Error::Timeout { .. })));
    let query = LogQuery {
        tail_lines: 1,
        since: None,
        max_bytes: 1,
    };
    assert!(matches!(
        world.service.logs(&id, query).await,
        Err(Error::Timeout { .. })
    ));
    let health = world.control.health().await;
    assert!(health.backend.is_err() && health.store.is_ok());
    assert!(world.control.health().await.backend.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_connection_refused_because_it_died_makes_the_owner_look() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.backend.vanish(&id, false);
    let connect = world
        .service
        .connect(&id, Target::Control, Duration::ZERO)
        .await;
    assert!(matches!(connect, Err(Error::Connect(_))));
    settle().await;
    assert_eq!(world.service.get(&id).unwrap().status.state, State::Failed);
}

fn full() -> StoreFault {
    StoreFault::Refuse(store::Error::Full {
        store: "memory",
        location: "m".to_owned(),
    })
}

#[tokio::test(start_paused = true)]
async fn nothing_is_acknowledged_that_the_store_refused() {
    let world = World::new().await;
    let sandbox = world.running().await;
    settle().await;
    let later = sandbox.expires_at.unwrap() + jiff::SignedDuration::from_secs(60);
    world.store.fail_next(full());
    let renew = world.service.renew(&sandbox.id, later).await;
    assert!(matches!(
        renew,
        Err(Error::Store(store::Error::Full { .. }))
    ));
    world.store.fail_next(full());
    let patch = [("a".to_owned(), Some("b".to_owned()))].into();
    let patched = world.service.patch_metadata(&sandbox.id, patch).await;
    assert!(matches!(patched, Err(Error::Store(_))));
    let read = || world.service.get(&sandbox.id).unwrap().metadata.clone();
    assert_eq!(read(), sandbox.metadata, "what was refused is not shown");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(read(), sandbox.metadata, "nor after the record was written");
    let text = world.store.text_of(&sandbox.id).unwrap();
    assert!(!text.contains(r#""a":"b""#), "{text}");
    let events = world.service.events(&sandbox.id, 100).await.unwrap();
    let is_change = |event: &lifecycle::event::Event| event.reason == "METADATA_CHANGED";
    assert!(!events.iter().any(is_change), "{events:?}");
    // Deleting works with a full disk as soon as one of its two writes gets through.
    world.store.fail_next(full());
    world.service.delete(&sandbox.id).await.unwrap();
    assert!(world.backend.sandboxes().is_empty());
    settle().await;
    assert!(world.store.text_of(&sandbox.id).is_none());
}

#[tokio::test(start_paused = true)]
async fn what_the_store_did_not_take_is_written_later() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    settle().await;
    world.store.fail_next(full());
    world.store.fail_next(full());
    world.service.pause(&id).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(world.store.text_of(&id).unwrap().contains("Paused"));
    let events = world.service.events(&id, 100).await.unwrap();
    assert!(
        events
            .iter()
            .any(|event| event.state == Some(State::Pausing)),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_ends_every_call() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    settle().await;
    world.store.fail_next(StoreFault::Hang);
    let later = crate::EPOCH + jiff::SignedDuration::from_secs(3600);
    let renew = world.service.renew(&id, later).await;
    assert!(matches!(
        renew,
        Err(Error::Store(store::Error::Timeout { .. }))
    ));
    world.store.fail_next(StoreFault::WriteAndHang);
    let created = world.service.create(local(), None).await;
    assert!(matches!(
        created,
        Err(Error::Store(store::Error::Timeout { .. }))
    ));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.backend.sandboxes().len(), 1);
    let kept = lifecycle::store::Store::load(&world.store)
        .await
        .unwrap()
        .sandboxes;
    assert_eq!(
        kept.len(),
        1,
        "what may have been written after all is removed"
    );
    assert_eq!(
        world.backend.sandboxes().into_values().next(),
        Some(ObservedState::Running)
    );
}
