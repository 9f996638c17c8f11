//! When a creation is concluded, and when the client that asked for it is answered.
//!
//! The first record is written while the backend works, so either may end first. Nothing is
//! acknowledged before the record is durable: a sandbox that a client knows of is found again
//! after a crash. What was made without a record is taken back.

use jiff::Timestamp;

use super::{Ask, Change, Effect, Effects, MachineState, Op, after};
use crate::backend::{self, Created};
use crate::error::Error;
use crate::sandbox::{Reason, State};

/// How far a creation is.
#[derive(Debug, Clone)]
pub(super) struct CreationProgress {
    record: Record,
    /// How the backend's call ended, while the record is still being written.
    outcome: Option<MakeOutcome>,
    /// The image must be pulled, and nobody was told yet.
    is_pull_needed: bool,
    /// The client is answered as soon as the record is durable.
    is_answer_due: bool,
    is_answered: bool,
}

/// The first record of the sandbox.
#[derive(Debug, Clone)]
enum Record {
    Pending,
    Durable,
    Refused(Error),
}

/// How the backend's call ended.
#[derive(Debug, Clone)]
enum MakeOutcome {
    Made {
        created: Created,
        pulled: bool,
        now: Timestamp,
    },
    Failed {
        reason: Reason,
        error: Error,
    },
}

/// What clients are told of a creation that failed. A fault of the server's own may name paths and other
/// insides of the host: it is for the log.
fn told(error: &Error) -> String {
    match error {
        Error::Backend(cause)
            if matches!(
                **cause,
                backend::Error::Io { .. } | backend::Error::Internal(_)
            ) =>
        {
            "The server met a fault of its own while it made the sandbox; its log tells more"
                .to_owned()
        }
        error => error.to_string(),
    }
}

impl CreationProgress {
    /// Asked for just now.
    pub(super) fn unrecorded() -> CreationProgress {
        CreationProgress {
            record: Record::Pending,
            outcome: None,
            is_pull_needed: false,
            is_answer_due: false,
            is_answered: false,
        }
    }

    /// Known from its record; whoever asked is long gone.
    pub(super) fn recorded() -> CreationProgress {
        CreationProgress {
            record: Record::Durable,
            is_answered: true,
            ..CreationProgress::unrecorded()
        }
    }

    /// Whether the backend's call is over and only the record is waited for.
    pub(super) fn has_outcome(&self) -> bool {
        self.outcome.is_some()
    }

    fn is_durable(&self) -> bool {
        matches!(self.record, Record::Durable)
    }
}

impl MachineState {
    pub(super) fn recorded(&mut self, result: Result<(), Error>, effects: &mut Effects) {
        self.creation.record = match result {
            Ok(()) => Record::Durable,
            Err(error) => Record::Refused(error),
        };
        if self.state != State::Pending {
            return;
        }
        self.tell_pull(effects);
        if let Some(outcome) = self.creation.outcome.take() {
            self.conclude(outcome, effects);
        } else if !self.creation.is_durable() {
            effects.push(Effect::CancelMake);
        } else if self.creation.is_answer_due {
            self.answer_pending(effects);
        }
    }

    pub(super) fn pull_needed(&mut self, effects: &mut Effects) {
        if self.state == State::Pending {
            self.creation.is_pull_needed = true;
            self.tell_pull(effects);
        }
    }

    /// Says that the image is being pulled. The client is not answered by that: an image that cannot be had
    /// is mostly known a moment later, and the client should hear of it in the answer to its request.
    fn tell_pull(&mut self, effects: &mut Effects) {
        if !self.creation.is_pull_needed || !self.creation.is_durable() {
            return;
        }
        self.creation.is_pull_needed = false;
        let message = "The image is being pulled";
        self.set(State::Pending, Reason::ImagePulling, message);
        effects.push(Effect::Save(Change::Transition));
    }

    /// The image can be had, so that only the download is waited for. That may take longer than clients
    /// wait: the client is answered.
    pub(super) fn pull_progress(&mut self, percent: u64, effects: &mut Effects) {
        if self.state == State::Pending && self.reason == Reason::ImagePulling {
            self.message = format!("The image is being pulled: {percent} %");
        }
        self.answer_due(effects);
    }

    pub(super) fn answer_due(&mut self, effects: &mut Effects) {
        self.creation.is_answer_due = true;
        if self.state == State::Pending && self.creation.is_durable() {
            self.answer_pending(effects);
        }
    }

    /// The client need not wait for the sandbox: it is told that it is pending.
    fn answer_pending(&mut self, effects: &mut Effects) {
        if !self.creation.is_answered {
            // A download has been told.
            if self.reason != Reason::ImagePulling {
                effects.push(Effect::Save(Change::Transition));
            }
            self.answer_create(Ok(()), effects);
        }
    }

    /// Answers the client, unless it has been answered.
    pub(super) fn answer_create(&mut self, result: Result<(), Error>, effects: &mut Effects) {
        if !self.creation.is_answered {
            self.creation.is_answered = true;
            effects.push(Effect::Answer(Ask::Create, result));
        }
    }

    pub(super) fn made(
        &mut self,
        created: Created,
        pulled: bool,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let outcome = MakeOutcome::Made {
            created,
            pulled,
            now,
        };
        self.make_done(outcome, effects);
    }

    pub(super) fn make_failed(&mut self, reason: Reason, error: Error, effects: &mut Effects) {
        self.make_done(MakeOutcome::Failed { reason, error }, effects);
    }

    fn make_done(&mut self, outcome: MakeOutcome, effects: &mut Effects) {
        match (self.state, &self.creation.record) {
            // The operation stays: a creation without a record is not over, and must not be
            // looked at as if it were.
            (State::Pending, Record::Pending) => self.creation.outcome = Some(outcome),
            (State::Pending, _) => self.conclude(outcome, effects),
            // Being deleted. Half of it may be there even where the creation failed; deletion is
            // safe for what does not exist.
            _ => self.delete_what_was_made(effects),
        }
    }

    /// Nobody waits for the record: the call has been given up.
    pub(super) fn make_timed_out(&mut self, error: Error, effects: &mut Effects) {
        match self.state {
            State::Pending => self.fail(Reason::ContainerStartFailed, error, effects),
            _ => self.delete_what_was_made(effects),
        }
    }

    fn delete_what_was_made(&mut self, effects: &mut Effects) {
        self.op = None;
        self.after_op(effects);
    }

    /// Ends a creation of which both are known: the record's fate and the backend's outcome.
    fn conclude(&mut self, outcome: MakeOutcome, effects: &mut Effects) {
        self.op = None;
        match (&self.creation.record, outcome) {
            (Record::Refused(error), outcome) => {
                let error = error.clone();
                // Nobody would know of it.
                if let MakeOutcome::Made { .. } = outcome {
                    effects.push(Effect::Discard);
                }
                self.fail(Reason::ContainerStartFailed, error, effects);
            }
            (_, MakeOutcome::Failed { reason, error }) => self.fail(reason, error, effects),
            (
                _,
                MakeOutcome::Made {
                    created,
                    pulled,
                    now,
                },
            ) => self.take_created(created, pulled, now, effects),
        }
    }

    fn take_created(
        &mut self,
        created: Created,
        pulled: bool,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        self.created = Some(created);
        // The lifetime is for the client's use: a download must not eat it.
        if pulled && !self.was_renewed {
            self.expires_at = self.timeout.and_then(|timeout| after(now, timeout));
        }
        match self.exit.take() {
            Some(exit) => self.end(exit),
            None => self.set_running(),
        }
        // The client first: its record is durable, and the state is found again without a write.
        self.answer_create(Ok(()), effects);
        effects.push(Effect::SetTimer(self.timer()));
        effects.push(Effect::Save(Change::Transition));
        self.after_op(effects);
    }

    fn fail(&mut self, reason: Reason, error: Error, effects: &mut Effects) {
        self.set(State::Failed, reason, told(&error));
        if self.creation.is_answered {
            effects.push(Effect::Save(Change::Transition));
            effects.push(Effect::SetTimer(self.timer()));
        } else {
            self.answer_create(Err(error), effects);
            effects.push(Effect::Forget);
        }
    }

    /// What a deletion does to a creation under way.
    pub(super) fn give_up_creation(&mut self, effects: &mut Effects) {
        let gone = Error::NotFound(self.id.clone().into());
        self.answer_create(Err(gone), effects);
        if self.creation.outcome.take().is_some() {
            self.op = None;
        }
        if let Some(Op::Make { .. }) = self.op {
            effects.push(Effect::CancelMake);
        }
    }
}
