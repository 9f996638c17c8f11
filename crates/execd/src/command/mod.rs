//! Commands: one process each, with its output kept by id for as long as the limits allow.

mod history;
mod request;
mod routes;
mod run;

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use api::exec::command::CommandStatus;
use api::id::CommandId;
use jiff::Timestamp;
use rustix::process::Signal;
use tokio::net::unix::pipe;
use tokio::sync::{Semaphore, watch};

pub(crate) use request::{DirectoryError, directory, environment};
pub(crate) use routes::router;

use crate::limits;
use crate::output::Journal;
use crate::process::{Process, locked};
use history::CommandHistory;

/// What an interrupted command gets between SIGTERM and SIGKILL, as in the reference.
const INTERRUPT_GRACE: Duration = Duration::from_secs(3);

/// What the wire calls the exit code of a command that did not start.
const EXIT_NOT_STARTED: i32 = 255;

/// All commands, running and finished.
pub(crate) struct Commands {
    history: Mutex<CommandHistory>,
    /// Who may run; [`limits::COMMANDS`].
    slots: Arc<Semaphore>,
}

/// One command.
pub(crate) struct Command {
    id: CommandId,
    /// What was asked to run, as text.
    content: String,
    started_at: Timestamp,
    is_background: bool,
    journal: Arc<Journal>,
    /// `None` when it did not start.
    process: Option<Process>,
    /// The open end of its standard input.
    stdin: Arc<tokio::sync::Mutex<Option<pipe::Sender>>>,
    finished: watch::Sender<Option<Finished>>,
}

/// How and when a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finished {
    at: Timestamp,
    exit_code: i32,
    error: Option<String>,
}

/// Why an interrupt was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InterruptError {
    #[error("the command is not running any more")]
    NotRunning,
    #[error("the command did not end, not even on SIGKILL; it hangs in the kernel")]
    Unkillable,
}

impl Commands {
    pub(crate) fn new() -> Self {
        Self {
            history: Mutex::new(CommandHistory::default()),
            slots: Arc::new(Semaphore::new(limits::COMMANDS)),
        }
    }

    /// The command, while its output is kept.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Command>> {
        locked(&self.history).find(id)
    }

    fn status(&self, id: &str) -> Option<CommandStatus> {
        locked(&self.history).status(id)
    }

    fn list(&self) -> Vec<CommandStatus> {
        locked(&self.history).list()
    }

    fn add(&self, command: &Arc<Command>) {
        locked(&self.history).add(command);
    }

    fn record_finished(&self, command: &Command) {
        locked(&self.history).finished(command);
    }
}

impl Command {
    fn status(&self) -> CommandStatus {
        let finished = self.finished.borrow().clone();
        CommandStatus {
            id: self.id.clone(),
            content: self.content.clone(),
            running: finished.is_none(),
            exit_code: finished.as_ref().map(|finished| finished.exit_code),
            error: finished
                .as_ref()
                .and_then(|finished| finished.error.clone()),
            started_at: self.started_at,
            finished_at: finished.map(|finished| finished.at),
        }
    }

    /// PipeEnds the command: SIGTERM to its group, and SIGKILL when it does not end in time.
    /// Returns when it has ended.
    pub(crate) async fn interrupt(&self) -> Result<(), InterruptError> {
        let Some(process) = &self.process else {
            return Err(InterruptError::NotRunning);
        };
        if !process.signal_group(Signal::TERM) {
            return Err(InterruptError::NotRunning);
        }
        if self.ends_within(INTERRUPT_GRACE).await {
            return Ok(());
        }
        process.signal_group(Signal::KILL);
        if self.ends_within(INTERRUPT_GRACE).await {
            return Ok(());
        }
        Err(InterruptError::Unkillable)
    }

    async fn ends_within(&self, time: Duration) -> bool {
        let mut finished = self.finished.subscribe();
        tokio::time::timeout(time, finished.wait_for(Option::is_some))
            .await
            .is_ok()
    }
}
