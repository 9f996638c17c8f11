//! The one backend call that may be under way for a sandbox: its number, its deadline and what
//! it reports.

use std::sync::Arc;
use std::time::Duration;

use api::id::SandboxId;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::calls::{Call, CallEvent, CallReport};
use crate::deadlines;
use crate::machine::Op;
use crate::shared::Shared;

/// Reports of calls that wait to be read: at most a handful of calls are alive for one sandbox.
const REPORTS_MAX: usize = 16;

pub(super) struct CallSlot {
    /// The number of the newest call; older ones were given up.
    number: u64,
    pub(super) deadline: Option<Instant>,
    /// Ends a creation under way.
    pub(super) cancel_make: CancellationToken,
    reports: mpsc::Receiver<CallReport>,
    report_to: mpsc::Sender<CallReport>,
}

/// What a call told.
pub(super) enum CallMessage {
    Current(CallEvent),
    /// By a call that was given up.
    Superseded(CallEvent),
}

impl CallSlot {
    pub(super) fn new() -> CallSlot {
        let (report_to, reports) = mpsc::channel(REPORTS_MAX);
        CallSlot {
            number: 0,
            deadline: None,
            cancel_make: CancellationToken::new(),
            reports,
            report_to,
        }
    }

    /// Takes the slot for a new call, which may take this long.
    pub(super) fn begin(&mut self, shared: &Arc<Shared>, id: &SandboxId, span: Duration) -> Call {
        self.number += 1;
        self.allow(span);
        Call {
            shared: shared.clone(),
            id: id.clone(),
            number: self.number,
            reports: self.report_to.clone(),
        }
    }

    /// What the next report says. Safe to cancel.
    pub(super) async fn report(&mut self) -> CallMessage {
        let report = self.reports.recv().await;
        let CallReport { number, event } = report.expect("the slot itself holds a sender");
        if number == self.number {
            CallMessage::Current(event)
        } else {
            CallMessage::Superseded(event)
        }
    }

    /// The call under way may take this long from now.
    pub(super) fn allow(&mut self, span: Duration) {
        self.deadline = Some(Instant::now() + span);
    }

    /// The call under way may take no longer than this from now.
    pub(super) fn shorten_deadline(&mut self, span: Duration) {
        let limit = Instant::now() + span;
        self.deadline = self.deadline.map(|deadline| deadline.min(limit));
    }

    /// The call under way does not count any more.
    pub(super) fn give_up(&mut self) {
        self.deadline = None;
        self.number += 1;
    }
}

/// What a call is, for people, and how long it may take.
pub(super) fn describe(op: Op) -> (&'static str, Duration) {
    match op {
        Op::Make { .. } => ("creating the sandbox", deadlines::CREATE_QUEUE),
        Op::Pause => ("pausing the sandbox", deadlines::PAUSE),
        Op::Resume => ("resuming the sandbox", deadlines::RESUME),
        Op::Snapshot => ("taking the snapshot", deadlines::SNAPSHOT),
        Op::ChangePolicy => ("changing the network policy", deadlines::CHANGE_POLICY),
        Op::Inspect => ("inspecting the sandbox", deadlines::INSPECT),
        Op::Delete => ("deleting the sandbox", deadlines::DELETE),
    }
}
