//! Pausing, resuming, snapshots and changes of the network policy: calls that a client asks for on a sandbox that lives.

use super::{Ask, Change, Effect, Effects, MachineState, Op};
use crate::error::Error;
use crate::sandbox::{Reason, State};

impl MachineState {
    pub(super) fn pause(&mut self, effects: &mut Effects) {
        if self.state != State::Running || self.op.is_some() {
            let refusal = self.wrong_state("pause", "Running");
            return effects.push(Effect::Answer(Ask::Pause, Err(refusal)));
        }
        let message = "The sandbox is being paused";
        self.set(State::Pausing, Reason::ContainerPausing, message);
        effects.push(Effect::Save(Change::Transition));
        self.start(Op::Pause, effects);
    }

    pub(super) fn pause_done(&mut self, result: Result<(), Error>, effects: &mut Effects) {
        self.op = None;
        let result = if self.state == State::Pausing {
            match &result {
                Ok(()) => self.set_paused(),
                Err(error) => {
                    let message =
                        format!("The sandbox is running; it could not be paused: {error}");
                    self.set(State::Running, Reason::ContainerRunning, message);
                    self.must_check = true;
                }
            }
            effects.push(Effect::Save(Change::Transition));
            result
        } else {
            Err(self.wrong_state("pause", "Running"))
        };
        effects.push(Effect::Answer(Ask::Pause, result));
        self.after_op(effects);
    }

    pub(super) fn resume(&mut self, effects: &mut Effects) {
        if self.state != State::Paused || self.op.is_some() {
            let refusal = self.wrong_state("resume", "Paused");
            return effects.push(Effect::Answer(Ask::Resume, Err(refusal)));
        }
        let message = "The sandbox is being resumed";
        self.set(State::Resuming, Reason::ContainerResuming, message);
        effects.push(Effect::Save(Change::Transition));
        self.start(Op::Resume, effects);
    }

    pub(super) fn resume_done(&mut self, result: Result<(), Error>, effects: &mut Effects) {
        self.op = None;
        let result = if self.state == State::Resuming {
            match &result {
                Ok(()) => self.set_running(),
                Err(error) => {
                    let message =
                        format!("The sandbox is paused; it could not be resumed: {error}");
                    self.set(State::Paused, Reason::ContainerPaused, message);
                    self.must_check = true;
                }
            }
            effects.push(Effect::Save(Change::Transition));
            result
        } else {
            Err(self.wrong_state("resume", "Paused"))
        };
        effects.push(Effect::Answer(Ask::Resume, result));
        self.after_op(effects);
    }

    pub(super) fn snapshot(&mut self, effects: &mut Effects) {
        if self.state != State::Running || self.op.is_some() {
            let refusal = self.wrong_state("snapshot", "Running");
            return effects.push(Effect::Answer(Ask::Snapshot, Err(refusal)));
        }
        self.start(Op::Snapshot, effects);
    }

    pub(super) fn snapshot_done(&mut self, result: Result<(), Error>, effects: &mut Effects) {
        self.op = None;
        effects.push(Effect::Answer(Ask::Snapshot, result));
        self.after_op(effects);
    }

    pub(super) fn change_policy(&mut self, effects: &mut Effects) {
        let is_alive = matches!(self.state, State::Running | State::Paused);
        if !is_alive || self.op.is_some() {
            let refusal = self.wrong_state("change its network policy", "Running or Paused");
            return effects.push(Effect::Answer(Ask::ChangePolicy, Err(refusal)));
        }
        self.start(Op::ChangePolicy, effects);
    }

    pub(super) fn policy_changed(&mut self, result: Result<(), Error>, effects: &mut Effects) {
        self.op = None;
        effects.push(Effect::Answer(Ask::ChangePolicy, result));
        self.after_op(effects);
    }
}
