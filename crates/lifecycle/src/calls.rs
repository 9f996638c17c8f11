//! The backend calls of an owner task, each in a task of its own, so that a call that hangs
//! holds up nothing but itself.
//!
//! A call reports to its owner. When nobody is there to hear it any more, or the owner has given
//! it up, what it made is removed again: that is decided here for owners that are gone and in
//! `owner` for those that are not.

use std::sync::Arc;
use std::time::Duration;

use api::id::{SandboxId, SnapshotId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::backend::{
    self, Backend, Created, Observed, Platform, PullProgress, SnapshotDetails, Source, Spec,
};
use crate::deadlines;
use crate::error::Error;
use crate::machine::Sight;
use crate::sandbox::Reason;
use crate::shared::Shared;

/// Progress reports of one download that wait to be read; more are dropped.
const PROGRESS: usize = 16;

/// What a call tells its owner.
pub(crate) struct Report {
    /// The call's number, so that an owner that gave it up can tell.
    pub(crate) ticket: u64,
    pub(crate) news: News,
}

/// How a call goes or went.
pub(crate) enum News {
    /// The image is not here; a download begins.
    NeedsPull,
    /// How much of the download is done, in percent.
    PullProgress(u64),
    /// Its turn has come: the backend makes it now.
    Starting,
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
    Inspected(Sight),
    Deleted(Result<(), Error>),
}

/// Everything a call needs.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: SandboxId,
    pub(crate) ticket: u64,
    pub(crate) reports: mpsc::Sender<Report>,
}

impl Call {
    /// Whether the owner was there to hear it.
    async fn report(&self, news: News) -> bool {
        self.reports
            .send(Report {
                ticket: self.ticket,
                news,
            })
            .await
            .is_ok()
    }

    fn backend(&self) -> &dyn Backend {
        &*self.shared.backend
    }

    /// Pulls if needed and creates. Cancelling ends everything but the creation itself, which
    /// is not safe to drop half-way.
    pub(crate) fn make(self, spec: Spec, clean_first: bool, cancel: CancellationToken) {
        self.shared.clone().tasks.spawn(async move {
            let cancelled = Error::NotFound(self.id.clone());
            let prepared = tokio::select! {
                prepared = self.prepare(&spec, clean_first) => prepared,
                () = cancel.cancelled() => Err((Reason::ContainerStartFailed, cancelled)),
            };
            let news = match prepared {
                Err((reason, error)) => News::MakeFailed { reason, error },
                Ok(prepared) => match self.backend().create(spec).await {
                    Ok(created) => News::Made {
                        created,
                        pulled: prepared.pulled,
                    },
                    Err(error) => News::MakeFailed {
                        reason: reason_of(&error),
                        error: error.into(),
                    },
                },
            };
            let is_made = matches!(news, News::Made { .. });
            if !self.report(news).await && is_made && !self.shared.stop.is_cancelled() {
                discard(self.shared.clone(), self.id.clone());
            }
        });
    }

    async fn prepare(
        &self,
        spec: &Spec,
        clean_first: bool,
    ) -> Result<Prepared<'_>, (Reason, Error)> {
        if clean_first {
            let removed = self.backend().delete(&self.id, Duration::ZERO).await;
            removed.map_err(|error| (Reason::ContainerStartFailed, error.into()))?;
        }
        let pulled = self
            .ensure_image(&spec.source, spec.platform.as_ref())
            .await?;
        let permit = self.shared.creations.acquire().await;
        let permit = permit.map_err(|_| (Reason::ContainerStartFailed, Error::ShuttingDown))?;
        self.report(News::Starting).await;
        Ok(Prepared {
            pulled,
            _permit: permit,
        })
    }

    async fn ensure_image(
        &self,
        source: &Source,
        platform: Option<&Platform>,
    ) -> Result<bool, (Reason, Error)> {
        let is_local = self.backend().is_local(source, platform);
        // An answer that does not come is treated as no.
        if tokio::time::timeout(deadlines::IS_LOCAL, is_local).await == Ok(true) {
            return Ok(false);
        }
        self.report(News::NeedsPull).await;
        let (progress, mut reports) = mpsc::channel(PROGRESS);
        let pull = self.backend().pull(source, platform, progress);
        let watch = async {
            let mut total = 0;
            while let Some(report) = reports.recv().await {
                match report {
                    PullProgress::Resolved { total_bytes, .. } => total = total_bytes,
                    PullProgress::Downloaded { bytes } if total > 0 => {
                        self.report(News::PullProgress((bytes * 100 / total).min(100)))
                            .await;
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
            Ok(Ok(())) => Ok(true),
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
        self.shared.clone().tasks.spawn(async move {
            let result = self.backend().pause(&self.id).await.map_err(Error::from);
            self.report(News::Paused(result)).await;
        });
    }

    pub(crate) fn resume(self) {
        self.shared.clone().tasks.spawn(async move {
            let result = self.backend().resume(&self.id).await.map_err(Error::from);
            self.report(News::Resumed(result)).await;
        });
    }

    pub(crate) fn snapshot(self, snapshot: SnapshotId) {
        self.shared.clone().tasks.spawn(async move {
            let result = self
                .backend()
                .snapshot(&self.id, &snapshot)
                .await
                .map_err(Error::from);
            let is_made = result.is_ok();
            if !self.report(News::Snapshotted(result)).await && is_made {
                discard_snapshot(self.shared, snapshot);
            }
        });
    }

    pub(crate) fn inspect(self) {
        self.shared.clone().tasks.spawn(async move {
            let sight = match self.backend().inspect(&self.id).await {
                Ok(Observed {
                    state, started_at, ..
                }) => Sight::Found { state, started_at },
                Err(backend::Error::NotFound(_)) => Sight::Gone,
                Err(error) => Sight::Unknown(error.to_string()),
            };
            self.report(News::Inspected(sight)).await;
        });
    }

    pub(crate) fn delete(self, grace: Duration) {
        self.shared.clone().tasks.spawn(async move {
            let result = match self.backend().delete(&self.id, grace).await {
                Ok(()) | Err(backend::Error::NotFound(_)) => Ok(()),
                Err(error) => Err(Error::from(error)),
            };
            self.report(News::Deleted(result)).await;
        });
    }
}

/// What a creation holds while it creates.
struct Prepared<'a> {
    pulled: bool,
    _permit: tokio::sync::SemaphorePermit<'a>,
}

/// Removes a sandbox that should not be there. If that fails, reconciliation finds it again.
pub(crate) fn discard(shared: Arc<Shared>, id: SandboxId) {
    shared.clone().tasks.spawn(async move {
        let removal = shared.backend.delete(&id, Duration::ZERO);
        match tokio::time::timeout(deadlines::DELETE, removal).await {
            Ok(Ok(())) => tracing::info!(sandbox = %id, "removed a sandbox that was given up"),
            Ok(Err(error)) => {
                tracing::warn!(sandbox = %id, %error, "a sandbox that was given up is left over");
            }
            Err(_) => tracing::warn!(sandbox = %id, "removing a given-up sandbox takes too long"),
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
                tracing::warn!(%snapshot, %error, "a snapshot that was given up is left over");
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
