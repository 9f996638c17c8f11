//! The Docker backend on a real engine.
//!
//! A program of its own, not the usual harness: it starts itself again beside an engine that
//! `tests/docker/engine` runs for it, kills and restarts that engine, and is also a server to be
//! killed. Arguments choose tests by a part of their name; CONFORMANCE chooses cases of the suite.
//! With OSB_TEST_RUNSC=1 the suite of all backends runs in gVisor, on its platform systrap, which
//! needs no KVM (`make test-gvisor`; not a part of `make test`, because it takes minutes and a Go to
//! build it with).

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test program: it panics to fail and prints to tell"
)]

mod conformance;
mod disk;
mod faults;
mod inside;
mod pulls;
mod stage;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use stage::Stage;

/// No test takes longer on a machine that is busy with others; one that does hangs. In gVisor every
/// sandbox takes seconds.
const TEST_MAX: Duration = Duration::from_secs(480);
const SECURE_TEST_MAX: Duration = Duration::from_secs(900);

type Test = (&'static str, fn(Stage) -> BoxFuture<'static, ()>);

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), |stage| $module::$name(stage).boxed())),*]
    };
}

const TESTS: &[Test] = tests![
    inside::an_image_with_nothing_but_a_program_works,
    inside::the_image_s_own_command_runs,
    inside::nothing_secret_is_in_the_configuration,
    inside::the_handoff_is_gone_and_execd_cannot_be_written,
    inside::every_kind_of_network_works,
    inside::privileges_are_dropped,
    inside::a_creation_is_two_calls_and_looking_is_none,
    inside::a_sandbox_of_the_published_server_is_found,
    inside::gpus_that_the_engine_lacks_are_refused,
    inside::a_platform_is_the_engines_to_find,
    inside::a_secure_runtime_is_used_by_its_name,
    pulls::an_image_is_pulled_once_for_many_with_progress,
    pulls::a_private_image_needs_its_password,
    faults::a_missing_engine_is_explained,
    faults::a_runtime_that_the_engine_lacks_is_refused,
    faults::a_container_removed_behind_our_back_is_told,
    faults::an_image_removed_behind_our_back_is_told,
    faults::a_hanging_engine_is_given_up_and_nothing_is_left,
    faults::a_server_killed_while_creating_leaves_nothing,
    disk::a_full_disk_of_the_engine_is_told_and_nothing_is_left,
    disk::a_full_disk_of_ours_is_told_and_nothing_is_left,
    faults::an_engine_that_is_killed_comes_back,
    conformance::the_suite_of_all_backends_passes,
];

fn main() -> ExitCode {
    if std::env::var_os("OSB_TEST_ENGINE").is_none() {
        return beside_an_engine();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "server") {
        return faults::server(&arguments[1..]);
    }
    let words: Vec<&String> = arguments.iter().filter(|it| !it.starts_with('-')).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("an async runtime");
    let mut failed = 0;
    for (name, test) in TESTS {
        if !words.is_empty() && !words.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        if stage::is_secure() && !name.starts_with("conformance") {
            continue;
        }
        let begun = Instant::now();
        let outcome = runtime.block_on(async {
            let run = tokio::spawn(test(Stage::new()));
            let most = if stage::is_secure() {
                SECURE_TEST_MAX
            } else {
                TEST_MAX
            };
            tokio::time::timeout(most, run).await
        });
        let verdict = match outcome {
            Ok(Ok(())) => "ok",
            Ok(Err(_)) => "FAILED",
            Err(_) => "FAILED: it hangs",
        };
        failed += usize::from(verdict != "ok");
        println!(
            "{name} ... {verdict} ({:.1} s)",
            begun.elapsed().as_secs_f64()
        );
    }
    println!("{failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn beside_an_engine() -> ExitCode {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/docker/engine");
    let status = Command::new(script)
        .args(std::env::args_os())
        .status()
        .expect("tests/docker/engine can be run");
    if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
