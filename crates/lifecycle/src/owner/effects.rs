//! How the owner carries out what the machine asks for.

use super::Owner;
use super::call_slot::describe;
use super::command::send_all;
use crate::calls;
use crate::deadlines;
use crate::ended::{Ended, EndedRecord};
use crate::error::{Error, Feature};
use crate::event::{AuditEntry, EventKind};
use crate::labels;
use crate::machine::{Ask, Change, Effect, Op};
use crate::sandbox::{Reason, State};

impl Owner {
    pub(super) fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Start(op) => self.start(op),
            Effect::CancelMake => self.call.cancel_make.cancel(),
            Effect::SetTimer(deadline) => self.expiry.set(deadline),
            Effect::Save(change) => {
                if change == Change::Transition {
                    self.note_situation(EventKind::StateChanged);
                    self.log_state();
                    self.audit_end();
                }
                self.record_writer.save(self.published.record());
            }
            Effect::Repaired(message) => {
                tracing::info!(sandbox_id = %self.machine_state.id, detail = message, "repaired");
                let reason = self.machine_state.reason.as_str();
                self.note(EventKind::Repaired, reason, message);
                self.record_writer.save(self.published.record());
            }
            Effect::Answer(ask, result) => self.answer(ask, result),
            Effect::ScheduleRetry => self.retry.schedule(),
            Effect::Discard => calls::discard(self.shared.clone(), self.machine_state.id.clone()),
            Effect::Forget => self.forget(),
        }
    }

    fn start(&mut self, op: Op) {
        let (_, mut span) = describe(op);
        let grace = self.shared.config.stop_grace;
        if op == Op::Delete {
            span += grace;
        }
        let call = self.call.begin(&self.shared, &self.machine_state.id, span);
        match op {
            Op::Make { clean_first } => {
                let Some(recipe) = self.record_writer.recipe() else {
                    // Only a damaged record lacks it.
                    return call.refuse_make(Error::Unsupported {
                        feature: Feature::DamagedRecord,
                        message: "how to make this sandbox was lost; create it again".to_owned(),
                    });
                };
                let sandbox = self.published.record();
                let labels = labels::of(
                    sandbox,
                    &self.shared.config.control_plane,
                    &self.shared.identity,
                );
                let spec = recipe.spec(sandbox, labels);
                if call.make(spec, clean_first, self.call.cancel_make.clone()) {
                    self.time_making();
                    self.call.allow(deadlines::CREATE);
                }
            }
            Op::Pause => call.pause(),
            Op::Resume => call.resume(),
            Op::Inspect => call.inspect(),
            Op::Snapshot => {
                if let Some(pending) = &self.waiting.snapshot {
                    call.snapshot(pending.id.clone());
                }
            }
            Op::ChangePolicy => {
                let pending = self.waiting.policy.as_mut();
                if let Some(change) = pending.and_then(|pending| pending.change.take()) {
                    call.change_policy(change);
                }
            }
            Op::Delete => call.delete(grace),
        }
    }

    fn answer(&mut self, ask: Ask, result: Result<(), Error>) {
        match ask {
            Ask::Create => {
                self.answer_by = None;
                if let Some(reply) = self.waiting.create.take() {
                    let _ = reply.send(result.map(|()| self.published.shown()));
                }
            }
            Ask::Pause => send_all(&mut self.waiting.pause, &result),
            Ask::Resume => send_all(&mut self.waiting.resume, &result),
            Ask::Snapshot => {
                if let Some(pending) = self.waiting.snapshot.take() {
                    let missing = || Error::Busy(self.machine_state.id.clone());
                    let details = result.and_then(|()| pending.details.ok_or_else(missing));
                    let _ = pending.reply.send(details);
                }
            }
            Ask::ChangePolicy => self.answer_policy(result),
            Ask::Renew => self.answer_renew(result),
            Ask::Delete => {
                let mut waiting = std::mem::take(&mut self.waiting.delete);
                match result {
                    Err(_) => send_all(&mut waiting, &result),
                    // An acknowledged deletion is never undone by a crash: the intent or the
                    // removal is durable first.
                    Ok(()) => self.record_writer.when_intent_durable(move |durable| {
                        send_all(&mut waiting, &durable);
                    }),
                }
            }
        }
    }

    /// The backend keeps the policy; what is written here is who asked for it.
    fn answer_policy(&mut self, result: Result<(), Error>) {
        let Some(pending) = self.waiting.policy.take() else {
            return;
        };
        let (reply, missing) = (pending.reply, Error::Busy(self.machine_state.id.clone()));
        match result.and_then(|()| pending.outcome.ok_or(missing)) {
            Err(error) => drop(reply.send(Err(error))),
            Ok(outcome) => {
                self.record_writer.record(pending.by);
                self.record_writer.save(self.published.record());
                self.record_writer.when_durable(move |durable| {
                    let _ = reply.send(durable.map(|()| outcome));
                });
            }
        }
    }

    fn answer_renew(&mut self, result: Result<(), Error>) {
        let Some(reply) = self.waiting.renew.take() else {
            return;
        };
        let until = self.machine_state.expires_at;
        let id = self.machine_state.id.clone();
        let until = move |()| until.ok_or(Error::NoExpiration(id));
        match result {
            Err(_) => drop(reply.send(result.and_then(until))),
            // An acknowledged renewal survives a crash.
            Ok(()) => self.record_writer.when_durable(move |durable| {
                let _ = reply.send(durable.and_then(until));
            }),
        }
    }

    /// A line for each turn of a sandbox's life; that it was made has a line of its own, with times.
    fn log_state(&self) {
        let situation = &self.machine_state;
        let (state, reason) = (situation.state.as_str(), situation.reason.as_str());
        // Not `message`: that is the name of the line's own text.
        let detail = situation.message.as_str();
        if situation.state == State::Running && situation.created.is_some() {
            tracing::debug!(sandbox_id = %situation.id, state, reason, "sandbox state");
        } else {
            tracing::info!(sandbox_id = %situation.id, state, reason, detail, "sandbox state");
        }
    }

    /// Records how a sandbox ended by itself: nobody's request does.
    fn audit_end(&mut self) {
        let situation = &self.machine_state;
        let (action, outcome) = match (situation.state, situation.reason) {
            (State::Stopping, Reason::SandboxExpired) => ("sandbox.expire", AuditEntry::OK),
            (State::Terminated, _) => ("sandbox.end", AuditEntry::OK),
            (State::Failed, reason) => ("sandbox.end", reason.as_str()),
            _ => return,
        };
        let message = situation.message.clone();
        self.audit(action, outcome, message);
    }

    /// What is left of the sandbox when it is gone.
    fn ended(&mut self) -> EndedRecord {
        let situation = &self.machine_state;
        let why = situation.ended_as.clone();
        let why = why.unwrap_or_else(|| (situation.reason, situation.message.clone()));
        let now = self.shared.clock.now();
        let logs = self.last_logs.take().unwrap_or_default();
        EndedRecord {
            ended: Ended::of(self.published.record(), why, now),
            logs: logs.text,
            is_truncated: logs.truncated,
        }
    }

    fn forget(&mut self) {
        self.is_forgotten = true;
        let ended = self.ended();
        // Known as gone before it is gone, so that nobody finds neither.
        let (reason, detail) = (ended.ended.reason.as_str(), ended.ended.message.as_str());
        tracing::info!(sandbox_id = %self.machine_state.id, reason, detail, "sandbox gone");
        self.shared.ended.add(ended.ended.clone());
        self.shared.remove(&self.machine_state.id);
        // A creation that failed is forgotten at once; its events say that it failed all the same.
        if self.machine_state.state == State::Failed {
            self.note_situation(EventKind::StateChanged);
        }
        self.note_situation(EventKind::Deleted);
        self.record_writer.remove(self.published.record(), ended);
        let gone = Error::NotFound(self.machine_state.id.clone().into());
        self.waiting.refuse_held(&gone);
        self.commands.close();
    }
}
