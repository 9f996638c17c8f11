//! The facade of the control plane: everything the HTTP layer may ask for, in domain words.
//!
//! Knows no HTTP. Every call is bounded in time. A caller that goes away changes nothing: work
//! runs in the task that owns the sandbox.

mod network;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::id::{SandboxId, SnapshotId};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use crate::admission;
use crate::backend::{self, ConnectError, LogQuery, Logs, Stream, Target};
use crate::caller::Caller;
use crate::control_plane::ControlPlane;
use crate::creation;
use crate::deadlines;
use crate::ended::{Ended, EndedRecord};
use crate::error::{Absent, Error, Feature};
use crate::event::{AuditEntry, AuditQuery, Event, EventId};
use crate::names;
use crate::owner::Command;
use crate::rights::{Right, Role};
use crate::sandbox::{
    CreateRequest, Page, Sandbox, SandboxFilter, Snapshot, SnapshotFilter, State,
};
use crate::shared::{Handle, Shared};
use crate::snapshots;
use crate::subscription::Subscription;

/// The control plane as one caller uses it: every method is admitted for that caller, and changes are
/// recorded for it.
#[derive(Clone)]
pub struct Service {
    pub(crate) plane: ControlPlane,
    pub(crate) caller: Caller,
}

/// What `create` answers.
#[derive(Debug, Clone)]
pub struct CreateOutcome {
    /// `Running` when it is ready, `Pending` while its image is pulled.
    pub sandbox: Arc<Sandbox>,
    /// An earlier request with the same key made it.
    pub is_replay: bool,
}

impl Service {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.plane.shared
    }

    /// Makes a sandbox that the rules admit. Answers when it is ready, or at once with `Pending`
    /// when its image must be pulled first. A request that repeats `key` gets the sandbox that the
    /// first one made.
    pub async fn create(
        &self,
        request: CreateRequest,
        key: Option<&str>,
    ) -> Result<CreateOutcome, Error> {
        let ControlPlane { shared, keys, .. } = &self.plane;
        self.plane.refuse_when_stopping()?;
        creation::create(shared, keys, &self.caller, request, key).await
    }

    /// One sandbox, from memory.
    pub fn get(&self, id: &SandboxId) -> Result<Arc<Sandbox>, Error> {
        let sandbox = self.shared().view(id).map_err(|absent| self.hide(absent))?;
        if admission::sees(&self.caller, &sandbox) {
            Ok(sandbox)
        } else {
            Err(Error::NotFound(id.clone().into()))
        }
    }

    /// Whoever could not see a sandbox is not told what became of it.
    fn hide(&self, error: Error) -> Error {
        match error {
            Error::NotFound(Absent {
                id,
                ended: Some(ended),
            }) if !self.knows_of(&ended) => Error::NotFound(id.into()),
            other => other,
        }
    }

    /// Whether this caller may know of a sandbox that is gone. Its labels are gone with it.
    fn knows_of(&self, ended: &Ended) -> bool {
        let scope = &self.caller.scope;
        let is_it = scope.sandbox.as_ref() == Some(&ended.sandbox_id);
        !matches!(self.caller.role, Role::Visitor | Role::PolicyHolder)
            && (admission::sees_all_of(&self.caller, &ended.tenant)
                || (is_it && scope.labels.is_empty() && self.caller.tenant == ended.tenant))
    }

    /// The way to the owner task of a sandbox that this caller sees.
    fn handle(&self, id: &SandboxId) -> Result<Handle, Error> {
        let handle = self.shared().handle(id);
        let handle = handle.map_err(|absent| self.hide(absent))?;
        if admission::sees(&self.caller, &handle.view.borrow()) {
            return Ok(handle);
        }
        Err(Error::NotFound(id.clone().into()))
    }

    /// A page of sandboxes, newest first, from memory. Pages count from 1.
    pub fn list(&self, filter: &SandboxFilter, page: u32, page_size: u32) -> Page<Arc<Sandbox>> {
        let mut found = self.shared().views();
        let lists = self.caller.has(Right::Read);
        found.retain(|sandbox| {
            lists && admission::sees(&self.caller, sandbox) && matches(sandbox, filter)
        });
        found.sort_unstable_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        Page::cut(found, page, page_size)
    }

    /// Waits until the sandbox has left `Pending` and `Resuming`, at most `wait`; answers it as
    /// it then is.
    pub async fn wait_ready(&self, id: &SandboxId, wait: Duration) -> Result<Arc<Sandbox>, Error> {
        let mut view = self.handle(id)?.view;
        let is_settled = |sandbox: &Arc<Sandbox>| {
            !matches!(sandbox.status.state, State::Pending | State::Resuming)
        };
        // The usual case takes no timer.
        if is_settled(&view.borrow()) {
            return Ok(view.borrow().clone());
        }
        if let Ok(settled) = tokio::time::timeout(wait, view.wait_for(is_settled)).await {
            return settled
                .map(|sandbox| sandbox.clone())
                .map_err(|_| self.gone(id));
        }
        let status = view.borrow().status.clone();
        let (state, message) = (status.state, status.message);
        Err(Error::NotReady {
            id: id.clone(),
            state,
            message,
            waited: wait,
        })
    }

    /// Merges into the metadata: `None` removes a key. Durable when answered.
    pub async fn patch_metadata(
        &self,
        id: &SandboxId,
        patch: BTreeMap<String, Option<String>>,
    ) -> Result<Arc<Sandbox>, Error> {
        let by = self.caller.audit.clone();
        admission::allow(&self.caller, Right::Change)?;
        // What does not exist has no labels to keep.
        let tenant = self.get(id)?.tenant.clone();
        admission::keeps_labels(&self.caller, &patch)?;
        let name = names::claim(self.shared(), &tenant, names::given(&patch), Some(id))?;
        self.ask(id, |reply| Command::PatchMetadata {
            patch,
            by,
            reply,
            name,
        })
        .await
    }

    /// Deletes a sandbox with all it consists of. Nothing of it is left when answered.
    pub async fn delete(&self, id: &SandboxId) -> Result<(), Error> {
        let by = self.caller.audit.clone();
        self.ask(id, |reply| Command::Delete { reply, by }).await
    }

    /// Freezes a running sandbox.
    pub async fn pause(&self, id: &SandboxId) -> Result<(), Error> {
        self.ask(id, Command::Pause).await
    }

    /// Lets a paused sandbox run on.
    pub async fn resume(&self, id: &SandboxId) -> Result<(), Error> {
        self.ask(id, Command::Resume).await
    }

    /// Sets a new expiration, later or earlier, in the future. Durable when answered.
    pub async fn renew(&self, id: &SandboxId, expires_at: Timestamp) -> Result<Timestamp, Error> {
        let by = self.caller.audit.clone();
        self.ask(id, |reply| Command::Renew {
            to: expires_at,
            by,
            reply,
        })
        .await
    }

    /// Notes an access through the proxy, which begins the idle timeout of a sandbox anew. Never
    /// waits, and costs two loads for a sandbox that has none or was renewed a moment ago.
    pub fn touch(&self, id: &SandboxId) {
        let Ok(handle) = self.handle(id) else {
            return;
        };
        if handle.view.borrow().renew_on_access.is_none() {
            return;
        }
        let now = self.shared().clock.now().as_second();
        let due = handle.next_touch.load(Ordering::Relaxed);
        let interval = self.shared().config.renew_on_access_interval.as_secs();
        let next = now.saturating_add_unsigned(interval);
        let swap =
            handle
                .next_touch
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
        // Whoever loses the race was not needed; a full mailbox will see the next access.
        if now >= due && swap.is_ok() && handle.commands.try_send(Command::Touch.into()).is_err() {
            handle.next_touch.store(due, Ordering::Relaxed);
        }
    }

    /// Waits at most `wait` until a sandbox can be connected to; answers it as it then is, also where it needs
    /// longer. Says why one that has ended or is paused cannot be connected to.
    pub async fn wait_connectable(
        &self,
        id: &SandboxId,
        wait: Duration,
    ) -> Result<Arc<Sandbox>, Error> {
        self.get(id)?;
        admission::allow(&self.caller, Right::Connect)?;
        match self.wait_ready(id, wait).await {
            Ok(sandbox) => admission::reachable(&sandbox).map(|()| sandbox),
            Err(Error::NotReady { .. }) => self.get(id),
            Err(error) => Err(error),
        }
    }

    /// Waits at most `wait` until a sandbox that was just looked up can be connected to. Judges
    /// every request anew: a connection that was kept open reaches into a paused sandbox too, and
    /// would only hang.
    pub async fn wait_reachable(&self, sandbox: &Sandbox, wait: Duration) -> Result<(), Error> {
        if !matches!(sandbox.status.state, State::Pending | State::Resuming) {
            return admission::reachable(sandbox);
        }
        admission::reachable(&*self.wait_ready(&sandbox.id, wait).await?)
    }

    /// Opens a stream into the sandbox. Waits for readiness at most `wait`; looks up nothing
    /// outside memory.
    pub async fn connect(
        &self,
        id: &SandboxId,
        target: Target,
        wait: Duration,
    ) -> Result<Box<dyn Stream>, Error> {
        admission::reachable(&*self.wait_ready(id, wait).await?)?;
        let connect = self.shared().backend.connect(id, target);
        let opened = within("connecting into the sandbox", deadlines::CONNECT, connect).await?;
        if matches!(opened, Err(ConnectError::NotFound(_) | ConnectError::Ended))
            && let Ok(handle) = self.shared().handle(id)
        {
            // It should have been there: let its owner look.
            handle.check();
        }
        Ok(opened?)
    }

    /// Begins a snapshot of a running sandbox; answers `Creating`, or `Failed` where that is known at once.
    pub async fn create_snapshot(
        &self,
        id: &SandboxId,
        name: Option<String>,
    ) -> Result<Arc<Snapshot>, Error> {
        self.plane.refuse_when_stopping()?;
        admission::allow(&self.caller, Right::Change)?;
        if !self.plane.capabilities().snapshot {
            let message = format!(
                "the {} backend cannot make snapshots here",
                self.plane.backend_name()
            );
            return Err(Error::Unsupported {
                feature: Feature::Snapshot,
                message,
            });
        }
        self.handle(id)?;
        snapshots::create(self.shared(), id, name, self.caller.audit.as_ref()).await
    }

    /// One snapshot, from memory.
    pub fn get_snapshot(&self, id: &SnapshotId) -> Result<Arc<Snapshot>, Error> {
        admission::allow(&self.caller, Right::Read)?;
        self.shared().snapshot_of(&self.caller, id)
    }

    /// A page of snapshots, newest first, from memory.
    pub fn list_snapshots(
        &self,
        filter: &SnapshotFilter,
        page: u32,
        page_size: u32,
    ) -> Page<Arc<Snapshot>> {
        let mut found = self.shared().snapshots.matching(filter);
        let lists = self.caller.has(Right::Read);
        found.retain(|snapshot| lists && self.shared().sees_snapshot(&self.caller, snapshot));
        Page::cut(found, page, page_size)
    }

    /// Removes a snapshot nothing stands on.
    pub async fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), Error> {
        self.plane.refuse_when_stopping()?;
        admission::allow(&self.caller, Right::Change)?;
        self.shared().snapshot_of(&self.caller, id)?;
        snapshots::delete(self.shared(), id, self.caller.audit.clone()).await
    }

    /// Output of PID 1 and of the entrypoint. Empty for a sandbox that is not made yet.
    pub async fn logs(&self, id: &SandboxId, query: LogQuery) -> Result<Logs, Error> {
        admission::allow(&self.caller, Right::Read)?;
        let state = match self.get(id) {
            Ok(sandbox) => sandbox.status.state,
            Err(absent) => return Ok(self.ended(id, absent).await?.logs(query)),
        };
        let logs = self.shared().backend.logs(id, query);
        match within("reading the logs", deadlines::DIAGNOSE, logs).await? {
            Err(backend::Error::NotFound(_)) if state == State::Pending || state.has_ended() => {
                Ok(Logs::default())
            }
            other => Ok(other?),
        }
    }

    /// The same as it is written, until the sandbox has ended.
    pub async fn follow_logs(
        &self,
        id: &SandboxId,
        query: LogQuery,
    ) -> Result<mpsc::Receiver<String>, Error> {
        admission::allow(&self.caller, Right::Read)?;
        let state = match self.get(id) {
            Ok(sandbox) => sandbox.status.state,
            Err(absent) => {
                let text = self.ended(id, absent).await?.logs(query).text;
                let (said, all) = mpsc::channel(1);
                // There is room for it, and nothing comes after it.
                let _ = said.try_send(text);
                return Ok(all);
            }
        };
        let logs = self.shared().backend.follow_logs(id, query);
        match within("reading the logs", deadlines::DIAGNOSE, logs).await? {
            // One that is gone has said everything.
            Err(backend::Error::NotFound(_)) if state.has_ended() => Ok(mpsc::channel(1).1),
            other => Ok(other?),
        }
    }

    /// What is left of a sandbox that is gone; the error says that it is.
    async fn ended(&self, id: &SandboxId, absent: Error) -> Result<EndedRecord, Error> {
        if !matches!(&absent, Error::NotFound(Absent { ended: Some(_), .. })) {
            return Err(absent);
        }
        let read = self.shared().store.ended(id);
        let kept = within("reading the last logs", deadlines::STORE_READ, read).await??;
        kept.ok_or(absent)
    }

    /// A description for diagnostics, without secrets.
    pub async fn describe(&self, id: &SandboxId) -> Result<String, Error> {
        admission::allow(&self.caller, Right::Read)?;
        let sandbox = self.get(id)?;
        let describe = self.shared().backend.describe(id);
        match within("describing the sandbox", deadlines::DIAGNOSE, describe).await? {
            Err(backend::Error::NotFound(_)) => {
                let status = &sandbox.status;
                Ok(format!(
                    "{}: {} (not in the backend)\n",
                    status.state, status.message
                ))
            }
            other => Ok(other?),
        }
    }

    /// The last `limit` events of one sandbox, oldest first. Also of one that is gone.
    pub async fn events(&self, id: &SandboxId, limit: u32) -> Result<Vec<Event>, Error> {
        admission::allow(&self.caller, Right::Read)?;
        let read = self.shared().store.events_of(id, limit);
        let events = within("reading the events", deadlines::STORE_READ, read).await??;
        let first = events.first();
        // Of one that is gone, these are what is left.
        if first.is_none_or(|it| !admission::sees_all_of(&self.caller, &it.tenant)) {
            match self.get(id) {
                Err(Error::NotFound(Absent { ended: Some(_), .. })) if first.is_some() => {}
                other => drop(other?),
            }
        }
        Ok(events)
    }

    /// A live stream of all events: those after `after` that are still kept, then new ones.
    /// `None` begins with the next event.
    pub async fn subscribe(&self, after: Option<EventId>) -> Result<Subscription, Error> {
        admission::allow(&self.caller, Right::Read)?;
        Subscription::open(self.shared(), self.caller.clone(), after).await
    }

    /// Reads the audit trail, newest first.
    pub async fn audit_entries(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>, Error> {
        admission::allow(&self.caller, Right::Audit)?;
        let tenant = self.caller.tenant.clone();
        let query = AuditQuery {
            tenant,
            ..query.clone()
        };
        let read = self.shared().store.audit(&query);
        Ok(within("reading the audit trail", deadlines::STORE_READ, read).await??)
    }

    /// Lets pass who has a right, where there is nothing else to refuse.
    pub fn require(&self, right: Right) -> Result<(), Error> {
        admission::allow(&self.caller, right)
    }

    /// Lets pass who may read what the server counts, of all tenants.
    pub fn may_read_metrics(&self) -> Result<(), Error> {
        admission::allow(&self.caller, Right::Metrics)?;
        match self.caller.tenant.is_built_in() {
            true => Ok(()),
            false => Err(Error::Forbidden(
                "the counts of this server are of all tenants, for operators of the built-in one"
                    .to_owned(),
            )),
        }
    }

    /// Lets pass who may go into a sandbox.
    pub fn may_connect(&self, id: &SandboxId) -> Result<(), Error> {
        self.get(id)?;
        admission::allow(&self.caller, Right::Connect)
    }

    /// Tells the owner task something and waits for its answer.
    async fn ask<T>(
        &self,
        id: &SandboxId,
        command: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Command,
    ) -> Result<T, Error> {
        admission::allow(&self.caller, Right::Change)?;
        self.tell(id, command).await
    }

    /// The same for a caller that was admitted for it.
    async fn tell<T>(
        &self,
        id: &SandboxId,
        command: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Command,
    ) -> Result<T, Error> {
        self.plane.refuse_when_stopping()?;
        let Handle { commands, .. } = self.handle(id)?;
        let (reply, answer) = oneshot::channel();
        commands
            .try_send(command(reply).into())
            .map_err(|error| match error {
                tokio::sync::mpsc::error::TrySendError::Full(_) => Error::Busy(id.clone()),
                tokio::sync::mpsc::error::TrySendError::Closed(_) => self.gone(id),
            })?;
        // Whatever was begun goes on in the owner's task.
        let wait = deadlines::ANSWER + self.shared().config.stop_grace;
        let answer = within("the request", wait, answer).await?;
        answer.unwrap_or_else(|_| Err(self.gone(id)))
    }

    fn gone(&self, id: &SandboxId) -> Error {
        self.plane
            .refuse_when_stopping()
            .err()
            .unwrap_or_else(|| Error::NotFound(id.clone().into()))
    }
}

fn matches(sandbox: &Sandbox, filter: &SandboxFilter) -> bool {
    let state = filter.states.is_empty() || filter.states.contains(&sandbox.status.state);
    state
        && filter
            .metadata
            .iter()
            .all(|(key, value)| sandbox.metadata.get(key) == Some(value))
}

/// Bounds a call in time.
pub(crate) async fn within<T>(
    action: &'static str,
    after: Duration,
    call: impl Future<Output = T>,
) -> Result<T, Error> {
    tokio::time::timeout(after, call)
        .await
        .map_err(|_| Error::Timeout { action, after })
}
