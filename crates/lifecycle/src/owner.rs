//! The task that owns one sandbox. Requests, timers and what the backend reports go into it, one
//! at a time; it alone changes the sandbox, and publishes what it is through a `watch`.
//!
//! Decisions are made by `machine::step`; what it asks for is carried out in `effects`: backend
//! calls (`call_slot`), the record (`record_writer`), the expiry timer and answers to whoever asked
//! (`command`). A caller that goes away changes nothing here.

mod call_slot;
mod command;
mod effects;
mod published;
mod requests;
mod retry;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::backend::Logs;
use crate::caller::AuditContext;
use crate::calls::{self, CallEvent};
use crate::deadlines;
use crate::error::Error;
use crate::event::EventKind;
use crate::machine::{Event, MachineState, Op, step};
use crate::observer::Stopwatch;
use crate::record_writer::{RecordWriter, Saved};
use crate::sandbox::{Reason, Sandbox, State};
use crate::shared::{Handle, Shared};
use crate::store::{KeyRecord, SandboxRecord};
use crate::timers::{Alarm, ExpiryTimer};
use call_slot::{CallMessage, CallSlot};
pub(crate) use command::{Command, Message};
use command::{Reply, Waiting};
use published::Published;
use retry::Retry;

/// Requests that wait for one sandbox. More are refused: nobody needs a hundred answers about
/// one sandbox at once.
const MAILBOX: usize = 64;

pub(crate) struct Owner {
    shared: Arc<Shared>,
    machine_state: MachineState,
    published: Published,
    record_writer: RecordWriter,
    commands: mpsc::Receiver<Message>,
    check: watch::Receiver<u64>,
    expiry: ExpiryTimer,
    call: CallSlot,
    waiting: Waiting,
    /// When the client that asked for the sandbox should not wait any longer.
    answer_by: Option<Instant>,
    retry: Retry,
    /// How long its creation takes, while it does.
    stopwatch: Option<Stopwatch>,
    /// The end of its output, read when it was deleted.
    last_logs: Option<Logs>,
    is_forgotten: bool,
    is_draining: bool,
}

/// How an owner takes up its sandbox.
pub(crate) enum Origination {
    /// Asked for just now.
    Create {
        key: Option<KeyRecord>,
        by: Option<AuditContext>,
        reply: Reply<Arc<Sandbox>>,
    },
    /// Found in the store at start.
    Restore,
    /// Found in the backend without a record.
    Adopt,
}

/// Puts a sandbox into the index, begins what it needs and starts its task.
pub(crate) fn spawn(shared: &Arc<Shared>, record: SandboxRecord, origination: Origination) {
    let (commands_in, commands) = mpsc::channel(MAILBOX);
    let (check_in, check) = watch::channel(0);
    let SandboxRecord { sandbox, recipe } = record;
    let id = sandbox.id.clone();
    let is_new = matches!(origination, Origination::Create { .. });
    let machine_state = if is_new {
        MachineState::new(id.clone(), sandbox.timeout, sandbox.expires_at)
    } else {
        MachineState::restored_from(&sandbox)
    };
    let (published, view) = Published::new(sandbox);
    let mut owner = Owner {
        shared: shared.clone(),
        machine_state,
        published,
        record_writer: RecordWriter::new(shared.journal.clone(), id.clone(), recipe, is_new),
        commands,
        check,
        expiry: shared.timers.timer(id.clone()),
        call: CallSlot::new(),
        waiting: Waiting::default(),
        answer_by: None,
        retry: Retry::new(),
        stopwatch: is_new.then(Stopwatch::start),
        last_logs: None,
        is_forgotten: false,
        is_draining: false,
    };
    let handle = Handle {
        commands: commands_in,
        view,
        check: check_in,
        next_touch: Arc::default(),
    };
    shared.insert(id, handle);
    // Here and not in the task: a creation need not wait until the task gets its first turn.
    owner.begin(origination);
    shared.tasks.spawn(owner.run());
}

impl Owner {
    fn begin(&mut self, origination: Origination) {
        match origination {
            Origination::Create { key, by, reply } => {
                self.waiting.create = Some(reply);
                self.answer_by = Some(Instant::now() + deadlines::CREATE_ANSWER);
                self.record_writer.claim(key);
                self.record_writer.record(by);
                let reason = self.machine_state.reason.as_str();
                self.note(EventKind::Created, reason, "Asked for");
                // The record becomes durable while the backend works.
                self.record_writer.save(self.published.record());
                self.feed(Event::Begin);
            }
            Origination::Restore => self.feed(Event::Restored),
            Origination::Adopt => {
                let message = "Found without a record and adopted";
                self.note(EventKind::Repaired, "ADOPTED", message);
                self.record_writer.save(self.published.record());
                self.feed(Event::Restored);
                self.feed(Event::Check);
            }
        }
    }

    async fn run(mut self) {
        while !self.is_over() {
            self.turn().await;
        }
    }

    /// Gone and dropped from the store; or the server stops and nothing is under way.
    fn is_over(&self) -> bool {
        let is_quiet = self.machine_state.op.is_none() && self.record_writer.is_idle();
        (self.is_forgotten && self.record_writer.is_clean()) || (self.is_draining && is_quiet)
    }

    async fn turn(&mut self) {
        let timers = [self.call.deadline, self.answer_by, self.retry.at];
        let wake = timers.into_iter().flatten().min();
        tokio::select! {
            told = self.call.report() => self.on_report(told),
            saved = self.record_writer.saved() => self.on_saved(saved),
            Some(message) = self.commands.recv(), if !self.is_draining => self.on_message(message),
            alarm = self.expiry.alarm() => self.on_alarm(alarm),
            Ok(()) = self.check.changed() => self.on_check(),
            () = sleep_until(wake), if wake.is_some() => self.on_wake(),
            () = self.shared.stop.cancelled(), if !self.is_draining => self.is_draining = true,
        }
    }

    /// Deletion waits only so long for another call on the same sandbox.
    fn shorten_deadline(&mut self) {
        if self.machine_state.op.is_some_and(|op| op != Op::Delete) {
            self.call.shorten_deadline(deadlines::DELETE_PATIENCE);
        }
    }

    fn on_alarm(&mut self, alarm: Alarm) {
        let deadline = alarm.deadline;
        if self
            .machine_state
            .expires_at
            .is_some_and(|at| at != deadline)
        {
            self.feed(Event::Shifted { to: deadline });
            let message = format!("The wall clock was set; expires at {deadline}");
            self.note(EventKind::ClockJumped, "CLOCK_JUMPED", message);
        }
        if alarm.is_due {
            self.feed(Event::Expired { deadline });
            self.shorten_deadline();
        }
    }

    fn on_check(&mut self) {
        if !self.is_forgotten {
            self.feed(Event::Check);
        }
    }

    fn on_wake(&mut self) {
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.call.deadline) {
            let unknown = ("the call", Duration::ZERO);
            let (action, after) = self.machine_state.op.map_or(unknown, call_slot::describe);
            tracing::warn!(sandbox_id = %self.machine_state.id, action, "a backend call takes too long");
            self.call.give_up();
            self.finish(Event::OpTimedOut(Error::Timeout { action, after }));
        }
        if is_due(self.answer_by) {
            self.answer_by = None;
            self.feed(Event::AnswerDue);
        }
        if is_due(self.retry.at) {
            self.retry.at = None;
            self.record_writer.retry(self.published.record());
            if !self.is_forgotten {
                self.feed(Event::RetryDelete);
            }
        }
    }

    fn on_report(&mut self, told: CallMessage) {
        let event = match told {
            CallMessage::Current(event) => event,
            CallMessage::Superseded(event) => return self.on_late_report(event),
        };
        // A call that a deletion waits for is not given more time.
        let is_awaited = self.machine_state.state == State::Stopping;
        match event {
            CallEvent::PullNeeded => {
                if !is_awaited {
                    self.call.allow(deadlines::PULL + deadlines::CREATE_QUEUE);
                }
                if let Some(stopwatch) = &mut self.stopwatch {
                    stopwatch.pull_begins();
                }
                let hold = Instant::now() + deadlines::PULL_HOLD;
                self.answer_by = self.answer_by.map(|at| at.min(hold));
                self.feed(Event::PullNeeded);
            }
            CallEvent::PullProgress { percent } => self.feed(Event::PullProgress { percent }),
            CallEvent::TurnCame if is_awaited => {}
            CallEvent::TurnCame => {
                self.time_making();
                self.call.allow(deadlines::CREATE);
            }
            CallEvent::Made { created, pulled } => {
                self.tell_times(None);
                let now = self.shared.clock.now();
                self.finish(Event::Made {
                    created,
                    pulled,
                    now,
                });
            }
            CallEvent::MakeFailed { reason, error } => {
                self.tell_times(Some(reason));
                tracing::warn!(sandbox_id = %self.machine_state.id, reason = reason.as_str(), error = %api::error_chain(&error), "the sandbox could not be made");
                self.finish(Event::MakeFailed { reason, error });
            }
            CallEvent::Paused(result) => self.finish(Event::PauseDone(result)),
            CallEvent::Resumed(result) => self.finish(Event::ResumeDone(result)),
            CallEvent::Inspected(observation) => self.finish(Event::Inspected(observation)),
            CallEvent::Deleted { result, logs } => {
                // A second attempt may find the half of it that is left.
                self.last_logs = self.last_logs.take().or(logs);
                self.finish(Event::DeleteDone(result));
            }
            CallEvent::Snapshotted(result) => {
                let result = result.map(|made| {
                    if let Some(pending) = &mut self.waiting.snapshot {
                        pending.details = Some(made);
                    }
                });
                self.finish(Event::SnapshotDone(result));
            }
            CallEvent::PolicyChanged(result) => {
                let result = result.map(|outcome| {
                    if let Some(pending) = &mut self.waiting.policy {
                        pending.outcome = Some(outcome);
                    }
                });
                self.finish(Event::PolicyChanged(result));
            }
        }
    }

    pub(super) fn time_making(&mut self) {
        if let Some(stopwatch) = &mut self.stopwatch {
            stopwatch.make_begins();
        }
    }

    /// Tells, once, how long the creation took.
    fn tell_times(&mut self, failure: Option<Reason>) {
        let Some(stopwatch) = self.stopwatch.take() else {
            return;
        };
        let times = stopwatch.times(&self.published.record().origin, failure);
        if failure.is_none() {
            let ms = |it: Option<Duration>| it.map(|it| it.as_secs_f64() * 1000.0);
            let (pull_ms, make_ms) = (ms(times.pull), ms(times.make));
            let image = times.origin.to_string();
            tracing::info!(sandbox_id = %self.machine_state.id, image, pull_ms, make_ms, total_ms = ms(Some(times.total)), "sandbox made");
        }
        if let Some(observer) = &self.shared.config.observer {
            observer.created(&times);
        }
    }

    /// A call that was given up has ended after all: what it made must go, what it changed must
    /// be looked at.
    fn on_late_report(&mut self, event: CallEvent) {
        match event {
            CallEvent::Made { .. } => {
                calls::discard(self.shared.clone(), self.machine_state.id.clone());
            }
            CallEvent::Snapshotted(Ok(details)) => {
                calls::discard_snapshot(self.shared.clone(), details.id);
            }
            CallEvent::Paused(Ok(())) | CallEvent::Resumed(Ok(())) => self.on_check(),
            _ => {}
        }
    }

    /// Feeds the end of a call, then whatever waited for it.
    fn finish(&mut self, event: Event) {
        self.call.deadline = None;
        self.feed(event);
        while let Some(command) = self
            .waiting
            .next_held(|ask| self.machine_state.must_wait(ask))
        {
            self.handle(command);
        }
    }

    fn on_saved(&mut self, Saved { result, is_first }: Saved) {
        if result.is_err() {
            self.retry.schedule();
        }
        let version = self.record_writer.saved_version();
        self.published.settle_metadata(version, &result);
        if is_first && !self.is_forgotten {
            if let Err(error) = &result {
                tracing::warn!(sandbox_id = %self.machine_state.id, error = %api::error_chain(error), "the sandbox cannot be recorded");
            }
            self.feed(Event::Recorded(result));
        }
        self.record_writer.continue_saving(self.published.record());
    }

    /// One step of the machine, with everything it asks for.
    fn feed(&mut self, event: Event) {
        let effects = step(&mut self.machine_state, event);
        let now = || self.shared.clock.now();
        self.published.update(&self.machine_state, now);
        for effect in effects {
            self.carry_out(effect);
        }
    }

    /// An event that tells state, reason and message as they are now.
    fn note_situation(&mut self, kind: EventKind) {
        let message = self.machine_state.message.clone();
        self.note(kind, self.machine_state.reason.as_str(), message);
    }

    /// Records in the audit trail what happened to the sandbox without anybody's request.
    fn audit(&mut self, action: &str, outcome: &str, message: String) {
        let at = self.shared.clock.now();
        let tenant = self.published.tenant();
        let audit = AuditContext::of_server(at, action, outcome, message, tenant);
        self.record_writer.record(Some(audit));
    }

    fn note(&mut self, kind: EventKind, reason: &str, message: impl Into<String>) {
        let event = crate::event::Event {
            id: 0,
            at: self.shared.clock.now(),
            tenant: self.published.tenant(),
            kind,
            sandbox_id: Some(self.machine_state.id.clone()),
            snapshot_id: None,
            state: Some(self.machine_state.state),
            reason: reason.to_owned(),
            message: message.into(),
            expires_at: self.machine_state.expires_at,
        };
        self.record_writer.note(event);
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
