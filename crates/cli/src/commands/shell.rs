//! `osb shell`, `osb attach`, and terminals for `osb run -t` and `osb exec -t`: this terminal
//! becomes that of a process in a sandbox until it ends or is left.

mod visit;

use std::io::{self, Write as _};

use opensandbox::{Sandbox, Terminal, TerminalOptions};

use super::lifetime::Lifetime;
use super::{DONE, Outcome, create};
use crate::app::App;
use crate::args::exec::{Attach, Shell};
use crate::args::sandbox::Create;
use crate::error::Error;
use crate::output::Message;
use crate::terminal::{self, DetachKeys, Raw};

use visit::{End, Visit};

/// Where a terminal is opened, and how it is left.
pub(super) struct Place<'a> {
    pub(super) sandbox: &'a Sandbox,
    pub(super) directory: Option<&'a str>,
    pub(super) keys: &'a DetachKeys,
    /// Whether the sandbox is kept alive meanwhile; not where its lifetime was named.
    pub(super) is_renewed: bool,
}

/// How a visit to a terminal ended, for whoever made the sandbox.
pub(super) struct Visited {
    pub(super) code: u8,
    /// It goes on, and somebody may come back.
    pub(super) is_left: bool,
}

pub(super) async fn shell(app: &App, args: &Shell) -> Outcome {
    check_terminal()?;
    let visit = async |sandbox: &Sandbox| {
        let place = Place {
            sandbox,
            directory: args.workdir.as_deref(),
            keys: &args.detach_keys,
            is_renewed: args.timeout.is_none(),
        };
        let terminal = sandbox.terminals().create(place.directory, None).await?;
        let (id, keys) = (terminal.id(), &args.detach_keys);
        let hello = format!(
            "terminal {id} in sandbox {}; {keys} leaves it running",
            sandbox.id()
        );
        app.printer().note(Message::Info, &hello)?;
        attached(app, &place, &terminal, TerminalOptions::default()).await
    };
    if let Some(id) = &args.sandbox_id {
        return Ok(visit(&app.sandbox(id).await?).await?.code);
    }
    let order = Create {
        image: args.image.clone(),
        timeout: args.timeout.clone(),
        ..Create::default()
    };
    let sandbox = create::make(app, &order).await?;
    let visited = visit(&sandbox).await;
    settle(app, &sandbox, visited, false).await
}

/// Removes a sandbox that was made for one visit, unless it is to stay or somebody may come back.
pub(super) async fn settle(
    app: &App,
    sandbox: &Sandbox,
    visited: Result<Visited, Error>,
    is_kept: bool,
) -> Outcome {
    let is_left = visited.as_ref().is_ok_and(|visited| visited.is_left);
    if is_left || is_kept {
        let id = sandbox.id();
        let text = format!("the sandbox stays: {id}; remove it with: osb rm {id}");
        app.printer().note(Message::Info, &text)?;
    } else {
        let removed = sandbox.kill().await;
        // What went wrong before says more.
        if visited.is_ok() {
            removed?;
        }
    }
    Ok(visited?.code)
}

pub(super) async fn attach(app: &App, args: &Attach) -> Outcome {
    check_terminal()?;
    let sandbox = app.sandbox(&args.sandbox_id).await?;
    let terminal = sandbox.terminals().get(&args.terminal_id);
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
    let place = Place {
        sandbox: &sandbox,
        directory: None,
        keys: &args.detach_keys,
        is_renewed: true,
    };
    Ok(attached(app, &place, &terminal, options).await?.code)
}

/// Runs a command, or a shell, at a terminal of its own.
pub(super) async fn in_terminal(
    app: &App,
    place: &Place<'_>,
    command: Option<&str>,
) -> Result<Visited, Error> {
    check_terminal()?;
    let terminals = place.sandbox.terminals();
    let terminal = terminals.create(place.directory, command).await?;
    attached(app, place, &terminal, TerminalOptions::default()).await
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

async fn attached(
    app: &App,
    place: &Place<'_>,
    terminal: &Terminal,
    options: TerminalOptions,
) -> Result<Visited, Error> {
    let size = terminal::size().map(|size| (size.columns, size.rows));
    let options = TerminalOptions { size, ..options };
    let sandbox_id = place.sandbox.id();
    let lifetime = Lifetime::new(place.sandbox, place.is_renewed);
    let again = format!("osb attach {sandbox_id} {}", terminal.id());
    let end = {
        // Connected first: what is wrong is then said at a terminal as it was.
        let connection = terminal.connect(options).await?;
        let visit = Visit::new(terminal, place.keys, options, &again)?;
        let _raw = Raw::enter()?;
        lifetime.during(tell, visit.run(connection)).await
    };
    let end = match end {
        Ok(end) => end,
        Err(error) => return Err(lifetime.explain(error).await),
    };
    let is_left = matches!(end, End::Left);
    match end {
        End::Exit(code) | End::HungUp(code) => {
            // Nobody comes back to a terminal whose process has ended, or who is there is gone: it
            // ends with what runs in it.
            let _ = terminal.delete().await;
            Ok(Visited { code, is_left })
        }
        End::Left => {
            let text = format!("left running; come back with: {again}");
            app.printer().note(Message::Info, &text)?;
            Ok(Visited {
                code: DONE,
                is_left,
            })
        }
        End::TakenOver => Err(Error::Failed {
            message: "another client took the terminal over".to_owned(),
            next: Some(again),
        }),
    }
}

/// A line of our own between what the process prints, at a terminal whose lines need both ends.
fn tell(text: &str) {
    let mut out = io::stderr().lock();
    // A terminal that is gone is found out by whoever reads its keys.
    let _ = write!(out, "\r\n[osb: {text}]\r\n");
    let _ = out.flush();
}
