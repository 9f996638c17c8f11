//! Asking for sandboxes: readiness, pulls, keys, and clients that go away.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use lifecycle::backend::{Error as BackendError, Limits, Source, Target};
use lifecycle::event::EventKind;
use lifecycle::fake::{Backend, Call, Fault, Gate, Store, StoreFault};
use lifecycle::store::Store as _;
use lifecycle::{Caller, CreateRequest, Error, Feature, Reason, SandboxFilter, State, store};

use crate::{EPOCH, World, local, remote, settle};

#[tokio::test(start_paused = true)]
async fn a_local_image_is_answered_when_it_runs() {
    let world = World::new().await;
    let sandbox = world.running().await;
    assert_eq!(sandbox.status.reason, Reason::ContainerRunning);
    assert_eq!(
        sandbox.expires_at,
        Some(EPOCH + SignedDuration::from_secs(600))
    );
    assert_eq!(sandbox.entrypoint, Some(vec!["/bin/sh".to_owned()]));
    let text = world
        .store
        .text_of(&sandbox.id)
        .expect("acknowledged means kept");
    assert!(text.contains("\"recipe\""), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_record_is_durable_before_the_answer_and_secrets_go_when_it_is_made() {
    let world = World::new().await;
    let mut request = local();
    request.env = BTreeMap::from([("API_KEY".to_owned(), "hunter2".to_owned())]);
    let sandbox = world.service.create(request, None).await.unwrap().sandbox;
    assert!(world.store.text_of(&sandbox.id).is_some());
    settle().await;
    let text = world.store.text_of(&sandbox.id).unwrap();
    assert!(
        !text.contains("hunter2"),
        "the request's secrets are kept only until it is made"
    );
}

#[tokio::test(start_paused = true)]
async fn a_remote_image_is_answered_pending_and_the_pull_does_not_eat_the_lifetime() {
    let world = World::new().await;
    world
        .backend
        .fail_next(Call::Pull, Fault::Delay(Duration::from_secs(900)));
    let sandbox = world.service.create(remote(), None).await.unwrap().sandbox;
    assert_eq!(sandbox.status.state, State::Pending);
    assert_eq!(sandbox.status.reason, Reason::ImagePulling);
    assert!(
        world.store.text_of(&sandbox.id).is_some(),
        "acknowledged means kept"
    );
    let ready = world
        .service
        .wait_ready(&sandbox.id, Duration::from_secs(3600))
        .await
        .unwrap();
    assert_eq!(ready.status.state, State::Running);
    assert_eq!(
        ready.expires_at,
        Some(EPOCH + SignedDuration::from_secs(900 + 600))
    );
}

/// An image that the fake registry does not have.
const NOWHERE: &str = "nobody/has-this:1";

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_had_fails_the_request_itself_and_leaves_a_trace() {
    let world = World::new().await;
    let request = CreateRequest::from_image(NOWHERE);
    let error = world.service.create(request, None).await.unwrap_err();
    assert!(error.to_string().contains(NOWHERE), "{error}");
    settle().await;
    let events = world.store.events_after(0, 100).await.unwrap();
    let failed = events
        .iter()
        .find(|it| it.kind == EventKind::StateChanged && it.state == Some(State::Failed));
    let failed = failed.expect("a failed creation is recorded as failed");
    assert_eq!(failed.reason, Reason::ImagePullFailed.as_str());
    assert!(failed.message.contains(NOWHERE), "{}", failed.message);
}

#[tokio::test(start_paused = true)]
async fn a_slow_registry_is_waited_for_a_moment_and_its_refusal_told_to_whoever_connects() {
    let world = World::new().await;
    let slow = Fault::Delay(Duration::from_secs(20));
    world.backend.fail_next(Call::Pull, slow);
    let begun = tokio::time::Instant::now();
    let request = CreateRequest::from_image(NOWHERE);
    let sandbox = world.service.create(request, None).await.unwrap().sandbox;
    assert_eq!(sandbox.status.reason, Reason::ImagePulling);
    let held = begun.elapsed();
    assert!(
        held > Duration::from_secs(1) && held < Duration::from_secs(3),
        "{held:?}"
    );
    let wait = Duration::from_secs(25);
    let refused = world.service.wait_connectable(&sandbox.id, wait).await;
    let refused = refused.unwrap_err();
    assert!(
        matches!(
            refused,
            Error::WrongState {
                state: State::Failed,
                ..
            }
        ),
        "{refused}"
    );
    assert!(refused.to_string().contains(NOWHERE), "{refused}");
    let paused = world.service.pause(&sandbox.id).await.unwrap_err();
    assert!(paused.to_string().contains(NOWHERE), "{paused}");
}

#[tokio::test(start_paused = true)]
async fn creations_beyond_what_the_backend_takes_wait_and_their_time_has_not_begun() {
    let backend = Backend::new();
    backend.set_creations_max(1);
    let world = World::on(backend, Store::new()).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        // Of the 60 s that a creation may take.
        let slow = Fault::Delay(Duration::from_secs(50));
        world.backend.fail_next(Call::Create, slow);
        let asked = world.service.create(local(), None).await.unwrap();
        assert_eq!(asked.sandbox.status.state, State::Pending);
        ids.push(asked.sandbox.id.clone());
    }
    assert_eq!(world.backend.calls(Call::Create), 1);
    // The last one's turn comes 70 s after it was asked for.
    for id in &ids {
        let made = world
            .service
            .wait_ready(id, Duration::from_secs(600))
            .await
            .unwrap();
        assert_eq!(made.status.state, State::Running);
    }
}

#[tokio::test(start_paused = true)]
async fn connect_waits_for_readiness_and_gives_up_at_its_deadline() {
    let world = World::new().await;
    world
        .backend
        .fail_next(Call::Pull, Fault::Delay(Duration::from_secs(20)));
    let id = world
        .service
        .create(remote(), None)
        .await
        .unwrap()
        .sandbox
        .id
        .clone();
    let early = world
        .service
        .connect(&id, Target::Control, Duration::from_secs(5))
        .await;
    assert!(matches!(
        early,
        Err(Error::NotReady {
            state: State::Pending,
            ..
        })
    ));
    world
        .service
        .connect(&id, Target::Control, Duration::from_secs(60))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_fails_at_once_is_an_error_and_leaves_nothing() {
    let world = World::new().await;
    let fault = BackendError::Start {
        message: "no such program".to_owned(),
    };
    world.backend.fail_next(Call::Create, Fault::Fail(fault));
    let error = world.service.create(local(), Some("k")).await.unwrap_err();
    assert!(matches!(&error, Error::Backend(e) if matches!(**e, BackendError::Start { .. })));
    settle().await;
    assert_eq!(
        world
            .service
            .list(&SandboxFilter::default(), 1, 10)
            .total_items,
        0
    );
    assert!(world.store.load().await.unwrap().sandboxes.is_empty());
    let again = world.service.create(local(), Some("k")).await.unwrap();
    assert!(!again.is_replay, "a failed request gives its key back");
}

#[tokio::test(start_paused = true)]
async fn what_the_backend_cannot_do_is_refused_before_anything_is_made() {
    let world = World::new().await;
    let mut none = world.control.capabilities();
    none.gpu = false;
    world.backend.set_capabilities(none);
    let limits = Limits {
        gpus: Some(1),
        ..Limits::default()
    };
    let request = CreateRequest { limits, ..local() };
    let error = world.service.create(request, None).await.unwrap_err();
    assert!(matches!(
        error,
        Error::Unsupported {
            feature: Feature::Gpu,
            ..
        }
    ));
    assert_eq!(world.backend.calls(Call::Create), 0);
}

#[tokio::test(start_paused = true)]
async fn one_key_makes_one_sandbox() {
    let world = World::new().await;
    let first = world.service.create(local(), Some("a")).await.unwrap();
    let second = world.service.create(local(), Some("a")).await.unwrap();
    assert!(!first.is_replay && second.is_replay);
    assert_eq!(first.sandbox.id, second.sandbox.id);
    let other = CreateRequest {
        timeout: None,
        ..local()
    };
    let conflict = world.service.create(other, Some("a")).await.unwrap_err();
    assert!(matches!(conflict, Error::KeyConflict));
    let stranger = world.control.for_caller(Caller::operator("other"));
    let theirs = stranger.create(local(), Some("a")).await.unwrap();
    assert_ne!(theirs.sandbox.id, first.sandbox.id);
}

#[tokio::test(start_paused = true)]
async fn many_requests_at_once_with_one_key_make_one_sandbox() {
    let world = World::new().await;
    let all = (0..16).map(|_| world.service.create(local(), Some("same")));
    let made = futures_util::future::join_all(all).await;
    let ids: std::collections::HashSet<_> = made
        .into_iter()
        .map(|creation| creation.unwrap().sandbox.id.clone())
        .collect();
    assert_eq!(ids.len(), 1);
    settle().await;
    assert_eq!(world.backend.sandboxes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_outlives_a_restart_and_is_spent_with_its_sandbox() {
    let world = World::new().await;
    let first = world
        .service
        .create(local(), Some("a"))
        .await
        .unwrap()
        .sandbox;
    let world = world.restart().await;
    let again = world.service.create(local(), Some("a")).await.unwrap();
    assert!(again.is_replay);
    assert_eq!(again.sandbox.id, first.id);
    world.service.delete(&first.id).await.unwrap();
    let spent = world.service.create(local(), Some("a")).await.unwrap_err();
    assert!(matches!(spent, Error::KeySpent(id) if id == first.id));
}

#[tokio::test(start_paused = true)]
async fn a_key_is_forgotten_after_a_day() {
    let world = World::new().await;
    let request = CreateRequest::from_image("local");
    let first = world
        .service
        .create(request.clone(), Some("a"))
        .await
        .unwrap()
        .sandbox;
    tokio::time::advance(Duration::from_secs(24 * 3600 + 1)).await;
    let second = world.service.create(request, Some("a")).await.unwrap();
    assert!(!second.is_replay);
    assert_ne!(second.sandbox.id, first.id);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_leaves_a_sandbox_it_can_find() {
    let world = World::new().await;
    let (gate, reached, open) = Gate::new();
    world.backend.fail_next(Call::Create, Fault::Wait(gate));
    let mut request = local();
    request.metadata = BTreeMap::from([("job".to_owned(), "7".to_owned())]);
    let service = world.service.clone();
    let asked = tokio::spawn({
        let request = request.clone();
        async move { service.create(request, Some("gone")).await }
    });
    reached.await.unwrap();
    asked.abort();
    assert!(asked.await.unwrap_err().is_cancelled());
    open.send(()).unwrap();
    let filter = SandboxFilter {
        metadata: request.metadata.clone(),
        states: vec![],
    };
    let found = world.service.list(&filter, 1, 10);
    assert_eq!(found.total_items, 1);
    let by_key = world.service.create(request, Some("gone")).await.unwrap();
    assert!(by_key.is_replay);
    assert_eq!(by_key.sandbox.id, found.items[0].id);
    assert_eq!(by_key.sandbox.status.state, State::Running);
    assert_eq!(world.backend.sandboxes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_panics_fails_at_once() {
    let world = World::new().await;
    world.backend.fail_next(Call::Create, Fault::Panic);
    let begun = tokio::time::Instant::now();
    let error = world.service.create(local(), None).await.unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "no deadline is waited for"
    );
    world.running().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_creation_is_answered_pending_and_goes_on() {
    let world = World::new().await;
    world
        .backend
        .fail_next(Call::Create, Fault::Delay(Duration::from_secs(40)));
    let begun = tokio::time::Instant::now();
    let sandbox = world.service.create(local(), None).await.unwrap().sandbox;
    assert_eq!(sandbox.status.state, State::Pending);
    assert!(
        begun.elapsed() <= Duration::from_secs(16),
        "clients wait 30 s"
    );
    let ready = world
        .service
        .wait_ready(&sandbox.id, Duration::from_secs(60))
        .await
        .unwrap();
    assert_eq!(ready.status.state, State::Running);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_the_record_refuses_the_sandbox() {
    let full = store::Error::Full {
        store: "memory",
        location: "memory".to_owned(),
    };
    let world = World::on(Backend::new(), Store::new()).await;
    world.store.fail_next(StoreFault::Refuse(full));
    let error = world.service.create(local(), None).await.unwrap_err();
    assert!(matches!(error, Error::Store(store::Error::Full { .. })));
    settle().await;
    assert!(
        world.backend.sandboxes().is_empty(),
        "what nobody would know of is taken back"
    );
    assert_eq!(
        world
            .service
            .list(&SandboxFilter::default(), 1, 10)
            .total_items,
        0
    );
    world.running().await;
}

#[tokio::test(start_paused = true)]
async fn from_a_snapshot_only_when_it_is_ready() {
    let world = World::new().await;
    let request = |id: &str| CreateRequest {
        source: Source::Snapshot(id.parse().unwrap()),
        ..CreateRequest::from_image("")
    };
    let missing = world
        .service
        .create(request("none"), None)
        .await
        .unwrap_err();
    assert!(matches!(missing, Error::SnapshotNotFound(_)));
    let sandbox = world.running().await;
    world
        .backend
        .fail_next(Call::Snapshot, Fault::Delay(Duration::from_secs(60)));
    let creating = world
        .service
        .create_snapshot(&sandbox.id, None)
        .await
        .unwrap();
    let early = world
        .service
        .create(request(creating.id.as_str()), None)
        .await
        .unwrap_err();
    assert!(matches!(early, Error::SnapshotWrongState { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_at_once_all_come_to_be() {
    let world = World::new().await;
    let all = (0..1000).map(|_| world.service.create(local(), None));
    let made = futures_util::future::join_all(all).await;
    assert!(made.iter().all(Result::is_ok));
    assert_eq!(world.backend.sandboxes().len(), 1000);
    let groups = world.store.groups_written();
    assert!(
        groups < 500,
        "writes are grouped, not one commit each: {groups}"
    );
    let page = world.service.list(&SandboxFilter::default(), 3, 300);
    assert_eq!(
        (page.items.len(), page.total_items, page.total_pages()),
        (300, 1000, 4)
    );
    assert!(page.has_next_page());
}
