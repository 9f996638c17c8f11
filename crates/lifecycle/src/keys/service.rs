//! Making, listing, rotating and revoking keys, and making tokens from them.
//!
//! Administrators look after the keys of their own tenant, those of the built-in tenant after everybody's.
//! Nobody can make a key that may do more than they may.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::id::SandboxId;
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;

use super::{ApiKey, Entry, KeyHash, PreviousHash, new_api_key};
use crate::admission;
use crate::caller::{Caller, Tenant};
use crate::error::Error;
use crate::event::AuditEntry;
use crate::rights::{Right, Role, Scope};
use crate::service::Service;
use crate::store::{Batch, Write};

/// Keys of one server, tokens not counted: ten for each of a thousand tenants.
const KEYS_MAX: usize = 10_000;

/// Tokens of one key at once. Each is a row, and gone an hour later where nothing else was asked for.
const TOKENS_MAX: usize = 1000;

/// How long a token is good where its maker does not say.
const TOKEN_TTL: Duration = Duration::from_secs(3600);

/// How long a token is good at most.
const TOKEN_TTL_MAX: Duration = Duration::from_secs(24 * 3600);

/// How long a rotated key is good at most.
const GRACE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Names appear in each line of the audit trail.
const NAME_BYTES_MAX: usize = 64;

/// Who acts without a key, in the audit trail.
const RESERVED_NAMES: [&str; 5] = [
    AuditEntry::SERVER,
    "anonymous",
    "server",
    "visitor",
    "egress-token",
];

/// A key that is to be made.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// For the audit trail.
    pub name: String,
    /// Whose sandboxes it is for; `None` is the maker's own tenant.
    pub tenant: Option<Tenant>,
    /// What it may do.
    pub role: Role,
    /// What it may do less than its role.
    pub scope: Scope,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

/// A token that is to be made from the caller's own key.
#[derive(Debug, Clone, Default)]
pub struct NewToken {
    /// For this sandbox only.
    pub sandbox: Option<SandboxId>,
    /// For these actions only.
    pub actions: Option<BTreeSet<Right>>,
    /// How long it is good.
    pub ttl: Option<Duration>,
}

/// A key without its hash.
#[derive(Debug, Clone)]
pub struct KeySummary {
    /// The key.
    pub key: ApiKey,
    /// Whether it stands in the configuration, where alone it can be changed.
    pub is_given: bool,
}

impl Entry {
    fn summary(&self) -> KeySummary {
        let used = self.last_used.load(Ordering::Relaxed);
        let mut key = self.key.clone();
        key.hash = KeyHash::default();
        key.previous = None;
        key.last_used_at = (used > 0)
            .then(|| Timestamp::from_second(used).ok())
            .flatten();
        KeySummary {
            key,
            is_given: self.is_given,
        }
    }
}

impl Service {
    /// Makes a key. It is good when answered, and shown this once.
    pub async fn create_key(&self, new: NewKey) -> Result<(KeySummary, SecretString), Error> {
        self.plane.refuse_when_stopping()?;
        admission::allow(&self.caller, Right::Keys)?;
        check_name(&new.name)?;
        let shared = self.shared();
        let now = shared.clock.now();
        if new.expires_at.is_some_and(|at| at <= now) {
            return Err(invalid("expiresAt", "is over already"));
        }
        let tenant = new.tenant.unwrap_or_else(|| self.caller.tenant.clone());
        if !looks_after(&self.caller, &tenant) || !shared.tenants.has(&tenant) {
            return Err(Error::TenantNotFound(tenant.to_string()));
        }
        let (secret, hash) = new_api_key();
        let key = ApiKey {
            id: uuid::Uuid::new_v4().to_string().into(),
            name: new.name.into(),
            tenant,
            role: new.role,
            scope: Arc::new(new.scope),
            hash,
            previous: None,
            created_at: now,
            expires_at: new.expires_at,
            parent: None,
            last_used_at: None,
        };
        may_hand_out(&self.caller, &key)?;
        // One after the other, so that of two who want one name the second is refused.
        let _turn = shared.key_changes.lock().await;
        self.refuse_ended()?;
        self.check_new(&key)?;
        let entry = self.keep_key(key, Vec::new()).await?;
        Ok((entry.summary(), secret))
    }

    /// Whether a key may be added to those that there are.
    fn check_new(&self, key: &ApiKey) -> Result<(), Error> {
        let keys = &self.shared().api_keys;
        if keys.is_open() && !Entry::new(key.clone(), false).is_unlimited_admin() {
            return Err(Error::ApiKeyConflict(
                "this server has no key yet: the first must be an administrator's of the built-in \
                 tenant, without a scope or an end, or nobody could make another"
                    .to_owned(),
            ));
        }
        let held = keys.read();
        let others = || held.by_id.values().filter(|it| it.key.parent.is_none());
        if others().any(|it| it.key.tenant == key.tenant && it.key.name == key.name) {
            return Err(Error::ApiKeyConflict(format!(
                "the tenant {} has a key named {:?} already; revoke or rotate that one",
                key.tenant, key.name
            )));
        }
        if others().count() >= KEYS_MAX {
            return Err(Error::ApiKeyConflict(format!(
                "this server has {KEYS_MAX} keys, and no room for more; revoke some"
            )));
        }
        Ok(())
    }

    /// Writes a key with who asked for it, then lets requests find it.
    async fn keep_key(&self, key: ApiKey, first: Vec<Write>) -> Result<Arc<Entry>, Error> {
        let mut writes = first;
        writes.push(Write::PutApiKey(Arc::new(key.clone())));
        self.write_access(writes, &key.id).await?;
        let entry = Entry::new(key, false);
        self.shared().api_keys.write().insert(&entry);
        Ok(entry)
    }

    /// A change of keys or tenants, in one write with its audit entry.
    pub(crate) async fn write_access(
        &self,
        mut writes: Vec<Write>,
        target: &str,
    ) -> Result<(), Error> {
        let by = self.caller.audit.as_ref();
        writes.extend(by.map(|by| by.write(target)));
        self.shared().journal.write(Batch { writes }).await?;
        if let Some(by) = by {
            by.set_recorded();
        }
        Ok(())
    }

    /// The keys that this caller looks after, by tenant and name; tokens after them.
    pub fn keys(&self) -> Result<Vec<KeySummary>, Error> {
        admission::allow(&self.caller, Right::Keys)?;
        let now = self.shared().clock.now();
        let held = self.shared().api_keys.read();
        let entries = held.by_id.values();
        let mut found: Vec<KeySummary> = entries
            .filter(|it| looks_after(&self.caller, &it.key.tenant))
            .filter(|it| it.key.parent.is_none() || it.is_good(now))
            .map(|it| it.summary())
            .collect();
        let place = |it: &KeySummary| {
            let key = &it.key;
            let (tenant, name) = (key.tenant.clone(), Arc::clone(&key.name));
            (key.parent.is_some(), tenant, name, key.created_at)
        };
        found.sort_by_cached_key(place);
        Ok(found)
    }

    /// A key that this caller looks after and may change.
    fn own_key(&self, id: &str) -> Result<Arc<Entry>, Error> {
        admission::allow(&self.caller, Right::Keys)?;
        let found = self.shared().api_keys.read().by_id.get(id).cloned();
        let found = found.filter(|it| looks_after(&self.caller, &it.key.tenant));
        let found = found.ok_or_else(|| Error::ApiKeyNotFound(id.to_owned()))?;
        match found.is_given {
            true => Err(Error::ApiKeyConflict(format!(
                "the key {:?} stands in the configuration; change it there and send SIGHUP",
                found.key.name
            ))),
            false => Ok(found),
        }
    }

    /// Revokes a key with the tokens that were made from it. What is open with them has ended when answered.
    pub async fn revoke_key(&self, id: &str) -> Result<(), Error> {
        self.plane.refuse_when_stopping()?;
        let shared = self.shared();
        let _turn = shared.key_changes.lock().await;
        self.refuse_ended()?;
        let entry = self.own_key(id)?;
        self.refuse_last_admin(&entry)?;
        let tokens = shared.api_keys.tokens_of(id);
        let mut writes: Vec<Write> = tokens.into_iter().map(Write::RemoveApiKey).collect();
        writes.push(Write::RemoveApiKey(Arc::clone(&entry.key.id)));
        self.write_access(writes, id).await?;
        shared.api_keys.write().remove(id);
        Ok(())
    }

    /// A key may have ended while the body of its request was still coming.
    pub(crate) fn refuse_ended(&self) -> Result<(), Error> {
        let now = self.shared().clock.now();
        match &self.caller.key {
            Some(key) if key.is_over(now) => Err(Error::Forbidden(
                "the API key of this request has ended; use another".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Without an administrator nobody could make keys, and after a restart without any key everybody could do
    /// everything.
    fn refuse_last_admin(&self, entry: &Entry) -> Result<(), Error> {
        let held = self.shared().api_keys.read();
        let is_else = |it: &Entry| it.key.parent.is_none() && it.key.id != entry.key.id;
        if entry.key.parent.is_none() && !held.by_id.values().any(|it| is_else(it)) {
            return Err(Error::ApiKeyConflict(
                "this is the last key of this server; make another first".to_owned(),
            ));
        }
        let is_other = |it: &&Arc<Entry>| it.is_unlimited_admin() && it.key.id != entry.key.id;
        if !entry.is_unlimited_admin() || held.by_id.values().any(|it| is_other(&it)) {
            return Ok(());
        }
        Err(Error::ApiKeyConflict(
            "this is the last key of an administrator of the built-in tenant; make another first"
                .to_owned(),
        ))
    }

    /// Gives a key a new value. The old one is good for `grace` more, and so are its tokens; what is open
    /// with it ends.
    pub async fn rotate_key(
        &self,
        id: &str,
        grace: Duration,
    ) -> Result<(KeySummary, SecretString), Error> {
        self.plane.refuse_when_stopping()?;
        if grace > GRACE_MAX {
            let message = format!("is more than {} s", GRACE_MAX.as_secs());
            return Err(invalid("graceSeconds", message));
        }
        let shared = self.shared();
        let _turn = shared.key_changes.lock().await;
        self.refuse_ended()?;
        let old = self.own_key(id)?;
        may_hand_out(&self.caller, &old.key)?;
        if old.key.parent.is_some() {
            let message = "a token is not rotated; make another from its key".to_owned();
            return Err(Error::ApiKeyConflict(message));
        }
        let (secret, hash) = new_api_key();
        let until = after(shared.clock.now(), grace);
        let key = ApiKey {
            hash,
            previous: (!grace.is_zero()).then_some(PreviousHash {
                hash: old.key.hash,
                until,
            }),
            ..old.key.clone()
        };
        // Whoever found the old value may have made tokens from it.
        let tokens = match grace.is_zero() {
            true => shared.api_keys.tokens_of(id),
            false => Vec::new(),
        };
        let mut writes: Vec<Write> = tokens.iter().cloned().map(Write::RemoveApiKey).collect();
        writes.push(Write::PutApiKey(Arc::new(key.clone())));
        self.write_access(writes, id).await?;
        let entry = Entry::new(key, false);
        shared.api_keys.remove_all(&tokens);
        let mut held = shared.api_keys.write();
        held.forget_hashes(&old.key);
        held.insert(&entry);
        Ok((entry.summary(), secret))
    }

    /// Makes a token from the key of this request: a key for a short time that may do no more than that.
    pub async fn create_token(&self, new: NewToken) -> Result<(KeySummary, SecretString), Error> {
        self.plane.refuse_when_stopping()?;
        let caller = &self.caller;
        let parent = caller.key.as_ref().filter(|key| !key.is_token);
        let parent = parent.ok_or_else(|| {
            Error::Forbidden(
                "a token is made from a key, which this request did not show".to_owned(),
            )
        })?;
        let scope = self.token_scope(&new)?;
        let shared = self.shared();
        let now = shared.clock.now();
        let ttl = new.ttl.unwrap_or(TOKEN_TTL);
        if ttl.is_zero() || ttl > TOKEN_TTL_MAX {
            let message = format!("must be 1 to {} seconds", TOKEN_TTL_MAX.as_secs());
            return Err(invalid("ttlSeconds", message));
        }
        let ends = after(now, ttl);
        let (secret, hash) = new_api_key();
        let key = ApiKey {
            id: uuid::Uuid::new_v4().to_string().into(),
            name: Arc::clone(&caller.name),
            tenant: caller.tenant.clone(),
            role: caller.role,
            scope: Arc::new(scope),
            hash,
            previous: None,
            created_at: now,
            expires_at: Some(parent.expires_at.map_or(ends, |at| at.min(ends))),
            parent: Some(Arc::clone(&parent.id)),
            last_used_at: None,
        };
        let _turn = shared.key_changes.lock().await;
        self.refuse_ended()?;
        let expired = self.drop_expired_tokens(&parent.id, now)?;
        let entry = self.keep_key(key, expired).await?;
        Ok((entry.summary(), secret))
    }

    /// What a token leaves of its key's scope.
    fn token_scope(&self, new: &NewToken) -> Result<Scope, Error> {
        let caller = &self.caller;
        if let Some(id) = &new.sandbox {
            self.get(id)?;
        }
        for right in new.actions.iter().flatten() {
            admission::allow(caller, *right)?;
        }
        let actions = new.actions.clone().or_else(|| caller.scope.actions.clone());
        Ok(Scope {
            actions,
            sandbox: new.sandbox.clone().or_else(|| caller.scope.sandbox.clone()),
            ..(*caller.scope).clone()
        })
    }

    /// Forgets tokens that are over, of any key; says what is to be written for that.
    fn drop_expired_tokens(&self, parent: &str, now: Timestamp) -> Result<Vec<Write>, Error> {
        let mut held = self.shared().api_keys.write();
        let is_token = |it: &&Arc<Entry>| it.key.parent.is_some();
        let tokens = held.by_id.values().filter(is_token);
        let over = tokens.clone().filter(|it| !it.is_good(now));
        let over: Vec<ApiKey> = over.map(|it| it.key.clone()).collect();
        let of_parent = tokens.filter(|it| it.key.parent.as_deref() == Some(parent));
        if of_parent.filter(|it| it.is_good(now)).count() >= TOKENS_MAX {
            return Err(Error::ApiKeyConflict(format!(
                "this key has {TOKENS_MAX} tokens that are good, and may have no more at once"
            )));
        }
        for key in &over {
            held.by_id.remove(&key.id);
            held.by_hash.remove(&key.hash);
        }
        let writes = over.into_iter().map(|key| Write::RemoveApiKey(key.id));
        Ok(writes.collect())
    }
}

impl super::Held {
    /// Takes the hashes of a key that gets a new one; what is open with them ends.
    fn forget_hashes(&mut self, key: &ApiKey) {
        let previous = key.previous.as_ref().map(|it| it.hash);
        for hash in previous.into_iter().chain([key.hash]) {
            if let Some(entry) = self.by_hash.remove(&hash) {
                entry.revoke();
            }
        }
    }
}

/// Whether a caller's administration covers a tenant.
fn looks_after(caller: &Caller, tenant: &Tenant) -> bool {
    caller.tenant.is_built_in() || caller.tenant == *tenant
}

/// Whether a caller may hand out this key: it does no more than theirs, and is good no longer.
fn may_hand_out(caller: &Caller, key: &ApiKey) -> Result<(), Error> {
    let gives = |right: Right| key.role.has(right) && key.scope.leaves(right);
    let rights = Right::ALL
        .into_iter()
        .all(|right| !gives(right) || caller.has(right));
    let (own, its) = (&caller.scope.images, &key.scope.images);
    let images = own.is_empty() || (!its.is_empty() && its.iter().all(|it| own.contains(it)));
    let is_shorter = |end: Timestamp| key.expires_at.is_some_and(|at| at <= end);
    let lasts = caller
        .key
        .as_ref()
        .is_none_or(|own| !own.is_token && own.expires_at.is_none_or(is_shorter));
    if rights && images && lasts {
        return Ok(());
    }
    Err(Error::Forbidden(
        "a key makes and rotates no key that may do more than itself, or is good for longer; a token none at all"
            .to_owned(),
    ))
}

fn check_name(name: &str) -> Result<(), Error> {
    if RESERVED_NAMES.contains(&name) {
        return Err(invalid(
            "name",
            "stands in the audit trail for who has no key",
        ));
    }
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.@".contains(&b);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        let message = format!("must have 1 to {NAME_BYTES_MAX} of a-z, A-Z, 0-9 and -_.@");
        return Err(invalid("name", message));
    }
    Ok(())
}

pub(crate) fn invalid(field: &'static str, message: impl Into<String>) -> Error {
    let message = message.into();
    Error::AccessInvalid { field, message }
}

fn after(now: Timestamp, span: Duration) -> Timestamp {
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    now.checked_add(span).unwrap_or(Timestamp::MAX)
}
