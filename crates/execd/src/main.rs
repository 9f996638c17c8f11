//! The program: reads its arguments and starts the daemon.

use std::process::ExitCode;

fn main() -> ExitCode {
    match execd::args::parse(std::env::args_os().skip(1)) {
        Ok(options) => execd::run(options),
        Err(error) => execd::args::refuse(&error),
    }
}
