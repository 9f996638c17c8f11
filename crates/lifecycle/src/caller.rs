//! Who asks: the [`Caller`] that every use of the control plane has, and the [`AuditContext`]
//! with which a change is recorded.
//!
//! The server's access layer decides who a caller is; this crate decides what a caller may do
//! (see `admission`). The audit entry of a change goes into the same write as the change, so that
//! neither can be kept without the other. Pausing and resuming, what has no write of its own and what
//! failed are recorded by whoever asked; [`AuditContext::is_recorded`] tells.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::event::AuditEntry;
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
    /// With what a change that this caller asks for is recorded.
    pub audit: Option<AuditContext>,
}

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Holds an API key of this server, or uses a server that has none: everything, within its
    /// tenant.
    Operator,
    /// Was let in by the proxy, which compared the access token of the sandbox: looks at that
    /// sandbox and connects into it, and nothing else.
    Visitor,
    /// A part of the server itself: everything, of every tenant.
    Server,
}

/// Whose a sandbox or snapshot is. There is one tenant, the built-in one, to which records without a
/// tenant belong.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tenant(Arc<str>);

impl Default for Tenant {
    fn default() -> Tenant {
        Tenant(Arc::from("default"))
    }
}

impl Tenant {
    /// The tenant's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Caller {
    /// The holder of the API key of this name.
    pub fn operator(name: impl Into<Arc<str>>) -> Caller {
        Caller::new(name, Role::Operator)
    }

    /// Whoever the proxy let in.
    pub fn visitor() -> Caller {
        Caller::new("visitor", Role::Visitor)
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
            audit: None,
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
    ) -> AuditContext {
        AuditContext::of(AuditEntry {
            id: 0,
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
