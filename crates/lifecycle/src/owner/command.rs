//! What an owner task can be told, and by whom the answer is waited for.

use std::collections::VecDeque;
use std::sync::Arc;

use api::id::SnapshotId;
use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::backend::{Exit, SnapshotDetails};
use crate::caller::AuditContext;
use crate::error::Error;
use crate::machine::Ask;
use crate::metadata::{Asker, Patch};
use crate::names::NameClaim;
use crate::policy::{PolicyChange, PolicyOutcome};
use crate::sandbox::Sandbox;

/// Requests held back until the backend call under way is over.
const HELD_MAX: usize = 32;

pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// A command on its way to an owner.
pub(crate) struct Message {
    pub(super) command: Command,
    /// The request that it comes from: what is done for it are steps of that.
    pub(super) request: tracing::Span,
}

impl From<Command> for Message {
    fn from(command: Command) -> Self {
        Self {
            command,
            request: tracing::Span::current(),
        }
    }
}

/// What an owner can be told.
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
    /// Somebody used the sandbox through the proxy, which begins its idle timeout anew.
    Touch,
    PatchMetadata {
        patch: Patch,
        by: Option<AuditContext>,
        reply: Asker,
        /// The name that it gives.
        name: Option<NameClaim>,
    },
    Snapshot {
        snapshot: SnapshotId,
        reply: Reply<SnapshotDetails>,
    },
    ChangePolicy {
        change: PolicyChange,
        by: Option<AuditContext>,
        reply: Reply<PolicyOutcome>,
    },
    Exited(Exit),
    OutOfMemory,
}

impl Command {
    /// What may have to wait for a backend call, and whether somebody still waits for it.
    fn held_ask(&self) -> Option<(Ask, bool)> {
        match self {
            Command::Pause(reply) => Some((Ask::Pause, !reply.is_closed())),
            Command::Resume(reply) => Some((Ask::Resume, !reply.is_closed())),
            Command::Snapshot { reply, .. } => Some((Ask::Snapshot, !reply.is_closed())),
            Command::ChangePolicy { reply, .. } => Some((Ask::ChangePolicy, !reply.is_closed())),
            _ => None,
        }
    }

    /// Answers a command that will not be carried out.
    pub(super) fn refuse(self, error: Error) {
        match self {
            Command::Pause(reply) | Command::Resume(reply) => drop(reply.send(Err(error))),
            // What is gone is deleted.
            Command::Delete { reply, .. } => drop(reply.send(Ok(()))),
            Command::Renew { reply, .. } => drop(reply.send(Err(error))),
            Command::PatchMetadata { reply, .. } => drop(reply.send(Err(error))),
            Command::Snapshot { reply, .. } => drop(reply.send(Err(error))),
            Command::ChangePolicy { reply, .. } => drop(reply.send(Err(error))),
            Command::Touch | Command::Exited(_) | Command::OutOfMemory => {}
        }
    }
}

/// Who asked and waits for an answer.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) create: Option<Reply<Arc<Sandbox>>>,
    pub(super) pause: Vec<Reply<()>>,
    pub(super) resume: Vec<Reply<()>>,
    pub(super) delete: Vec<Reply<()>>,
    pub(super) renew: Option<Reply<Timestamp>>,
    /// Never two at once: a second one is held while the first runs.
    pub(super) snapshot: Option<PendingSnapshot>,
    /// Never two at once either.
    pub(super) policy: Option<PendingPolicy>,
    held: VecDeque<Command>,
}

/// A snapshot that is being made.
pub(super) struct PendingSnapshot {
    pub(super) id: SnapshotId,
    pub(super) reply: Reply<SnapshotDetails>,
    /// What the backend told, once it is made.
    pub(super) details: Option<SnapshotDetails>,
}

/// A change of the network policy that is under way.
pub(super) struct PendingPolicy {
    /// What was asked for, until the backend is asked.
    pub(super) change: Option<PolicyChange>,
    pub(super) by: Option<AuditContext>,
    pub(super) reply: Reply<PolicyOutcome>,
    /// How the policy stands, once it is in force.
    pub(super) outcome: Option<PolicyOutcome>,
}

impl Waiting {
    /// Holds a command back while `must_wait` says so. Gives back what need not wait, and an
    /// error where no more can be held.
    pub(super) fn hold(
        &mut self,
        command: Command,
        must_wait: impl Fn(Ask) -> bool,
    ) -> Option<Result<Command, Command>> {
        match command.held_ask() {
            Some((ask, _)) if must_wait(ask) => {
                if self.held.len() >= HELD_MAX {
                    return Some(Err(command));
                }
                self.held.push_back(command);
                None
            }
            _ => Some(Ok(command)),
        }
    }

    /// The next command that was held back and need not wait any longer.
    pub(super) fn next_held(&mut self, must_wait: impl Fn(Ask) -> bool) -> Option<Command> {
        while let Some((ask, is_awaited)) = self.held.front().and_then(Command::held_ask) {
            if is_awaited && must_wait(ask) {
                return None;
            }
            let command = self.held.pop_front();
            // What was not begun before its caller gave up must not happen out of the blue.
            if is_awaited {
                return command;
            }
        }
        None
    }

    /// Refuses everything that is held back.
    pub(super) fn refuse_held(&mut self, error: &Error) {
        for command in self.held.drain(..) {
            command.refuse(error.clone());
        }
    }
}

/// Gives all the same answer.
pub(super) fn send_all(replies: &mut Vec<Reply<()>>, result: &Result<(), Error>) {
    for reply in replies.drain(..) {
        let _ = reply.send(result.clone());
    }
}
