//! How the owner carries out what the machine asks for.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Owner, Reply, refuse};
use crate::calls::{self, Call, News, Report};
use crate::deadlines;
use crate::error::{Error, Feature};
use crate::event::EventKind;
use crate::labels;
use crate::machine::{Ask, Effect, Op};
use crate::sandbox::Reason;

impl Owner {
    pub(super) async fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Start(op) => self.start(op),
            Effect::CancelMake => self.cancel_make.cancel(),
            Effect::Arm(deadline) => {
                self.bell.ticket += 1;
                let bell = self.bell.clone();
                self.shared
                    .timers
                    .set(self.at.id.clone(), deadline, bell)
                    .await;
            }
            Effect::Save { is_transition } => {
                if is_transition {
                    let message = self.at.message.clone();
                    self.note(EventKind::StateChanged, self.at.reason.as_str(), &message);
                }
                self.keeper.save(&self.sandbox);
            }
            Effect::Repaired(message) => {
                tracing::info!(sandbox = %self.at.id, message, "repaired");
                self.note(EventKind::Repaired, self.at.reason.as_str(), &message);
                self.keeper.save(&self.sandbox);
            }
            Effect::Answer(ask, result) => self.answer(ask, result),
            Effect::ScheduleRetry => self.schedule_retry(),
            Effect::Discard => calls::discard(self.shared.clone(), self.at.id.clone()),
            Effect::Forget => self.forget(),
        }
    }

    fn start(&mut self, op: Op) {
        self.ticket += 1;
        let call = Call {
            shared: self.shared.clone(),
            id: self.at.id.clone(),
            ticket: self.ticket,
            reports: self.report_to.clone(),
        };
        let (_, mut span) = describe(op);
        match op {
            Op::Make { clean_first } => {
                let labels = labels::of(
                    &self.sandbox,
                    &self.shared.config.owner,
                    &self.shared.identity,
                );
                let Some(recipe) = self.keeper.recipe() else {
                    // Only a damaged record lacks it.
                    let error = Error::Unsupported {
                        feature: Feature::DamagedRecord,
                        message: "how to make this sandbox was lost; create it again".to_owned(),
                    };
                    let news = News::MakeFailed {
                        reason: Reason::ContainerStartFailed,
                        error,
                    };
                    let report = Report {
                        ticket: self.ticket,
                        news,
                    };
                    let _ = self.report_to.try_send(report);
                    return;
                };
                call.make(
                    recipe.spec(&self.sandbox, labels),
                    clean_first,
                    self.cancel_make.clone(),
                );
            }
            Op::Pause => call.pause(),
            Op::Resume => call.resume(),
            Op::Inspect => call.inspect(),
            Op::Snapshot => {
                if let Some((snapshot, _)) = &self.waiting.snapshot {
                    call.snapshot(snapshot.clone());
                }
            }
            Op::Delete => {
                span += self.shared.config.stop_grace;
                call.delete(self.shared.config.stop_grace);
            }
        }
        self.op_deadline = Some(Instant::now() + span);
    }

    fn answer(&mut self, ask: Ask, result: Result<(), Error>) {
        match ask {
            Ask::Create => {
                if let Some(reply) = self.waiting.create.take() {
                    let sandbox = Arc::new(self.sandbox.clone());
                    let _ = reply.send(result.map(|()| sandbox));
                }
            }
            Ask::Pause => send_all(&mut self.waiting.pause, &result),
            Ask::Resume => send_all(&mut self.waiting.resume, &result),
            Ask::Snapshot => {
                let details = self.snapshot_details.take();
                if let Some((_, reply)) = self.waiting.snapshot.take() {
                    let missing = || Error::Busy(self.at.id.clone());
                    let _ = reply.send(result.and_then(|()| details.ok_or_else(missing)));
                }
            }
            Ask::Renew => {
                if let Some(reply) = self.waiting.renew.take() {
                    let until = self.at.expires_at;
                    let id = self.at.id.clone();
                    let until = move |()| until.ok_or(Error::NoExpiration(id));
                    match result {
                        Err(_) => drop(reply.send(result.and_then(until))),
                        // An acknowledged renewal survives a crash.
                        Ok(()) => self.keeper.when_durable(move |durable| {
                            let _ = reply.send(durable.and_then(until));
                        }),
                    }
                }
            }
            Ask::Delete => {
                let mut waiting = std::mem::take(&mut self.waiting.delete);
                match result {
                    Err(_) => send_all(&mut waiting, &result),
                    // An acknowledged deletion is never undone by a crash: the intent or the
                    // removal is durable first.
                    Ok(()) => self.keeper.when_intent_durable(move |durable| {
                        send_all(&mut waiting, &durable);
                    }),
                }
            }
        }
    }

    pub(super) fn schedule_retry(&mut self) {
        self.retry_at = Some(Instant::now() + self.retry_wait);
        self.retry_wait = (self.retry_wait * 2).min(deadlines::DELETE_RETRY_MAX);
    }

    fn forget(&mut self) {
        self.is_forgotten = true;
        self.shared.remove(&self.at.id);
        let message = self.at.message.clone();
        self.note(EventKind::Deleted, self.at.reason.as_str(), &message);
        self.keeper.remove(&self.sandbox);
        let gone = Error::NotFound(self.at.id.clone());
        while let Some(command) = self.held.pop_front() {
            refuse(command, &gone);
        }
        self.commands.close();
    }
}

fn send_all(replies: &mut Vec<Reply<()>>, result: &Result<(), Error>) {
    for reply in replies.drain(..) {
        let _ = reply.send(result.clone());
    }
}

/// What a call is, for people, and how long it may take.
pub(super) fn describe(op: Op) -> (&'static str, Duration) {
    match op {
        Op::Make { .. } => ("creating the sandbox", deadlines::CREATE_QUEUE),
        Op::Pause => ("pausing the sandbox", deadlines::PAUSE),
        Op::Resume => ("resuming the sandbox", deadlines::RESUME),
        Op::Snapshot => ("taking the snapshot", deadlines::SNAPSHOT),
        Op::Inspect => ("inspecting the sandbox", deadlines::INSPECT),
        Op::Delete => ("deleting the sandbox", deadlines::DELETE),
    }
}
