//! Asking for a sandbox: admission, idempotency keys, and handing over to the owner task that
//! makes it.
//!
//! Everything after the hand-over happens in the owner's task. A client that goes away while it
//! waits leaves a sandbox that can be found by its key or its metadata.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::sandbox::NAME_METADATA_KEY;
use jiff::SignedDuration;
use tokio::sync::oneshot;

use crate::admission::{self, Admitted};
use crate::caller::{AuditContext, Caller};
use crate::deadlines;
use crate::error::Error;
use crate::machine::after;
use crate::names;
use crate::owner;
use crate::recipe::{Recipe, fingerprint};
use crate::sandbox::{CreateRequest, Reason, Sandbox, State, Status, new_token};
use crate::service::CreateOutcome;
use crate::shared::Shared;
use crate::store::{self, KeyRecord, SandboxRecord};

/// How long a key is remembered: a client that retries does so within a day.
pub const KEY_KEPT: SignedDuration = SignedDuration::from_hours(24);

/// How often a creation is begun anew because another request with the same key came first.
/// Each time somebody else made progress, so a few suffice.
const KEY_TRIES: usize = 4;

/// One lock for each key in use, so that of two requests with one key the second waits for the
/// first instead of making a sandbox to throw away.
#[derive(Default)]
pub(crate) struct KeyLocks {
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl KeyLocks {
    fn of(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that only the map still holds are free.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(key.to_owned()).or_default().clone()
    }
}

/// Admits a request and makes its sandbox, or finds the one that an earlier request with the same
/// idempotency key made.
pub(crate) async fn create(
    shared: &Arc<Shared>,
    keys: &KeyLocks,
    caller: &Caller,
    request: CreateRequest,
    key: Option<&str>,
) -> Result<CreateOutcome, Error> {
    let request = admit(shared, caller, request)?;
    let audit = caller.audit.as_ref();
    let Some(key) = key else {
        let sandbox = begin(shared, &request, None, audit).await?;
        return Ok(CreateOutcome {
            sandbox,
            is_replay: false,
        });
    };
    // Keys of different callers never meet. Neither a caller's name nor a key has a line break in it, so
    // two of them never read the same.
    let key = match caller.tenant.is_built_in() {
        true => format!("{}\n{key}", caller.name),
        false => format!("{}\n{}\n{key}", caller.tenant, caller.name),
    };
    let lock = keys.of(&key);
    let _turn = lock.lock().await;
    let fingerprint = fingerprint(&request);
    for _ in 0..KEY_TRIES {
        if let Some(used) = look_up(shared, &key).await? {
            match replay(shared, &used, &fingerprint).await? {
                Some(sandbox) => {
                    return Ok(CreateOutcome {
                        sandbox,
                        is_replay: true,
                    });
                }
                // It failed while we watched and gave its key back.
                None => continue,
            }
        }
        match begin(shared, &request, Some((&key, &fingerprint)), audit).await {
            // Another server, or a request whose client went away, was first.
            Err(Error::KeyConflict) => {}
            other => {
                return Ok(CreateOutcome {
                    sandbox: other?,
                    is_replay: false,
                });
            }
        }
    }
    Err(Error::KeyConflict)
}

fn admit(shared: &Shared, caller: &Caller, request: CreateRequest) -> Result<Admitted, Error> {
    let limits = admission::Limits {
        rules: &shared.rules(),
        capabilities: shared.backend.capabilities(),
        backend: shared.backend.name(),
        snapshot: &|id| shared.snapshot_of(caller, id),
    };
    admission::admit(caller, request, &limits)
}

async fn look_up(shared: &Shared, key: &str) -> Result<Option<KeyRecord>, Error> {
    let read = tokio::time::timeout(deadlines::STORE_READ, shared.store.key(key)).await;
    let seconds = deadlines::STORE_READ.as_secs();
    let used = read.map_err(|_| store::Error::Timeout { seconds })??;
    Ok(used.filter(|used| used.expires_at > shared.clock.now()))
}

/// The sandbox an earlier request made, as soon as that request would have been answered.
async fn replay(
    shared: &Shared,
    used: &KeyRecord,
    fingerprint: &str,
) -> Result<Option<Arc<Sandbox>>, Error> {
    if used.fingerprint != fingerprint {
        return Err(Error::KeyConflict);
    }
    let Ok(mut handle) = shared.handle(&used.sandbox_id) else {
        return Err(Error::KeySpent(used.sandbox_id.clone()));
    };
    let is_answerable = |sandbox: &Arc<Sandbox>| {
        let status = &sandbox.status;
        status.state != State::Pending || status.reason == Reason::ImagePulling
    };
    let wait = handle.view.wait_for(is_answerable);
    let is_gone = matches!(
        tokio::time::timeout(deadlines::CREATE_ANSWER, wait).await,
        Ok(Err(_))
    );
    Ok((!is_gone).then(|| handle.view.borrow().clone()))
}

/// Hands the request over to a new owner task and waits for its answer.
async fn begin(
    shared: &Arc<Shared>,
    admitted: &Admitted,
    key: Option<(&str, &str)>,
    audit: Option<&AuditContext>,
) -> Result<Arc<Sandbox>, Error> {
    let now = shared.clock.now();
    let request = admitted.request();
    // Held until the sandbox is in the index, which the owner sees to at once.
    let name = request.metadata.get(NAME_METADATA_KEY);
    let _name = names::claim(shared, admitted.tenant(), name, None)?;
    let recipe = Recipe::new(admitted);
    let id = uuid::Uuid::new_v4().to_string();
    let sandbox = Sandbox {
        id: id.try_into().expect("a UUID is a valid id"),
        tenant: admitted.tenant().clone(),
        origin: recipe.origin(),
        image_digest: None,
        platform: request.platform.clone(),
        entrypoint: request.entrypoint.clone(),
        metadata: request.metadata.clone(),
        extensions: request.extensions.clone(),
        status: Status {
            state: State::Pending,
            reason: Reason::ContainerStarting,
            message: "The sandbox is starting".to_owned(),
            last_transition_at: now,
        },
        created_at: now,
        started_at: None,
        timeout: request.timeout,
        expires_at: request.timeout.and_then(|timeout| after(now, timeout)),
        renew_on_access: request.renew_on_access,
        secure_access: request.secure_access,
        exit: None,
        access_token: new_token(),
        egress_token: new_token(),
    };
    let key = key.map(|(key, fingerprint)| KeyRecord {
        key: key.to_owned(),
        fingerprint: fingerprint.to_owned(),
        sandbox_id: sandbox.id.clone(),
        expires_at: now + KEY_KEPT,
    });
    let (reply, answer) = oneshot::channel();
    let record = SandboxRecord {
        sandbox,
        recipe: Some(recipe),
    };
    let by = audit.cloned();
    let origination = owner::Origination::Create { key, reply, by };
    let tenant = admitted.tenant();
    shared
        .tenants
        .while_there(tenant, || owner::spawn(shared, record, origination))?;
    answer.await.unwrap_or(Err(Error::ShuttingDown))
}
