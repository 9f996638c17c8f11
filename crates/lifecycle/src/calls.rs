//! The backend calls of an owner task, each in a task of its own, so that a call that hangs
//! holds up nothing but itself.
//!
//! A call reports to its owner. When nobody is there to hear it any more, or the owner has given
//! it up, what it made is removed again: that is decided here for owners that are gone and in
//! `owner` for those that are not.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use api::id::{SandboxId, SnapshotId};
use futures_util::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::backend::{
    self, Backend, Created, Logs, Platform, PullProgress, SandboxDetails, SnapshotDetails, Source,
    Spec,
};
use crate::deadlines;
use crate::ended;
use crate::error::Error;
use crate::machine::Observation;
use crate::policy::{PolicyChange, PolicyOutcome};
use crate::sandbox::Reason;
use crate::shared::Shared;
use crate::steps::{fail, noted, step};

/// Progress reports of one download that wait to be read; more are dropped.
const PROGRESS: usize = 16;

/// What a call tells its owner.
pub(crate) struct CallReport {
    /// The call's number, so that an owner that gave it up can tell.
    pub(crate) number: u64,
    pub(crate) event: CallEvent,
}

/// How a call goes or went.
pub(crate) enum CallEvent {
    /// The image is not here; a download begins.
    PullNeeded,
    /// How much of the download is done.
    PullProgress {
        percent: u64,
    },
    /// Its turn has come: the backend makes it now. CallMessage only where it had to wait for that.
    TurnCame,
    Made {
        created: Created,
        pulled: bool,
    },
    MakeFailed {
        reason: Reason,
        error: Error,
    },
    Paused(Result<(), Error>),
    Resumed(Result<(), Error>),
    Snapshotted(Result<SnapshotDetails, Error>),
    PolicyChanged(Result<PolicyOutcome, Error>),
    Inspected(Observation),
    Deleted {
        result: Result<(), Error>,
        /// The last of its output, read before it was removed.
        logs: Option<Logs>,
    },
}

/// Everything a call needs.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: SandboxId,
    pub(crate) number: u64,
    pub(crate) reports: mpsc::Sender<CallReport>,
}

impl Call {
    /// Whether the owner was there to hear it.
    async fn report(&self, event: CallEvent) -> bool {
        let number = self.number;
        self.reports
            .send(CallReport { number, event })
            .await
            .is_ok()
    }

    fn backend(&self) -> &dyn Backend {
        &*self.shared.backend
    }

    /// Pulls if needed and creates. Cancelling ends everything but the creation itself, which
    /// is not safe to drop half-way. Answers whether its turn has come already.
    pub(crate) fn make(self, spec: Spec, clean_first: bool, cancel: CancellationToken) -> bool {
        // What must be cleaned up first would keep its turn from others.
        let turn = (!clean_first).then(|| self.shared.creations.clone().try_acquire_owned());
        let turn = turn.and_then(Result::ok);
        let has_turn = turn.is_some();
        let tasks = self.shared.tasks.clone();
        let step = step!("make sandbox", &self.id);
        let making = async move {
            let cancelled = Error::NotFound(self.id.clone().into());
            let prepared = tokio::select! {
                prepared = self.prepare(&spec, clean_first, turn) => prepared,
                () = cancel.cancelled() => Err((Reason::ContainerStartFailed, cancelled)),
            };
            let event = match prepared {
                Err((reason, error)) => CallEvent::MakeFailed { reason, error },
                Ok(prepared) => match self.create(spec).await {
                    Ok(created) => CallEvent::Made {
                        created,
                        pulled: prepared.pulled,
                    },
                    Err(error) => CallEvent::MakeFailed {
                        reason: reason_of(&error),
                        error: error.into(),
                    },
                },
            };
            let is_made = matches!(event, CallEvent::Made { .. });
            if let CallEvent::MakeFailed { error, .. } = &event {
                fail(error);
            }
            if !self.report(event).await && is_made && !self.shared.stop.is_cancelled() {
                discard(self.shared.clone(), self.id.clone());
            }
        };
        tasks.spawn(making.instrument(step));
        has_turn
    }

    /// Reports that it cannot be made, without asking the backend.
    pub(crate) fn refuse_make(self, error: Error) {
        let event = CallEvent::MakeFailed {
            reason: Reason::ContainerStartFailed,
            error,
        };
        let number = self.number;
        // The channel of an owner without a call under way is empty.
        let _ = self.reports.try_send(CallReport { number, event });
    }

    /// Drives the backend's `create` to its end. A panic in it fails the creation at once; without this its
    /// owner would wait for a report until its deadline.
    async fn create(&self, spec: Spec) -> Result<Created, backend::Error> {
        let creation = self.backend().create(spec);
        let creation = creation.instrument(step!("create in backend", &self.id));
        let creation = AssertUnwindSafe(creation).catch_unwind();
        creation.await.unwrap_or_else(|_| {
            let message = format!(
                "the {} backend panicked while it created sandbox {}; the server's log has the place",
                self.backend().name(),
                self.id
            );
            Err(backend::Error::Internal(message))
        })
    }

    async fn prepare(
        &self,
        spec: &Spec,
        clean_first: bool,
        mut turn: Option<OwnedSemaphorePermit>,
    ) -> Result<Prepared, (Reason, Error)> {
        if clean_first {
            let removed = self.backend().delete(&self.id, Duration::ZERO).await;
            removed.map_err(|error| (Reason::ContainerStartFailed, error.into()))?;
        }
        let platform = spec.platform.as_ref();
        let is_local = self.backend().is_local(&spec.source, platform);
        // An answer that does not come is treated as no.
        let pulled = tokio::time::timeout(deadlines::IS_LOCAL, is_local).await != Ok(true);
        if pulled {
            turn = None;
            self.pull(&spec.source, platform).await?;
        }
        let turn = match turn {
            Some(turn) => turn,
            None => {
                let turn = self.shared.creations.clone().acquire_owned().await;
                let turn = turn.map_err(|_| (Reason::ContainerStartFailed, Error::ShuttingDown))?;
                self.report(CallEvent::TurnCame).await;
                turn
            }
        };
        Ok(Prepared {
            pulled,
            _turn: turn,
        })
    }

    async fn pull(
        &self,
        source: &Source,
        platform: Option<&Platform>,
    ) -> Result<(), (Reason, Error)> {
        self.report(CallEvent::PullNeeded).await;
        let (progress, mut reports) = mpsc::channel(PROGRESS);
        let pull = self.backend().pull(source, platform, progress);
        let pull = pull.instrument(step!("pull image", &self.id));
        let watch = async {
            let mut total = 0;
            while let Some(report) = reports.recv().await {
                match report {
                    PullProgress::Resolved { total_bytes, .. } => {
                        total = total_bytes;
                        self.report(CallEvent::PullProgress { percent: 0 }).await;
                    }
                    PullProgress::Downloaded { bytes } if total > 0 => {
                        let percent = (bytes * 100 / total).min(100);
                        self.report(CallEvent::PullProgress { percent }).await;
                    }
                    PullProgress::Downloaded { .. } | PullProgress::Unpacked { .. } => {}
                }
            }
            std::future::pending::<()>().await;
        };
        let pulled = tokio::select! {
            pulled = tokio::time::timeout(deadlines::PULL, pull) => pulled,
            () = watch => unreachable!("watching never ends by itself"),
        };
        match pulled {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err((reason_of(&error), error.into())),
            Err(_) => {
                let error = Error::Timeout {
                    action: "pulling the image",
                    after: deadlines::PULL,
                };
                Err((Reason::ImagePullFailed, error))
            }
        }
    }

    pub(crate) fn pause(self) {
        let (tasks, step) = (self.shared.tasks.clone(), step!("pause sandbox", &self.id));
        let work = async move {
            let result = noted(self.backend().pause(&self.id).await);
            self.report(CallEvent::Paused(result.map_err(Error::from)))
                .await;
        };
        tasks.spawn(work.instrument(step));
    }

    pub(crate) fn resume(self) {
        let (tasks, step) = (self.shared.tasks.clone(), step!("resume sandbox", &self.id));
        let work = async move {
            let result = noted(self.backend().resume(&self.id).await);
            self.report(CallEvent::Resumed(result.map_err(Error::from)))
                .await;
        };
        tasks.spawn(work.instrument(step));
    }

    pub(crate) fn snapshot(self, snapshot: SnapshotId) {
        let (tasks, step) = (
            self.shared.tasks.clone(),
            step!("snapshot sandbox", &self.id),
        );
        let work = async move {
            let result = noted(self.backend().snapshot(&self.id, &snapshot).await);
            let is_made = result.is_ok();
            let event = CallEvent::Snapshotted(result.map_err(Error::from));
            if !self.report(event).await && is_made {
                discard_snapshot(self.shared, snapshot);
            }
        };
        tasks.spawn(work.instrument(step));
    }

    pub(crate) fn change_policy(self, change: PolicyChange) {
        self.shared.clone().tasks.spawn(async move {
            let result = self.changed_policy(change).await;
            self.report(CallEvent::PolicyChanged(result)).await;
        });
    }

    async fn changed_policy(&self, change: PolicyChange) -> Result<PolicyOutcome, Error> {
        let current = self.backend().network_policy(&self.id).await?;
        let policy = change.apply(&current)?;
        let is_changed = policy != current;
        // Also where nothing seems to change: an earlier change, whose client was told that it failed, may be on
        // its way.
        if is_changed || self.backend().capabilities().network_rules {
            self.backend().set_network_policy(&self.id, &policy).await?;
        }
        Ok(PolicyOutcome { policy, is_changed })
    }

    pub(crate) fn inspect(self) {
        self.shared.clone().tasks.spawn(async move {
            let observation = match self.backend().inspect(&self.id).await {
                Ok(SandboxDetails {
                    state, started_at, ..
                }) => Observation::Found { state, started_at },
                Err(backend::Error::NotFound(_)) => Observation::Gone,
                Err(error) => Observation::Unknown(error.to_string()),
            };
            self.report(CallEvent::Inspected(observation)).await;
        });
    }

    pub(crate) fn delete(self, grace: Duration) {
        let (tasks, step) = (self.shared.tasks.clone(), step!("delete sandbox", &self.id));
        let work = async move {
            let logs = self.backend().logs(&self.id, ended::LOGS);
            let logs = tokio::time::timeout(deadlines::LAST_LOGS, logs).await;
            let result = match self.backend().delete(&self.id, grace).await {
                Ok(()) | Err(backend::Error::NotFound(_)) => Ok(()),
                Err(error) => Err(Error::from(error)),
            };
            let result = noted(result);
            let logs = logs.ok().and_then(Result::ok);
            self.report(CallEvent::Deleted { result, logs }).await;
        };
        tasks.spawn(work.instrument(step));
    }
}

/// What a creation holds while it creates.
struct Prepared {
    pulled: bool,
    _turn: OwnedSemaphorePermit,
}

/// Removes a sandbox that should not be there. If that fails, reconciliation finds it again.
pub(crate) fn discard(shared: Arc<Shared>, id: SandboxId) {
    shared.clone().tasks.spawn(async move {
        let removal = shared.backend.delete(&id, Duration::ZERO);
        match tokio::time::timeout(deadlines::DELETE, removal).await {
            Ok(Ok(())) => tracing::info!(sandbox_id = %id, "removed a sandbox that was given up"),
            Ok(Err(error)) => {
                tracing::warn!(sandbox_id = %id, error = %api::error_chain(&error), "a sandbox that was given up is left over");
            }
            Err(_) => tracing::warn!(sandbox_id = %id, "removing a given-up sandbox takes too long"),
        }
    });
}

/// Removes a snapshot that should not be there.
pub(crate) fn discard_snapshot(shared: Arc<Shared>, snapshot: SnapshotId) {
    shared.clone().tasks.spawn(async move {
        let removal = shared.backend.delete_snapshot(&snapshot);
        match tokio::time::timeout(deadlines::DELETE_SNAPSHOT, removal).await {
            Ok(Ok(())) => tracing::info!(%snapshot, "removed a snapshot that was given up"),
            Ok(Err(error)) => {
                tracing::warn!(%snapshot, error = %api::error_chain(&error), "a snapshot that was given up is left over");
            }
            Err(_) => tracing::warn!(%snapshot, "removing a given-up snapshot takes too long"),
        }
    });
}

/// The reason a failed creation shows.
fn reason_of(error: &backend::Error) -> Reason {
    match error {
        backend::Error::ImageNotFound { .. }
        | backend::Error::ImageUnauthorized { .. }
        | backend::Error::ImagePull { .. } => Reason::ImagePullFailed,
        _ => Reason::ContainerStartFailed,
    }
}
