//! `osb run -d`: a sandbox whose main program is the command, left running; and `osb attend`, the
//! process that stays in the background for its ports and its removal.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::time::Duration;

use api::sandbox::SandboxState;
use futures_util::StreamExt as _;
use opensandbox::{Client, Sandbox};

use super::create::{self, Started};
use super::forward::Forward;
use super::launch::{self, Program};
use super::run::shell_words;
use super::{DONE, Outcome};
use crate::app::App;
use crate::args::manage::Attend;
use crate::args::run::Run;
use crate::error::Error;
use crate::find::has_ended;
use crate::interrupts::Interrupts;
use crate::output::{Format, Record, write};

/// What the process in the background says when it holds all it should.
const READY: &str = "ready\n";

/// A stream of events that broke off is asked for again after this: a server that restarts takes
/// as long.
const LISTEN_AGAIN: Duration = Duration::from_secs(2);

/// A server that is away for longer than this many tries is not coming back.
const TRIES_MAX: u32 = 300;

pub(super) async fn run(app: &App, args: &Run) -> Outcome {
    let words = match launch::program(args) {
        Program::OfImage => of_image(app, args).await?,
        Program::Words(words) => words,
        // Not with -d.
        Program::Shell => Vec::new(),
    };
    let mut order = launch::create(app, args).await?;
    order.entrypoint = main_program(words, args.workdir.as_deref());
    let started = create::start(app, &order).await?;
    let sandbox = &started.sandbox;
    if !args.publish.is_empty() || args.rm {
        let attended = attended(app, args, sandbox);
        if attended.is_err() {
            // Why it could not be begun says more than why it cannot be removed.
            let _ = sandbox.kill().await;
        }
        attended?;
    }
    say(app, &started)?;
    Ok(DONE)
}

/// The words of a command that the image's own is part of; the image is brought here for that.
async fn of_image(app: &App, args: &Run) -> Result<Vec<String>, Error> {
    let image = args.image.as_deref().unwrap_or_default();
    let mut own = launch::own_command(app, image).await?;
    if own.is_none() && args.arguments.is_empty() {
        launch::pull(app, args).await?;
        own = launch::own_command(app, image).await?;
    }
    Ok(launch::words(args, &own.unwrap_or_default()))
}

/// The words of the main program, which the server reads as a command line where there is but one.
fn main_program(words: Vec<String>, directory: Option<&str>) -> Vec<String> {
    let words = match directory {
        Some(directory) if !words.is_empty() => {
            let enter = [
                "sh",
                "-c",
                "cd \"$1\" && shift && exec \"$@\"",
                "sh",
                directory,
            ];
            enter.into_iter().map(str::to_owned).chain(words).collect()
        }
        _ => words,
    };
    match words.as_slice() {
        [_] => vec![shell_words(&words)],
        _ => words,
    }
}

fn say(app: &App, started: &Started) -> Result<(), Error> {
    let printer = app.printer();
    let id = started.sandbox.id();
    match printer.format() {
        Format::Json | Format::Yaml => {
            let record = Record::new()
                .with("id", id)
                .with("status", started.state.as_str());
            printer.record("Sandbox", &record)?;
        }
        _ => printer.text(id)?,
    }
    Ok(())
}

/// Starts the process that stays, and returns when it holds the ports.
fn attended(app: &App, args: &Run, sandbox: &Sandbox) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::Failed {
        message: format!("the process for -p and --rm could not be started: {error}"),
        next: None,
    };
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg("attend").arg(sandbox.id());
    for publish in &args.publish {
        let (address, local, remote) = (publish.address, publish.local, publish.remote);
        let address = match address.is_ipv6() {
            true => format!("[{address}]"),
            false => address.to_string(),
        };
        let local = if local == 0 {
            String::new()
        } else {
            local.to_string()
        };
        command.arg(format!("--publish={address}:{local}:{remote}"));
    }
    if args.rm {
        command.arg("--rm");
    }
    // In the environment: everybody can read the words of a command line, and a key is among them.
    command.envs(app.config()?.environment());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C at the terminal is not meant for it.
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let mut said = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut said).map_err(failed)?;
    }
    if said.ends_with(READY) {
        for line in said.trim_end_matches(READY).lines() {
            app.printer().note(crate::output::Message::Info, line)?;
        }
        return Ok(());
    }
    let mut why = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut why).map_err(failed)?;
    }
    Err(Error::Failed {
        message: why.trim().trim_start_matches("error: ").to_owned(),
        next: None,
    })
}

/// `osb attend`: holds ports open until the sandbox has ended, and removes it then.
pub(super) async fn attend(app: &App, args: &Attend) -> Outcome {
    // A terminal that goes away is not ours.
    let _ = rustix::process::setsid();
    let client = app.client()?;
    let sandbox = client.sandbox(&args.sandbox_id);
    let forward = Forward::bind(&args.publish).await?;
    let chosen = forward.chosen();
    write(&format!("{chosen}{READY}"))?;
    close_output()?;
    let mut interrupts = Interrupts::listen()?;
    tokio::select! {
        ended = ended(client, &args.sandbox_id) => {
            if ended? && args.rm {
                sandbox.kill().await?;
            }
        }
        served = forward.serve(&sandbox, app.printer()) => served?,
        _ = interrupts.next() => {}
    }
    Ok(DONE)
}

/// Whoever waits for our output has all of it.
fn close_output() -> Result<(), Error> {
    let nothing = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nothing).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stderr(&nothing).map_err(std::io::Error::from)?;
    Ok(())
}

/// Waits until the sandbox has ended; false if it is gone.
async fn ended(client: &Client, id: &str) -> Result<bool, Error> {
    let mut tries = 0;
    loop {
        // Listens before it looks, so that no change falls between.
        let events = client.events(Some(id), None).await;
        match client.get(id).await {
            Ok(info) if has_ended(&info) && info.status.state != SandboxState::Stopping => {
                return Ok(true);
            }
            Ok(_) => tries = 0,
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) if tries == TRIES_MAX => return Err(error.into()),
            Err(_) => tries += 1,
        }
        if let Ok(events) = events {
            let mut events = pin!(events);
            // One event is enough to look again.
            if let Some(Ok(_)) = events.next().await {
                continue;
            }
        }
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_is_not_taken_apart() {
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|&word| word.to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(main_program(words(&["a b"]), None), ["'a b'"]);
        assert_eq!(main_program(words(&["a", "b c"]), None), ["a", "b c"]);
        assert_eq!(main_program(words(&["a"]), Some("/x")).last().unwrap(), "a");
        assert!(main_program(Vec::new(), Some("/x")).is_empty());
    }
}
