//! The escape suite: every case of `osb doctor --attack`, on this machine.
//!
//! Needs root, `ip`, and execd built beside the test program: `make test-isolation`. `cargo test -p attack --test
//! escape -- mount` runs the cases whose id contains `mount`.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the runner prints what it found"
)]

#[path = "unprotected/mod.rs"]
mod unprotected;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("spawner") => runtime::spawner::main(),
        Some("egress-gate") => {
            return runtime::gate::main(arguments.into_iter().skip(1).map(Into::into));
        }
        _ => {}
    }
    if arguments.first().map(String::as_str) == Some("--unprotected") {
        return unprotected::run();
    }
    let is_for_programs = arguments.iter().any(|argument| argument == "--json");
    let options = attack::Options {
        directory: std::env::temp_dir(),
        execd: execd(),
        only: arguments
            .into_iter()
            .filter(|argument| !argument.starts_with('-'))
            .collect(),
    };
    let told = |case: &attack::CaseReport| {
        if !is_for_programs {
            println!("{case}");
        }
    };
    let report = attack::run(&options, told);
    match report {
        Ok(report) => {
            match is_for_programs {
                true => print!("{}", report.to_json()),
                false => print!("{report}"),
            }
            if report.has_held() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(missing) if std::env::var_os("CI").is_some() => {
            eprintln!("the escape suite cannot run: {missing}");
            ExitCode::FAILURE
        }
        Err(missing) => {
            eprintln!("SKIPPED, the escape suite did not run: {missing}");
            ExitCode::SUCCESS
        }
    }
}

/// Beside this program, which is in `target/debug/deps`.
fn execd() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let directory = program
        .parent()
        .and_then(Path::parent)
        .unwrap_or(Path::new("."));
    directory.join("execd")
}
