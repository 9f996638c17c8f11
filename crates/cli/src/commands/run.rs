//! `osb run` and `osb exec`: a command in a sandbox, its output as it comes, its exit code as ours.

use std::io;
use std::time::Duration;

use opensandbox::{Ending, Event, Execution, Output, RunCommand, Sandbox};

use super::forward::Forward;
use super::launch::{self, Program};
use super::lifetime::Lifetime;
use super::shell::{Place, Visited};
use super::{DONE, Outcome, create, detached, shell};
use crate::app::App;
use crate::args::exec::Exec;
use crate::args::run::Run;
use crate::error::{EXIT_INTERRUPTED, Error};
use crate::interrupts::Interrupts;
use crate::output::{Message, Record};
use crate::terminal;

/// After an interrupt a command has this long to end by itself; docker gives as much.
const GRACE: Duration = Duration::from_secs(10);

/// What shells give a command that ended by a signal: this and the signal's number.
pub(super) const SIGNAL_BASE: u8 = 128;

/// What shells give a command whose program is not there.
const NOT_FOUND: u8 = 127;

/// What shells give a command whose program cannot be run.
const NOT_EXECUTABLE: u8 = 126;

/// The exit code of a command whose end has no number: what does not start has 126 or 127, so that
/// this is a signal nobody knows.
const UNKNOWN_END: u8 = 255;

pub(super) async fn run(app: &App, args: &Run) -> Outcome {
    let args = &launch::normal(args);
    launch::check(args)?;
    if args.pull == "always" {
        launch::pull(app, args).await?;
    }
    if args.detach {
        return detached::run(app, args).await;
    }
    let program = launch::program(args);
    if program == Program::Words(Vec::new()) {
        return Err(Error::Usage(
            "which command? Write one behind the image, or run this at a terminal for a shell"
                .to_owned(),
        ));
    }
    // Before there is a sandbox: a port that is taken is told now.
    let forward = Forward::bind(&args.publish).await?;
    for line in forward.chosen().lines() {
        app.printer().note(Message::Info, line)?;
    }
    let sandbox = create::make(app, &launch::create(app, args).await?).await?;
    let visited = tokio::select! {
        visited = in_sandbox(app, args, &sandbox, program) => visited,
        served = forward.serve(&sandbox, app.printer()) => Err(served.err().unwrap_or_else(lost)),
    };
    shell::settle(app, &sandbox, visited, args.keep).await
}

fn lost() -> Error {
    Error::Failed {
        message: "the forwarded ports were lost".to_owned(),
        next: None,
    }
}

async fn in_sandbox(
    app: &App,
    args: &Run,
    sandbox: &Sandbox,
    program: Program,
) -> Result<Visited, Error> {
    let is_renewed = args.timeout.is_none();
    let words = match program {
        Program::Words(words) => words,
        Program::Shell => Vec::new(),
        Program::OfImage => {
            let image = args.image.as_deref().unwrap_or_default();
            let own = launch::own_command(app, image).await?;
            launch::words(args, &own.unwrap_or_default())
        }
    };
    if args.tty || words.is_empty() {
        let place = Place {
            sandbox,
            directory: args.workdir.as_deref(),
            keys: &args.detach_keys,
            is_renewed,
        };
        let line = (!words.is_empty()).then(|| shell_words(&words));
        return shell::in_terminal(app, &place, line.as_deref()).await;
    }
    let mut command = sandbox.commands().exec(words);
    if let Some(directory) = &args.workdir {
        command = command.cwd(directory);
    }
    if let Some(user) = &args.user {
        let (uid, gid) = launch::identity(sandbox, user).await?;
        command = command.uid(uid).gid(gid);
    }
    let code = stream(app, sandbox, command, args.interactive, is_renewed).await?;
    Ok(Visited {
        code,
        is_left: false,
    })
}

pub(super) async fn exec(app: &App, args: &Exec) -> Outcome {
    launch::check_user(args.user.is_some(), args.tty)?;
    let sandbox = app.sandbox(&args.sandbox_id).await?;
    let variables = launch::variables(&args.env, &args.env_file)?;
    if args.tty {
        let mut words = Vec::new();
        if !variables.is_empty() {
            words.push("env".to_owned());
            let pairs = variables.iter();
            words.extend(pairs.map(|pair| format!("{}={}", pair.key, pair.value)));
        }
        words.extend(args.command.iter().cloned());
        if args.timeout.is_some() {
            return Err(Error::Usage(
                "--timeout is not for terminals; leave out -t".to_owned(),
            ));
        }
        let place = Place {
            sandbox: &sandbox,
            directory: args.workdir.as_deref(),
            keys: &args.detach_keys,
            is_renewed: true,
        };
        let visited = shell::in_terminal(app, &place, Some(&shell_words(&words))).await?;
        return Ok(visited.code);
    }
    let mut command = sandbox.commands().exec(args.command.clone());
    if let Some(directory) = &args.workdir {
        command = command.cwd(directory);
    }
    if let Some(timeout) = args.timeout {
        command = command.timeout(timeout);
    }
    if let Some(user) = &args.user {
        let (uid, gid) = launch::identity(&sandbox, user).await?;
        command = command.uid(uid).gid(gid);
    }
    command = command.envs(variables.into_iter().map(|pair| (pair.key, pair.value)));
    if args.detach {
        let id = command.background().await?;
        let record = Record::new()
            .with("execution_id", id)
            .with("sandbox_id", sandbox.id());
        app.printer().done("Command started", &record)?;
        return Ok(DONE);
    }
    stream(app, &sandbox, command, args.interactive, true).await
}

/// Runs a command to its end: output to ours, standard input to it if wanted, an interrupt handed
/// on. Returns its exit code.
pub(super) async fn stream(
    app: &App,
    sandbox: &Sandbox,
    command: RunCommand,
    with_input: bool,
    is_renewed: bool,
) -> Outcome {
    let mut interrupts = Interrupts::listen()?;
    let command = if with_input {
        command.stdin_open()
    } else {
        command
    };
    let execution = command.stream().await?;
    let input = with_input.then(|| sandbox.clone());
    let following = follow(execution, input, &mut interrupts, async |id: &str| {
        // One that has ended by now needs no interrupt.
        let _ = sandbox.commands().interrupt(id).await;
    });
    let lifetime = Lifetime::new(sandbox, is_renewed);
    let printer = app.printer();
    let tell = |text: &str| drop(printer.note(Message::Warning, text));
    match lifetime.during(tell, following).await {
        Err(error @ Error::Remote(_)) => Err(lifetime.explain(error).await),
        outcome => outcome,
    }
}

/// Prints what an execution gives until its end.
pub(super) async fn follow(
    mut execution: Execution,
    input: Option<Sandbox>,
    interrupts: &mut Interrupts,
    interrupt: impl AsyncFn(&str),
) -> Outcome {
    let mut output = Output::default();
    let mut id: Option<String> = None;
    let mut interrupted = None;
    let mut grace = std::pin::pin!(tokio::time::sleep(Duration::MAX));
    loop {
        let event = tokio::select! {
            event = execution.next() => event,
            code = interrupts.next() => {
                if interrupted.is_some() {
                    return Ok(code);
                }
                interrupted = Some(code);
                grace.as_mut().reset(tokio::time::Instant::now() + GRACE);
                match &id {
                    Some(id) => interrupt(id).await,
                    None => return Ok(code),
                }
                continue;
            }
            () = &mut grace => return Ok(interrupted.unwrap_or(EXIT_INTERRUPTED)),
        };
        let Some(event) = event.transpose()? else {
            break;
        };
        match &event {
            Event::Started { id: started } => {
                if let Some(sandbox) = &input {
                    hand_on_input(sandbox.clone(), started.clone());
                }
                id = Some(started.clone());
            }
            Event::Stdout(text) | Event::Stderr(text) => {
                let printed = match &event {
                    Event::Stdout(_) => print(io::stdout(), text),
                    _ => print(io::stderr(), text),
                };
                if let Err(error) = printed {
                    // Nobody reads it any more: it would run on for nobody.
                    if let Some(id) = &id {
                        interrupt(id).await;
                    }
                    return Err(error.into());
                }
            }
            _ => {}
        }
        // Output was printed; keeping it too would cost its size in memory.
        if !matches!(event, Event::Stdout(_) | Event::Stderr(_)) {
            output.push(event);
        }
    }
    match interrupted {
        Some(code) => Ok(code),
        None => exit_code(&output),
    }
}

fn print(mut out: impl io::Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Sends standard input to a command until either ends.
fn hand_on_input(sandbox: Sandbox, id: String) {
    tokio::spawn(async move {
        let mut pieces = terminal::input();
        let commands = sandbox.commands();
        while let Some(piece) = pieces.recv().await {
            // A command that has ended, or closed its input, wants no more.
            if commands.write_stdin(&id, piece, false).await.is_err() {
                return;
            }
        }
        let _ = commands.write_stdin(&id, Vec::new(), true).await;
    });
}

/// The code a shell would give.
pub(super) fn exit_code(output: &Output) -> Outcome {
    match output.ending() {
        Ending::Code(code) => Ok(u8::try_from(code & 0xff).unwrap_or(UNKNOWN_END)),
        Ending::Signal(name) => Ok(signal_number(&name).map_or(UNKNOWN_END, |n| SIGNAL_BASE + n)),
        Ending::Failed => {
            let error = output.error.clone().unwrap_or_default();
            Err(Error::NotStarted {
                code: not_started_code(&error.evalue),
                message: error.evalue,
            })
        }
    }
}

/// The code that shells give a command that did not start: whether its program is missing, or
/// cannot be run, is only in the words of the daemon, ours or the published one.
fn not_started_code(message: &str) -> u8 {
    let message = message.to_lowercase();
    let is_missing = message.contains("not found") || message.contains("no such file");
    if is_missing && !message.contains("working directory") {
        NOT_FOUND
    } else {
        NOT_EXECUTABLE
    }
}

/// The number of a signal by the name that the protocol gives it.
fn signal_number(name: &str) -> Option<u8> {
    Some(match name {
        "hangup" => 1,
        "interrupt" => 2,
        "quit" => 3,
        "illegal instruction" => 4,
        "trace/breakpoint trap" => 5,
        "aborted" => 6,
        "bus error" => 7,
        "floating point exception" => 8,
        "killed" => 9,
        "user defined signal 1" => 10,
        "segmentation fault" => 11,
        "user defined signal 2" => 12,
        "broken pipe" => 13,
        "alarm clock" => 14,
        "terminated" => 15,
        other => other.strip_prefix("signal ")?.parse().ok()?,
    })
}

/// Words as one line that a shell takes apart again into the same words.
pub(super) fn shell_words(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
    quoted.join(" ")
}

fn quote(word: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"@%+=:,./-_".contains(&b);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r#"'"'"'"#))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        let words = ["echo", "a b", "", "it's", "$HOME", "x=1"].map(str::to_owned);
        let line = shell_words(&words);
        assert_eq!(line, r#"echo 'a b' '' 'it'"'"'s' '$HOME' x=1"#);
        let text = std::process::Command::new("sh")
            .args(["-c", &format!("printf '%s|' {line}")])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&text.stdout),
            "echo|a b||it's|$HOME|x=1|"
        );
    }

    #[test]
    fn ends_have_the_codes_of_shells() {
        let failed = |evalue: &str, line: &str| {
            let mut output = Output::default();
            output.push(Event::Error(api::exec::event::ExecutionError {
                ename: "CommandExecError".to_owned(),
                evalue: evalue.to_owned(),
                traceback: vec![line.to_owned()],
            }));
            exit_code(&output)
        };
        assert_eq!(failed("3", "exit status 3").unwrap(), 3);
        assert_eq!(failed("-1", "signal: killed").unwrap(), 137);
        let code = |message: &str| failed(message, "x").unwrap_err().exit_code(true);
        assert_eq!(code("nope: not found in PATH"), 127);
        assert_eq!(
            code(r#"exec: "nope": executable file not found in $PATH"#),
            127
        );
        assert_eq!(code("fork/exec /etc/passwd: permission denied"), 126);
        assert_eq!(
            code("x did not start: the working directory could not be entered: No such file"),
            126
        );
    }
}
