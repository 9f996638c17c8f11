//! The sandboxes this server knows: those it made and those it connected to. One for all clients
//! of the process, as in the published server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opensandbox::wire::version::ServerCapabilities;
use opensandbox::{Client, Sandbox};
use tokio::sync::OnceCell;

use crate::limits::Limits;
use crate::tool::ToolError;

/// How long a list of tools waits for what the server says of itself: clients show tools when they start.
const CAPABILITIES_WAIT: Duration = Duration::from_secs(3);

/// The server did not say what it can do.
struct Unknown;

impl<E: std::error::Error> From<E> for Unknown {
    fn from(_: E) -> Self {
        Self
    }
}

pub(crate) struct Registry {
    pub(crate) client: Client,
    pub(crate) limits: Limits,
    known: Mutex<Known>,
    capabilities: OnceCell<Option<ServerCapabilities>>,
}

#[derive(Default)]
struct Known {
    sandboxes: BTreeMap<String, Sandbox>,
    /// Made here, as opposed to connected to.
    made: BTreeSet<String>,
    snapshots: BTreeSet<String>,
    /// Being made, which counts towards the limit.
    pending: usize,
}

impl Registry {
    pub(crate) fn new(client: Client, limits: Limits) -> Self {
        Self {
            client,
            limits,
            known: Mutex::new(Known::default()),
            capabilities: OnceCell::new(),
        }
    }

    /// What the server says that it can do, asked for until it was answered once. Nothing where it says
    /// nothing or cannot be reached: what it refuses it refuses itself.
    pub(crate) async fn capabilities(&self) -> Option<&ServerCapabilities> {
        let asked = self.capabilities.get_or_try_init(|| async {
            let asked = tokio::time::timeout(CAPABILITIES_WAIT, self.client.version()).await;
            Ok::<_, Unknown>(asked??.capabilities)
        });
        asked.await.ok()?.as_ref()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more sandbox, given back by [`Self::made`] or [`Self::not_made`].
    pub(crate) fn reserve(&self) -> Result<(), ToolError> {
        let mut known = self.known();
        let present = known.made.len() + known.pending;
        if let Some(most) = self.limits.max_sandboxes
            && present >= most
        {
            return Err(ToolError::new(format!(
                "{most} sandboxes are the most allowed here; end one with sandbox_kill first"
            )));
        }
        known.pending += 1;
        Ok(())
    }

    pub(crate) fn made(&self, sandbox: &Sandbox) {
        let mut known = self.known();
        known.pending = known.pending.saturating_sub(1);
        known.made.insert(sandbox.id().to_owned());
        known
            .sandboxes
            .insert(sandbox.id().to_owned(), sandbox.clone());
    }

    pub(crate) fn not_made(&self) {
        let mut known = self.known();
        known.pending = known.pending.saturating_sub(1);
    }

    pub(crate) fn add(&self, sandbox: &Sandbox) {
        let id = sandbox.id().to_owned();
        self.known().sandboxes.insert(id, sandbox.clone());
    }

    pub(crate) fn forget(&self, id: &str) {
        let mut known = self.known();
        known.sandboxes.remove(id);
        known.made.remove(id);
    }

    pub(crate) fn add_snapshot(&self, id: &str) {
        self.known().snapshots.insert(id.to_owned());
    }

    pub(crate) fn forget_snapshot(&self, id: &str) {
        self.known().snapshots.remove(id);
    }

    /// The sandboxes that tools can be used on at once.
    pub(crate) fn sandboxes(&self) -> Vec<Sandbox> {
        self.known().sandboxes.values().cloned().collect()
    }

    /// Whether a sandbox may be seen at all.
    pub(crate) fn is_visible(&self, id: &str) -> bool {
        !self.limits.own_sandboxes_only || self.known().made.contains(id)
    }

    /// Refuses a sandbox that must not be used.
    pub(crate) fn check_visible(&self, id: &str) -> Result<(), ToolError> {
        if self.is_visible(id) {
            return Ok(());
        }
        Err(ToolError::new(format!(
            "sandbox {id} was not made here, and only such sandboxes can be used; make one with \
             sandbox_create"
        )))
    }

    /// Whether a snapshot may be seen and restored.
    pub(crate) fn is_snapshot_visible(&self, id: &str) -> bool {
        // Where images are limited, what is in a snapshot from elsewhere is not known.
        let is_limited = self.limits.own_sandboxes_only || !self.limits.allow_image.is_empty();
        !is_limited || self.known().snapshots.contains(id)
    }

    pub(crate) fn check_snapshot(&self, id: &str) -> Result<(), ToolError> {
        if self.is_snapshot_visible(id) {
            return Ok(());
        }
        Err(ToolError::new(format!(
            "snapshot {id} was not made here, and only such snapshots can be used; make one with \
             snapshot_create"
        )))
    }

    /// The sandbox, if it is known or may be connected to.
    pub(crate) async fn get(&self, id: &str, connect: bool) -> Result<Sandbox, ToolError> {
        self.check_visible(id)?;
        let known = self.known().sandboxes.get(id).cloned();
        match known {
            Some(sandbox) => Ok(sandbox),
            None if connect => {
                let sandbox = self.client.connect(id).await?;
                self.add(&sandbox);
                Ok(sandbox)
            }
            None => Err(ToolError::new(format!(
                "sandbox {id} is not known to this server; call sandbox_connect first, or repeat \
                 the call with connect_if_missing=true"
            ))),
        }
    }
}
