//! What a new server makes of what the last one left.

use std::time::Duration;

use api::egress::policy::EgressPolicy;
use jiff::SignedDuration;
use lifecycle::backend::{Backend as _, Exit, ObservedState, Spec, Target};
use lifecycle::fake::{Backend, Call, Fault, Store};
use lifecycle::{CreateRequest, Error, Reason, SandboxFilter, SnapshotState, State, labels};
use secrecy::ExposeSecret;

use crate::{EPOCH, World, local, remote, settle};

#[tokio::test(start_paused = true)]
async fn sandboxes_and_their_lifetimes_are_taken_up() {
    let world = World::new().await;
    let running = world.running().await;
    let paused = world.running().await;
    world.service.pause(&paused.id).await.unwrap();
    let world = world.restart().await;
    let again = world.service.get(&running.id).unwrap();
    assert_eq!(again.status.state, State::Running);
    assert_eq!(again.expires_at, running.expires_at);
    assert_eq!(
        again.access_token.expose_secret(),
        running.access_token.expose_secret()
    );
    assert_eq!(
        world.service.get(&paused.id).unwrap().status.state,
        State::Paused
    );
    world
        .service
        .connect(&running.id, Target::Control, Duration::ZERO)
        .await
        .unwrap();
    tokio::time::advance(Duration::from_secs(601)).await;
    settle().await;
    assert_eq!(
        world
            .service
            .list(&SandboxFilter::default(), 1, 10)
            .total_items,
        0
    );
    assert!(world.backend.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_expired_while_no_server_ran_goes_at_once() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.control.shutdown(Duration::from_secs(1)).await;
    tokio::time::advance(Duration::from_secs(3600)).await;
    let world = World::with(world.backend, world.store, world.clock).await;
    settle().await;
    assert!(world.service.get(&id).is_err());
    assert!(world.backend.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_ended_while_no_server_ran_is_noticed() {
    let world = World::new().await;
    let (gone, ended) = (
        world.running().await.id.clone(),
        world.running().await.id.clone(),
    );
    world.control.shutdown(Duration::from_secs(1)).await;
    world.backend.vanish(&gone, false);
    let exit = Exit {
        code: Some(7),
        signal: None,
        oom_killed: false,
        at: None,
    };
    world.backend.set_state(&ended, ObservedState::Exited(exit));
    let world = World::with(world.backend, world.store, world.clock).await;
    let vanished = world.until(&gone, State::Failed).await;
    assert_eq!(vanished.status.reason, Reason::ContainerVanished);
    let ended = world.until(&ended, State::Failed).await;
    assert_eq!(ended.exit.as_ref().and_then(|exit| exit.code), Some(7));
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_a_crash_cut_short_is_taken_up_again() {
    let world = World::new().await;
    world.backend.fail_next(Call::Pull, Fault::Hang);
    let mut request = remote();
    request.env.insert("A".to_owned(), "b".to_owned());
    let id = world
        .service
        .create(request, None)
        .await
        .unwrap()
        .sandbox
        .id
        .clone();
    // No graceful end: the old service is simply not asked any more, and its calls hang.
    let next = World::with(
        world.backend.clone(),
        world.store.clone(),
        world.clock.clone(),
    )
    .await;
    let ready = next
        .service
        .wait_ready(&id, Duration::from_secs(60))
        .await
        .unwrap();
    assert_eq!(ready.status.state, State::Running);
    assert_eq!(next.backend.sandboxes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_half_made_sandbox_is_removed_and_made_again() {
    let world = World::new().await;
    world.backend.fail_next(Call::Create, Fault::Hang);
    let service = world.service.clone();
    let asked = tokio::spawn(async move { service.create(local(), None).await });
    settle().await;
    assert_eq!(world.backend.sandboxes().len(), 1);
    asked.abort();
    let next = World::with(
        world.backend.clone(),
        world.store.clone(),
        world.clock.clone(),
    )
    .await;
    let all = next.service.list(&SandboxFilter::default(), 1, 10);
    assert_eq!(all.total_items, 1);
    let id = all.items[0].id.clone();
    let ready = next
        .service
        .wait_ready(&id, Duration::from_secs(60))
        .await
        .unwrap();
    assert_eq!(ready.status.state, State::Running);
    assert_eq!(
        next.backend.sandboxes().into_values().collect::<Vec<_>>(),
        [ObservedState::Running]
    );
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_a_crash_cut_short_is_finished() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.backend.fail_next(Call::Delete, Fault::Hang);
    let service = world.service.clone();
    let of = id.clone();
    let asked = tokio::spawn(async move { service.delete(&of).await });
    settle().await;
    asked.abort();
    let next = World::with(
        world.backend.clone(),
        world.store.clone(),
        world.clock.clone(),
    )
    .await;
    settle().await;
    assert!(next.service.get(&id).is_err());
    assert!(next.backend.sandboxes().is_empty());
}

fn stray(id: &str, owner: &str, store: &str) -> Spec {
    let request = CreateRequest::from_image("local");
    Spec {
        id: id.parse().unwrap(),
        source: request.source,
        platform: None,
        entrypoint: None,
        env: request.env,
        limits: request.limits,
        volumes: vec![],
        network: EgressPolicy::ALLOW_ALL,
        access_token: "t".to_owned().into(),
        labels: [(labels::CONTROL_PLANE, owner), (labels::STORE, store)]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
    }
}

#[tokio::test(start_paused = true)]
async fn orphans_of_this_store_go_and_those_of_others_stay() {
    let (backend, store) = (Backend::new(), Store::new());
    let identity = lifecycle::store::Store::load(&store)
        .await
        .unwrap()
        .identity;
    let world = World::on(backend, store).await;
    world
        .backend
        .create(stray("ours", "opensandbox", &identity))
        .await
        .unwrap();
    world
        .backend
        .create(stray("foreign", "opensandbox", "another store"))
        .await
        .unwrap();
    world
        .backend
        .create(stray("unrelated", "another owner", &identity))
        .await
        .unwrap();
    let world = world.restart().await;
    settle().await;
    let left: Vec<_> = world
        .backend
        .sandboxes()
        .into_keys()
        .map(|id| id.to_string())
        .collect();
    assert_eq!(left, ["foreign", "unrelated"]);
    let events = world
        .service
        .events(&"ours".parse().unwrap(), 10)
        .await
        .unwrap();
    assert_eq!(events[0].reason, "ORPHAN_REMOVED");
}

#[tokio::test(start_paused = true)]
async fn a_lost_store_costs_no_sandbox() {
    let world = World::new().await;
    let mut request = local();
    request.metadata.insert("job".to_owned(), "7".to_owned());
    let before = world.service.create(request, None).await.unwrap().sandbox;
    let paused = world.running().await.id.clone();
    world.service.pause(&paused).await.unwrap();
    let snapshot = world
        .service
        .create_snapshot(&before.id, None)
        .await
        .unwrap();
    tokio::time::advance(Duration::from_secs(300)).await;
    world.control.shutdown(Duration::from_secs(1)).await;
    world.store.lose();
    let world = World::with(world.backend, world.store, world.clock).await;
    let adopted = world.until(&before.id, State::Running).await;
    assert_eq!(adopted.metadata, before.metadata);
    assert_eq!(adopted.created_at, before.created_at);
    assert_eq!(
        adopted.access_token.expose_secret(),
        before.access_token.expose_secret()
    );
    let whole = EPOCH + SignedDuration::from_secs(300 + 600);
    assert_eq!(
        adopted.expires_at,
        Some(whole),
        "its whole lifetime once more"
    );
    world.until(&paused, State::Paused).await;
    assert_eq!(
        world.service.get_snapshot(&snapshot.id).unwrap().state,
        SnapshotState::Ready
    );
    settle().await;
    let world = world.restart().await;
    assert_eq!(
        world
            .service
            .list(&SandboxFilter::default(), 1, 10)
            .total_items,
        2,
        "and kept"
    );
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_a_crash_cut_short_is_what_the_backend_says() {
    for (fault, wanted) in [
        (Fault::Hang, SnapshotState::Failed),
        (Fault::WorkAndHang, SnapshotState::Ready),
    ] {
        let world = World::new().await;
        let id = world.running().await.id.clone();
        world.backend.fail_next(Call::Snapshot, fault);
        let creating = world.service.create_snapshot(&id, None).await.unwrap();
        assert_eq!(creating.state, SnapshotState::Creating);
        let next = World::with(
            world.backend.clone(),
            world.store.clone(),
            world.clock.clone(),
        )
        .await;
        assert_eq!(
            next.service.get_snapshot(&creating.id).unwrap().state,
            wanted
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_does_not_answer_does_not_keep_the_server_from_starting() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.control.shutdown(Duration::from_secs(1)).await;
    world.backend.fail_next(Call::List, Fault::Hang);
    let begun = tokio::time::Instant::now();
    let world = World::with(world.backend, world.store, world.clock).await;
    assert!(begun.elapsed() <= Duration::from_secs(11));
    assert_eq!(world.service.get(&id).unwrap().status.state, State::Running);
}

#[tokio::test(start_paused = true)]
async fn a_stopping_service_refuses_new_work_and_leaves_sandboxes_alone() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.control.shutdown(Duration::from_secs(1)).await;
    assert!(matches!(
        world.service.create(local(), None).await,
        Err(Error::ShuttingDown)
    ));
    assert!(matches!(
        world.service.delete(&id).await,
        Err(Error::ShuttingDown)
    ));
    assert_eq!(world.backend.sandboxes().len(), 1);
}
