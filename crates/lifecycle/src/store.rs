//! What the place that keeps the control plane's facts must be able to do: the trait [`Store`]
//! and the records that cross it.
//!
//! A store is a dumb, durable record_writer. When [`Store::apply`] has answered `Ok`, what it was given
//! survives the death of the process and of the machine. It decides nothing: states, lifetimes
//! and repairs belong to the service. All writes of one server come from one task (`journal`),
//! one call at a time; reads may come from anywhere.

use std::sync::Arc;

use api::id::{SandboxId, SnapshotId};
use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::caller::Tenant;
use crate::ended::{Ended, EndedRecord};
use crate::event::{AuditEntry, AuditQuery, Event, EventId};
use crate::keys::ApiKey;
use crate::recipe::Recipe;
use crate::sandbox::{Sandbox, Snapshot};
use crate::tenants::TenantRecord;

/// Keeps sandboxes, snapshots, idempotency keys, API keys, tenants, events and the audit trail.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// `sqlite`, `postgresql` or `memory`, for logs and diagnostics.
    fn name(&self) -> &'static str;

    /// Everything the service needs to begin.
    async fn load(&self) -> Result<Contents, Error>;

    /// Writes the batches, durably, in order. Each batch is all or nothing; a batch that is
    /// refused (see [`BatchOutcome`]) does not touch the others. An `Err` means that nothing of this
    /// call was written.
    async fn apply(&self, batches: &[Batch]) -> Result<Vec<BatchOutcome>, Error>;

    /// The use of an idempotency key, if it is still kept.
    async fn key(&self, key: &str) -> Result<Option<KeyRecord>, Error>;

    /// Events after `after`, oldest first, at most `limit`. Events that were pruned are missing
    /// without a trace; [`Store::oldest_event`] tells.
    async fn events_after(&self, after: EventId, limit: u32) -> Result<Vec<Event>, Error>;

    /// The number of the oldest event still kept.
    async fn oldest_event(&self) -> Result<Option<EventId>, Error>;

    /// The last `limit` events of one sandbox, oldest first.
    async fn events_of(&self, sandbox: &SandboxId, limit: u32) -> Result<Vec<Event>, Error>;

    /// What is left of a sandbox that is gone, if it is still kept.
    async fn ended(&self, sandbox: &SandboxId) -> Result<Option<EndedRecord>, Error>;

    /// Audit entries, newest first.
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>, Error>;

    /// Answers `Ok` only when a write would succeed now, as far as can be told.
    async fn health(&self) -> Result<(), Error>;
}

/// What a store holds when the service begins.
#[derive(Debug, Clone)]
pub struct Contents {
    /// Names this store for ever. Sandboxes carry it in their labels, so that an orphan of this
    /// store (delete it) is told from one of a store that was lost (adopt it).
    pub identity: String,
    /// A reconciliation has succeeded with this store before. Until then sandboxes of a lost
    /// store are adopted.
    pub is_settled: bool,
    /// All sandboxes.
    pub sandboxes: Vec<SandboxRecord>,
    /// All snapshots.
    pub snapshots: Vec<Snapshot>,
    /// All keys that were made by the service, with their last use.
    pub api_keys: Vec<ApiKey>,
    /// All tenants that were made by the service.
    pub tenants: Vec<TenantRecord>,
    /// Sandboxes that are gone, from the oldest on.
    pub ended: Vec<Ended>,
    /// The number of the newest event.
    pub last_event: EventId,
}

/// A sandbox as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// The sandbox as clients see it.
    pub sandbox: Sandbox,
    /// How to make it. Kept only until it is made, so that a restart can take up an interrupted
    /// creation; carries secrets of the request.
    pub recipe: Option<Recipe>,
}

/// The use of an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key, scoped to who used it.
    pub key: String,
    /// A hash of the request it was used for.
    pub fingerprint: String,
    /// The sandbox that the request made.
    pub sandbox_id: SandboxId,
    /// When it may be forgotten.
    pub expires_at: Timestamp,
}

/// Writes that belong together.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// All or none of them are written, in this order.
    pub writes: Vec<Write>,
}

/// One write.
#[derive(Debug, Clone)]
pub enum Write {
    /// Insert or replace.
    PutSandbox(Arc<SandboxRecord>),
    /// Remove; nothing happens when there is none.
    RemoveSandbox(SandboxId),
    /// Insert or replace.
    PutSnapshot(Arc<Snapshot>),
    /// Remove; nothing happens when there is none.
    RemoveSnapshot(SnapshotId),
    /// Claim an idempotency key. Refuses the whole batch when another sandbox holds it and that
    /// use has not expired at `now`.
    ClaimKey {
        /// The key with the request and the sandbox that it stands for.
        record: KeyRecord,
        /// When it is claimed.
        now: Timestamp,
    },
    /// Give back the keys of a sandbox that never came to be.
    ReleaseKeys(SandboxId),
    /// Number and append.
    AppendEvent(Event),
    /// Number and append.
    AppendAudit(AuditEntry),
    /// Replace the newest entry of the same actor about the same target; nothing happens when there is none.
    AmendAudit(AuditEntry),
    /// Append what is left of a sandbox that is gone, and forget all but the newest [`ENDED_MAX`](crate::ENDED_MAX).
    PutEnded(Arc<EndedRecord>),
    /// Insert or replace; the last use stays as it was.
    PutApiKey(Arc<ApiKey>),
    /// Note when a key was last used; nothing happens when there is none.
    TouchApiKey {
        /// Its id.
        id: Arc<str>,
        /// In seconds since 1970.
        at: i64,
    },
    /// Remove; nothing happens when there is none.
    RemoveApiKey(Arc<str>),
    /// Insert or replace.
    PutTenant(Arc<TenantRecord>),
    /// Remove; nothing happens when there is none.
    RemoveTenant(Tenant),
    /// The first reconciliation with this store has succeeded.
    Settle,
    /// Forget idempotency keys that expired before this instant, and all but the newest events
    /// and audit entries.
    Prune {
        /// Keys that expired before this are forgotten.
        keys_before: Timestamp,
        /// Sandboxes that were gone before this are forgotten.
        ended_before: Timestamp,
        /// How many events to keep.
        keep_events: u32,
        /// How many audit entries to keep.
        keep_audit: u32,
    },
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchOutcome {
    /// Written. Holds the numbers of its events, in order.
    Written(Vec<EventId>),
    /// Nothing of it was written: the key belongs to this earlier use.
    KeyTaken(KeyRecord),
}

/// Why the store failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// It cannot be opened or reached.
    #[error("the {store} store at {location} cannot be used: {message}")]
    Unavailable {
        /// The name of the store, as [`Store::name`] gives it.
        store: &'static str,
        /// Its path or address, without credentials.
        location: String,
        /// Why and what to do.
        message: String,
    },
    /// Another server holds it.
    #[error(
        "the {store} store at {location} is locked by another server; stop the other server or give this one its own store"
    )]
    Locked {
        /// The name of the store, as [`Store::name`] gives it.
        store: &'static str,
        /// Its path or address, without credentials.
        location: String,
    },
    /// Another program has a transaction in it and did not end it in time.
    #[error(
        "the {store} store at {location} was busy for too long: {message}; end the program that has it open, such as a backup or a database shell"
    )]
    Busy {
        /// The name of the store, as [`Store::name`] gives it.
        store: &'static str,
        /// Its path or address, without credentials.
        location: String,
        /// What the database said.
        message: String,
    },
    /// It is damaged.
    #[error(
        "the {store} store at {location} is damaged: {message}; restore a backup, or move it away and start again: running sandboxes will be adopted"
    )]
    Corrupt {
        /// The name of the store, as [`Store::name`] gives it.
        store: &'static str,
        /// Its path or address, without credentials.
        location: String,
        /// What in it cannot be read.
        message: String,
    },
    /// No room to write.
    #[error(
        "the disk of the {store} store at {location} is full; nothing was written, free some space"
    )]
    Full {
        /// The name of the store, as [`Store::name`] gives it.
        store: &'static str,
        /// Its path or address, without credentials.
        location: String,
    },
    /// A newer server wrote it.
    #[error(
        "the {store} store at {location} has schema {found}, newer than {known}, the newest this server knows; use the newer server"
    )]
    TooNew {
        /// The name of the store, as [`Store::name`] gives it.
        store: &'static str,
        /// Its path or address, without credentials.
        location: String,
        /// The version found.
        found: i64,
        /// The newest version known.
        known: i64,
    },
    /// Any other failure of a read or write.
    #[error("the {store} store failed to {action}: {message}")]
    Failed {
        /// The name of the store, as [`Store::name`] gives it.
        store: &'static str,
        /// What was being done.
        action: &'static str,
        /// What the database said.
        message: String,
    },
    /// It did not answer in time.
    #[error("the store did not answer within {seconds} s")]
    Timeout {
        /// How long was waited.
        seconds: u64,
    },
}
