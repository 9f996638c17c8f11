//! Keeps one sandbox's record in the store: at most one write under way, the newest state next.
//!
//! Changes that come while a write is under way are folded into the next one, with all their
//! events, so a sandbox can never be overtaken by its own older state. Those who need to know
//! that something is durable leave a closure; it runs when a write that holds their change has
//! ended.

use std::sync::Arc;

use api::id::SandboxId;
use futures_util::future::BoxFuture;

use crate::caller::AuditContext;
use crate::ended::EndedRecord;
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::journal::Journal;
use crate::recipe::Recipe;
use crate::sandbox::{Sandbox, State};
use crate::store::{self, Batch, BatchOutcome, KeyRecord, SandboxRecord, Write};

/// Events kept for a store that does not take them; the oldest go first.
const EVENTS: usize = 64;

type Waiter = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// How the first write went.
enum First {
    Unknown,
    Written,
    Refused(Error),
}

/// A write that has ended.
pub(crate) struct Saved {
    pub(crate) result: Result<(), Error>,
    /// It was the first record of a new sandbox.
    pub(crate) is_first: bool,
}

struct Waiting {
    version: u64,
    /// When `version` could not be written, this one will do as well.
    or_version: Option<u64>,
    waiter: Waiter,
}

pub(crate) struct RecordWriter {
    journal: Journal,
    id: SandboxId,
    /// How to make it. Holds secrets of the request, so it is written only while it is needed.
    recipe: Option<Recipe>,
    key: Option<KeyRecord>,
    events: Vec<Event>,
    /// Those of the write under way, should it fail.
    saving_events: Vec<Event>,
    /// The requests whose changes the next write keeps.
    audits: Vec<AuditContext>,
    saving_audits: Vec<AuditContext>,
    saving: Option<BoxFuture<'static, Result<BatchOutcome, Error>>>,
    /// Counts changes; a write covers all changes up to its number.
    version: u64,
    saving_version: u64,
    durable_version: u64,
    /// The change that said `Stopping`.
    intent_version: Option<u64>,
    waiters: Vec<Waiting>,
    first: First,
    is_removal: bool,
    /// What is left of it when it is removed.
    ended: Option<Arc<EndedRecord>>,
    /// A write that failed is not repeated by itself; see `retry`.
    has_failed: bool,
}

impl RecordWriter {
    pub(crate) fn new(
        journal: Journal,
        id: SandboxId,
        recipe: Option<Recipe>,
        is_new: bool,
    ) -> RecordWriter {
        RecordWriter {
            journal,
            id,
            recipe,
            key: None,
            events: Vec::new(),
            saving_events: Vec::new(),
            audits: Vec::new(),
            saving_audits: Vec::new(),
            saving: None,
            version: 0,
            saving_version: 0,
            durable_version: 0,
            intent_version: None,
            waiters: Vec::new(),
            first: if is_new {
                First::Unknown
            } else {
                First::Written
            },
            is_removal: false,
            ended: None,
            has_failed: false,
        }
    }

    /// The first write also claims this key.
    pub(crate) fn claim(&mut self, key: Option<KeyRecord>) {
        self.key = key;
    }

    /// An event for the next write.
    pub(crate) fn note(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Who asked for what the next write keeps.
    pub(crate) fn record(&mut self, audit: Option<AuditContext>) {
        self.audits.extend(audit);
    }

    /// Nothing came of what was asked; unless it is being written.
    pub(crate) fn unrecord(&mut self, audit: &AuditContext) {
        self.audits.retain(|other| !other.is_same(audit));
    }

    pub(crate) fn recipe(&self) -> Option<&Recipe> {
        self.recipe.as_ref()
    }

    /// Writes the sandbox as it is now, as soon as the write under way is over.
    pub(crate) fn save(&mut self, sandbox: &Sandbox) {
        self.version += 1;
        self.has_failed = false;
        if sandbox.status.state == State::Stopping && self.intent_version.is_none() {
            self.intent_version = Some(self.version);
        }
        self.continue_saving(sandbox);
    }

    /// Drops the sandbox from the store, which keeps what is left of it for a while.
    pub(crate) fn remove(&mut self, sandbox: &Sandbox, ended: EndedRecord) {
        self.is_removal = true;
        self.ended = Some(Arc::new(ended));
        self.has_failed = false;
        self.version += 1;
        self.continue_saving(sandbox);
    }

    /// Tries again what failed.
    pub(crate) fn retry(&mut self, sandbox: &Sandbox) {
        self.has_failed = false;
        self.continue_saving(sandbox);
    }

    /// Starts the next write if there is something to write and none is under way.
    pub(crate) fn continue_saving(&mut self, sandbox: &Sandbox) {
        let is_pending = self.version > self.durable_version;
        if self.saving.is_some() || !is_pending || self.has_failed {
            return;
        }
        // What was surely not written need not be removed. After a timeout nobody knows.
        let is_absent = match &self.first {
            First::Refused(Error::Store(store::Error::Timeout { .. })) => false,
            First::Refused(_) => true,
            First::Unknown | First::Written => false,
        };
        if is_absent {
            return self.settle(self.version, &Ok(()));
        }
        let batch = self.batch(sandbox);
        self.saving_version = self.version;
        self.saving = Some(Box::pin(self.journal.write(batch)));
    }

    fn batch(&mut self, sandbox: &Sandbox) -> Batch {
        let mut writes = Vec::with_capacity(3 + self.events.len());
        if self.is_removal {
            writes.push(Write::RemoveSandbox(self.id.clone()));
            writes.extend(self.ended.clone().map(Write::PutEnded));
            // Never made and never answered: the key is free for another try.
            if sandbox.started_at.is_none() && sandbox.status.state == State::Failed {
                writes.push(Write::ReleaseKeys(self.id.clone()));
            }
        } else {
            let now = sandbox.created_at;
            writes.extend(
                self.key
                    .clone()
                    .map(|record| Write::ClaimKey { record, now }),
            );
            if sandbox.status.state != State::Pending {
                self.recipe = None;
            }
            let record = SandboxRecord {
                sandbox: sandbox.clone(),
                recipe: self.recipe.clone(),
            };
            writes.push(Write::PutSandbox(Arc::new(record)));
        }
        self.saving_events = std::mem::take(&mut self.events);
        writes.extend(self.saving_events.iter().cloned().map(Write::AppendEvent));
        self.saving_audits = std::mem::take(&mut self.audits);
        let entry = |audit: &AuditContext| audit.write(self.id.as_str());
        writes.extend(self.saving_audits.iter().map(entry));
        Batch { writes }
    }

    /// The version that the next change will have.
    pub(crate) fn next_version(&self) -> u64 {
        self.version + 1
    }

    /// The version of the write that ended last.
    pub(crate) fn saved_version(&self) -> u64 {
        self.saving_version
    }

    /// Waits for the write under way; how it went. For ever when there is none.
    pub(crate) async fn saved(&mut self) -> Saved {
        let result = match &mut self.saving {
            Some(saving) => saving.await,
            None => std::future::pending().await,
        };
        self.saving = None;
        let result = match result {
            Ok(BatchOutcome::Written(_)) => Ok(()),
            Ok(BatchOutcome::KeyTaken(_)) => Err(Error::KeyConflict),
            Err(error) => Err(error),
        };
        let is_first = matches!(self.first, First::Unknown);
        if is_first {
            self.first = match &result {
                Ok(()) => First::Written,
                Err(error) => First::Refused(error.clone()),
            };
        }
        self.has_failed = result.is_err();
        // Whoever asked for what could not be kept records that by themselves.
        for audit in std::mem::take(&mut self.saving_audits) {
            if result.is_ok() {
                audit.set_recorded();
            } else if audit.is_of_server() && self.audits.len() < EVENTS {
                self.audits.push(audit);
            }
        }
        if result.is_ok() {
            self.key = None;
            self.saving_events.clear();
        } else {
            // A change of metadata that was refused is taken back: it has not happened.
            self.saving_events
                .retain(|event| event.kind != EventKind::MetadataChanged);
            self.saving_events.append(&mut self.events);
            std::mem::swap(&mut self.events, &mut self.saving_events);
            let surplus = self.events.len().saturating_sub(EVENTS);
            self.events.drain(..surplus);
        }
        self.settle(self.saving_version, &result);
        Saved { result, is_first }
    }

    /// Tells everyone who waited for changes up to `version`.
    fn settle(&mut self, version: u64, result: &Result<(), Error>) {
        if result.is_ok() {
            self.durable_version = self.durable_version.max(version);
        }
        for mut waiting in std::mem::take(&mut self.waiters) {
            if waiting.version > version {
                self.waiters.push(waiting);
            } else if let (Err(_), Some(other)) = (result, waiting.or_version.take()) {
                self.waiters.push(Waiting {
                    version: other,
                    ..waiting
                });
            } else {
                (waiting.waiter)(result.clone());
            }
        }
    }

    /// Runs `waiter` when everything up to now is durable, or could not be made so.
    pub(crate) fn when_durable(&mut self, waiter: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let version = self.version;
        self.wait(Waiting {
            version,
            or_version: None,
            waiter: Box::new(waiter),
        });
    }

    /// Runs `waiter` when the intent to delete is durable; when that failed, when the removal is.
    pub(crate) fn when_intent_durable(
        &mut self,
        waiter: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let intent = self.intent_version.unwrap_or(self.version);
        let is_under_way = self.saving.is_some() && intent <= self.saving_version;
        let version = if is_under_way || intent <= self.durable_version {
            intent
        } else {
            self.version
        };
        let or_version = (version != self.version).then_some(self.version);
        self.wait(Waiting {
            version,
            or_version,
            waiter: Box::new(waiter),
        });
    }

    fn wait(&mut self, waiting: Waiting) {
        if waiting.version <= self.durable_version {
            (waiting.waiter)(Ok(()));
        } else {
            self.waiters.push(waiting);
        }
    }

    /// No write under way, and nothing to write that could be written.
    pub(crate) fn is_idle(&self) -> bool {
        self.saving.is_none() && (self.has_failed || self.version <= self.durable_version)
    }

    /// Everything is durable.
    pub(crate) fn is_clean(&self) -> bool {
        self.saving.is_none() && self.version <= self.durable_version
    }
}
