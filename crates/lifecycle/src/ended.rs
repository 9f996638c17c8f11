//! What is left of a sandbox that is gone: why it ended, and the last of its output, for a day.
//!
//! Bounded in number and in bytes: of more than [`ENDED_MAX`] the oldest are forgotten first. The reasons are
//! in memory, so that every answer about a sandbox that is gone can tell; the output is in the store alone.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::id::SandboxId;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::backend::{LogQuery, Logs};
use crate::caller::Tenant;
use crate::sandbox::{Origin, Reason, Sandbox};

/// How long it is kept. Whoever looks for what happened last night finds it in the morning.
pub const ENDED_KEPT: SignedDuration = SignedDuration::from_hours(24);

/// How many are kept at most: with 32 KiB of output each, 32 MiB.
pub const ENDED_MAX: u32 = 1024;

/// How much of the output of each is kept: a stack trace with what led to it.
pub(crate) const LOGS: LogQuery = LogQuery {
    tail_lines: 1000,
    since: None,
    max_bytes: 32 * 1024,
};

/// A sandbox that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// The id that it had.
    pub sandbox_id: SandboxId,
    /// The tenant whose callers may know of it.
    pub tenant: Tenant,
    /// What its filesystem started as.
    pub origin: Origin,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it was gone.
    pub ended_at: Timestamp,
    /// Why it ended: how its entrypoint did, where that came first, else why it was removed.
    pub reason: Reason,
    /// The same as a sentence.
    pub message: String,
}

/// The same with the last of its output, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndedRecord {
    /// What it was.
    pub ended: Ended,
    /// The end of its output.
    pub logs: String,
    /// Something older was left out.
    pub is_truncated: bool,
}

impl Ended {
    /// What is left of `sandbox`, which ended for this reason.
    pub(crate) fn of(
        sandbox: &Sandbox,
        (reason, message): (Reason, String),
        ended_at: Timestamp,
    ) -> Ended {
        let message = match reason {
            // In its status they say what is being done to it.
            Reason::ContainerDeleting => "It was deleted".to_owned(),
            Reason::SandboxExpired => "Its lifetime was over".to_owned(),
            _ => message,
        };
        Ended {
            sandbox_id: sandbox.id.clone(),
            tenant: sandbox.tenant.clone(),
            origin: sandbox.origin.clone(),
            created_at: sandbox.created_at,
            ended_at,
            reason,
            message,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reason, message) = (self.reason.as_str(), &self.message);
        write!(f, "it ended at {} ({reason}): {message}", self.ended_at)
    }
}

impl EndedRecord {
    /// The output within the limits asked for. It has no times, so `since` is answered as a whole.
    pub(crate) fn logs(&self, query: LogQuery) -> Logs {
        if query.since.is_some_and(|since| self.ended.ended_at < since) {
            return Logs::default();
        }
        let text = self.logs.as_str();
        let body = text.strip_suffix('\n').unwrap_or(text);
        let breaks = body.bytes().enumerate().rev().filter(|(_, b)| *b == b'\n');
        let mut from = match query.tail_lines.checked_sub(1) {
            Some(lines) => breaks.map(|(at, _)| at + 1).nth(lines).unwrap_or(0),
            None => text.len(),
        };
        let least = text.len().saturating_sub(query.max_bytes);
        while from < least || !text.is_char_boundary(from) {
            from += 1;
        }
        Logs {
            text: text[from..].to_owned(),
            truncated: self.is_truncated || from > 0,
        }
    }
}

/// Those that are gone, in memory.
#[derive(Debug, Default)]
pub(crate) struct EndedIndex(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    by_id: HashMap<SandboxId, Arc<Ended>>,
    /// From the oldest on.
    order: VecDeque<SandboxId>,
}

impl EndedIndex {
    /// With those that an earlier server kept, from the oldest on.
    pub(crate) fn new(kept: Vec<Ended>) -> EndedIndex {
        let index = EndedIndex::default();
        for ended in kept {
            index.add(ended);
        }
        index
    }

    pub(crate) fn add(&self, ended: Ended) {
        let mut held = self.lock();
        let id = ended.sandbox_id.clone();
        if held.by_id.insert(id.clone(), Arc::new(ended)).is_none() {
            held.order.push_back(id);
        }
        while held.order.len() > ENDED_MAX as usize {
            if let Some(oldest) = held.order.pop_front() {
                held.by_id.remove(&oldest);
            }
        }
    }

    /// What is known of a sandbox that is gone, while it is kept.
    pub(crate) fn get(&self, id: &SandboxId, now: Timestamp) -> Option<Arc<Ended>> {
        let found = self.lock().by_id.get(id).cloned();
        found.filter(|ended| now.duration_since(ended.ended_at) < ENDED_KEPT)
    }

    // A panic while the lock is held cannot leave a map half changed, so poison is no danger.
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn ended(id: &str) -> Ended {
        Ended {
            sandbox_id: id.parse().unwrap(),
            tenant: Tenant::default(),
            origin: Origin::Image("busybox".to_owned()),
            created_at: NOW,
            ended_at: NOW,
            reason: Reason::SandboxExpired,
            message: "Its lifetime was over".to_owned(),
        }
    }

    #[test]
    fn no_more_are_kept_than_the_limit_and_none_for_longer_than_a_day() {
        let index = EndedIndex::default();
        for number in 0..=ENDED_MAX {
            index.add(ended(&format!("box-{number}")));
        }
        let get = |id: &str, now| index.get(&id.parse().unwrap(), now);
        assert!(get("box-0", NOW).is_none(), "the oldest goes first");
        assert!(get("box-1", NOW).is_some());
        let last = NOW + ENDED_KEPT - SignedDuration::from_secs(1);
        assert!(get("box-1", last).is_some());
        assert!(get("box-1", NOW + ENDED_KEPT).is_none());
    }

    #[test]
    fn the_output_is_cut_to_what_was_asked_for() {
        let record = EndedRecord {
            ended: ended("box"),
            logs: "a\nbé\nc\n".to_owned(),
            is_truncated: false,
        };
        let read = |tail_lines, max_bytes| {
            let logs = record.logs(LogQuery {
                tail_lines,
                since: None,
                max_bytes,
            });
            (logs.text, logs.truncated)
        };
        assert_eq!(read(9, 99), ("a\nbé\nc\n".to_owned(), false));
        assert_eq!(read(2, 99), ("bé\nc\n".to_owned(), true));
        assert_eq!(read(1, 99), ("c\n".to_owned(), true));
        assert_eq!(read(0, 99), (String::new(), true));
        // Within a character nothing is cut.
        assert_eq!(read(9, 4), ("\nc\n".to_owned(), true));
    }
}
