//! Lifetimes when somebody sets the wall clock.

use std::time::Duration;

use jiff::SignedDuration;
use lifecycle::State;

use crate::{EPOCH, World, settle};

#[tokio::test(start_paused = true)]
async fn a_clock_set_forward_kills_nothing_before_its_time() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    tokio::time::advance(Duration::from_secs(100)).await;
    world.clock.jump(SignedDuration::from_hours(5));
    settle().await;
    let sandbox = world.service.get(&id).unwrap();
    assert_eq!(sandbox.status.state, State::Running);
    let moved = EPOCH + SignedDuration::from_secs(600) + SignedDuration::from_hours(5);
    assert_eq!(
        sandbox.expires_at,
        Some(moved),
        "what clients see moves with the clock"
    );
    tokio::time::advance(Duration::from_secs(499)).await;
    settle().await;
    assert!(world.service.get(&id).is_ok());
    tokio::time::advance(Duration::from_secs(2)).await;
    world.until_gone(&id).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_back_makes_nothing_immortal() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    world.clock.jump(SignedDuration::from_hours(-24));
    tokio::time::advance(Duration::from_secs(601)).await;
    settle().await;
    assert!(world.service.get(&id).is_err());
}

#[tokio::test(start_paused = true)]
async fn jumps_that_follow_each_other_add_up() {
    let world = World::new().await;
    let id = world.running().await.id.clone();
    for hours in [7, -3, 20] {
        world.clock.jump(SignedDuration::from_hours(hours));
    }
    settle().await;
    let moved = EPOCH + SignedDuration::from_secs(600) + SignedDuration::from_hours(24);
    assert_eq!(world.service.get(&id).unwrap().expires_at, Some(moved));
    let world = world.restart().await;
    assert_eq!(
        world.service.get(&id).unwrap().expires_at,
        Some(moved),
        "and are kept"
    );
}
