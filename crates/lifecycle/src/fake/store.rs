//! A store in memory. What it holds survives a service, so a test can start another on it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::id::{SandboxId, SnapshotId};
use async_trait::async_trait;
use jiff::Timestamp;

use crate::caller::Tenant;
use crate::ended::{ENDED_MAX, EndedRecord};
use crate::event::{AuditEntry, AuditQuery, Event, EventId};
use crate::keys::ApiKey;
use crate::sandbox::Snapshot;
use crate::store::{Batch, BatchOutcome, Contents, Error, KeyRecord, SandboxRecord, Write};
use crate::tenants::TenantRecord;

/// A store for tests. Clones share it.
#[derive(Clone, Default)]
pub struct Store {
    held: Arc<Mutex<Held>>,
}

/// How writes go wrong.
#[derive(Debug, Clone)]
pub enum StoreFault {
    /// Nothing is written.
    Refuse(Error),
    /// Nothing is written and no answer comes.
    Hang,
    /// Everything is written and no answer comes.
    WriteAndHang,
    /// Everything is written after this long.
    Delay(Duration),
}

#[derive(Default)]
struct Held {
    identity: Option<String>,
    is_settled: bool,
    // As text, as a real store holds it: what cannot be read back is found out.
    sandboxes: BTreeMap<SandboxId, String>,
    snapshots: BTreeMap<SnapshotId, Snapshot>,
    keys: HashMap<String, KeyRecord>,
    events: VecDeque<Event>,
    audit: VecDeque<AuditEntry>,
    ended: VecDeque<EndedRecord>,
    api_keys: BTreeMap<Arc<str>, ApiKey>,
    tenants: BTreeMap<Tenant, TenantRecord>,
    last_event: EventId,
    last_audit: i64,
    faults: VecDeque<StoreFault>,
    writes: u64,
    /// What was audited, and whether in one batch with a change.
    audited: Vec<(String, bool)>,
}

impl Store {
    /// An empty store.
    pub fn new() -> Store {
        Store::default()
    }

    /// The next writes go wrong in this way, each fault once, in order.
    pub fn fail_next(&self, fault: StoreFault) {
        self.lock().faults.push_back(fault);
    }

    /// No more faults.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// How many groups were written.
    pub fn groups_written(&self) -> u64 {
        self.lock().writes
    }

    /// What is kept of a sandbox, as text.
    pub fn text_of(&self, id: &SandboxId) -> Option<String> {
        self.lock().sandboxes.get(id).cloned()
    }

    /// The actions that were audited, and whether each came in one batch with a change.
    pub fn audited(&self) -> Vec<(String, bool)> {
        self.lock().audited.clone()
    }

    /// Forgets everything, as if the file had been lost.
    pub fn lose(&self) {
        *self.lock() = Held::default();
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn apply(&mut self, batch: &Batch) -> BatchOutcome {
        let taken = batch.writes.iter().find_map(|write| match write {
            Write::ClaimKey { record, now } => self
                .keys
                .get(&record.key)
                .filter(|used| used.sandbox_id != record.sandbox_id && used.expires_at > *now),
            _ => None,
        });
        if let Some(used) = taken {
            return BatchOutcome::KeyTaken(used.clone());
        }
        let is_change =
            |write: &Write| matches!(write, Write::PutSandbox(_) | Write::PutSnapshot(_));
        let with_change = batch.writes.iter().any(is_change);
        for write in &batch.writes {
            if let Write::AppendAudit(entry) = write {
                self.audited.push((entry.action.clone(), with_change));
            }
        }
        let mut numbers = Vec::new();
        for write in batch.writes.iter().cloned() {
            self.write(write, &mut numbers);
        }
        BatchOutcome::Written(numbers)
    }

    fn write(&mut self, write: Write, numbers: &mut Vec<EventId>) {
        match write {
            Write::PutSandbox(record) => {
                let text = serde_json::to_string(&*record).expect("a record is valid JSON");
                self.sandboxes.insert(record.sandbox.id.clone(), text);
            }
            Write::RemoveSandbox(id) => drop(self.sandboxes.remove(&id)),
            Write::PutSnapshot(snapshot) => {
                self.snapshots
                    .insert(snapshot.id.clone(), (*snapshot).clone());
            }
            Write::RemoveSnapshot(id) => drop(self.snapshots.remove(&id)),
            Write::ClaimKey { record, .. } => drop(self.keys.insert(record.key.clone(), record)),
            Write::ReleaseKeys(id) => self.keys.retain(|_, key| key.sandbox_id != id),
            Write::AppendEvent(mut event) => {
                self.last_event += 1;
                event.id = self.last_event;
                numbers.push(event.id);
                self.events.push_back(event);
            }
            Write::AppendAudit(mut entry) => {
                self.last_audit += 1;
                entry.id = self.last_audit;
                self.audit.push_back(entry);
            }
            Write::AmendAudit(entry) => {
                let same =
                    |it: &&mut AuditEntry| it.target == entry.target && it.actor == entry.actor;
                if let Some(amended) = self.audit.iter_mut().rev().find(same) {
                    *amended = AuditEntry {
                        id: amended.id,
                        ..entry
                    };
                }
            }
            Write::PutEnded(record) => {
                self.ended.push_back((*record).clone());
                let surplus = self.ended.len().saturating_sub(ENDED_MAX as usize);
                self.ended.drain(..surplus);
            }
            Write::PutApiKey(key) => {
                let last_used_at = self.api_keys.get(&key.id).and_then(|it| it.last_used_at);
                let id = Arc::clone(&key.id);
                let key = (*key).clone();
                self.api_keys.insert(
                    id,
                    ApiKey {
                        last_used_at,
                        ..key
                    },
                );
            }
            Write::TouchApiKey { id, at } => {
                if let Some(key) = self.api_keys.get_mut(&id) {
                    key.last_used_at = Timestamp::from_second(at).ok();
                }
            }
            Write::RemoveApiKey(id) => drop(self.api_keys.remove(&id)),
            Write::PutTenant(record) => {
                self.tenants.insert(record.name.clone(), (*record).clone());
            }
            Write::RemoveTenant(name) => drop(self.tenants.remove(&name)),
            Write::Settle => self.is_settled = true,
            Write::Prune {
                keys_before,
                ended_before,
                keep_events,
                keep_audit,
            } => {
                self.keys.retain(|_, key| key.expires_at >= keys_before);
                self.ended.retain(|it| it.ended.ended_at >= ended_before);
                let surplus = self.events.len().saturating_sub(keep_events as usize);
                self.events.drain(..surplus);
                let surplus = self.audit.len().saturating_sub(keep_audit as usize);
                self.audit.drain(..surplus);
            }
        }
    }
}

#[async_trait]
impl crate::store::Store for Store {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn load(&self) -> Result<Contents, Error> {
        let mut held = self.lock();
        let identity = held
            .identity
            .get_or_insert_with(|| uuid::Uuid::new_v4().to_string())
            .clone();
        let parse = |text: &String| {
            serde_json::from_str::<SandboxRecord>(text).map_err(|error| Error::Corrupt {
                store: "memory",
                location: "memory".to_owned(),
                message: error.to_string(),
            })
        };
        Ok(Contents {
            identity,
            is_settled: held.is_settled,
            sandboxes: held
                .sandboxes
                .values()
                .map(parse)
                .collect::<Result<_, _>>()?,
            snapshots: held.snapshots.values().cloned().collect(),
            ended: held.ended.iter().map(|it| it.ended.clone()).collect(),
            api_keys: held.api_keys.values().cloned().collect(),
            tenants: held.tenants.values().cloned().collect(),
            last_event: held.last_event,
        })
    }

    async fn apply(&self, batches: &[Batch]) -> Result<Vec<BatchOutcome>, Error> {
        // A real store takes its time: others get a turn before the answer.
        tokio::task::yield_now().await;
        let fault = self.lock().faults.pop_front();
        match &fault {
            Some(StoreFault::Refuse(error)) => return Err(error.clone()),
            Some(StoreFault::Hang) => std::future::pending().await,
            Some(StoreFault::Delay(span)) => tokio::time::sleep(*span).await,
            Some(StoreFault::WriteAndHang) | None => {}
        }
        let outcomes = {
            let mut held = self.lock();
            held.writes += 1;
            batches.iter().map(|batch| held.apply(batch)).collect()
        };
        if let Some(StoreFault::WriteAndHang) = fault {
            std::future::pending::<()>().await;
        }
        Ok(outcomes)
    }

    async fn key(&self, key: &str) -> Result<Option<KeyRecord>, Error> {
        Ok(self.lock().keys.get(key).cloned())
    }

    async fn events_after(&self, after: EventId, limit: u32) -> Result<Vec<Event>, Error> {
        let held = self.lock();
        let newer = held.events.iter().filter(|event| event.id > after);
        Ok(newer.take(limit as usize).cloned().collect())
    }

    async fn oldest_event(&self) -> Result<Option<EventId>, Error> {
        Ok(self.lock().events.front().map(|event| event.id))
    }

    async fn events_of(&self, sandbox: &SandboxId, limit: u32) -> Result<Vec<Event>, Error> {
        let held = self.lock();
        let mut found: Vec<_> = held
            .events
            .iter()
            .rev()
            .filter(|event| event.sandbox_id.as_ref() == Some(sandbox))
            .take(limit as usize)
            .cloned()
            .collect();
        found.reverse();
        Ok(found)
    }

    async fn ended(&self, sandbox: &SandboxId) -> Result<Option<EndedRecord>, Error> {
        let held = self.lock();
        let found = held
            .ended
            .iter()
            .rev()
            .find(|it| it.ended.sandbox_id == *sandbox);
        Ok(found.cloned())
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>, Error> {
        let held = self.lock();
        let wanted = |entry: &&AuditEntry| {
            entry.tenant == query.tenant
                && query.before.is_none_or(|before| entry.id < before)
                && query
                    .target
                    .as_ref()
                    .is_none_or(|target| entry.target.as_ref() == Some(target))
                && query
                    .actor
                    .as_ref()
                    .is_none_or(|actor| entry.actor == *actor)
        };
        let newest_first = held.audit.iter().rev().filter(wanted);
        Ok(newest_first.take(query.limit as usize).cloned().collect())
    }

    async fn health(&self) -> Result<(), Error> {
        match self.lock().faults.front() {
            Some(StoreFault::Refuse(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }
}
