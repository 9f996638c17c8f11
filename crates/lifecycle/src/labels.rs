//! What a sandbox carries with it in its backend, so that it can be known again: whose it is,
//! and enough to adopt it when the store is lost.
//!
//! Labels never change after creation. What may change later (metadata, expiration) is taken
//! from here only when nothing better is left.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::backend::{Observed, Platform};
use crate::machine::after;
use crate::sandbox::{Origin, Reason, Sandbox, State, Status, secret_text};

/// The control plane it belongs to.
pub const OWNER: &str = "opensandbox.io/owner";
/// The store it is recorded in.
pub const STORE: &str = "opensandbox.io/store";
/// Its id, for people who look with the engine's own tools.
pub const ID: &str = "opensandbox.io/id";
/// What is needed to adopt it, as JSON. Holds the access token, so a backend must not show it
/// in descriptions.
pub const RECORD: &str = "opensandbox.io/record";

/// The part of a sandbox that adoption cannot do without.
#[derive(Serialize, Deserialize)]
struct Kept {
    origin: Origin,
    platform: Option<Platform>,
    entrypoint: Option<Vec<String>>,
    metadata: BTreeMap<String, String>,
    extensions: BTreeMap<String, String>,
    created_at: Timestamp,
    timeout: Option<Duration>,
    renew_on_access: Option<Duration>,
    #[serde(with = "secret_text")]
    access_token: SecretString,
}

/// The labels of a new sandbox.
pub(crate) fn of(sandbox: &Sandbox, owner: &str, store: &str) -> BTreeMap<String, String> {
    let kept = Kept {
        origin: sandbox.origin.clone(),
        platform: sandbox.platform.clone(),
        entrypoint: sandbox.entrypoint.clone(),
        metadata: sandbox.metadata.clone(),
        extensions: sandbox.extensions.clone(),
        created_at: sandbox.created_at,
        timeout: sandbox.timeout,
        renew_on_access: sandbox.renew_on_access,
        access_token: sandbox.access_token.clone(),
    };
    let record = serde_json::to_string(&kept).expect("maps have text keys, so this is valid JSON");
    BTreeMap::from([
        (OWNER.to_owned(), owner.to_owned()),
        (STORE.to_owned(), store.to_owned()),
        (ID.to_owned(), sandbox.id.to_string()),
        (RECORD.to_owned(), record),
    ])
}

/// A sandbox of a lost store, as far as its labels tell. `None` when they do not tell enough.
///
/// Renewals were lost with the store, so it gets its whole lifetime once more: living a little
/// longer is better than being killed although somebody renewed it.
pub(crate) fn adopt(observed: &Observed, now: Timestamp) -> Option<Sandbox> {
    let kept: Kept = serde_json::from_str(observed.labels.get(RECORD)?).ok()?;
    Some(Sandbox {
        id: observed.id.clone(),
        origin: kept.origin,
        platform: kept.platform,
        entrypoint: kept.entrypoint,
        metadata: kept.metadata,
        extensions: kept.extensions,
        status: Status {
            state: State::Running,
            reason: Reason::ContainerRunning,
            message: "The sandbox was found without a record and adopted".to_owned(),
            last_transition_at: now,
        },
        created_at: kept.created_at,
        started_at: observed.started_at,
        timeout: kept.timeout,
        expires_at: kept.timeout.and_then(|timeout| after(now, timeout)),
        renew_on_access: kept.renew_on_access,
        exit: None,
        access_token: kept.access_token,
    })
}
