//! The whole SDK against a real server on the embedded runtime: every public method is called.
//! One server serves all cases, which run side by side, each with a deadline. Needs root, and osb
//! and execd in the same target directory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]
#![expect(
    clippy::print_stderr,
    reason = "a test program says which case failed, and why"
)]

mod access;
mod code;
mod commands;
mod config;
mod coverage;
mod examples;
mod files;
mod inventory;
mod lifecycle;
mod pool;
mod resume;
mod server;
mod terminals;

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opensandbox::{Client, Sandbox};
use server::Server;

/// No case takes this long; it only keeps a broken one from hanging.
const DEADLINE: Duration = Duration::from_secs(150);

type Case = (
    &'static str,
    fn(Arc<Server>) -> Pin<Box<dyn Future<Output = ()> + Send>>,
);

/// A case by the name of its function.
macro_rules! cases {
    ($($module:ident::$name:ident,)*) => {
        &[$((
            concat!(stringify!($module), "::", stringify!($name)),
            |server| Box::pin($module::$name(server)),
        ),)*]
    };
}

const CASES: &[Case] = cases![
    coverage::every_public_method_is_called_by_a_test,
    lifecycle::a_sandbox_from_creation_to_end,
    lifecycle::a_block_that_is_left_ends_its_sandbox,
    lifecycle::lists_are_filtered_and_paged,
    lifecycle::pause_snapshot_and_restore,
    lifecycle::errors_say_what_and_which_request,
    lifecycle::extensions_of_the_server,
    inventory::images_come_and_go,
    inventory::volumes_come_and_go,
    access::keys_and_tokens_come_and_go,
    access::tenants_come_and_go,
    config::servers_are_named_by_sockets_and_fingerprints,
    inventory::a_log_is_followed,
    lifecycle::a_create_that_cannot_work_leaves_nothing,
    commands::output_codes_and_signals,
    commands::background_logs_and_interrupt,
    commands::stdin_stays_open,
    commands::sessions_keep_their_state,
    commands::variables_are_kept,
    commands::plain_bytes_reach_a_port,
    files::written_and_read_back,
    files::found_moved_and_removed,
    files::directories_as_archives,
    code::contexts_remember,
    code::results_in_every_form,
    terminals::a_terminal_is_left_and_come_back_to,
    terminals::a_signal_that_ends_a_terminal_is_named,
    resume::a_broken_stream_goes_on_exactly_once,
    resume::a_stream_without_numbers_says_that_it_broke,
    resume::only_what_is_safe_is_sent_again,
    examples::the_first_sandbox_runs,
    examples::every_part_of_every_server_works_at_ours,
    pool::sandboxes_are_ready_before_they_are_asked_for,
];

fn main() -> ExitCode {
    // As libtest does, so that `cargo test NAME` and `cargo test -- --list` mean the same here.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(*w));
    let cases: Vec<&Case> = CASES.iter().filter(|(name, _)| is_wanted(name)).collect();
    if arguments.iter().any(|argument| argument == "--list") || cases.is_empty() {
        return ExitCode::SUCCESS;
    }
    if let Some(message) = server::missing() {
        assert!(std::env::var_os("CI").is_none(), "{message}");
        eprintln!("NOT RUN: {message}");
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(run(&cases))
}

async fn run(cases: &[&Case]) -> ExitCode {
    let server = Arc::new(Server::start().await);
    let mut running = tokio::task::JoinSet::new();
    for (name, case) in cases {
        let (name, future) = (*name, case(Arc::clone(&server)));
        running.spawn(async move {
            let begun = Instant::now();
            let done = tokio::spawn(tokio::time::timeout(DEADLINE, future)).await;
            let failure = match done {
                Ok(Ok(())) => None,
                Ok(Err(_)) => Some(format!("not done after {DEADLINE:?}")),
                Err(error) => Some(error.to_string()),
            };
            (name, failure, begun.elapsed())
        });
    }
    let mut failed = 0;
    while let Some(done) = running.join_next().await {
        let (name, failure, took) = done.unwrap();
        match failure {
            None => eprintln!("ok      {name} ({} ms)", took.as_millis()),
            Some(why) => {
                failed += 1;
                eprintln!("FAILED  {name}: {why}");
            }
        }
    }
    let server = Arc::into_inner(server).expect("every case has ended");
    server.stop().await;
    eprintln!("{} passed, {failed} failed", cases.len() - failed);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A sandbox of this machine's own programs.
async fn sandbox(client: &Client) -> Sandbox {
    client.create("host").await.unwrap()
}
