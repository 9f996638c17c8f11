//! On whose behalf a change is made: the audit entry that goes into the same write as the change,
//! so that neither can be kept without the other.
//!
//! What has no write of its own, or failed, is recorded by whoever asked; `is_recorded` tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::event::AuditEntry;
use crate::store::Write;

/// Who asked for a change. Clones are the same request.
#[derive(Debug, Clone)]
pub struct Behalf(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    entry: AuditEntry,
    is_recorded: AtomicBool,
}

impl Behalf {
    /// What is to be recorded if the change is made.
    pub fn new(entry: AuditEntry) -> Behalf {
        let outcome = AuditEntry::OK.to_owned();
        let inner = Inner {
            entry: AuditEntry { outcome, ..entry },
            is_recorded: AtomicBool::new(false),
        };
        Behalf(Arc::new(inner))
    }

    /// The change is durable, and that it was asked for with it.
    pub fn is_recorded(&self) -> bool {
        self.0.is_recorded.load(Ordering::Acquire)
    }

    /// What belongs into the write of the change.
    pub(crate) fn write(&self, target: &str) -> Write {
        Write::AppendAudit(AuditEntry {
            target: Some(target.to_owned()),
            ..self.0.entry.clone()
        })
    }

    /// The write is durable.
    pub(crate) fn recorded(&self) {
        self.0.is_recorded.store(true, Ordering::Release);
    }

    pub(crate) fn is(&self, other: &Behalf) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
