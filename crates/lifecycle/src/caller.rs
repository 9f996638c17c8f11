//! Who asks: the [`Caller`] that every use of the control plane has, and the [`AuditContext`]
//! with which a change is recorded.
//!
//! The server's access layer decides who a caller is; this crate decides what a caller may do
//! (see `admission`). The audit entry of a change goes into the same write as the change, so that
//! neither can be kept without the other. Pausing and resuming, what has no write of its own and what
//! failed are recorded by whoever asked; [`AuditContext::is_recorded`] tells.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::event::AuditEntry;
use crate::rights::{Right, Role, Scope};
use crate::store::Write;

/// Who uses the control plane.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The name of the API key, or of the part of the server that acts by itself.
    pub name: Arc<str>,
    /// What this caller may do.
    pub role: Role,
    /// Whose sandboxes and snapshots this caller sees, and makes.
    pub tenant: Tenant,
    /// What it may do less than its role.
    pub scope: Arc<Scope>,
    /// The key that it showed; `None` for one that showed none.
    pub key: Option<KeyUse>,
    /// With what a change that this caller asks for is recorded.
    pub audit: Option<AuditContext>,
}

/// Whose a sandbox or snapshot is. Records without a tenant belong to the built-in one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tenant(Arc<str>);

/// The name of the built-in tenant.
const BUILT_IN: &str = "default";

/// A tenant's name stands in names of volumes, which have 253 characters with what the user adds.
const TENANT_BYTES_MAX: usize = 40;

/// Why a text is no tenant's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a tenant's name has 1 to {TENANT_BYTES_MAX} characters of a-z, 0-9 and '-', and begins and ends with a letter or digit"
)]
pub struct ParseTenantError;

impl Default for Tenant {
    fn default() -> Tenant {
        static NAME: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(BUILT_IN));
        Tenant(Arc::clone(&NAME))
    }
}

impl FromStr for Tenant {
    type Err = ParseTenantError;

    fn from_str(name: &str) -> Result<Tenant, ParseTenantError> {
        let is_name = name.len() <= TENANT_BYTES_MAX && api::label::is_domain_label(name);
        is_name
            .then(|| Tenant(Arc::from(name)))
            .ok_or(ParseTenantError)
    }
}

impl TryFrom<String> for Tenant {
    type Error = ParseTenantError;

    fn try_from(name: String) -> Result<Tenant, ParseTenantError> {
        name.parse()
    }
}

impl From<Tenant> for String {
    fn from(tenant: Tenant) -> String {
        tenant.as_str().to_owned()
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Tenant {
    /// The tenant's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the one that every server has, whose administrators look after the others.
    pub fn is_built_in(&self) -> bool {
        &*self.0 == BUILT_IN
    }
}

/// A key that a request showed, as far as streams need to know of it.
#[derive(Debug, Clone)]
pub struct KeyUse {
    /// Cancelled when the key is revoked or replaced.
    pub revoked: CancellationToken,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
    /// Its id, by which keys made from it name it.
    pub(crate) id: Arc<str>,
    /// Whether it was made from another key, for a short time.
    pub(crate) is_token: bool,
}

/// How long a stream waits at most before it looks at the clock again: the wall clock may be set.
const EXPIRY_LOOK: Duration = Duration::from_secs(60);

impl KeyUse {
    /// Whether the key may not be used any more.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.revoked.is_cancelled() || self.expires_at.is_some_and(|at| at <= now)
    }

    /// Returns when the key may not be used any more.
    pub async fn ended(&self) {
        loop {
            let left = match self.expires_at {
                Some(at) => Duration::try_from(at.duration_since(Timestamp::now())),
                None => return self.revoked.cancelled().await,
            };
            // A time that is over is no duration.
            let Ok(left) = left else { return };
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = self.revoked.cancelled() => return,
                () = tokio::time::sleep(left.min(EXPIRY_LOOK)) => {}
            }
        }
    }
}

impl Caller {
    /// The operator of the built-in tenant with this name.
    pub fn operator(name: impl Into<Arc<str>>) -> Caller {
        Caller::new(name, Role::Operator)
    }

    /// Whoever uses a server without keys.
    pub fn admin(name: impl Into<Arc<str>>) -> Caller {
        Caller::new(name, Role::Admin)
    }

    /// Whoever the proxy let in.
    pub fn visitor() -> Caller {
        Caller::new("visitor", Role::Visitor)
    }

    /// Whoever showed the egress token of a sandbox.
    pub fn policy_holder() -> Caller {
        Caller::new("egress-token", Role::PolicyHolder)
    }

    /// The server itself.
    pub fn server() -> Caller {
        Caller::new("server", Role::Server)
    }

    fn new(name: impl Into<Arc<str>>, role: Role) -> Caller {
        Caller {
            name: name.into(),
            role,
            tenant: Tenant::default(),
            scope: Arc::default(),
            key: None,
            audit: None,
        }
    }

    /// Whether its role and its scope give it a right.
    pub fn has(&self, right: Right) -> bool {
        self.role.has(right) && self.scope.leaves(right)
    }

    /// Returns when this caller may not do anything any more.
    pub async fn ended(&self) {
        match &self.key {
            Some(key) => key.ended().await,
            None => std::future::pending().await,
        }
    }

    /// The same caller, whose changes are recorded with `audit`.
    #[must_use]
    pub fn with_audit(self, audit: AuditContext) -> Caller {
        Caller {
            audit: Some(audit),
            ..self
        }
    }
}

/// The audit entry of one request. Clones are the same request.
#[derive(Debug, Clone)]
pub struct AuditContext(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    entry: AuditEntry,
    is_recorded: AtomicBool,
    target: OnceLock<String>,
}

impl AuditContext {
    /// What is to be recorded if the change is made.
    pub fn new(entry: AuditEntry) -> AuditContext {
        let outcome = AuditEntry::OK.to_owned();
        AuditContext::of(AuditEntry { outcome, ..entry })
    }

    /// What the server did, or what happened, without a request.
    pub(crate) fn of_server(
        at: Timestamp,
        action: &str,
        outcome: &str,
        message: String,
        tenant: Tenant,
    ) -> AuditContext {
        AuditContext::of(AuditEntry {
            id: 0,
            tenant,
            at,
            actor: AuditEntry::SERVER.to_owned(),
            remote: None,
            action: action.to_owned(),
            target: None,
            outcome: outcome.to_owned(),
            request_id: None,
            message: Some(message),
        })
    }

    fn of(entry: AuditEntry) -> AuditContext {
        let inner = Inner {
            entry,
            is_recorded: AtomicBool::new(false),
            target: OnceLock::new(),
        };
        AuditContext(Arc::new(inner))
    }

    /// What the change was recorded to be about.
    pub fn target(&self) -> Option<&str> {
        self.0.target.get().map(String::as_str)
    }

    /// Whether nobody is there to record it when its write has failed.
    pub(crate) fn is_of_server(&self) -> bool {
        self.0.entry.actor == AuditEntry::SERVER
    }

    /// Whether the change and its audit entry are durable.
    pub fn is_recorded(&self) -> bool {
        self.0.is_recorded.load(Ordering::Acquire)
    }

    /// What belongs into the write of the change.
    pub(crate) fn write(&self, target: &str) -> Write {
        let _ = self.0.target.set(target.to_owned());
        Write::AppendAudit(AuditEntry {
            target: Some(target.to_owned()),
            ..self.0.entry.clone()
        })
    }

    /// Notes that the write of the change is durable.
    pub(crate) fn set_recorded(&self) {
        self.0.is_recorded.store(true, Ordering::Release);
    }

    /// Whether both are of one request.
    pub(crate) fn is_same(&self, other: &AuditContext) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
