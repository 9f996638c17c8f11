//! The escape suite: hostile programs in real sandboxes, and what they must not be able to do.
//!
//! Each case runs one attack of `hostile.c` as the entrypoint of a fresh sandbox and asks how it
//! ended; some also look from outside. An attack must fail in the way its protection makes it
//! fail: one that fails otherwise proves nothing and counts as a failure. Afterwards the host
//! must be as it was.
//!
//! Needs root, a C compiler with a static libc, `ip`, and execd built beside the test program:
//! `make test-isolation`. `cargo test -p runtime --test escape -- mount` runs the cases whose name
//! contains `mount`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a failed unwrap is the test's failure, and the runner prints what it found"
)]

mod bombs;
mod cases;
mod egress;
mod hostile_images;
mod neighbours;
mod resources;
mod snapshot;
mod world;

#[path = "../deadline/mod.rs"]
mod deadline;

use std::process::ExitCode;

use deadline::{Deadline, TEST_DEADLINE, waiting_for};
use world::{Verdict, World};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().map(String::as_str) == Some("spawner") {
        runtime::spawner::main();
    }
    if arguments.first().map(String::as_str) == Some("egress-gate") {
        return runtime::gate::main(arguments.into_iter().skip(1).map(Into::into));
    }
    if let Some(missing) = world::missing_need() {
        if std::env::var_os("CI").is_some() {
            eprintln!("the escape suite cannot run: {missing}");
            return ExitCode::FAILURE;
        }
        eprintln!("SKIPPED, the escape suite did not run: {missing}");
        return ExitCode::SUCCESS;
    }
    let filter = arguments
        .into_iter()
        .find(|argument| !argument.starts_with('-'));
    world::leave_the_hosts_network();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be started");
    if runtime.block_on(run(filter.as_deref().unwrap_or(""))) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Longer than the wait for any one attack, of which a case may make a few, and shorter than the
/// last resort.
const CASE_DEADLINE: std::time::Duration = std::time::Duration::from_secs(240);

fn watch(test: &str) -> Deadline {
    Deadline::of(test, TEST_DEADLINE, world::kill_sandboxes)
}

/// Runs every case whose name contains `filter`; whether all held.
async fn run(filter: &str) -> bool {
    let before = snapshot::of_the_host();
    waiting_for("the backend and its image");
    let opening = watch("opening the world");
    let world = World::open().await;
    drop(opening);
    let (mut count, mut failed) = (0, Vec::new());
    for case in cases::all() {
        if !case.name.contains(filter) {
            continue;
        }
        count += 1;
        waiting_for(format!("the attack {}", case.name));
        let _deadline = watch(case.name);
        let verdict = tokio::time::timeout(CASE_DEADLINE, (case.run)(&world)).await;
        let late = || Verdict::Broken(format!("      it did not end within {CASE_DEADLINE:?}"));
        match verdict.unwrap_or_else(|_| late()) {
            Verdict::Held => println!("ok    {:<12} {}", case.class, case.name),
            Verdict::Broken(why) => {
                println!("FAIL  {:<12} {}\n{why}", case.class, case.name);
                failed.push(case.name);
            }
        }
    }
    waiting_for("deleted sandboxes to be gone");
    let closing = watch("closing the world");
    let left = world.close().await;
    drop(closing);
    for (what, lines) in [
        ("left behind", left),
        ("changed", snapshot::changes(&before)),
    ] {
        if !lines.is_empty() {
            println!("FAIL  host         {what}:\n  {}", lines.join("\n  "));
            failed.push("host");
        }
    }
    println!(
        "\n{} of {count} attacks were stopped; failed: {failed:?}",
        count - failed.len()
    );
    failed.is_empty() && count > 0
}
