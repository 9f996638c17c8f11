//! Starting a command and staying with it until its output is closed.

use std::io;
use std::sync::Arc;

use api::id::CommandId;
use jiff::Timestamp;
use rustix::process::Signal;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::time::Instant;

use super::request::{self, CommandSpec, PipeEnds, Stdin};
use super::{Command, EXIT_NOT_STARTED, Finished};
use crate::limits::{self, Reached};
use crate::output::{Channel, Ending, Journal, Pump, Source};
use crate::process::{Exit, LaunchError, Process};
use crate::state::{self, Shared};

/// Why a command was not even registered.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Request(#[from] request::Error),
    #[error(transparent)]
    Limit(#[from] Reached),
}

/// Starts the command and returns it registered. It runs in a task of its own, so nothing
/// that happens to the request reaches it.
pub(super) async fn start(
    shared: &Arc<Shared>,
    spec: CommandSpec,
) -> Result<Arc<Command>, StartError> {
    let slot = Arc::clone(&shared.commands.slots)
        .try_acquire_owned()
        .map_err(|_| Reached {
            name: "COMMANDS",
            value: limits::COMMANDS,
            advice: "wait for a command to end, or interrupt one",
        })?;
    let (registered, wait) = oneshot::channel();
    tokio::spawn(run(Arc::clone(shared), spec, slot, registered));
    Ok(wait
        .await
        .expect("the task registers the command or says why not")?)
}

/// A launched process with the daemon's ends of its pipes.
type Launched = Result<(Process, PipeEnds), LaunchError>;

async fn run(
    shared: Arc<Shared>,
    spec: CommandSpec,
    slot: OwnedSemaphorePermit,
    registered: oneshot::Sender<Result<Arc<Command>, request::Error>>,
) {
    let begun = Instant::now();
    let started_at = Timestamp::now();
    let (spec, launched) = match launch(&shared, spec).await {
        Ok(launched) => launched,
        Err(error) => {
            let _ = registered.send(Err(error));
            return;
        }
    };
    let journal = Journal::new(Arc::clone(&shared.spool));
    let (process, ends, failure) =
        match launched.and_then(|(process, ends)| watch_pipes(&journal, process, ends)) {
            Ok((process, pump, stdin)) => (Some(process), Some((pump, stdin)), None),
            Err(error) => (None, None, Some(api::error_chain(&error).to_string())),
        };
    let (pump, stdin) = ends.unzip();
    let command = Arc::new(Command {
        id: state::fresh_id::<CommandId>(),
        content: spec.content,
        started_at,
        is_background: spec.is_background,
        journal,
        process,
        stdin: Arc::new(tokio::sync::Mutex::new(stdin.flatten())),
        finished: watch::Sender::new(None),
    });
    if let Some(message) = failure {
        not_started(&command, &message);
    }
    shared.commands.add(&command);
    feed(&command, spec.stdin);
    // The client may have left while the process was started; the command goes on.
    let _ = registered.send(Ok(Arc::clone(&command)));
    let Some(mut pump) = pump else {
        shared.commands.record_finished(&command);
        return;
    };
    let deadline = spec.timeout.map(|timeout| begun + timeout);
    let ending = follow(&command, &mut pump, begun, deadline).await;
    command.stdin.lock().await.take();
    pump.drain().await;
    command.journal.finish(ending);
    shared.commands.record_finished(&command);
    drop(command);
    // A child that outlives its leader may hold the pipes: reading on keeps it from being
    // killed by SIGPIPE, and its output belongs to the command's logs.
    pump.run().await;
    drop(slot);
}

/// Prepares and starts on a thread that may block, in one go.
async fn launch(
    shared: &Arc<Shared>,
    spec: CommandSpec,
) -> Result<(CommandSpec, Launched), request::Error> {
    let shared = Arc::clone(shared);
    tokio::task::spawn_blocking(move || {
        let launched = request::prepare(&shared, &spec)?
            .and_then(|(launch, ends)| Ok((shared.processes.launch_blocking(launch)?, ends)));
        Ok((spec, launched))
    })
    .await
    .expect("preparing a command does not panic")
}

fn watch_pipes(
    journal: &Arc<Journal>,
    process: Process,
    ends: PipeEnds,
) -> Result<(Process, Pump, Option<pipe::Sender>), LaunchError> {
    let sources = || {
        let sources = vec![
            Source::new(Channel::Stdout, ends.stdout)?,
            Source::new(Channel::Stderr, ends.stderr)?,
        ];
        let stdin = ends.stdin.map(|fd| {
            rustix::io::ioctl_fionbio(&fd, true)?;
            pipe::Sender::from_owned_fd(fd)
        });
        Ok((sources, stdin.transpose()?))
    };
    match sources() {
        Ok((sources, stdin)) => Ok((process, Pump::new(Arc::clone(journal), sources), stdin)),
        Err(error) => {
            process.signal_group(Signal::KILL);
            Err(LaunchError::Descriptors(error))
        }
    }
}

fn not_started(command: &Command, message: &str) {
    let at = Timestamp::now();
    command.finished.send_replace(Some(Finished {
        at,
        exit_code: EXIT_NOT_STARTED,
        error: Some(message.to_owned()),
    }));
    let message = message.to_owned();
    command.journal.finish(Ending::NotStarted {
        message,
        time_ms: at.as_millisecond(),
    });
}

/// Writes the request's input. Holding the lock from before the command is known keeps
/// later input behind it.
fn feed(command: &Arc<Command>, stdin: Option<Stdin>) {
    let Some(stdin) = stdin else { return };
    let mut pipe = Arc::clone(&command.stdin)
        .try_lock_owned()
        .expect("nobody else knows the command yet");
    let command = Arc::clone(command);
    tokio::spawn(async move {
        if let Some(open) = pipe.as_mut() {
            // A command that does not read all of its input is not at fault.
            let _ = command.write(open, stdin.text.as_bytes()).await;
        }
        if !stdin.stays_open {
            pipe.take();
        }
    });
}

impl Command {
    /// Writes input until it is all taken or the command has ended: a child that lives on
    /// may hold the pipe and never read.
    pub(super) async fn write(&self, pipe: &mut pipe::Sender, bytes: &[u8]) -> io::Result<()> {
        let mut finished = self.finished.subscribe();
        tokio::select! {
            written = pipe.write_all(bytes) => written,
            _ = finished.wait_for(Option::is_some) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Reads output until the leader ends, killing the group at the deadline.
async fn follow(
    command: &Command,
    pump: &mut Pump,
    begun: Instant,
    deadline: Option<Instant>,
) -> Ending {
    let process = command
        .process
        .as_ref()
        .expect("a command with a pump has started");
    let mut has_timed_out = false;
    let exit = loop {
        tokio::select! {
            exit = process.wait() => break exit,
            () = pump.run(), if !pump.is_done() => {}
            () = reached(deadline), if !has_timed_out => {
                has_timed_out = true;
                process.signal_group(Signal::KILL);
            }
        }
    };
    let at = Timestamp::now();
    let took = begun.elapsed();
    command
        .finished
        .send_replace(Some(finished(exit, at, has_timed_out)));
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let time_ms = at.as_millisecond();
    // A command may end by itself in the very moment its time is over.
    if has_timed_out && exit == Exit::Signal(libc::SIGKILL) {
        Ending::TimedOut { time_ms }
    } else {
        Ending::Exited {
            exit,
            time_ms,
            took_ms,
        }
    }
}

fn finished(exit: Exit, at: Timestamp, has_timed_out: bool) -> Finished {
    let error = match exit {
        Exit::Code(0) => None,
        Exit::Code(code) => Some(format!("exit status {code}")),
        Exit::Signal(_) if has_timed_out => Some("the command ran out of its timeout".to_owned()),
        Exit::Signal(signal) => Some(format!("signal: {}", crate::output::signal_name(signal))),
        Exit::Lost => Some("the process was collected by another; its exit is unknown".to_owned()),
    };
    Finished {
        at,
        exit_code: exit.code(),
        error,
    }
}

async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
