//! API keys: which there are, who holds each, and the index in which requests find theirs.
//!
//! A key is 256 random bits that are shown once and kept as their SHA-256, in the store or, for keys of the
//! configuration, there. What a key may do is `rights`; comparing and slowing down guesses is the access
//! layer's. Making, rotating and revoking them is `keys/service.rs`.

mod service;

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::caller::{Caller, KeyUse, Tenant};
use crate::journal::Journal;
use crate::rights::{Role, Scope};
use crate::store::{Batch, Write};

pub(crate) use service::invalid;
pub use service::{KeySummary, NewKey, NewToken};

/// The SHA-256 of a key.
pub type KeyHash = [u8; 32];

/// The characters of every key that is made here: `osb_`, and 256 bits as hexadecimal digits.
pub const KEY_LENGTH: usize = 4 + 64;

/// The last use of a key is written again when it is this much later, in seconds: a key in steady use costs a
/// write in ten minutes.
const USE_KEPT_SECONDS: i64 = 600;

/// A new key, and its hash.
pub fn new_api_key() -> (SecretString, KeyHash) {
    let key = format!("osb_{}", hex::encode(rand::random::<[u8; 32]>()));
    let hash = hash(key.as_bytes());
    (SecretString::from(key), hash)
}

/// The hash by which a key is known.
pub fn hash(key: &[u8]) -> KeyHash {
    Sha256::digest(key).into()
}

/// A key as it is kept in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    /// Minted by the service.
    pub id: Arc<str>,
    /// For the audit trail; no two keys of a tenant share one.
    pub name: Arc<str>,
    /// Whose sandboxes it is for.
    #[serde(default)]
    pub tenant: Tenant,
    /// What it may do.
    pub role: Role,
    /// What it may do less than its role.
    #[serde(default)]
    pub scope: Arc<Scope>,
    /// Its hash.
    #[serde(with = "hex_hash")]
    pub hash: KeyHash,
    /// The one that it had before it was rotated, and until when that is good.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub previous: Option<PreviousHash>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<Timestamp>,
    /// The id of the key from which it was made as a token.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<Arc<str>>,
    /// When it was last used, as far as that was written.
    #[serde(skip)]
    pub last_used_at: Option<Timestamp>,
}

/// A hash that a key had before it was rotated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviousHash {
    /// The hash.
    #[serde(with = "hex_hash")]
    pub hash: KeyHash,
    /// Until when it is good.
    pub until: Timestamp,
}

mod hex_hash {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use super::KeyHash;

    pub(super) fn serialize<S: Serializer>(hash: &KeyHash, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex::encode(hash))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<KeyHash, D::Error> {
        let text = String::deserialize(from)?;
        let mut hash = KeyHash::default();
        hex::decode_to_slice(&text, &mut hash).map_err(D::Error::custom)?;
        Ok(hash)
    }
}

/// A key that stands in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenKey {
    /// For the audit trail.
    pub name: String,
    /// Whose sandboxes it is for.
    pub tenant: Tenant,
    /// What it may do.
    pub role: Role,
    /// Its hash.
    pub hash: KeyHash,
}

/// Every key that there is.
#[derive(Default)]
pub struct KeyIndex {
    held: RwLock<Held>,
    /// Where the last use of a key is written to.
    journal: Option<Journal>,
}

#[derive(Default)]
struct Held {
    by_hash: HashMap<KeyHash, Arc<Entry>>,
    /// Without hashes that were rotated away.
    by_id: HashMap<Arc<str>, Arc<Entry>>,
    /// Whether a key is asked for even where there is none.
    is_closed: bool,
}

/// A key in memory.
struct Entry {
    key: ApiKey,
    /// Whether it stands in the configuration.
    is_given: bool,
    /// Who shows it.
    caller: Caller,
    /// In seconds of the wall clock; 0 for never.
    last_used: AtomicI64,
    /// The same as it was written.
    last_kept: AtomicI64,
}

impl Entry {
    fn new(key: ApiKey, is_given: bool) -> Arc<Entry> {
        let used = key.last_used_at.map_or(0, Timestamp::as_second);
        let caller = Caller {
            name: Arc::clone(&key.name),
            role: key.role,
            tenant: key.tenant.clone(),
            scope: Arc::clone(&key.scope),
            key: Some(KeyUse {
                revoked: CancellationToken::new(),
                expires_at: key.expires_at,
                id: Arc::clone(&key.id),
                is_token: key.parent.is_some(),
            }),
            audit: None,
        };
        Arc::new(Entry {
            key,
            is_given,
            caller,
            last_used: AtomicI64::new(used),
            last_kept: AtomicI64::new(used),
        })
    }

    /// Ends what is open with it.
    fn revoke(&self) {
        if let Some(key) = &self.caller.key {
            key.revoked.cancel();
        }
    }

    fn is_good(&self, now: Timestamp) -> bool {
        self.key.expires_at.is_none_or(|at| now < at)
    }

    fn is_unlimited_admin(&self) -> bool {
        let key = &self.key;
        key.role == Role::Admin
            && key.tenant.is_built_in()
            && *key.scope == Scope::default()
            && key.expires_at.is_none()
            && key.parent.is_none()
    }
}

impl Held {
    fn insert(&mut self, entry: &Arc<Entry>) {
        // A server that had a key does not open while it runs. Tokens alone let nobody in.
        self.is_closed |= entry.key.parent.is_none();
        self.by_hash.insert(entry.key.hash, Arc::clone(entry));
        self.by_id
            .insert(Arc::clone(&entry.key.id), Arc::clone(entry));
        let Some(previous) = &entry.key.previous else {
            return;
        };
        let ends = entry
            .key
            .expires_at
            .map_or(previous.until, |at| at.min(previous.until));
        let old = ApiKey {
            hash: previous.hash,
            previous: None,
            expires_at: Some(ends),
            ..entry.key.clone()
        };
        self.by_hash
            .insert(previous.hash, Entry::new(old, entry.is_given));
    }

    /// Takes a key with its tokens; what is open with them ends.
    fn remove(&mut self, id: &str) {
        let goes =
            |entry: &Arc<Entry>| &*entry.key.id == id || entry.key.parent.as_deref() == Some(id);
        self.by_id.retain(|_, entry| !goes(entry));
        self.by_hash.retain(|_, entry| {
            let stays = !goes(entry);
            if !stays {
                entry.revoke();
            }
            stays
        });
    }

    /// Whether a token's key is still there, and still may what the token may: a configuration can give another
    /// role or tenant to a key.
    fn has_parent(&self, key: &ApiKey, now: Timestamp) -> bool {
        let Some(parent) = &key.parent else {
            return true;
        };
        self.by_id.get(parent).is_some_and(|it| {
            it.is_good(now) && it.key.role == key.role && it.key.tenant == key.tenant
        })
    }
}

impl KeyIndex {
    pub(crate) fn new(stored: Vec<ApiKey>, journal: Journal) -> KeyIndex {
        let mut held = Held::default();
        for key in stored {
            held.insert(&Entry::new(key, false));
        }
        KeyIndex {
            held: RwLock::new(held),
            journal: Some(journal),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Held> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no key is asked for.
    pub fn is_open(&self) -> bool {
        !self.read().is_closed
    }

    /// Whether there is a key that was made by the service; tokens are none.
    pub fn has_stored(&self) -> bool {
        let held = self.read();
        let mut entries = held.by_id.values();
        entries.any(|entry| !entry.is_given && entry.key.parent.is_none())
    }

    /// Who holds the key with this hash, if it is good now. Looked up by the hash, of whose bytes an attacker
    /// chooses none, so the time tells nothing about keys.
    pub fn identify(&self, hash: &KeyHash, now: Timestamp) -> Option<Caller> {
        let held = self.read();
        let entry = held.by_hash.get(hash)?;
        if !entry.is_good(now) || !held.has_parent(&entry.key, now) {
            return None;
        }
        self.note_use(&held, entry, now);
        Some(entry.caller.clone())
    }

    /// Remembers the use, and writes it where the last one that was written is long ago. A full queue forgets
    /// it: the next use is written.
    fn note_use(&self, held: &Held, used: &Entry, now: Timestamp) {
        let now = now.as_second();
        // A hash that was rotated away is a use of its key.
        let Some(entry) = held.by_id.get(&used.key.id) else {
            return;
        };
        if entry.last_used.swap(now, Ordering::Relaxed) == now || entry.is_given {
            return;
        }
        let kept = entry.last_kept.load(Ordering::Relaxed);
        let Some(journal) = &self.journal else {
            return;
        };
        let swap = || {
            let order = Ordering::Relaxed;
            entry.last_kept.compare_exchange(kept, now, order, order)
        };
        if now.saturating_sub(kept) >= USE_KEPT_SECONDS && swap().is_ok() {
            let (id, at) = (Arc::clone(&entry.key.id), now);
            let writes = vec![Write::TouchApiKey { id, at }];
            drop(journal.write(Batch { writes }));
        }
    }

    /// Takes over the keys of a configuration in place of those of an earlier one. What is open with a key
    /// that is not among them ends.
    pub fn set_given(&self, given: Vec<GivenKey>, is_closed: bool) {
        let now = Timestamp::now();
        let mut held = self.write();
        let keys = given.into_iter().map(|given| ApiKey {
            id: format!("config-{}", hex::encode(&given.hash[..8])).into(),
            name: given.name.into(),
            tenant: given.tenant,
            role: given.role,
            scope: Arc::default(),
            hash: given.hash,
            previous: None,
            created_at: now,
            expires_at: None,
            parent: None,
            last_used_at: None,
        });
        let keys: Vec<ApiKey> = keys.collect();
        let is_same = |a: &ApiKey, b: &ApiKey| {
            (&a.id, &a.name, &a.tenant, a.role) == (&b.id, &b.name, &b.tenant, b.role)
        };
        let stays = |entry: &Entry| keys.iter().any(|key| is_same(key, &entry.key));
        let gone = held.by_id.values().filter(|it| it.is_given && !stays(it));
        let gone: Vec<Arc<str>> = gone.map(|entry| Arc::clone(&entry.key.id)).collect();
        for id in gone {
            // Tokens that were made from it stay recorded, and are no good without it.
            held.revoke_with_tokens(&id);
        }
        for key in keys {
            if !held.by_id.contains_key(&key.id) {
                held.insert(&Entry::new(key, true));
            }
        }
        held.is_closed |= is_closed;
    }
}

impl Held {
    /// Takes a key of the configuration, and ends what is open with its tokens.
    fn revoke_with_tokens(&mut self, id: &str) {
        if let Some(entry) = self.by_id.remove(id) {
            self.by_hash.remove(&entry.key.hash);
            entry.revoke();
        }
        let tokens = self
            .by_id
            .values()
            .filter(|it| it.key.parent.as_deref() == Some(id));
        let tokens: Vec<ApiKey> = tokens
            .map(|entry| {
                entry.revoke();
                entry.key.clone()
            })
            .collect();
        // Good again should the key come back.
        for key in tokens {
            self.insert(&Entry::new(key, false));
        }
    }
}

impl KeyIndex {
    /// The ids of the keys and tokens that were made for a tenant.
    pub(crate) fn of_tenant(&self, tenant: &Tenant) -> Vec<Arc<str>> {
        let held = self.read();
        let its = held.by_id.values().filter(|it| it.key.tenant == *tenant);
        its.filter(|it| !it.is_given)
            .map(|it| Arc::clone(&it.key.id))
            .collect()
    }

    /// The ids of the tokens that were made from a key.
    pub(crate) fn tokens_of(&self, id: &str) -> Vec<Arc<str>> {
        let held = self.read();
        let its = held.by_id.values();
        its.filter(|it| it.key.parent.as_deref() == Some(id))
            .map(|it| Arc::clone(&it.key.id))
            .collect()
    }

    /// Takes keys; what is open with them ends.
    pub(crate) fn remove_all(&self, ids: &[Arc<str>]) {
        let mut held = self.write();
        for id in ids {
            held.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str, role: Role, parent: Option<&str>) -> ApiKey {
        let (_, hash) = new_api_key();
        ApiKey {
            id: id.into(),
            name: id.into(),
            tenant: Tenant::default(),
            role,
            scope: Arc::default(),
            hash,
            previous: None,
            created_at: Timestamp::UNIX_EPOCH,
            expires_at: None,
            parent: parent.map(Arc::from),
            last_used_at: None,
        }
    }

    fn index(stored: Vec<ApiKey>) -> KeyIndex {
        let mut held = Held::default();
        for key in stored {
            held.insert(&Entry::new(key, false));
        }
        KeyIndex {
            held: RwLock::new(held),
            journal: None,
        }
    }

    #[test]
    fn a_server_that_had_a_key_does_not_open_while_it_runs() {
        let keys = index(Vec::new());
        assert!(keys.is_open());
        keys.write()
            .insert(&Entry::new(key("a", Role::Viewer, None), false));
        keys.write().remove("a");
        assert!(!keys.is_open());
        keys.set_given(Vec::new(), false);
        assert!(!keys.is_open());
    }

    #[test]
    fn tokens_of_keys_that_are_gone_are_no_keys() {
        let keys = index(vec![key("t", Role::Admin, Some("gone"))]);
        assert!(keys.is_open() && !keys.has_stored());
    }

    #[test]
    fn a_token_ends_with_the_role_that_its_key_had() {
        let now = Timestamp::UNIX_EPOCH;
        for role in [Role::Admin, Role::Operator, Role::User, Role::Viewer] {
            let token = key("t", Role::Admin, Some("a"));
            let keys = index(vec![key("a", role, None), token.clone()]);
            let is_good = keys.identify(&token.hash, now).is_some();
            assert_eq!(is_good, role == Role::Admin, "{role:?}");
        }
    }
}
