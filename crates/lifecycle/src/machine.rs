//! The state machine of a sandbox: a pure function from a situation and an event to the next
//! situation and what must be done about it.
//!
//! ```text
//!                    ┌──────────► Failed ◄──────┬───────────┐
//!                    │                          │           │
//!   begin ──► Pending ──► Running ──► Pausing ──► Paused ──► Resuming ──► Running
//!                            │
//!                            └──► Terminated          any ──► Stopping ──► gone
//! ```
//!
//! Does nothing by itself: no clock, no backend, no store. The owner task carries out the
//! effects and reports back with events. What holds here, whatever the events and their order:
//!
//! - At most one backend call is under way for a sandbox.
//! - `Terminated` and `Failed` are left only by deletion, and `Stopping` by nothing.
//! - Everyone who asked is answered once.
//! - An expiration counts only for the deadline it was set for.

use std::time::Duration;

use api::id::SandboxId;
use jiff::{SignedDuration, Timestamp};

use crate::backend::{Exit, ObservedState};
use crate::error::Error;
use crate::sandbox::{Reason, State};

/// Everything that decides what happens next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Situation {
    pub(crate) id: SandboxId,
    pub(crate) state: State,
    pub(crate) reason: Reason,
    pub(crate) message: String,
    /// The lifetime asked for; `None` is manual clean-up.
    pub(crate) timeout: Option<Duration>,
    pub(crate) expires_at: Option<Timestamp>,
    /// How PID 1 ended. May be known before `Made` is: an entrypoint can be that short.
    pub(crate) exit: Option<Exit>,
    /// The backend call under way.
    pub(crate) op: Option<Op>,
    /// The client that asked for the sandbox has been answered.
    pub(crate) is_answered: bool,
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
    Delete,
    Renew,
}

/// What happens to a sandbox.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// It was asked for.
    Begin,
    /// A restarted server found it in its store.
    Restored,
    /// Its image must be pulled; what is known is durable and the client can be answered.
    Pulling,
    /// Making it takes long; what is known is durable and the client can be answered.
    AnswerNow,
    /// It is made. `pulled` says whether a download came first.
    Made {
        now: Timestamp,
        pulled: bool,
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
    Inspected(Sight),
    /// The call under way did not end in time. It is given up: whatever it still does is undone
    /// or looked at by the owner task.
    OpTimedOut(Error),
}

/// What the backend answered when asked about one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sight {
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
    /// Let the timer fire at this instant, or not at all.
    Arm(Option<Timestamp>),
    /// Keep the situation, and tell that it changed when `is_transition`.
    Save { is_transition: bool },
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

/// What must be done, in order.
pub(crate) type Effects = Vec<Effect>;

impl Situation {
    /// A sandbox that was just asked for.
    pub(crate) fn new(
        id: SandboxId,
        timeout: Option<Duration>,
        expires_at: Option<Timestamp>,
    ) -> Situation {
        Situation {
            id,
            state: State::Pending,
            reason: Reason::ContainerStarting,
            message: "The sandbox is starting".to_owned(),
            timeout,
            expires_at,
            exit: None,
            op: None,
            is_answered: false,
            was_renewed: false,
            must_check: false,
        }
    }

    /// A sandbox as a record of an earlier server describes it.
    pub(crate) fn restored(
        id: SandboxId,
        (state, reason, message): (State, Reason, String),
        (timeout, expires_at): (Option<Duration>, Option<Timestamp>),
        exit: Option<Exit>,
    ) -> Situation {
        Situation {
            state,
            reason,
            message,
            exit,
            is_answered: true,
            ..Situation::new(id, timeout, expires_at)
        }
    }

    /// Whether this question has to wait until the backend call under way is over. What the
    /// state forbids is refused at once instead.
    pub(crate) fn must_wait(&self, ask: Ask) -> bool {
        let is_settling = matches!(
            self.op,
            Some(Op::Pause | Op::Resume | Op::Snapshot | Op::Inspect)
        );
        is_settling
            && !self.state.has_ended()
            && self.state != State::Stopping
            && matches!(ask, Ask::Pause | Ask::Resume | Ask::Snapshot)
    }

    fn set(&mut self, state: State, reason: Reason, message: impl Into<String>) {
        self.state = state;
        self.reason = reason;
        self.message = message.into();
    }

    fn wrong_state(&self, action: &'static str, wanted: &'static str) -> Error {
        Error::WrongState {
            id: self.id.clone(),
            action,
            state: self.state,
            wanted,
        }
    }

    /// Starts a call. Only when none is under way.
    fn start(&mut self, op: Op, effects: &mut Effects) {
        debug_assert!(self.op.is_none(), "one backend call at a time");
        self.op = Some(op);
        effects.push(Effect::Start(op));
    }

    /// The instant the timer must fire at: while it is being made or deleted, none.
    fn alarm(&self) -> Option<Timestamp> {
        match self.state {
            State::Pending | State::Stopping => None,
            _ => self.expires_at,
        }
    }
}

/// The next situation, and what must be done.
pub(crate) fn step(mut at: Situation, event: Event) -> (Situation, Effects) {
    let mut effects = Effects::new();
    let todo = &mut effects;
    match event {
        Event::Begin => at.start(Op::Make { clean_first: false }, todo),
        Event::Restored => restored(&mut at, todo),
        Event::Pulling => {
            if at.state == State::Pending {
                at.reason = Reason::ImagePulling;
                at.message = "The image is being pulled".to_owned();
            }
            answer_create(&mut at, todo);
        }
        Event::AnswerNow => answer_create(&mut at, todo),
        Event::Made { now, pulled } => made(&mut at, now, pulled, todo),
        Event::MakeFailed { reason, error } => make_failed(&mut at, reason, error, todo),
        Event::Pause => pause(&mut at, todo),
        Event::PauseDone(result) => pause_done(&mut at, result, todo),
        Event::Resume => resume(&mut at, todo),
        Event::ResumeDone(result) => resume_done(&mut at, result, todo),
        Event::Snapshot => snapshot(&mut at, todo),
        Event::SnapshotDone(result) => {
            at.op = None;
            todo.push(Effect::Answer(Ask::Snapshot, result));
            after_op(&mut at, todo);
        }
        Event::Delete => {
            let gone = (Reason::ContainerDeleting, "The sandbox is being deleted");
            delete(&mut at, gone, todo);
        }
        Event::DeleteDone(result) => delete_done(&mut at, result, todo),
        Event::RetryDelete => {
            if at.state == State::Stopping && at.op.is_none() {
                at.start(Op::Delete, todo);
            }
        }
        Event::Expired { deadline } => {
            if at.alarm() == Some(deadline) {
                let over = (Reason::SandboxExpired, "The sandbox's lifetime is over");
                delete(&mut at, over, todo);
            }
        }
        Event::Shifted { to } => {
            if at.alarm().is_some() {
                at.expires_at = Some(to);
                todo.push(Effect::Save {
                    is_transition: false,
                });
            }
        }
        Event::Renew { to, now } => renew(&mut at, to, now, todo),
        Event::Exited(exit) => exited(&mut at, exit, todo),
        Event::Check => check(&mut at, todo),
        Event::Inspected(sight) => inspected(&mut at, sight, todo),
        Event::OpTimedOut(error) => timed_out(&mut at, error, todo),
    }
    (at, effects)
}

fn restored(at: &mut Situation, todo: &mut Effects) {
    todo.push(Effect::Arm(at.alarm()));
    match at.state {
        // Made, half made or not made at all: only the backend knows.
        State::Pending | State::Pausing | State::Resuming => at.start(Op::Inspect, todo),
        State::Stopping => at.start(Op::Delete, todo),
        State::Running | State::Paused | State::Terminated | State::Failed => {}
    }
}

fn answer_create(at: &mut Situation, todo: &mut Effects) {
    if at.state != State::Pending {
        return;
    }
    todo.push(Effect::Save {
        is_transition: true,
    });
    if !at.is_answered {
        at.is_answered = true;
        todo.push(Effect::Answer(Ask::Create, Ok(())));
    }
}

fn made(at: &mut Situation, now: Timestamp, pulled: bool, todo: &mut Effects) {
    at.op = None;
    if at.state == State::Stopping {
        return at.start(Op::Delete, todo);
    }
    if at.state != State::Pending {
        return;
    }
    // The lifetime is for the client's use: a download must not eat it.
    if pulled && !at.was_renewed {
        at.expires_at = at.timeout.and_then(|timeout| after(now, timeout));
    }
    match at.exit.take() {
        Some(exit) => end(at, exit),
        None => at.set(
            State::Running,
            Reason::ContainerRunning,
            "The sandbox is running",
        ),
    }
    todo.push(Effect::Save {
        is_transition: true,
    });
    todo.push(Effect::Arm(at.alarm()));
    if !at.is_answered {
        at.is_answered = true;
        todo.push(Effect::Answer(Ask::Create, Ok(())));
    }
    after_op(at, todo);
}

fn make_failed(at: &mut Situation, reason: Reason, error: Error, todo: &mut Effects) {
    at.op = None;
    if at.state == State::Stopping {
        // Half of it may be there after all: deletion is safe for what does not exist.
        return at.start(Op::Delete, todo);
    }
    if at.state != State::Pending {
        return;
    }
    let was_answered = at.is_answered;
    at.is_answered = true;
    at.set(State::Failed, reason, error.to_string());
    if was_answered {
        todo.push(Effect::Save {
            is_transition: true,
        });
        todo.push(Effect::Arm(at.alarm()));
    } else {
        todo.push(Effect::Answer(Ask::Create, Err(error)));
        todo.push(Effect::Forget);
    }
}

fn pause(at: &mut Situation, todo: &mut Effects) {
    if at.state != State::Running || at.op.is_some() {
        let refusal = at.wrong_state("pause", "Running");
        return todo.push(Effect::Answer(Ask::Pause, Err(refusal)));
    }
    at.set(
        State::Pausing,
        Reason::ContainerPausing,
        "The sandbox is being paused",
    );
    todo.push(Effect::Save {
        is_transition: true,
    });
    at.start(Op::Pause, todo);
}

fn pause_done(at: &mut Situation, result: Result<(), Error>, todo: &mut Effects) {
    at.op = None;
    let result = if at.state == State::Pausing {
        match &result {
            Ok(()) => at.set(
                State::Paused,
                Reason::ContainerPaused,
                "The sandbox is paused",
            ),
            Err(error) => {
                let message = format!("The sandbox is running; it could not be paused: {error}");
                at.set(State::Running, Reason::ContainerRunning, message);
                at.must_check = true;
            }
        }
        todo.push(Effect::Save {
            is_transition: true,
        });
        result
    } else {
        Err(at.wrong_state("pause", "Running"))
    };
    todo.push(Effect::Answer(Ask::Pause, result));
    after_op(at, todo);
}

fn resume(at: &mut Situation, todo: &mut Effects) {
    if at.state != State::Paused || at.op.is_some() {
        let refusal = at.wrong_state("resume", "Paused");
        return todo.push(Effect::Answer(Ask::Resume, Err(refusal)));
    }
    at.set(
        State::Resuming,
        Reason::ContainerResuming,
        "The sandbox is being resumed",
    );
    todo.push(Effect::Save {
        is_transition: true,
    });
    at.start(Op::Resume, todo);
}

fn resume_done(at: &mut Situation, result: Result<(), Error>, todo: &mut Effects) {
    at.op = None;
    let result = if at.state == State::Resuming {
        match &result {
            Ok(()) => at.set(
                State::Running,
                Reason::ContainerRunning,
                "The sandbox is running",
            ),
            Err(error) => {
                let message = format!("The sandbox is paused; it could not be resumed: {error}");
                at.set(State::Paused, Reason::ContainerPaused, message);
                at.must_check = true;
            }
        }
        todo.push(Effect::Save {
            is_transition: true,
        });
        result
    } else {
        Err(at.wrong_state("resume", "Paused"))
    };
    todo.push(Effect::Answer(Ask::Resume, result));
    after_op(at, todo);
}

fn snapshot(at: &mut Situation, todo: &mut Effects) {
    if at.state != State::Running || at.op.is_some() {
        let refusal = at.wrong_state("snapshot", "Running");
        return todo.push(Effect::Answer(Ask::Snapshot, Err(refusal)));
    }
    at.start(Op::Snapshot, todo);
}

fn delete(at: &mut Situation, (reason, message): (Reason, &str), todo: &mut Effects) {
    if at.state != State::Stopping {
        at.set(State::Stopping, reason, message);
        todo.push(Effect::Arm(None));
        todo.push(Effect::Save {
            is_transition: true,
        });
        if !at.is_answered {
            at.is_answered = true;
            let gone = Error::NotFound(at.id.clone());
            todo.push(Effect::Answer(Ask::Create, Err(gone)));
        }
    }
    match at.op {
        None => at.start(Op::Delete, todo),
        Some(Op::Make { .. }) => todo.push(Effect::CancelMake),
        // The call under way ends or runs out of time first.
        Some(_) => {}
    }
}

fn delete_done(at: &mut Situation, result: Result<(), Error>, todo: &mut Effects) {
    at.op = None;
    match result {
        Ok(()) => {
            todo.push(Effect::Forget);
            todo.push(Effect::Answer(Ask::Delete, Ok(())));
        }
        Err(error) => {
            at.message = format!("The sandbox could not be deleted yet: {error}");
            todo.push(Effect::Save {
                is_transition: false,
            });
            todo.push(Effect::ScheduleRetry);
            todo.push(Effect::Answer(Ask::Delete, Err(error)));
        }
    }
}

fn renew(at: &mut Situation, to: Timestamp, now: Timestamp, todo: &mut Effects) {
    let refusal = if at.state == State::Stopping {
        Some(at.wrong_state("renew", "alive"))
    } else if at.expires_at.is_none() {
        Some(Error::NoExpiration(at.id.clone()))
    } else if to <= now {
        Some(Error::ExpirationInPast)
    } else {
        None
    };
    if let Some(refusal) = refusal {
        return todo.push(Effect::Answer(Ask::Renew, Err(refusal)));
    }
    at.expires_at = Some(to);
    at.was_renewed = at.was_renewed || at.state == State::Pending;
    todo.push(Effect::Arm(at.alarm()));
    todo.push(Effect::Save {
        is_transition: false,
    });
    todo.push(Effect::Answer(Ask::Renew, Ok(())));
}

fn exited(at: &mut Situation, exit: Exit, todo: &mut Effects) {
    match at.state {
        State::Pending => at.exit = Some(exit),
        State::Running | State::Pausing | State::Paused | State::Resuming => {
            end(at, exit);
            todo.push(Effect::Save {
                is_transition: true,
            });
        }
        State::Stopping | State::Terminated | State::Failed => {}
    }
}

/// PID 1 ended: how decides between `Terminated` and `Failed`.
fn end(at: &mut Situation, exit: Exit) {
    let (state, reason, message) = match (&exit.code, &exit.signal) {
        (Some(0), _) => (
            State::Terminated,
            Reason::ContainerExited,
            "The entrypoint ended with exit code 0".to_owned(),
        ),
        _ if exit.oom_killed => (
            State::Failed,
            Reason::ContainerOomKilled,
            "The entrypoint was killed because the sandbox ran out of memory; raise \
             resourceLimits.memory"
                .to_owned(),
        ),
        (Some(code), _) => (
            State::Failed,
            Reason::ContainerExitedError,
            format!("The entrypoint ended with exit code {code}"),
        ),
        (None, Some(signal)) => (
            State::Failed,
            Reason::ContainerExitedError,
            format!("The entrypoint was ended by signal {signal}"),
        ),
        (None, None) => (
            State::Failed,
            Reason::ContainerExitedError,
            "The entrypoint ended; how is not known".to_owned(),
        ),
    };
    at.set(state, reason, message);
    at.exit = Some(exit);
}

fn check(at: &mut Situation, todo: &mut Effects) {
    match at.op {
        Some(_) => at.must_check = true,
        None if at.state == State::Stopping => at.start(Op::Delete, todo),
        None => at.start(Op::Inspect, todo),
    }
}

/// A call is over: what waited for that begins.
fn after_op(at: &mut Situation, todo: &mut Effects) {
    if at.op.is_some() {
        return;
    }
    if at.state == State::Stopping {
        at.start(Op::Delete, todo);
    } else if at.must_check {
        at.must_check = false;
        at.start(Op::Inspect, todo);
    }
}

fn inspected(at: &mut Situation, sight: Sight, todo: &mut Effects) {
    at.op = None;
    at.must_check = false;
    match at.state {
        State::Stopping => at.start(Op::Delete, todo),
        State::Pending => inspected_pending(at, sight, todo),
        State::Terminated | State::Failed => {
            // A creation that was given up has come to be after all.
            let is_left =
                at.reason == Reason::ContainerStartFailed && matches!(sight, Sight::Found { .. });
            if is_left {
                todo.push(Effect::Discard);
            }
        }
        State::Running | State::Pausing | State::Paused | State::Resuming => {
            inspected_alive(at, sight, todo);
        }
    }
}

fn inspected_pending(at: &mut Situation, sight: Sight, todo: &mut Effects) {
    let (state, started_at) = match sight {
        Sight::Unknown(_) => return,
        Sight::Gone => return at.start(Op::Make { clean_first: false }, todo),
        Sight::Found { state, started_at } => (state, started_at),
    };
    match state {
        ObservedState::Incomplete => return at.start(Op::Make { clean_first: true }, todo),
        ObservedState::Exited(exit) => end(at, exit),
        ObservedState::Paused => {
            at.set(
                State::Paused,
                Reason::ContainerPaused,
                "The sandbox is paused",
            );
        }
        ObservedState::Running => {
            at.set(
                State::Running,
                Reason::ContainerRunning,
                "The sandbox is running",
            );
        }
    }
    // As in `made`: the promise can only have moved later.
    let since_start = started_at
        .zip(at.timeout)
        .and_then(|(start, span)| after(start, span));
    if at.expires_at.is_some() {
        at.expires_at = at.expires_at.max(since_start);
    }
    todo.push(Effect::Save {
        is_transition: true,
    });
    todo.push(Effect::Arm(at.alarm()));
    todo.push(Effect::Repaired(format!(
        "Found {} after a restart",
        at.state
    )));
}

fn inspected_alive(at: &mut Situation, sight: Sight, todo: &mut Effects) {
    let before = at.state;
    let seen = match sight {
        Sight::Found { state, .. } => Some(state),
        Sight::Gone => None,
        Sight::Unknown(message) => {
            if matches!(at.state, State::Pausing | State::Resuming) {
                at.message = format!("The backend does not answer: {message}");
                todo.push(Effect::Save {
                    is_transition: false,
                });
            }
            return;
        }
    };
    match (seen, before) {
        (Some(ObservedState::Running), State::Running)
        | (Some(ObservedState::Paused), State::Paused) => return,
        (Some(ObservedState::Running), _) => {
            at.set(
                State::Running,
                Reason::ContainerRunning,
                "The sandbox is running",
            );
        }
        (Some(ObservedState::Paused), _) => {
            at.set(
                State::Paused,
                Reason::ContainerPaused,
                "The sandbox is paused",
            );
        }
        (Some(ObservedState::Exited(exit)), _) => end(at, exit),
        (Some(ObservedState::Incomplete) | None, _) => at.set(
            State::Failed,
            Reason::ContainerVanished,
            "The sandbox has disappeared from the backend; somebody else removed it",
        ),
    }
    todo.push(Effect::Save {
        is_transition: true,
    });
    todo.push(Effect::Repaired(format!(
        "The backend says {}, the record said {before}",
        at.state
    )));
}

fn timed_out(at: &mut Situation, error: Error, todo: &mut Effects) {
    let Some(op) = at.op.take() else { return };
    match op {
        Op::Make { .. } => {
            make_failed(at, Reason::ContainerStartFailed, error, todo);
        }
        Op::Pause | Op::Resume => {
            let ask = if op == Op::Pause {
                Ask::Pause
            } else {
                Ask::Resume
            };
            todo.push(Effect::Answer(ask, Err(error)));
            at.must_check = true;
            after_op(at, todo);
        }
        Op::Snapshot => {
            todo.push(Effect::Answer(Ask::Snapshot, Err(error)));
            after_op(at, todo);
        }
        Op::Inspect => inspected(at, Sight::Unknown(error.to_string()), todo),
        Op::Delete => delete_done(at, Err(error), todo),
    }
}

/// The instant `span` after `from`; `None` past the end of representable time.
pub(crate) fn after(from: Timestamp, span: Duration) -> Option<Timestamp> {
    let span = SignedDuration::try_from(span).ok()?;
    from.checked_add(span).ok()
}

#[cfg(test)]
mod tests;
