//! The control plane: takes up what is recorded, runs until it is shut down, and gives a
//! [`Service`] to each caller.
//!
//! Knows no HTTP. Its parts (backend, store, clock) are given to it, so that tests give others.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::admission::Rules;
use crate::backend::{Backend, Capabilities};
use crate::caller::{Caller, Tenant};
use crate::clock::Clock;
use crate::creation::KeyLocks;
use crate::deadlines;
use crate::ended::EndedIndex;
use crate::error::Error;
use crate::event::AuditEntry;
use crate::journal::Journal;
use crate::keys::{GivenKey, KeyIndex};
use crate::observer::Observer;
use crate::owner;
use crate::reconcile;
use crate::service::{Service, within};
use crate::shared::{Indexes, Parts, Shared};
use crate::snapshots::Snapshots;
use crate::store::{Batch, Store, Write};
use crate::tenants::Tenants;
use crate::timers::Timers;

/// What an operator may choose.
#[derive(Debug, Clone)]
pub struct Config {
    /// Names this control plane on a backend that several may share. Only sandboxes that carry
    /// this name are adopted, repaired or removed.
    pub control_plane: String,
    /// How long PID 1 may take to end on deletion before it is killed.
    pub stop_grace: Duration,
    /// At least this long between two renewals by access of one sandbox.
    pub renew_on_access_interval: Duration,
    /// What may be asked for at first; [`ControlPlane::set_rules`] changes it.
    pub rules: Rules,
    /// Who is told how long creations take.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            control_plane: "opensandbox".to_owned(),
            // As the reference: deletion kills at once.
            stop_grace: Duration::ZERO,
            renew_on_access_interval: Duration::from_secs(60),
            rules: Rules::default(),
            observer: None,
        }
    }
}

/// The control plane. Clones share it. Sandboxes are made, read and changed through a
/// [`Service`], which it gives to a caller.
#[derive(Clone)]
pub struct ControlPlane {
    pub(crate) shared: Arc<Shared>,
    pub(crate) keys: Arc<KeyLocks>,
    /// Ends the journal, after everything else.
    journal_stop: CancellationToken,
}

/// How the parts are.
#[derive(Debug, Clone)]
pub struct Health {
    /// A sandbox could be made now.
    pub backend: Result<(), String>,
    /// What is acknowledged would be kept.
    pub store: Result<(), String>,
    /// How many sandboxes there are.
    pub sandboxes: usize,
}

impl ControlPlane {
    /// Loads the store, takes up every sandbox, reconciles once with the backend and begins.
    /// A backend that does not answer does not keep the service from starting.
    pub async fn start(
        config: Config,
        backend: Arc<dyn Backend>,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
    ) -> Result<ControlPlane, Error> {
        let contents = store.load().await?;
        let (stop, journal_stop) = (CancellationToken::new(), CancellationToken::new());
        let parts = Parts {
            config,
            backend,
            journal: Journal::start(store.clone(), contents.last_event, journal_stop.clone()),
            timers: Timers::start(clock.clone(), journal_stop.clone()),
            store,
            clock,
            identity: contents.identity,
            stop,
        };
        let indexes = Indexes {
            snapshots: Snapshots::new(contents.snapshots),
            ended: EndedIndex::new(contents.ended),
            api_keys: KeyIndex::new(contents.api_keys, parts.journal.clone()),
            tenants: Tenants::new(contents.tenants),
        };
        let shared = Arc::new(Shared::new(parts, indexes));
        tracing::info!(
            sandboxes = contents.sandboxes.len(),
            store = shared.store.name(),
            backend = shared.backend.name(),
            "taking up what is recorded"
        );
        for record in contents.sandboxes {
            owner::spawn(&shared, record, owner::Origination::Restore);
        }
        // Listening begins before the comparison, so that no change falls between.
        let events = shared.backend.events();
        let mut is_settled = contents.is_settled;
        let first = reconcile::run(&shared, is_settled);
        match tokio::time::timeout(deadlines::START, first).await {
            Ok(settled) => is_settled = settled,
            Err(_) => tracing::warn!("the backend does not answer; serving from the records"),
        }
        shared
            .tasks
            .spawn(reconcile::watch(shared.clone(), events, is_settled));
        Ok(ControlPlane {
            shared,
            keys: Arc::default(),
            journal_stop,
        })
    }

    /// Stops taking work, lets what is under way reach the store, leaves sandboxes running.
    pub async fn shutdown(&self, deadline: Duration) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        if tokio::time::timeout(deadline, self.shared.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("stopping although backend calls are still under way");
        }
        self.journal_stop.cancel();
        let ended = self.shared.journal.ended();
        if tokio::time::timeout(deadlines::STORE_WRITE, ended)
            .await
            .is_err()
        {
            tracing::error!("the store did not take the last writes in time");
        }
    }

    /// Changes what may be asked for, from the next request on. Sandboxes that there are stay as they are.
    pub fn set_rules(&self, rules: Rules) {
        self.shared.set_rules(rules);
    }

    /// Takes over keys and tenants of a configuration in place of those of an earlier one.
    pub fn set_given(&self, keys: Vec<GivenKey>, tenants: Vec<Tenant>, is_closed: bool) {
        let now = self.shared.clock.now();
        self.shared.tenants.set_given(tenants, now);
        self.shared.api_keys.set_given(keys, is_closed);
    }

    /// The keys of this server.
    pub fn api_keys(&self) -> Arc<KeyIndex> {
        Arc::clone(&self.shared.api_keys)
    }

    /// What the backend can do.
    pub fn capabilities(&self) -> Capabilities {
        self.shared.backend.capabilities()
    }

    /// Whether any directory of this machine may be mounted.
    pub fn allows_host_paths(&self) -> bool {
        !self.shared.rules().host_paths.is_empty()
    }

    /// The backend's name.
    pub fn backend_name(&self) -> &'static str {
        self.shared.backend.name()
    }

    /// The control plane for one caller.
    pub fn for_caller(&self, caller: Caller) -> Service {
        Service {
            plane: self.clone(),
            caller,
        }
    }

    /// Appends to the audit trail; returns when it is durable.
    pub async fn audit(&self, entry: AuditEntry) -> Result<(), Error> {
        let writes = vec![Write::AppendAudit(entry)];
        self.shared.journal.write(Batch { writes }).await.map(drop)
    }

    /// Appends that something was refused, behind the caller's back: returns when it is queued.
    pub async fn audit_behind(&self, entry: AuditEntry) -> Result<(), Error> {
        let writes = vec![Write::AppendAudit(entry)];
        self.shared.journal.write_behind(Batch { writes }).await
    }

    /// Says of a change that was recorded as made that it failed after all, behind the caller's back.
    pub async fn amend_audit_behind(&self, entry: AuditEntry) -> Result<(), Error> {
        let writes = vec![Write::AmendAudit(entry)];
        self.shared.journal.write_behind(Batch { writes }).await
    }

    /// How backend and store are, each asked with a deadline.
    pub async fn health(&self) -> Health {
        let backend = within(
            "asking the backend",
            deadlines::HEALTH,
            self.shared.backend.health(),
        );
        let store = within(
            "asking the store",
            deadlines::HEALTH,
            self.shared.store.health(),
        );
        let (backend, store) = tokio::join!(backend, store);
        Health {
            backend: flatten(backend),
            store: flatten(store),
            sandboxes: self.shared.count(),
        }
    }

    pub(crate) fn refuse_when_stopping(&self) -> Result<(), Error> {
        if self.shared.stop.is_cancelled() {
            Err(Error::ShuttingDown)
        } else {
            Ok(())
        }
    }
}

fn flatten<E: std::fmt::Display>(result: Result<Result<(), E>, Error>) -> Result<(), String> {
    match result {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}
