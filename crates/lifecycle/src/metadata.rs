//! The metadata of one sandbox while changes to it are on their way into the store.
//!
//! A change is shown when it is durable, and one that the store refused leaves no trace: what a
//! client was told had failed must not be found later.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::error::Error;
use crate::names::NameClaim;
use crate::sandbox::Sandbox;

/// Keys with their new values; `None` removes a key.
pub(crate) type Patch = BTreeMap<String, Option<String>>;

/// Who asked for a change.
pub(crate) type Asker = oneshot::Sender<Result<Arc<Sandbox>, Error>>;

/// Who asked for a change, and the name that nobody else may have until it is shown.
pub(crate) type Asked = (Asker, Option<NameClaim>);

/// What is durable, and what is to become so.
pub(crate) struct Metadata {
    durable: BTreeMap<String, String>,
    pending: Vec<Pending>,
}

struct Pending {
    /// The version of the record that holds it.
    version: u64,
    patch: Patch,
    asked: Asked,
}

impl Metadata {
    pub(crate) fn new(durable: BTreeMap<String, String>) -> Metadata {
        let pending = Vec::new();
        Metadata { durable, pending }
    }

    /// What clients see.
    pub(crate) fn shown(&self) -> &BTreeMap<String, String> {
        &self.durable
    }

    /// What the next record holds.
    pub(crate) fn recorded(&self) -> BTreeMap<String, String> {
        let mut all = self.durable.clone();
        for pending in &self.pending {
            merge(&mut all, &pending.patch);
        }
        all
    }

    /// A change that becomes durable with this version of the record.
    pub(crate) fn add(&mut self, version: u64, patch: Patch, asked: Asked) {
        self.pending.push(Pending {
            version,
            patch,
            asked,
        });
    }

    /// The write of a version has ended: takes its changes over or drops them. Answers who asked
    /// for them.
    pub(crate) fn settle(&mut self, version: u64, is_written: bool) -> Vec<Asked> {
        let rest = self.pending.partition_point(|it| it.version <= version);
        let settled = self.pending.drain(..rest);
        settled
            .map(|it| {
                if is_written {
                    merge(&mut self.durable, &it.patch);
                }
                it.asked
            })
            .collect()
    }
}

fn merge(metadata: &mut BTreeMap<String, String>, patch: &Patch) {
    for (key, value) in patch {
        match value {
            Some(value) => metadata.insert(key.clone(), value.clone()),
            None => metadata.remove(key),
        };
    }
}
