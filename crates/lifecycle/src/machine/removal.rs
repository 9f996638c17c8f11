//! The way out: deletion, by a client or by the end of the lifetime, until nothing is left.

use jiff::Timestamp;

use super::{Ask, Change, Effect, Effects, MachineState, Op};
use crate::error::Error;
use crate::sandbox::{Reason, State};

impl MachineState {
    pub(super) fn expired(&mut self, deadline: Timestamp, effects: &mut Effects) {
        if self.timer() == Some(deadline) {
            let why = (Reason::SandboxExpired, "The sandbox's lifetime is over");
            self.delete(why, effects);
        }
    }

    pub(super) fn delete(&mut self, (reason, message): (Reason, &str), effects: &mut Effects) {
        if self.state != State::Stopping {
            if self.state.has_ended() {
                self.ended_as = Some((self.reason, self.message.clone()));
            }
            self.set(State::Stopping, reason, message);
            effects.push(Effect::SetTimer(None));
            effects.push(Effect::Save(Change::Transition));
            self.give_up_creation(effects);
        }
        // A call under way ends or runs out of time first.
        if self.op.is_none() {
            self.start(Op::Delete, effects);
        }
    }

    pub(super) fn delete_done(&mut self, result: Result<(), Error>, effects: &mut Effects) {
        self.op = None;
        match result {
            Ok(()) => {
                effects.push(Effect::Forget);
                effects.push(Effect::Answer(Ask::Delete, Ok(())));
            }
            Err(error) => {
                self.message = format!("The sandbox could not be deleted yet: {error}");
                effects.push(Effect::Save(Change::Detail));
                effects.push(Effect::ScheduleRetry);
                effects.push(Effect::Answer(Ask::Delete, Err(error)));
            }
        }
    }

    pub(super) fn retry_delete(&mut self, effects: &mut Effects) {
        if self.state == State::Stopping && self.op.is_none() {
            self.start(Op::Delete, effects);
        }
    }
}
