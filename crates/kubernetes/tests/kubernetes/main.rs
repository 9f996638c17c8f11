//! The Kubernetes backend on a real kubelet.
//!
//! A program of its own, not the usual harness: it starts itself again beside a cluster that
//! `tests/kubernetes/cluster/run` makes for it. Arguments choose tests by a part of their name; CONFORMANCE chooses
//! cases of the suite of all backends by a part of their name, or by the word core a few of each kind.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test program: it panics to fail and prints to tell"
)]

mod conformance;
mod faults;
mod inside;
mod stage;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// No test takes longer on a machine that is busy with others; one that does hangs.
const TEST_MAX: Duration = Duration::from_secs(300);
/// Nearly a hundred cases, each with pods of its own.
const SUITE_MAX: Duration = Duration::from_secs(3600);

type Test = (&'static str, fn() -> BoxFuture<'static, ()>);

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), || $module::$name().boxed())),*]
    };
}

const TESTS: &[Test] = tests![
    inside::an_image_with_nothing_but_a_program_works,
    inside::nothing_secret_is_in_the_pod_and_the_handoff_is_gone,
    inside::a_template_is_merged_under_the_sandbox,
    inside::restricted_sandboxes_run_as_nobody_special,
    inside::looking_makes_no_call,
    faults::no_cluster_is_explained,
    faults::no_node_takes_it_is_told_at_once,
    faults::a_pod_removed_behind_our_back_is_told_and_leaves_nothing,
    faults::a_quota_is_told,
    faults::what_a_killed_server_left_is_removed,
    faults::an_api_server_that_is_killed_comes_back,
    conformance::the_suite_of_all_backends_passes,
];

fn main() -> ExitCode {
    if std::env::var_os("OSB_TEST_CLUSTER").is_none() {
        return beside_a_cluster();
    }
    if std::env::var_os("RUST_LOG").is_some() {
        stage::say_everything();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
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
        let begun = Instant::now();
        let most = if name.starts_with("conformance") {
            SUITE_MAX
        } else {
            TEST_MAX
        };
        let outcome = runtime.block_on(async {
            let run = tokio::spawn(test());
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

fn beside_a_cluster() -> ExitCode {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kubernetes/cluster/run");
    let own = std::env::current_exe().expect("a path");
    // target/debug/deps/kubernetes-… is beside target/debug/execd.
    let execd = own
        .ancestors()
        .nth(2)
        .expect("a target directory")
        .join("execd");
    let status = Command::new(script)
        .args(std::env::args_os())
        .env("OSB_TEST_EXECD", execd)
        .status()
        .expect("tests/kubernetes/cluster/run can be run");
    if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
