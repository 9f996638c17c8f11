//! The embedded backend on the real kernel, with the real execd.
//!
//! A program of its own instead of the usual test harness, because it must be able to be three
//! other things before it has threads: the spawner, a server that gets killed, and PID 1 of a
//! sandbox in place of execd.
//!
//! Needs root and `execd` built into the same target directory. With `CI=true` a missing need is
//! a failure; else it says loudly what to do and runs nothing.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test program, which clippy takes for an ordinary one"
)]

mod client;
mod conformance;
mod crash;
mod disk;
mod inside;
mod policy;
mod signals;
mod snapshot;
mod stage;

#[path = "../deadline/mod.rs"]
mod deadline;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Duration;

use deadline::{Deadline, TEST_DEADLINE, waiting_for};
use futures_util::FutureExt;
use stage::Stage;

type Test = (
    &'static str,
    fn(Stage) -> futures_util::future::BoxFuture<'static, ()>,
);

/// Names a test.
macro_rules! test {
    ($module:ident :: $name:ident) => {
        (
            concat!(stringify!($module), "::", stringify!($name)),
            |stage| Box::pin($module::$name(stage)),
        )
    };
}

const TESTS: &[Test] = &[
    test!(inside::root_in_a_sandbox_has_only_the_default_capabilities),
    test!(inside::only_execds_own_descriptors_are_open),
    test!(inside::the_kernels_filesystems_are_masked_and_read_only),
    test!(inside::nothing_can_be_mounted_and_no_namespace_made),
    test!(inside::the_devices_are_the_harmless_ones),
    test!(inside::a_terminal_can_be_opened),
    test!(inside::the_execd_it_runs_from_cannot_be_written),
    test!(inside::each_sandbox_has_its_own_hostname_processes_and_ids),
    test!(inside::an_image_without_directories_gets_them),
    test!(inside::an_images_user_directory_and_command_are_used),
    test!(inside::an_entrypoint_that_is_not_there_is_a_typed_error),
    test!(inside::a_proc_that_is_a_link_is_a_typed_error),
    test!(inside::many_layers_are_stacked_in_order),
    test!(inside::of_ten_thousand_at_once_those_that_fit_are_made),
    test!(inside::a_failed_creation_leaves_nothing),
    test!(signals::those_that_execd_forwards_wait_for_it),
    test!(snapshot::what_is_written_is_in_the_snapshot_and_later_writes_are_not),
    test!(snapshot::an_ended_sandbox_gives_its_layer_away_and_can_do_so_again),
    test!(snapshot::a_snapshot_keeps_links_attributes_and_deletions),
    test!(disk::a_full_layer_says_so_and_only_there),
    test!(disk::a_bounded_layer_can_be_kept_while_it_runs_and_after),
    test!(disk::what_cannot_be_made_is_refused_and_leaves_nothing),
    test!(crash::sandboxes_survive_the_spawner_and_their_end_is_known),
    test!(crash::an_end_while_no_server_runs_is_known_to_the_next),
    test!(crash::the_server_can_be_killed_at_any_moment),
    test!(policy::a_sandbox_is_led_to_the_gate_that_its_record_names),
    test!(conformance::the_suite_of_all_backends_passes),
];

/// A test that waits for a future for this long fails alone, before the last resort.
const ASYNC_DEADLINE: Duration = Duration::from_secs(400);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("spawner") => runtime::spawner::main(),
        Some("egress-gate") => {
            return runtime::gate::main(arguments.into_iter().skip(1).map(Into::into));
        }
        Some("doomed-server") => crash::doomed_server(&arguments[1..]),
        Some("--init") => return signals::tell(),
        _ => {}
    }
    let filters: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(*f));
    if arguments.iter().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if let Err(missing) = stage::needs() {
        eprintln!("THE EMBEDDED TESTS DID NOT RUN: {missing}");
        let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        return if is_ci {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        };
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime starts");
    let mut failed = Vec::new();
    for (name, test) in TESTS.iter().filter(|(name, _)| wanted(name)) {
        let stage = Stage::new();
        let data_dir = stage.data_dir();
        let last_words = move || stage::kill_sandboxes(&data_dir);
        let deadline = Deadline::of(name, TEST_DEADLINE, last_words);
        waiting_for("nothing yet");
        let start = std::time::Instant::now();
        let within = async { tokio::time::timeout(ASYNC_DEADLINE, test(stage)).await };
        let outcome = runtime.block_on(AssertUnwindSafe(within).catch_unwind());
        drop(deadline);
        if let Ok(Err(_)) = outcome {
            println!("test {name} did not end within {ASYNC_DEADLINE:?}");
        }
        let outcome = outcome.map_err(drop).and_then(|inner| inner.map_err(drop));
        println!(
            "test {name} ... {} ({:.1} s)",
            if outcome.is_ok() { "ok" } else { "FAILED" },
            start.elapsed().as_secs_f64()
        );
        if outcome.is_err() {
            failed.push(name);
        }
    }
    println!("{} failed {failed:?}", failed.len());
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
