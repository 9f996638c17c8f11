//! Sandboxes outlive the server: a backend that is opened anew finds everything again.

use super::ports::reach;
use super::world::{Failure, SOON, World, ensure};
use super::{Case, case};
use crate::backend::{LogQuery, ObservedState};

/// A port no image listens on.
const PORT: u16 = 34_568;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(a_running_sandbox_is_found_again, []),
        case!(a_found_sandbox_runs_commands, [Shell]),
        case!(a_paused_sandbox_is_found_paused, [Pause]),
        case!(a_found_sandbox_has_its_ports, [Listen]),
        case!(a_found_sandbox_has_its_logs, [Shell]),
        case!(an_end_while_nobody_looked_is_found, [Shell, HostVolumes]),
        case!(a_found_sandbox_tells_its_end, [Shell]),
        case!(a_found_sandbox_can_be_deleted, []),
        case!(a_deleted_sandbox_does_not_come_back, []),
        case!(a_snapshot_is_found_again, [Snapshot]),
    ]
}

async fn a_running_sandbox_is_found_again(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    let before = world.backend().inspect(&made.id).await?;
    world.reopen().await;
    let after = world.backend().inspect(&made.id).await?;
    ensure!(
        after.state == ObservedState::Running,
        "it is {:?}",
        after.state
    );
    ensure!(
        after.labels == before.labels,
        "its labels are {:?}",
        after.labels
    );
    ensure!(
        after.started_at == before.started_at,
        "it started at {:?}",
        after.started_at
    );
    let listed = world.backend().list().await?;
    ensure!(
        listed.iter().any(|observed| observed.id == made.id),
        "it is not listed"
    );
    Ok(())
}

async fn a_found_sandbox_runs_commands(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    world.output(&made, "echo kept > /tmp/file").await?;
    world.reopen().await;
    let seen = world.output(&made, "cat /tmp/file").await?;
    ensure!(seen == "kept\n", "{seen:?}");
    Ok(())
}

async fn a_paused_sandbox_is_found_paused(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    world.backend().pause(&made.id).await?;
    world.reopen().await;
    let state = world.backend().inspect(&made.id).await?.state;
    ensure!(state == ObservedState::Paused, "it is {state:?}");
    world.backend().resume(&made.id).await?;
    let state = world.backend().inspect(&made.id).await?.state;
    ensure!(state == ObservedState::Running, "it is {state:?}");
    Ok(())
}

async fn a_found_sandbox_has_its_ports(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    world.reopen().await;
    reach(world, &made, PORT).await
}

async fn a_found_sandbox_has_its_logs(world: &World) -> Result<(), Failure> {
    let events = world.backend().events();
    let made = world
        .create(world.script("echo before the restart"))
        .await?;
    world.until_exited(&made.id, events).await?;
    world.reopen().await;
    let query = LogQuery {
        tail_lines: 100,
        since: None,
        max_bytes: 1 << 16,
    };
    let logs = world.backend().logs(&made.id, query).await?;
    ensure!(logs.text.contains("before the restart"), "{:?}", logs.text);
    Ok(())
}

async fn an_end_while_nobody_looked_is_found(world: &World) -> Result<(), Failure> {
    let directory = world.directory()?;
    let mut spec = world
        .script("mkfifo /mnt/volume/go; echo up > /mnt/volume/up; read x < /mnt/volume/go; exit 5");
    spec.volumes.push(world.host_volume(&directory, false));
    let made = world.create(spec).await?;
    world
        .output(&made, "until [ -s /mnt/volume/up ]; do :; done")
        .await?;
    let fifo = directory.join("go");
    // The entrypoint ends between two servers. Opening the pipe waits for its reader.
    let opened = world
        .reopen_after(tokio::task::spawn_blocking(move || {
            std::fs::write(fifo, "go\n")
        }))
        .await?;
    opened?;
    let events = world.backend().events();
    let exit = world.until_exited(&made.id, events).await?;
    // Who was not there may not know how, but must not invent it.
    ensure!(
        matches!(exit.code, Some(5) | None),
        "it is said to have ended with {exit:?}"
    );
    Ok(())
}

async fn a_found_sandbox_tells_its_end(world: &World) -> Result<(), Failure> {
    let made = world
        .create(world.script("mkfifo /tmp/go; read x < /tmp/go; exit 6"))
        .await?;
    world.reopen().await;
    let events = world.backend().events();
    let go = "until [ -p /tmp/go ]; do :; done; echo go > /tmp/go";
    // The daemon ends with the entrypoint, so this command's own end may be cut off.
    let _ = tokio::time::timeout(SOON, world.exec(&made, go)).await;
    let exit = world.until_exited(&made.id, events).await?;
    ensure!(
        matches!(exit.code, Some(6) | None),
        "it is said to have ended with {exit:?}"
    );
    Ok(())
}

async fn a_found_sandbox_can_be_deleted(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    world.reopen().await;
    world.delete(&made.id).await
}

async fn a_deleted_sandbox_does_not_come_back(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    world.delete(&made.id).await?;
    world.reopen().await;
    let listed = world.backend().list().await?;
    ensure!(
        listed.iter().all(|observed| observed.id != made.id),
        "it is back"
    );
    Ok(())
}

async fn a_snapshot_is_found_again(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    let id = world.snapshot_id();
    world.backend().snapshot(&made.id, &id).await?;
    world.reopen().await;
    let listed = world.backend().list_snapshots().await?;
    ensure!(
        listed.iter().any(|details| details.id == id),
        "it is not listed"
    );
    Ok(())
}
