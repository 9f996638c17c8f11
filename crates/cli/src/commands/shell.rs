//! `osb shell`, `osb attach`, and terminals for `osb run -t` and `osb exec -t`: this terminal
//! becomes that of a process in a sandbox until it ends or is left.

use std::io::{self, Write as _};

use opensandbox::{
    Sandbox, Terminal, TerminalEvent, TerminalInput, TerminalOptions, TerminalOutput,
};
use tokio::signal::unix::{SignalKind, signal};

use super::run::SIGNAL_BASE;
use super::{DONE, Outcome, create};
use crate::app::App;
use crate::args::exec::{Attach, Shell};
use crate::args::sandbox::Create;
use crate::error::Error;
use crate::output::Message;
use crate::terminal::{self, DetachKeys, Raw, Watcher};

/// The close code of a terminal that another client took.
const TAKEN_OVER: u16 = api::exec::pty::CLOSE_TAKEN_OVER;

/// The exit code for a process that a signal ended, where the server does not say which.
const SIGNALLED: u8 = 255;

pub(super) async fn shell(app: &App, args: &Shell) -> Outcome {
    let directory = args.workdir.as_deref();
    match (&args.sandbox_id, &args.image) {
        (Some(id), _) => {
            let sandbox = app.sandbox(id)?;
            in_terminal(app, &sandbox, directory, None, &args.detach_keys).await
        }
        (None, image) => {
            check_terminal()?;
            let order = Create {
                image: image.clone(),
                ..Create::default()
            };
            let sandbox = create::make(app, &order).await?;
            let outcome = in_terminal(app, &sandbox, directory, None, &args.detach_keys).await;
            sandbox.kill().await?;
            outcome
        }
    }
}

pub(super) async fn attach(app: &App, args: &Attach) -> Outcome {
    check_terminal()?;
    let terminal = app
        .sandbox(&args.sandbox_id)?
        .terminals()
        .get(&args.terminal_id);
    let status = terminal.status().await?;
    let since = if args.no_replay {
        status.output_offset
    } else {
        0
    };
    let options = TerminalOptions {
        since: Some(since),
        take_over: true,
        ..TerminalOptions::default()
    };
    attached(app, &args.sandbox_id, &terminal, options, &args.detach_keys).await
}

/// Runs a command, or a shell, at a terminal of its own.
pub(super) async fn in_terminal(
    app: &App,
    sandbox: &Sandbox,
    directory: Option<&str>,
    command: Option<&str>,
    keys: &DetachKeys,
) -> Outcome {
    check_terminal()?;
    let terminal = sandbox.terminals().create(directory, command).await?;
    let options = TerminalOptions::default();
    attached(app, sandbox.id(), &terminal, options, keys).await
}

fn check_terminal() -> Result<(), Error> {
    if terminal::is_interactive() {
        return Ok(());
    }
    Err(Error::NoTerminal {
        what: "this command",
        instead: "without a terminal: osb exec SANDBOX_ID -- COMMAND, with -i for its input"
            .to_owned(),
    })
}

/// How a visit to a terminal ended.
enum End {
    /// Its process ended, with the code that shells give it.
    Exit(u8),
    /// It was left with the keys for that.
    Left,
    /// Another client took it.
    TakenOver,
}

async fn attached(
    app: &App,
    sandbox_id: &str,
    terminal: &Terminal,
    options: TerminalOptions,
    keys: &DetachKeys,
) -> Outcome {
    let (mut input, mut output) = terminal.connect(options).await?.split();
    let end = {
        let _raw = Raw::enter()?;
        visit(&mut input, &mut output, keys).await
    };
    match end? {
        End::Exit(code) => {
            // Nobody comes back to a terminal whose process has ended.
            let _ = terminal.delete().await;
            Ok(code)
        }
        End::Left => {
            let text = format!(
                "left running; come back with: osb attach {sandbox_id} {}",
                terminal.id()
            );
            app.printer().note(Message::Info, &text)?;
            Ok(DONE)
        }
        End::TakenOver => Err(Error::Failed {
            message: "another client took the terminal over".to_owned(),
            next: Some(format!("osb attach {sandbox_id} {}", terminal.id())),
        }),
    }
}

/// Carries keys there and output back.
async fn visit(
    input: &mut TerminalInput,
    output: &mut TerminalOutput,
    keys: &DetachKeys,
) -> Result<End, Error> {
    let mut watcher = Watcher::new(keys);
    let mut typed = terminal::input();
    let mut is_typing = true;
    let mut resized = signal(SignalKind::window_change())?;
    // Before any key, so that whatever the keys start finds the right size.
    resize(input).await;
    loop {
        tokio::select! {
            event = output.next() => {
                if let Some(end) = show(event.transpose()?)? {
                    return Ok(end);
                }
            }
            bytes = typed.recv(), if is_typing => match bytes {
                Some(bytes) => {
                    let (rest, is_left) = watcher.feed(&bytes);
                    // A process that has ended takes no keys; its end is on the way.
                    if !rest.is_empty() && input.write(&rest).await.is_err() {
                        is_typing = false;
                    }
                    if is_left {
                        // The other side may have gone first, and that is as good.
                        let _ = input.close().await;
                        return Ok(End::Left);
                    }
                }
                // The keyboard is gone; the process ends by itself, or when the line breaks.
                None => is_typing = false,
            },
            _ = resized.recv() => resize(input).await,
        }
    }
}

async fn resize(input: &mut TerminalInput) {
    if let Some(size) = terminal::size() {
        // A process that has ended needs no size; its end is on the way.
        let _ = input.resize(size.columns, size.rows).await;
    }
}

/// Shows what came; the end, when it was that.
fn show(event: Option<TerminalEvent>) -> Result<Option<End>, Error> {
    let closed = |message: &str| Error::Failed {
        message: format!("the connection to the terminal ended: {message}"),
        next: None,
    };
    match event {
        Some(
            TerminalEvent::Output(bytes)
            | TerminalEvent::ErrorOutput(bytes)
            | TerminalEvent::Replay { bytes, .. },
        ) => {
            let mut out = io::stdout().lock();
            out.write_all(&bytes)?;
            out.flush()?;
            Ok(None)
        }
        Some(TerminalEvent::Exit { code, signal }) => Ok(Some(End::Exit(shell_code(code, signal)))),
        Some(TerminalEvent::Closed {
            code: Some(TAKEN_OVER),
            ..
        }) => Ok(Some(End::TakenOver)),
        Some(TerminalEvent::Closed { reason, .. }) => Err(closed(&reason)),
        Some(TerminalEvent::Refused { code, message }) => {
            Err(closed(&format!("{message} ({code})")))
        }
        Some(_) => Ok(None),
        None => Err(closed("the other side went away")),
    }
}

/// The code that a shell gives a process which ended like this.
fn shell_code(code: i32, signal: Option<i32>) -> u8 {
    let code = signal.map_or(code, |signal| i32::from(SIGNAL_BASE) + signal);
    u8::try_from(code).unwrap_or(SIGNALLED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_the_codes_of_shells() {
        assert_eq!(shell_code(3, None), 3);
        assert_eq!(shell_code(-1, Some(9)), 137);
        assert_eq!(shell_code(-1, None), SIGNALLED);
    }
}
