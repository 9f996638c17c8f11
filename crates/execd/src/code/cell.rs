//! One cell while it runs: what its frames mean for the client, and its timeout.

use std::collections::BTreeMap;
use std::time::Duration;

use api::exec::event::ExecutionError;
use tokio::time::Instant;

use super::context::START_MAX;
use super::frame::{self, Command, Frame, Report};
use super::interpreter::Interpreter;
use super::interruption::Interruption;
use super::sink::{Channel, Sink};

/// What a cell that ran out of its time gets to end by itself before its interpreter is killed.
const TIMEOUT_GRACE: Duration = Duration::from_secs(2);

/// A cell that runs.
pub(super) struct RunningCell<'a> {
    pub(super) sink: &'a Sink,
    pub(super) timeout: Option<Duration>,
    pub(super) deadline: CellTimeout,
    pub(super) interruption: Interruption,
    pub(super) has_failed: bool,
}

impl RunningCell<'_> {
    /// Takes a frame of the driver; returns whether the cell has ended.
    pub(super) async fn take(&mut self, driver: &mut Interpreter, frame: Frame) -> bool {
        match frame.kind {
            Report::Begun => self.interruption.began(driver).await,
            Report::Sync => drop(driver.tell(&frame::encode(Command::Synced, &[])).await),
            Report::Pong if self.interruption.is_answered(&frame) => return true,
            Report::Finished => {
                // A kernel may end an interrupted cell without a word.
                if self.deadline.has_fired() && !self.has_failed {
                    self.sink.error(timed_out(self.timeout)).await;
                }
                return self.interruption.finished(driver).await;
            }
            Report::Status => {
                let Some(status) = self.interruption.reported(driver, &frame).await else {
                    return false;
                };
                let held = self.interruption.held();
                self.sink.text(Channel::Stderr, held).await;
                if self.deadline.has_fired() {
                    self.sink.error(timed_out(self.timeout)).await;
                } else if status != 0 {
                    self.sink.error(ExecutionError::exit_code(status)).await;
                }
                return true;
            }
            Report::Error if self.deadline.has_fired() => {
                self.has_failed = true;
                self.sink.error(timed_out(self.timeout)).await;
            }
            // Nobody can be asked: the protocol has no way to send input to a cell.
            Report::Prompt => drop(driver.tell(&frame::encode(Command::NoInput, &[])).await),
            _ => report(frame, self.sink).await,
        }
        false
    }
}

/// When a cell's time is over: first it is asked to stop, then its interpreter is killed.
pub(super) struct CellTimeout {
    pub(super) interrupt_at: Option<Instant>,
    pub(super) kill_at: Option<Instant>,
}

impl CellTimeout {
    pub(super) async fn tick(&self) {
        match self.kill_at.or(self.interrupt_at) {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Whether the cell is to be asked to stop; the second time its interpreter is killed.
    pub(super) fn fire(&mut self, driver: &mut Interpreter) -> bool {
        match self.interrupt_at.take() {
            Some(_) => {
                self.kill_at = Some(Instant::now() + TIMEOUT_GRACE);
                true
            }
            None => {
                driver.kill();
                // Fired for the last time: only the end of the process is awaited now.
                self.kill_at = self.kill_at.map(|at| at + START_MAX);
                false
            }
        }
    }

    pub(super) fn has_fired(&self) -> bool {
        self.kill_at.is_some()
    }
}

async fn report(frame: Frame, sink: &Sink) {
    let mut fields = frame
        .fields
        .into_iter()
        .map(|field| String::from_utf8_lossy(&field).into_owned());
    match frame.kind {
        Report::Result => {
            let count = fields.next().and_then(|count| count.parse().ok());
            sink.value(count, values(fields)).await;
        }
        Report::Display => {
            // The id and whether this updates an older display: a stream of events cannot
            // change what it has sent, so an update is shown anew.
            let _ = (fields.next(), fields.next());
            sink.value(None, values(fields)).await;
        }
        Report::Error => {
            let (ename, evalue) = (
                fields.next().unwrap_or_default(),
                fields.next().unwrap_or_default(),
            );
            sink.error(ExecutionError {
                ename,
                evalue,
                traceback: fields.collect(),
            })
            .await;
        }
        // To clear what was shown has no event; the text stays.
        _ => {}
    }
}

fn values(mut fields: impl Iterator<Item = String>) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    while let (Some(mime), Some(value)) = (fields.next(), fields.next()) {
        values.insert(mime, value);
    }
    values
}

pub(super) fn failure(name: &str, message: &str) -> ExecutionError {
    ExecutionError {
        ename: name.to_owned(),
        evalue: message.to_owned(),
        traceback: vec![format!("{name}: {message}")],
    }
}

pub(super) fn timed_out(timeout: Option<Duration>) -> ExecutionError {
    let after = timeout.unwrap_or_default().as_millis();
    failure(
        "TimeoutError",
        &format!("the code ran longer than its timeout of {after} ms and was stopped"),
    )
}
