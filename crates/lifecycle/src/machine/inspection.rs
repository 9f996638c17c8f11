//! What the backend says by itself or when asked: exits, and observations that differ from what
//! is recorded.

use jiff::Timestamp;

use super::{Change, Effect, Effects, MachineState, Observation, Op, after};
use crate::backend::{Exit, ObservedState};
use crate::sandbox::{Reason, State};

impl MachineState {
    pub(super) fn exited(&mut self, exit: Exit, effects: &mut Effects) {
        match self.state {
            State::Pending => self.exit = Some(exit),
            State::Running | State::Pausing | State::Paused | State::Resuming => {
                self.end(exit);
                effects.push(Effect::Save(Change::Transition));
            }
            State::Stopping | State::Terminated | State::Failed => {}
        }
    }

    /// PID 1 ended: how decides between `Terminated` and `Failed`.
    pub(super) fn end(&mut self, exit: Exit) {
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
        self.set(state, reason, message);
        self.exit = Some(exit);
    }

    pub(super) fn check(&mut self, effects: &mut Effects) {
        match self.op {
            Some(_) => self.must_check = true,
            None if self.state == State::Stopping => self.start(Op::Delete, effects),
            None => self.start(Op::Inspect, effects),
        }
    }

    pub(super) fn inspected(&mut self, observation: Observation, effects: &mut Effects) {
        self.op = None;
        self.must_check = false;
        match self.state {
            State::Stopping => self.start(Op::Delete, effects),
            State::Pending => self.inspected_pending(observation, effects),
            State::Terminated | State::Failed => {
                // A creation that was given up has come to be after all.
                let is_found = matches!(observation, Observation::Found { .. });
                if self.reason == Reason::ContainerStartFailed && is_found {
                    effects.push(Effect::Discard);
                }
            }
            State::Running | State::Pausing | State::Paused | State::Resuming => {
                self.inspected_alive(observation, effects);
            }
        }
    }

    fn inspected_pending(&mut self, observation: Observation, effects: &mut Effects) {
        let (state, started_at) = match observation {
            Observation::Unknown(_) => return,
            Observation::Gone => return self.start(Op::Make { clean_first: false }, effects),
            Observation::Found { state, started_at } => (state, started_at),
        };
        match state {
            ObservedState::Incomplete => {
                return self.start(Op::Make { clean_first: true }, effects);
            }
            ObservedState::Exited(exit) => self.end(exit),
            ObservedState::Paused => self.set_paused(),
            ObservedState::Running => self.set_running(),
        }
        self.extend_from_start(started_at);
        effects.push(Effect::Save(Change::Transition));
        effects.push(Effect::SetTimer(self.timer()));
        let message = format!("Found {} after a restart", self.state);
        effects.push(Effect::Repaired(message));
    }

    /// As when a creation is concluded: what was promised can only have moved later.
    fn extend_from_start(&mut self, started_at: Option<Timestamp>) {
        let since_start = started_at
            .zip(self.timeout)
            .and_then(|(start, span)| after(start, span));
        if self.expires_at.is_some() {
            self.expires_at = self.expires_at.max(since_start);
        }
    }

    fn inspected_alive(&mut self, observation: Observation, effects: &mut Effects) {
        let before = self.state;
        let seen = match observation {
            Observation::Found { state, .. } => Some(state),
            Observation::Gone => None,
            Observation::Unknown(message) => {
                if matches!(self.state, State::Pausing | State::Resuming) {
                    self.message = format!("The backend does not answer: {message}");
                    effects.push(Effect::Save(Change::Detail));
                }
                return;
            }
        };
        match (seen, before) {
            (Some(ObservedState::Running), State::Running)
            | (Some(ObservedState::Paused), State::Paused) => return,
            (Some(ObservedState::Running), _) => self.set_running(),
            (Some(ObservedState::Paused), _) => self.set_paused(),
            (Some(ObservedState::Exited(exit)), _) => self.end(exit),
            (Some(ObservedState::Incomplete) | None, _) => self.set(
                State::Failed,
                Reason::ContainerVanished,
                "The sandbox has disappeared from the backend; somebody else removed it",
            ),
        }
        effects.push(Effect::Save(Change::Transition));
        let message = format!("The backend says {}, the record said {before}", self.state);
        effects.push(Effect::Repaired(message));
    }
}
