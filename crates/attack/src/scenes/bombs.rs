//! Programs that use up whatever they get.

use std::fs;

use lifecycle::backend::{Backend, Event, Limits};

use crate::case::Verdict;
use crate::world::{Setup, World};

const MEMORY_BYTES: u64 = 64 << 20;
const DISK_BYTES: u64 = 32 << 20;
/// What `/dev/shm` may hold.
const SHM_BYTES: u64 = 64 << 20;
/// More than execd keeps of an entrypoint's output, with room for what is on its way.
const LOG_BYTES_MAX: u64 = 32 << 20;

fn limited(limits: Limits) -> Setup {
    Setup {
        limits,
        ..Setup::default()
    }
}

/// After an attack the next sandbox is made and works as if nothing had been.
async fn and_others_go_on(world: &World, verdict: Verdict) -> Verdict {
    verdict.and(
        world
            .attack(&Setup::default(), &["nothing"])
            .await
            .verdict(),
    )
}

pub(crate) async fn forks(world: &World) -> Verdict {
    let setup = limited(Limits {
        pids: Some(64),
        ..Limits::default()
    });
    let verdict = world.attack(&setup, &["fork_bomb", "64"]).await.verdict();
    and_others_go_on(world, verdict).await
}

/// The process is killed, the sandbox lives to say so, and we are told.
pub(crate) async fn memory(world: &World) -> Verdict {
    let mut events = world.backend.events();
    let setup = limited(Limits {
        memory_bytes: Some(MEMORY_BYTES),
        ..Limits::default()
    });
    let outcome = world
        .attack(&setup, &["memory_bomb", &MEMORY_BYTES.to_string()])
        .await;
    let mut was_told = outcome.exit.oom_killed;
    while let Ok(event) = events.try_recv() {
        was_told |= matches!(event, Event::OutOfMemory { .. });
    }
    let verdict = outcome.verdict();
    let told = Verdict::of(was_told, || "nobody was told of the kill".to_owned());
    and_others_go_on(world, verdict.and(told)).await
}

pub(crate) async fn shared_memory(world: &World) -> Verdict {
    let words = ["shm_bomb", &SHM_BYTES.to_string()];
    world.attack(&Setup::default(), &words).await.verdict()
}

/// Files in memory belong to no process, so the kernel may have to kill all of them, PID 1
/// included: the sandbox is lost, and nothing else.
pub(crate) async fn inodes(world: &World) -> Verdict {
    let setup = limited(Limits {
        memory_bytes: Some(MEMORY_BYTES),
        ..Limits::default()
    });
    let outcome = world.attack(&setup, &["inode_bomb"]).await;
    let verdict = match outcome.exit.oom_killed {
        true => Verdict::Held,
        false => outcome.verdict(),
    };
    and_others_go_on(world, verdict).await
}

/// What a sandbox writes ends at its limit, in bytes and in files.
pub(crate) async fn disk(world: &World) -> Verdict {
    let setup = limited(Limits {
        disk_bytes: Some(DISK_BYTES),
        ..Limits::default()
    });
    let words = ["disk_bomb", &DISK_BYTES.to_string()];
    let bytes = world.attack(&setup, &words).await.verdict();
    let files = world.attack(&setup, &["file_bomb"]).await.verdict();
    and_others_go_on(world, bytes.and(files)).await
}

pub(crate) async fn descriptors(world: &World) -> Verdict {
    let setup = limited(Limits {
        open_files: Some(256),
        ..Limits::default()
    });
    world.attack(&setup, &["fd_bomb", "256"]).await.verdict()
}

pub(crate) async fn log(world: &World) -> Verdict {
    let id = world.new_id();
    let outcome = world.attack_as(&id, &Setup::default(), &["log_bomb"]).await;
    let dir = world.data_dir().join(format!("sandboxes/{id}"));
    let kept: u64 = fs::read_dir(&dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .map(|found| found.len())
        .sum();
    world.delete(&id).await;
    let bounded = Verdict::of(kept <= LOG_BYTES_MAX, || {
        format!("{kept} bytes of log on the host")
    });
    outcome.verdict().and(bounded)
}

pub(crate) async fn threads(world: &World) -> Verdict {
    let setup = limited(Limits {
        pids: Some(64),
        ..Limits::default()
    });
    let verdict = world.attack(&setup, &["thread_bomb", "64"]).await.verdict();
    and_others_go_on(world, verdict).await
}

/// Told is what it may have, in thousandths of a processor.
pub(crate) async fn processor(world: &World) -> Verdict {
    const MILLIS: u64 = 100;
    let setup = limited(Limits {
        cpu_millis: Some(MILLIS),
        ..Limits::default()
    });
    let words = ["processor_hog", &MILLIS.to_string()];
    world.attack(&setup, &words).await.verdict()
}

pub(crate) async fn nameless_memory(world: &World) -> Verdict {
    let setup = limited(Limits {
        memory_bytes: Some(MEMORY_BYTES),
        ..Limits::default()
    });
    let words = ["nameless_memory", &MEMORY_BYTES.to_string()];
    let verdict = world.attack(&setup, &words).await.verdict();
    and_others_go_on(world, verdict).await
}

/// That nothing of it is left is looked at when all sandboxes are gone, and here already.
pub(crate) async fn deep_tree(world: &World) -> Verdict {
    let id = world.new_id();
    let outcome = world
        .attack_as(&id, &Setup::default(), &["deep_tree"])
        .await;
    world.delete(&id).await;
    world.backend.settled().await;
    let trash = fs::read_dir(world.data_dir().join("trash"));
    let left = trash.map(|entries| entries.count()).unwrap_or(0);
    outcome.verdict().and(Verdict::of(left == 0, || {
        "it could not be removed".to_owned()
    }))
}
