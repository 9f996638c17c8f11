//! `osb command …`: commands and sessions, as the published command line has them.

use opensandbox::Sandbox;

use super::run::{self, follow, shell_words};
use super::{DONE, Outcome};
use crate::app::App;
use crate::args::exec::{Command, CommandRun, Session};
use crate::error::Error;
use crate::interrupts::Interrupts;
use crate::model;
use crate::output::{Format, Message, Record};

const STRUCTURED: [Format; 5] = [
    Format::Table,
    Format::Plain,
    Format::Json,
    Format::Yaml,
    Format::Name,
];

pub(super) async fn run(app: &App, command: Command) -> Outcome {
    match command {
        Command::Run(args) => run_command(app, &args).await,
        Command::Status {
            sandbox_id,
            execution_id,
        } => {
            let status = app
                .sandbox(&sandbox_id)
                .await?
                .commands()
                .status(&execution_id)
                .await?;
            app.printer()
                .record("Command", &model::command_status(&status))?;
            Ok(DONE)
        }
        Command::Logs {
            sandbox_id,
            execution_id,
            cursor,
            follow,
        } => {
            let sandbox = app.sandbox(&sandbox_id).await?;
            if follow {
                return follow_logs(&sandbox, &execution_id).await;
            }
            logs(app, &sandbox, &execution_id, cursor).await
        }
        Command::Interrupt {
            sandbox_id,
            execution_id,
        } => {
            app.sandbox(&sandbox_id)
                .await?
                .commands()
                .interrupt(&execution_id)
                .await?;
            let text = format!("Interrupted: {execution_id}");
            app.printer().message(Message::Ok, &text)?;
            Ok(DONE)
        }
        Command::Session(command) => session(app, command).await,
    }
}

async fn run_command(app: &App, args: &CommandRun) -> Outcome {
    let asked = app.globals.output;
    let printer = if args.background {
        app.printer().allowing(asked, &STRUCTURED)?
    } else {
        app.printer_of(&[Format::Raw])?
    };
    let sandbox = app.sandbox(&args.sandbox_id).await?;
    let mut command = if args.argv {
        sandbox.commands().exec(args.command.clone())
    } else {
        sandbox.commands().run(shell_words(&args.command))
    };
    if let Some(directory) = &args.workdir {
        command = command.cwd(directory);
    }
    if let Some(timeout) = args.timeout {
        command = command.timeout(timeout);
    }
    if args.background {
        let id = command.background().await?;
        let record = Record::new()
            .with("execution_id", id)
            .with("sandbox_id", &args.sandbox_id)
            .with("mode", "background");
        printer.done("Background command started", &record)?;
        return Ok(DONE);
    }
    run::stream(app, &sandbox, command, false, false).await
}

async fn logs(app: &App, sandbox: &Sandbox, id: &str, cursor: Option<u64>) -> Outcome {
    let printer = app.printer();
    let logs = sandbox.commands().logs(id, cursor).await?;
    match printer.format() {
        Format::Json | Format::Yaml => {
            let record = Record::new()
                .with("content", logs.text)
                .with("cursor", logs.cursor);
            printer.record("Logs", &record)?;
        }
        _ => printer.text(&logs.text)?,
    }
    Ok(DONE)
}

/// Everything a command printed and prints, until it has ended.
pub(super) async fn follow_logs(sandbox: &Sandbox, id: &str) -> Outcome {
    let execution = sandbox.commands().follow(id, 0).await?;
    let mut interrupts = Interrupts::listen()?;
    // Ctrl-C ends `osb logs`, not the command that it shows: what `follow` does on an interrupt is
    // nothing, and the interrupt that counts is the other one.
    let mut ignored = Interrupts::listen()?;
    tokio::select! {
        code = follow(execution, None, &mut ignored, async |_: &str| ()) => code.map(|_| DONE),
        code = interrupts.next() => Ok(code),
    }
}

async fn session(app: &App, command: Session) -> Outcome {
    match command {
        Session::Create {
            sandbox_id,
            workdir,
        } => {
            let printer = app.printer();
            let sessions = app.sandbox(&sandbox_id).await?.sessions();
            let session = sessions.create(workdir.as_deref()).await?;
            let record = Record::new()
                .with("sandbox_id", sandbox_id)
                .with("session_id", session.id())
                .with("working_directory", workdir);
            if printer.format() == Format::Name {
                printer.text(session.id())?;
            } else {
                printer.done("Session created", &record)?;
            }
        }
        Session::Run {
            sandbox_id,
            session_id,
            command,
            workdir,
            timeout,
        } => {
            app.printer_of(&[Format::Raw])?;
            let session = app.sandbox(&sandbox_id).await?.sessions().get(&session_id);
            let mut run = session.run(shell_words(&command));
            if let Some(directory) = workdir {
                run = run.cwd(directory);
            }
            if let Some(timeout) = timeout {
                run = run.timeout(timeout);
            }
            let execution = run.stream().await?;
            return follow(
                execution,
                None,
                &mut Interrupts::listen()?,
                async |_: &str| {
                    // One that has ended by now needs no interrupt.
                    let _ = session.interrupt().await;
                },
            )
            .await;
        }
        Session::Delete {
            sandbox_id,
            session_id,
        } => {
            app.sandbox(&sandbox_id)
                .await?
                .sessions()
                .get(&session_id)
                .delete()
                .await?;
            let text = format!("Deleted session: {session_id}");
            app.printer().message(Message::Ok, &text)?;
        }
    }
    Ok::<u8, Error>(DONE)
}
