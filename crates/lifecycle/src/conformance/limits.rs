//! What a sandbox may use.

use super::world::{Failure, SOON, World, ensure};
use super::{Case, case};
use crate::backend::{Event, Limits, ObservedState, Spec};

const MIB: u64 = 1 << 20;

/// Reads zeros into memory until something stops it.
const EAT_MEMORY: &str = "tail /dev/zero";

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            an_entrypoint_that_eats_memory_is_killed_and_told_apart,
            [Shell, Limits]
        ),
        case!(
            a_command_that_eats_memory_leaves_the_sandbox_alive,
            [Shell, Limits]
        ),
        case!(a_crash_is_no_lack_of_memory, [Shell, Limits]),
        case!(processes_are_limited, [Shell, Limits]),
        case!(open_files_are_limited, [Shell, Limits]),
        case!(a_limit_hits_no_neighbour, [Shell, Limits]),
        case!(the_disk_is_limited, [Shell, DiskLimit]),
        case!(limits_outlive_the_server, [Shell, Limits]),
    ]
}

fn limited(spec: Spec, limits: Limits) -> Spec {
    Spec { limits, ..spec }
}

fn memory(mib: u64) -> Limits {
    Limits {
        memory_bytes: Some(mib * MIB),
        ..Limits::default()
    }
}

async fn an_entrypoint_that_eats_memory_is_killed_and_told_apart(
    world: &World,
) -> Result<(), Failure> {
    let events = world.backend().events();
    let made = world
        .create(limited(world.script(EAT_MEMORY), memory(48)))
        .await?;
    let exit = world.until_exited(&made.id, events).await?;
    ensure!(exit.oom_killed, "told as {exit:?}");
    Ok(())
}

async fn a_command_that_eats_memory_leaves_the_sandbox_alive(world: &World) -> Result<(), Failure> {
    let mut events = world.backend().events();
    let made = world.create(limited(world.spec(), memory(48))).await?;
    let output = world.exec(&made, EAT_MEMORY).await?;
    ensure!(output.code != Some(0), "it was not stopped: {output:?}");
    let told = async {
        loop {
            match events.recv().await {
                Ok(Event::OutOfMemory { id }) if id == made.id => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(Failure::from(error)),
            }
        }
    };
    let told = tokio::time::timeout(SOON, told).await;
    told.map_err(|_| Failure("no event told of it".to_owned()))??;
    let state = world.backend().inspect(&made.id).await?.state;
    ensure!(state == ObservedState::Running, "the sandbox is {state:?}");
    let seen = world.output(&made, "echo alive").await?;
    ensure!(seen == "alive\n", "{seen:?}");
    Ok(())
}

async fn a_crash_is_no_lack_of_memory(world: &World) -> Result<(), Failure> {
    let events = world.backend().events();
    let made = world
        .create(limited(world.script("kill -KILL $$"), memory(64)))
        .await?;
    let exit = world.until_exited(&made.id, events).await?;
    ensure!(!exit.oom_killed, "told as {exit:?}");
    Ok(())
}

async fn processes_are_limited(world: &World) -> Result<(), Failure> {
    let limits = Limits {
        pids: Some(40),
        ..Limits::default()
    };
    let made = world.create(limited(world.spec(), limits)).await?;
    // In a plain sh, because bash tries again for half a minute.
    let bomb = "sh -c 'i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; echo all'";
    let output = world.exec(&made, bomb).await?;
    ensure!(
        !output.stdout.contains("all") || output.stderr.to_lowercase().contains("fork"),
        "200 processes were started: {output:?}"
    );
    world.delete(&made.id).await
}

async fn open_files_are_limited(world: &World) -> Result<(), Failure> {
    let limits = Limits {
        open_files: Some(123),
        ..Limits::default()
    };
    let made = world.create(limited(world.spec(), limits)).await?;
    let seen = world.output(&made, "ulimit -n").await?;
    ensure!(seen.trim() == "123", "the limit is {seen:?}");
    Ok(())
}

async fn a_limit_hits_no_neighbour(world: &World) -> Result<(), Failure> {
    let greedy = world.create(limited(world.spec(), memory(48))).await?;
    let neighbour = world.create(limited(world.spec(), memory(48))).await?;
    world.exec(&greedy, EAT_MEMORY).await?;
    let seen = world.output(&neighbour, "echo alive").await?;
    ensure!(seen == "alive\n", "{seen:?}");
    Ok(())
}

async fn the_disk_is_limited(world: &World) -> Result<(), Failure> {
    let limits = Limits {
        disk_bytes: Some(32 * MIB),
        ..Limits::default()
    };
    let made = world.create(limited(world.spec(), limits)).await?;
    let output = world
        .exec(&made, "dd if=/dev/zero of=/big bs=1048576 count=64")
        .await?;
    ensure!(output.code != Some(0), "64 MiB were written: {output:?}");
    Ok(())
}

async fn limits_outlive_the_server(world: &World) -> Result<(), Failure> {
    let made = world.create(limited(world.spec(), memory(48))).await?;
    world.reopen().await;
    let output = world.exec(&made, EAT_MEMORY).await?;
    ensure!(output.code != Some(0), "it was not stopped: {output:?}");
    Ok(())
}
