//! The state machine of a sandbox: a function of its machine_state and an event alone, which changes
//! the machine_state and says what must be done about it.
//!
//! ```text
//!                    ┌──────────► Failed ◄──────┬───────────┐
//!                    │                          │           │
//!   begin ──► Pending ──► Running ──► Pausing ──► Paused ──► Resuming ──► Running
//!                            │
//!                            └──► Terminated          any ──► Stopping ──► gone
//! ```
//!
//! `Pending` is left by what [`creation`] decides from the store's answer and the backend's:
//!
//! ```text
//!   first record   backend at work             backend has made it   backend has failed
//!   pending        wait                        keep the outcome      keep the outcome
//!   durable        answered `Pending` when     `Running`             answered before: `Failed`
//!                  its image is on its way                           otherwise: an error, gone
//!                  or the answer is due
//!   refused        cancel                      taken back, gone      an error, gone
//! ```
//!
//! Does nothing by itself: no clock, no backend, no store. The owner task carries out the
//! effects and reports back with events. What holds here, whatever the events and their order:
//!
//! - At most one backend call is under way for a sandbox.
//! - `Terminated` and `Failed` are left only by deletion, and `Stopping` by nothing.
//! - Everyone who asked is answered once, and no creation is acknowledged before its record is
//!   durable.
//! - Nothing that was made is forgotten before it is removed.
//! - An expiration counts only for the deadline it was set for.

mod creation;
mod inspection;
mod pausing;
mod removal;

use std::time::Duration;

use api::id::SandboxId;
use jiff::{SignedDuration, Timestamp};

use crate::backend::{Created, Exit, ObservedState};
use crate::error::Error;
use crate::sandbox::{Reason, Sandbox, State, Status};
use creation::CreationProgress;

/// Everything that decides what happens next.
#[derive(Debug, Clone)]
pub(crate) struct MachineState {
    pub(crate) id: SandboxId,
    pub(crate) state: State,
    pub(crate) reason: Reason,
    pub(crate) message: String,
    /// The lifetime asked for; `None` is manual clean-up.
    pub(crate) timeout: Option<Duration>,
    pub(crate) expires_at: Option<Timestamp>,
    /// How PID 1 ended. May be known before `Made` is: an entrypoint can be that short.
    pub(crate) exit: Option<Exit>,
    /// What the backend told of the sandbox, from the moment its creation is concluded.
    pub(crate) created: Option<Created>,
    /// The backend call under way. A creation that waits for its record counts as one.
    pub(crate) op: Option<Op>,
    /// How it had ended before it was deleted, where it had.
    pub(crate) ended_as: Option<(Reason, String)>,
    creation: CreationProgress,
    /// Somebody set the expiration by hand while it was pending.
    was_renewed: bool,
    /// Look at the backend once no call is under way.
    must_check: bool,
}

/// A backend call that changes or inspects the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// Pull if needed, then create. After a crash, first removes what was half made.
    Make {
        /// Remove what is there first.
        clean_first: bool,
    },
    Pause,
    Resume,
    Snapshot,
    ChangePolicy,
    Inspect,
    Delete,
}

/// Something a client asks for and is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    Create,
    Pause,
    Resume,
    Snapshot,
    ChangePolicy,
    Delete,
    Renew,
}

/// What happens to a sandbox.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// It was asked for. Its first record is on its way to the store.
    Begin,
    /// A restarted server found it in its store.
    Restored,
    /// The first record is durable, or the store refused it.
    Recorded(Result<(), Error>),
    /// Its image is not here; a download begins.
    PullNeeded,
    /// How much of the download is done.
    PullProgress {
        percent: u64,
    },
    /// The client that asked for it should not wait any longer.
    AnswerDue,
    /// The backend has made it. `pulled` says whether a download came first.
    Made {
        created: Created,
        pulled: bool,
        now: Timestamp,
    },
    /// It could not be made. Nothing of it is left in the backend.
    MakeFailed {
        reason: Reason,
        error: Error,
    },
    Pause,
    PauseDone(Result<(), Error>),
    Resume,
    ResumeDone(Result<(), Error>),
    Snapshot,
    SnapshotDone(Result<(), Error>),
    ChangePolicy,
    PolicyChanged(Result<(), Error>),
    Delete,
    DeleteDone(Result<(), Error>),
    /// The wait after a failed deletion is over.
    RetryDelete,
    /// A deadline passed.
    Expired {
        deadline: Timestamp,
    },
    /// The wall clock jumped, and the deadline with it.
    Shifted {
        to: Timestamp,
    },
    Renew {
        to: Timestamp,
        now: Timestamp,
    },
    /// PID 1 ended.
    Exited(Exit),
    /// Something says that the backend may see it differently.
    Check,
    Inspected(Observation),
    /// The call under way did not end in time. It is given up: whatever it still does is undone
    /// or looked at by the owner task.
    OpTimedOut(Error),
}

/// What the backend answered when asked about one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Observation {
    Found {
        state: ObservedState,
        started_at: Option<Timestamp>,
    },
    Gone,
    /// It did not answer, so nothing is known.
    Unknown(String),
}

/// What must be done.
#[derive(Debug, Clone)]
pub(crate) enum Effect {
    /// Begin this backend call.
    Start(Op),
    /// End the creation under way as soon as it can be ended.
    CancelMake,
    /// Let the expiry timer fire at this instant, or not at all.
    SetTimer(Option<Timestamp>),
    /// Write the machine_state to the store.
    Save(Change),
    /// The backend saw it differently from us; tell.
    Repaired(String),
    /// Answer everybody who asked this.
    Answer(Ask, Result<(), Error>),
    /// Try to delete again after a wait.
    ScheduleRetry,
    /// Remove something of this sandbox that should not be there, without waiting.
    Discard,
    /// It is gone: drop its record and end.
    Forget,
}

/// What a write to the store is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// State or reason changed: subscribers get an event of it.
    Transition,
    /// Something else, of which nobody is told.
    Detail,
}

/// What must be done, in order.
pub(crate) type Effects = Vec<Effect>;

/// Lets an event happen to a sandbox; answers what must be done.
pub(crate) fn step(machine_state: &mut MachineState, event: Event) -> Effects {
    let mut effects = Effects::new();
    let todo = &mut effects;
    match event {
        Event::Begin => machine_state.start(Op::Make { clean_first: false }, todo),
        Event::Restored => machine_state.restored(todo),
        Event::Recorded(result) => machine_state.recorded(result, todo),
        Event::PullNeeded => machine_state.pull_needed(todo),
        Event::PullProgress { percent } => machine_state.pull_progress(percent, todo),
        Event::AnswerDue => machine_state.answer_due(todo),
        Event::Made {
            created,
            pulled,
            now,
        } => machine_state.made(created, pulled, now, todo),
        Event::MakeFailed { reason, error } => machine_state.make_failed(reason, error, todo),
        Event::Pause => machine_state.pause(todo),
        Event::PauseDone(result) => machine_state.pause_done(result, todo),
        Event::Resume => machine_state.resume(todo),
        Event::ResumeDone(result) => machine_state.resume_done(result, todo),
        Event::Snapshot => machine_state.snapshot(todo),
        Event::SnapshotDone(result) => machine_state.snapshot_done(result, todo),
        Event::ChangePolicy => machine_state.change_policy(todo),
        Event::PolicyChanged(result) => machine_state.policy_changed(result, todo),
        Event::Delete => {
            let why = (Reason::ContainerDeleting, "The sandbox is being deleted");
            machine_state.delete(why, todo);
        }
        Event::DeleteDone(result) => machine_state.delete_done(result, todo),
        Event::RetryDelete => machine_state.retry_delete(todo),
        Event::Expired { deadline } => machine_state.expired(deadline, todo),
        Event::Shifted { to } => machine_state.shifted(to, todo),
        Event::Renew { to, now } => machine_state.renew(to, now, todo),
        Event::Exited(exit) => machine_state.exited(exit, todo),
        Event::Check => machine_state.check(todo),
        Event::Inspected(observation) => machine_state.inspected(observation, todo),
        Event::OpTimedOut(error) => machine_state.timed_out(error, todo),
    }
    effects
}

impl MachineState {
    /// A sandbox that was just asked for.
    pub(crate) fn new(
        id: SandboxId,
        timeout: Option<Duration>,
        expires_at: Option<Timestamp>,
    ) -> MachineState {
        MachineState {
            id,
            state: State::Pending,
            reason: Reason::ContainerStarting,
            message: "The sandbox is starting".to_owned(),
            timeout,
            expires_at,
            exit: None,
            created: None,
            op: None,
            ended_as: None,
            creation: CreationProgress::unrecorded(),
            was_renewed: false,
            must_check: false,
        }
    }

    /// A sandbox as a record of an earlier server describes it.
    pub(crate) fn restored_from(sandbox: &Sandbox) -> MachineState {
        let Status {
            state,
            reason,
            message,
            ..
        } = &sandbox.status;
        MachineState {
            state: *state,
            reason: *reason,
            message: message.clone(),
            exit: sandbox.exit.clone(),
            creation: CreationProgress::recorded(),
            ..MachineState::new(sandbox.id.clone(), sandbox.timeout, sandbox.expires_at)
        }
    }

    /// Writes down what clients see of the machine_state; whether that is a difference.
    pub(crate) fn copy_to(&self, sandbox: &mut Sandbox, now: impl FnOnce() -> Timestamp) -> bool {
        let status = &mut sandbox.status;
        let is_transition = status.state != self.state;
        let is_same = !is_transition
            && status.reason == self.reason
            && status.message == self.message
            && sandbox.expires_at == self.expires_at
            && sandbox.exit == self.exit;
        if is_same {
            return false;
        }
        if is_transition {
            status.last_transition_at = now();
        }
        status.state = self.state;
        status.reason = self.reason;
        status.message.clone_from(&self.message);
        sandbox.expires_at = self.expires_at;
        sandbox.exit.clone_from(&self.exit);
        // Concluding a creation is a transition, and happens once.
        if let (None, Some(created)) = (sandbox.started_at, &self.created) {
            sandbox.started_at = Some(created.started_at);
            sandbox.entrypoint = Some(created.entrypoint.clone());
            sandbox.platform = Some(created.platform.clone());
            sandbox.image_digest.clone_from(&created.image_digest);
        }
        true
    }

    /// Whether this question has to wait until the backend call under way is over. What the
    /// state forbids is refused at once instead.
    pub(crate) fn must_wait(&self, ask: Ask) -> bool {
        let is_settling = matches!(
            self.op,
            Some(Op::Pause | Op::Resume | Op::Snapshot | Op::ChangePolicy | Op::Inspect)
        );
        is_settling
            && !self.state.has_ended()
            && self.state != State::Stopping
            && matches!(
                ask,
                Ask::Pause | Ask::Resume | Ask::Snapshot | Ask::ChangePolicy
            )
    }

    fn set(&mut self, state: State, reason: Reason, message: impl Into<String>) {
        self.state = state;
        self.reason = reason;
        self.message = message.into();
    }

    fn set_running(&mut self) {
        let message = "The sandbox is running";
        self.set(State::Running, Reason::ContainerRunning, message);
    }

    fn set_paused(&mut self) {
        let message = "The sandbox is paused";
        self.set(State::Paused, Reason::ContainerPaused, message);
    }

    fn wrong_state(&self, action: &'static str, wanted: &'static str) -> Error {
        let why = self.state.has_ended().then(|| self.message.clone());
        Error::WrongState {
            id: self.id.clone(),
            action,
            state: self.state,
            why,
            wanted,
        }
    }

    /// Starts a call. Only when none is under way.
    fn start(&mut self, op: Op, effects: &mut Effects) {
        debug_assert!(self.op.is_none(), "one backend call at a time");
        self.op = Some(op);
        effects.push(Effect::Start(op));
    }

    /// A call is over: what waited for that begins.
    fn after_op(&mut self, effects: &mut Effects) {
        if self.op.is_some() {
            return;
        }
        if self.state == State::Stopping {
            self.start(Op::Delete, effects);
        } else if self.must_check {
            self.must_check = false;
            self.start(Op::Inspect, effects);
        }
    }

    /// The instant the expiry timer must fire at: while it is being made or deleted, none.
    fn timer(&self) -> Option<Timestamp> {
        match self.state {
            State::Pending | State::Stopping => None,
            _ => self.expires_at,
        }
    }

    fn restored(&mut self, effects: &mut Effects) {
        effects.push(Effect::SetTimer(self.timer()));
        match self.state {
            // Made, half made or not made at all: only the backend knows.
            State::Pending | State::Pausing | State::Resuming => self.start(Op::Inspect, effects),
            State::Stopping => self.start(Op::Delete, effects),
            State::Running | State::Paused | State::Terminated | State::Failed => {}
        }
    }

    fn renew(&mut self, to: Timestamp, now: Timestamp, effects: &mut Effects) {
        let refusal = if self.state == State::Stopping {
            Some(self.wrong_state("renew", "alive"))
        } else if self.expires_at.is_none() {
            Some(Error::NoExpiration(self.id.clone()))
        } else if to <= now {
            Some(Error::ExpirationInPast)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return effects.push(Effect::Answer(Ask::Renew, Err(refusal)));
        }
        self.expires_at = Some(to);
        self.was_renewed = self.was_renewed || self.state == State::Pending;
        effects.push(Effect::SetTimer(self.timer()));
        effects.push(Effect::Save(Change::Detail));
        effects.push(Effect::Answer(Ask::Renew, Ok(())));
    }

    fn shifted(&mut self, to: Timestamp, effects: &mut Effects) {
        if self.timer().is_some() {
            self.expires_at = Some(to);
            effects.push(Effect::Save(Change::Detail));
        }
    }

    fn timed_out(&mut self, error: Error, effects: &mut Effects) {
        // A creation that only waits for its record has no call under way.
        if self.creation.has_outcome() {
            return;
        }
        let Some(op) = self.op.take() else { return };
        match op {
            Op::Make { .. } => self.make_timed_out(error, effects),
            Op::Pause | Op::Resume => {
                let ask = if op == Op::Pause {
                    Ask::Pause
                } else {
                    Ask::Resume
                };
                effects.push(Effect::Answer(ask, Err(error)));
                self.must_check = true;
                self.after_op(effects);
            }
            Op::Snapshot => {
                effects.push(Effect::Answer(Ask::Snapshot, Err(error)));
                self.after_op(effects);
            }
            Op::ChangePolicy => self.policy_changed(Err(error), effects),
            Op::Inspect => self.inspected(Observation::Unknown(error.to_string()), effects),
            Op::Delete => self.delete_done(Err(error), effects),
        }
    }
}

/// The instant `span` after `from`; `None` past the end of representable time.
pub(crate) fn after(from: Timestamp, span: Duration) -> Option<Timestamp> {
    let span = SignedDuration::try_from(span).ok()?;
    from.checked_add(span).ok()
}

#[cfg(test)]
mod tests;
