//! The task that owns one sandbox. Requests, timers and backend news go into it, one at a time;
//! it alone changes the sandbox, and publishes what it is through a `watch`.
//!
//! Decisions are made by `machine::step`; this file carries out its effects: it starts backend
//! calls (`calls`), keeps the record (`keeper`), sets timers and answers whoever asked. A caller
//! that goes away changes nothing here.

mod effects;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use api::id::SnapshotId;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backend::{Created, Exit, SnapshotDetails};
use crate::caller::AuditContext;
use crate::calls::{self, News, Report};
use crate::deadlines;
use crate::error::Error;
use crate::event::EventKind;
use crate::keeper::Keeper;
use crate::machine::{Ask, Event, Op, Situation, after, step};
use crate::metadata::{Asker, Metadata, Patch};
use crate::sandbox::{Reason, Sandbox, State};
use crate::shared::{Handle, Shared};
use crate::store::{KeyRecord, SandboxRecord};
use crate::timers::{Alarm, Bell};

/// Requests that wait for one sandbox. More are refused: nobody needs a hundred answers about
/// one sandbox at once.
const MAILBOX: usize = 64;

/// Requests held back until the backend call under way is over.
const HELD: usize = 32;

/// Reports of calls that wait to be read: at most a handful of calls are alive for one sandbox.
const REPORTS: usize = 16;

type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What the owner can be told.
pub(crate) enum Command {
    Pause(Reply<()>),
    Resume(Reply<()>),
    Delete {
        reply: Reply<()>,
        by: Option<AuditContext>,
    },
    Renew {
        to: Timestamp,
        by: Option<AuditContext>,
        reply: Reply<Timestamp>,
    },
    /// Somebody used the sandbox through the proxy.
    Touch,
    PatchMetadata {
        patch: Patch,
        by: Option<AuditContext>,
        reply: Asker,
    },
    Snapshot {
        snapshot: SnapshotId,
        reply: Reply<SnapshotDetails>,
    },
    Exited(Exit),
    OutOfMemory,
}

/// Who asked and waits.
#[derive(Default)]
struct Waiting {
    create: Option<Reply<Arc<Sandbox>>>,
    pause: Vec<Reply<()>>,
    resume: Vec<Reply<()>>,
    delete: Vec<Reply<()>>,
    renew: Option<Reply<Timestamp>>,
    snapshot: Option<(SnapshotId, Reply<SnapshotDetails>)>,
}

/// The outcome of a creation that waits until the record is durable.
struct Outcome(Result<(Created, bool), (Reason, Error)>);

pub(crate) struct Owner {
    shared: Arc<Shared>,
    at: Situation,
    /// With the metadata as it will be recorded.
    sandbox: Sandbox,
    metadata: Metadata,
    keeper: Keeper,
    view: watch::Sender<Arc<Sandbox>>,
    commands: mpsc::Receiver<Command>,
    check: watch::Receiver<u64>,
    alarm: watch::Receiver<Alarm>,
    bell: Bell,
    reports: mpsc::Receiver<Report>,
    report_to: mpsc::Sender<Report>,
    waiting: Waiting,
    held: VecDeque<Command>,
    /// The number of the newest backend call; older ones were given up.
    ticket: u64,
    op_deadline: Option<Instant>,
    answer_by: Option<Instant>,
    retry_at: Option<Instant>,
    retry_wait: Duration,
    cancel_make: CancellationToken,
    /// Waits for the first record to be durable.
    outcome: Option<Outcome>,
    needs_pull: bool,
    snapshot_details: Option<SnapshotDetails>,
    is_forgotten: bool,
    is_draining: bool,
}

/// How a sandbox comes to its owner.
pub(crate) enum Origin {
    /// Asked for just now.
    New {
        key: Option<KeyRecord>,
        by: Option<AuditContext>,
        reply: Reply<Arc<Sandbox>>,
    },
    /// Found in the store at start.
    Stored,
    /// Found in the backend without a record.
    Adopted,
}

/// Starts the task of a sandbox and puts it into the index.
pub(crate) fn spawn(shared: &Arc<Shared>, record: SandboxRecord, origin: Origin) -> Handle {
    let (commands_in, commands) = mpsc::channel(MAILBOX);
    let (check_in, check) = watch::channel(0);
    let (bell, alarm) = watch::channel(Alarm::default());
    let (report_to, reports) = mpsc::channel(REPORTS);
    let (view, view_out) = watch::channel(Arc::new(record.sandbox.clone()));
    let sandbox = record.sandbox;
    let at = match &origin {
        Origin::New { .. } => {
            Situation::new(sandbox.id.clone(), sandbox.timeout, sandbox.expires_at)
        }
        Origin::Stored | Origin::Adopted => Situation::restored(
            sandbox.id.clone(),
            (
                sandbox.status.state,
                sandbox.status.reason,
                sandbox.status.message.clone(),
            ),
            (sandbox.timeout, sandbox.expires_at),
            sandbox.exit.clone(),
        ),
    };
    let id = sandbox.id.clone();
    let is_new = matches!(origin, Origin::New { .. });
    let owner = Owner {
        shared: shared.clone(),
        at,
        keeper: Keeper::new(shared.journal.clone(), id.clone(), record.recipe, is_new),
        metadata: Metadata::new(sandbox.metadata.clone()),
        sandbox,
        view,
        commands,
        check,
        alarm,
        bell: Bell {
            ticket: 0,
            sender: bell,
        },
        reports,
        report_to,
        waiting: Waiting::default(),
        held: VecDeque::new(),
        ticket: 0,
        op_deadline: None,
        answer_by: None,
        retry_at: None,
        retry_wait: deadlines::DELETE_RETRY,
        cancel_make: CancellationToken::new(),
        outcome: None,
        needs_pull: false,
        snapshot_details: None,
        is_forgotten: false,
        is_draining: false,
    };
    let handle = Handle {
        commands: commands_in,
        view: view_out,
        check: check_in,
        next_touch: Arc::default(),
    };
    shared.insert(id, handle.clone());
    shared.tasks.spawn(owner.run(origin));
    handle
}

impl Owner {
    async fn run(mut self, origin: Origin) {
        match origin {
            Origin::New { key, by, reply } => {
                self.waiting.create = Some(reply);
                self.answer_by = Some(Instant::now() + deadlines::CREATE_ANSWER);
                self.keeper.claim(key);
                self.keeper.record(by);
                self.note(
                    EventKind::Created,
                    self.sandbox.status.reason.as_str(),
                    "Asked for",
                );
                // The record becomes durable while the backend works.
                self.keeper.save(&self.sandbox);
                self.feed(Event::Begin).await;
            }
            Origin::Stored => self.feed(Event::Restored).await,
            Origin::Adopted => {
                self.note(
                    EventKind::Repaired,
                    "ADOPTED",
                    "Found without a record and adopted",
                );
                self.keeper.save(&self.sandbox);
                self.feed(Event::Restored).await;
                self.feed(Event::Check).await;
            }
        }
        while !self.is_over() {
            self.turn().await;
        }
    }

    /// Gone and dropped from the store; or the server stops and nothing is under way.
    fn is_over(&self) -> bool {
        let is_quiet = self.at.op.is_none() && self.keeper.is_idle();
        (self.is_forgotten && self.keeper.is_clean()) || (self.is_draining && is_quiet)
    }

    async fn turn(&mut self) {
        let wake = [self.op_deadline, self.answer_by, self.retry_at]
            .into_iter()
            .flatten()
            .min();
        tokio::select! {
            Some(report) = self.reports.recv() => self.on_report(report).await,
            saved = self.keeper.saved() => self.on_saved(saved).await,
            Some(command) = self.commands.recv(), if !self.is_draining => {
                self.on_command(command).await;
            }
            Ok(()) = self.alarm.changed() => self.on_alarm().await,
            Ok(()) = self.check.changed() => self.on_check().await,
            () = sleep_until(wake), if wake.is_some() => self.on_wake().await,
            () = self.shared.stop.cancelled(), if !self.is_draining => self.is_draining = true,
        }
    }

    async fn on_command(&mut self, command: Command) {
        if self.is_forgotten {
            return refuse(command, &Error::NotFound(self.at.id.clone()));
        }
        let ask = match &command {
            Command::Pause(_) => Some(Ask::Pause),
            Command::Resume(_) => Some(Ask::Resume),
            Command::Snapshot { .. } => Some(Ask::Snapshot),
            _ => None,
        };
        if ask.is_some_and(|ask| self.at.must_wait(ask)) {
            if self.held.len() < HELD {
                self.held.push_back(command);
            } else {
                refuse(command, &Error::Busy(self.at.id.clone()));
            }
            return;
        }
        self.obey(command).await;
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Pause(reply) => {
                self.waiting.pause.push(reply);
                self.feed(Event::Pause).await;
            }
            Command::Resume(reply) => {
                self.waiting.resume.push(reply);
                self.feed(Event::Resume).await;
            }
            Command::Snapshot { snapshot, reply } => {
                // Never two at once: a second one is held while the first runs.
                self.waiting.snapshot = Some((snapshot, reply));
                self.feed(Event::Snapshot).await;
            }
            Command::Delete { reply, by } => {
                self.waiting.delete.push(reply);
                // A second wish writes nothing more.
                if self.at.state != State::Stopping {
                    self.keeper.record(by);
                }
                self.feed(Event::Delete).await;
                self.hurry();
            }
            Command::Renew { to, by, reply } => {
                self.waiting.renew = Some(reply);
                self.keeper.record(by.clone());
                self.renew(to, "Renewed").await;
                if let Some(by) = by {
                    self.keeper.unrecord(&by);
                }
            }
            Command::Touch => self.touch().await,
            Command::PatchMetadata { patch, by, reply } => self.patch(patch, by, reply),
            Command::Exited(exit) => self.feed(Event::Exited(exit)).await,
            Command::OutOfMemory => {
                let message = "A process was killed because the sandbox ran out of memory";
                self.note(EventKind::OutOfMemory, "OUT_OF_MEMORY", message);
                self.keeper.save(&self.sandbox);
            }
        }
    }

    async fn renew(&mut self, to: Timestamp, message: &str) {
        let before = self.at.expires_at;
        self.feed(Event::Renew {
            to,
            now: self.shared.clock.now(),
        })
        .await;
        if self.at.expires_at != before {
            self.note(
                EventKind::Renewed,
                "RENEWED",
                &format!("{message} until {to}"),
            );
            // The write of the new expiration is under way without the event.
            self.keeper.save(&self.sandbox);
        }
    }

    async fn touch(&mut self) {
        let now = self.shared.clock.now();
        let until = self
            .sandbox
            .renew_on_access
            .and_then(|extend| after(now, extend));
        if let (Some(until), Some(expires_at)) = (until, self.at.expires_at)
            && until > expires_at
        {
            self.renew(until, "Renewed by access").await;
        }
    }

    fn patch(&mut self, patch: Patch, by: Option<AuditContext>, reply: Asker) {
        if self.at.state == State::Stopping {
            let _ = reply.send(Err(Error::NotFound(self.at.id.clone())));
            return;
        }
        let message = "Metadata changed";
        self.note(EventKind::MetadataChanged, "METADATA_CHANGED", message);
        self.keeper.record(by);
        self.metadata.add(self.keeper.next_version(), patch, reply);
        self.sandbox.metadata = self.metadata.recorded();
        self.keeper.save(&self.sandbox);
    }

    /// Shows changes of the metadata that are durable, takes back those that are not.
    fn settle_metadata(&mut self, saved: &Result<(), Error>) {
        let version = self.keeper.saved_version();
        let askers = self.metadata.settle(version, saved.is_ok());
        if askers.is_empty() {
            return;
        }
        self.sandbox.metadata = self.metadata.recorded();
        self.publish();
        let sandbox = self.view.borrow().clone();
        for asker in askers {
            let _ = asker.send(saved.clone().map(|()| sandbox.clone()));
        }
    }

    /// Deletion waits only so long for another call on the same sandbox.
    fn hurry(&mut self) {
        if self.at.op.is_some_and(|op| op != Op::Delete) {
            let limit = Instant::now() + deadlines::DELETE_PATIENCE;
            self.op_deadline = self.op_deadline.map(|deadline| deadline.min(limit));
        }
    }

    async fn on_alarm(&mut self) {
        let alarm = *self.alarm.borrow_and_update();
        if alarm.ticket != self.bell.ticket {
            return;
        }
        if self.at.expires_at.is_some_and(|at| at != alarm.at) {
            self.feed(Event::Shifted { to: alarm.at }).await;
            let message = format!("The wall clock was set; expires at {}", alarm.at);
            self.note(EventKind::ClockJumped, "CLOCK_JUMPED", &message);
        }
        if alarm.is_due {
            self.feed(Event::Expired { deadline: alarm.at }).await;
            self.hurry();
        }
    }

    async fn on_check(&mut self) {
        self.check.mark_unchanged();
        if !self.is_forgotten {
            self.feed(Event::Check).await;
        }
    }

    async fn on_wake(&mut self) {
        let now = Instant::now();
        if self.op_deadline.is_some_and(|at| at <= now) {
            self.op_deadline = None;
            let (action, after) = self
                .at
                .op
                .map_or(("the call", Duration::ZERO), effects::describe);
            tracing::warn!(sandbox = %self.at.id, action, "a backend call takes too long");
            self.ticket += 1;
            self.finish(Event::OpTimedOut(Error::Timeout { action, after }))
                .await;
        }
        if self.answer_by.is_some_and(|at| at <= now) {
            self.answer_by = None;
            // An answer promises that the sandbox can be found again.
            if self.keeper.is_recorded() {
                self.feed(Event::AnswerNow).await;
            } else {
                self.keeper.answer_when_recorded();
            }
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.keeper.retry(&self.sandbox);
            if !self.is_forgotten {
                self.feed(Event::RetryDelete).await;
            }
        }
    }

    async fn on_report(&mut self, report: Report) {
        if report.ticket != self.ticket {
            return self.on_late_report(report.news);
        }
        match report.news {
            News::NeedsPull if self.at.state == State::Pending => {
                let span = deadlines::PULL + deadlines::CREATE_QUEUE;
                self.op_deadline = Some(Instant::now() + span);
                self.needs_pull = true;
                self.try_pulling().await;
            }
            News::PullProgress(percent) if self.at.state == State::Pending => {
                self.at.message = format!("The image is being pulled: {percent} %");
                self.publish();
            }
            News::NeedsPull | News::PullProgress(_) => {}
            News::Starting => {
                if self.at.state != State::Stopping {
                    self.op_deadline = Some(Instant::now() + deadlines::CREATE);
                }
            }
            News::Made { created, pulled } => self.conclude(Ok((created, pulled))).await,
            News::MakeFailed { reason, error } => self.conclude(Err((reason, error))).await,
            News::Paused(result) => self.finish(Event::PauseDone(result)).await,
            News::Resumed(result) => self.finish(Event::ResumeDone(result)).await,
            News::Inspected(sight) => self.finish(Event::Inspected(sight)).await,
            News::Deleted(result) => self.finish(Event::DeleteDone(result)).await,
            News::Snapshotted(result) => {
                let result = result.map(|details| self.snapshot_details = Some(details));
                self.finish(Event::SnapshotDone(result)).await;
            }
        }
    }

    /// A call that was given up has ended after all: what it made must go, what it changed must
    /// be looked at.
    fn on_late_report(&mut self, news: News) {
        match news {
            News::Made { .. } => calls::discard(self.shared.clone(), self.at.id.clone()),
            News::Snapshotted(Ok(details)) => {
                calls::discard_snapshot(self.shared.clone(), details.id);
            }
            News::Paused(Ok(())) | News::Resumed(Ok(())) => {
                if let Ok(handle) = self.shared.handle(&self.at.id) {
                    handle.check();
                }
            }
            _ => {}
        }
    }

    async fn try_pulling(&mut self) {
        if self.needs_pull && self.keeper.is_recorded() {
            self.needs_pull = false;
            self.answer_by = None;
            self.feed(Event::Pulling).await;
        }
    }

    /// The creation is over; what that means waits until the record is durable or refused.
    async fn conclude(&mut self, outcome: Result<(Created, bool), (Reason, Error)>) {
        self.op_deadline = None;
        self.outcome = Some(Outcome(outcome));
        self.try_concluding().await;
    }

    async fn try_concluding(&mut self) {
        if !self.keeper.has_first_answer() {
            return;
        }
        let Some(Outcome(outcome)) = self.outcome.take() else {
            return;
        };
        self.answer_by = None;
        let refused = self.keeper.first_error();
        let event = match (outcome, refused) {
            (Ok(_), Some(error)) => {
                // Made, but nobody would know: take it back.
                calls::discard(self.shared.clone(), self.at.id.clone());
                Event::MakeFailed {
                    reason: Reason::ContainerStartFailed,
                    error,
                }
            }
            (Err(_), Some(error)) => Event::MakeFailed {
                reason: Reason::ContainerStartFailed,
                error,
            },
            (Err((reason, error)), None) => Event::MakeFailed { reason, error },
            (Ok((created, pulled)), None) => {
                self.sandbox.started_at = Some(created.started_at);
                self.sandbox.entrypoint = Some(created.entrypoint);
                self.sandbox.platform = Some(created.platform);
                Event::Made {
                    now: self.shared.clock.now(),
                    pulled,
                }
            }
        };
        self.finish(event).await;
    }

    /// Feeds the end of a call, then whatever waited for it.
    async fn finish(&mut self, event: Event) {
        self.op_deadline = None;
        self.feed(event).await;
        while let Some(command) = self.held.pop_front() {
            if self.is_forgotten {
                refuse(command, &Error::NotFound(self.at.id.clone()));
                continue;
            }
            let (ask, is_given_up) = match &command {
                Command::Resume(reply) => (Ask::Resume, reply.is_closed()),
                Command::Snapshot { reply, .. } => (Ask::Snapshot, reply.is_closed()),
                Command::Pause(reply) => (Ask::Pause, reply.is_closed()),
                // Nothing else is held.
                _ => continue,
            };
            // What was not begun before its caller gave up must not happen out of the blue.
            if is_given_up {
                continue;
            }
            if self.at.must_wait(ask) {
                self.held.push_front(command);
                return;
            }
            self.obey(command).await;
        }
    }

    async fn on_saved(&mut self, saved: Result<(), Error>) {
        if saved.is_err() {
            self.schedule_retry();
        }
        self.settle_metadata(&saved);
        if self.is_forgotten {
            return self.keeper.continue_saving(&self.sandbox);
        }
        if let Some(error) = self.keeper.first_error() {
            tracing::warn!(sandbox = %self.at.id, %error, "the sandbox cannot be recorded");
            self.cancel_make.cancel();
        }
        self.try_pulling().await;
        self.try_concluding().await;
        if self.keeper.must_answer() {
            self.feed(Event::AnswerNow).await;
        }
        self.keeper.continue_saving(&self.sandbox);
    }

    /// One step of the machine, with everything it asks for.
    async fn feed(&mut self, event: Event) {
        let (next, effects) = step(self.at.clone(), event);
        let is_changed = next != self.at;
        self.at = next;
        if is_changed {
            self.publish();
        }
        for effect in effects {
            self.carry_out(effect).await;
        }
    }

    /// Copies the situation into what clients see.
    fn publish(&mut self) {
        let status = &mut self.sandbox.status;
        if status.state != self.at.state {
            status.last_transition_at = self.shared.clock.now();
        }
        status.state = self.at.state;
        status.reason = self.at.reason;
        status.message.clone_from(&self.at.message);
        self.sandbox.expires_at = self.at.expires_at;
        self.sandbox.exit.clone_from(&self.at.exit);
        let mut shown = self.sandbox.clone();
        shown.metadata.clone_from(self.metadata.shown());
        self.view.send_replace(Arc::new(shown));
    }

    fn note(&mut self, kind: EventKind, reason: &str, message: &str) {
        let event = crate::event::Event {
            id: 0,
            at: self.shared.clock.now(),
            kind,
            sandbox_id: Some(self.at.id.clone()),
            snapshot_id: None,
            state: Some(self.at.state),
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        self.keeper.note(event);
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Answers a command that will not be carried out.
fn refuse(command: Command, error: &Error) {
    let error = error.clone();
    match command {
        Command::Pause(reply) | Command::Resume(reply) => drop(reply.send(Err(error))),
        // What is gone is deleted.
        Command::Delete { reply, .. } => drop(reply.send(Ok(()))),
        Command::Renew { reply, .. } => drop(reply.send(Err(error))),
        Command::PatchMetadata { reply, .. } => drop(reply.send(Err(error))),
        Command::Snapshot { reply, .. } => drop(reply.send(Err(error))),
        Command::Touch | Command::Exited(_) | Command::OutOfMemory => {}
    }
}
