//! Freezing and thawing.

use super::world::{Failure, World, ensure};
use super::{Case, case};
use crate::backend::{ConnectError, Error, ObservedState, Target};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(a_paused_sandbox_says_so, [Pause]),
        case!(a_paused_sandbox_cannot_be_reached, [Pause]),
        case!(a_resumed_sandbox_goes_on_where_it_was, [Pause, Shell]),
        case!(pausing_and_resuming_can_be_repeated, [Pause]),
        case!(a_paused_sandbox_can_be_deleted, [Pause]),
        case!(an_unknown_sandbox_cannot_be_paused, [Pause]),
        case!(an_ended_sandbox_cannot_be_paused, [Pause, Shell]),
    ]
}

async fn a_paused_sandbox_says_so(world: &World) -> Result<(), Failure> {
    let made = world.create(world.spec()).await?;
    world.backend().pause(&made.id).await?;
    let state = world.backend().inspect(&made.id).await?.state;
    ensure!(state == ObservedState::Paused, "it is {state:?}");
    world.backend().resume(&made.id).await?;
    let state = world.backend().inspect(&made.id).await?.state;
    ensure!(state == ObservedState::Running, "it is {state:?}");
    Ok(())
}

async fn a_paused_sandbox_cannot_be_reached(world: &World) -> Result<(), Failure> {
    let made = world.create(world.spec()).await?;
    world.backend().pause(&made.id).await?;
    match world.backend().connect(&made.id, Target::Control).await {
        Err(ConnectError::Paused) => Ok(()),
        Err(other) => Err(Failure(format!("told as {other:?}"))),
        Ok(_) => Err(Failure("it was opened".to_owned())),
    }
}

async fn a_resumed_sandbox_goes_on_where_it_was(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    // A variable of a live process: only one that went on still has it.
    let command = "mkfifo /tmp/ask /tmp/answer; \
                   (secret=kept; while read q < /tmp/ask; do echo $secret > /tmp/answer; done) \
                   > /dev/null 2>&1 & echo started";
    world.output(&made, command).await?;
    world.backend().pause(&made.id).await?;
    world.backend().resume(&made.id).await?;
    let answer = world
        .output(&made, "echo > /tmp/ask; cat /tmp/answer")
        .await?;
    ensure!(answer.trim_end() == "kept", "{answer:?}");
    Ok(())
}

async fn pausing_and_resuming_can_be_repeated(world: &World) -> Result<(), Failure> {
    let made = world.create(world.spec()).await?;
    for _ in 0..2 {
        world.backend().pause(&made.id).await?;
        world.backend().pause(&made.id).await?;
        world.backend().resume(&made.id).await?;
        world.backend().resume(&made.id).await?;
    }
    let state = world.backend().inspect(&made.id).await?.state;
    ensure!(state == ObservedState::Running, "it is {state:?}");
    Ok(())
}

async fn a_paused_sandbox_can_be_deleted(world: &World) -> Result<(), Failure> {
    let made = world.create(world.spec()).await?;
    world.backend().pause(&made.id).await?;
    world.delete(&made.id).await
}

async fn an_unknown_sandbox_cannot_be_paused(world: &World) -> Result<(), Failure> {
    let unknown = world.spec().id;
    let paused = world.backend().pause(&unknown).await;
    ensure!(
        matches!(paused, Err(Error::NotFound(_))),
        "pause says {paused:?}"
    );
    let resumed = world.backend().resume(&unknown).await;
    ensure!(
        matches!(resumed, Err(Error::NotFound(_))),
        "resume says {resumed:?}"
    );
    Ok(())
}

async fn an_ended_sandbox_cannot_be_paused(world: &World) -> Result<(), Failure> {
    let events = world.backend().events();
    let made = world.create(world.script("exit 0")).await?;
    world.until_exited(&made.id, events).await?;
    let paused = world.backend().pause(&made.id).await;
    ensure!(
        matches!(paused, Err(Error::WrongState { .. })),
        "pause says {paused:?}"
    );
    Ok(())
}
