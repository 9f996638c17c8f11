//! The command line `osb`: what people and scripts type, on top of the Rust SDK.
//!
//! `args` says what can be written, `commands` does it, `output` prints what came out. Speaks to
//! the server only through the SDK; `osb image` and `osb volume` with `--server-config` read the
//! store of this machine instead. The server, the spawner, the doctor and MCP are other programs of
//! the same file.

#![forbid(unsafe_code)]

mod app;
pub mod args;
mod commands;
pub mod config;
pub mod duration;
mod error;
mod find;
mod interrupts;
mod model;
pub mod output;
mod progress;
mod suggest;
pub mod terminal;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use app::App;
use args::{Cli, Command};
use config::Config;
use error::{Error, report};

/// Runs `osb` with these arguments, of which the first is the program.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut tree = tree();
    let matches = match tree.try_get_matches_from_mut(arguments) {
        Ok(matches) => matches,
        Err(error) => suggest::corrected(error, &tree).exit(),
    };
    if let Some(help) = help_of_group(&mut tree, &matches) {
        let written = std::io::stdout().write_all(help.as_bytes());
        return ExitCode::from(u8::from(written.is_err()));
    }
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.format(&mut tree).exit(),
    };
    ExitCode::from(run(cli))
}

/// The whole command line. A group without one of its commands is no error: it gets its help.
pub fn tree() -> clap::Command {
    fn lenient(command: clap::Command) -> clap::Command {
        let is_group = command.has_subcommands();
        let command = command.mut_subcommands(lenient);
        if is_group {
            command
                .subcommand_required(false)
                .arg_required_else_help(false)
        } else {
            command
        }
    }
    lenient(Cli::command())
}

/// The help of the group that was named without one of its commands.
fn help_of_group(tree: &mut clap::Command, matches: &clap::ArgMatches) -> Option<String> {
    match matches.subcommand() {
        Some((name, matches)) => help_of_group(tree.find_subcommand_mut(name)?, matches),
        None if tree.has_subcommands() => Some(tree.render_help().to_string()),
        None => None,
    }
}

fn run(cli: Cli) -> u8 {
    let Cli { globals, command } = cli;
    // Settings are changed even when the file that holds them cannot be read.
    let config = match Config::resolve(&globals) {
        Ok(config) => Some(config),
        Err(_) if needs_no_settings(&command) => None,
        Err(error) => {
            let error = Error::from(error);
            report(&error, None, globals.output, globals.verbose);
            return error.exit_code(is_foreign(&command));
        }
    };
    let (output, verbose) = (globals.output, globals.verbose);
    let is_foreign = is_foreign(&command);
    let shown = config.clone();
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::Output)
        .and_then(|runtime| {
            let outcome = runtime.block_on(commands::run(App::new(globals, config), command));
            // A thread that waits for standard input would hold the program.
            runtime.shutdown_background();
            outcome
        });
    match outcome {
        Ok(code) => code,
        Err(error) => {
            report(&error, shown.as_ref(), output, verbose);
            error.exit_code(is_foreign)
        }
    }
}

/// Commands whose exit code is that of what ran in the sandbox.
fn is_foreign(command: &Command) -> bool {
    matches!(
        command,
        Command::Run(_) | Command::Exec(_) | Command::Shell(_) | Command::Attach(_)
    )
}

fn needs_no_settings(command: &Command) -> bool {
    matches!(
        command,
        Command::Config(args::local::Config::Init { .. })
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Skills(_)
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tree_makes_sense() {
        super::tree().debug_assert();
    }
}
