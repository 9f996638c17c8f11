//! What a case works with: the backend, the sandboxes it makes, and how it says what is wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::egress::policy::EgressPolicy;
use api::id::{SandboxId, SnapshotId};
use secrecy::SecretString;
use tokio::sync::broadcast;

use super::daemon::{Daemon, Output};
use super::{Factory, Facts, Need};
use crate::backend::{
    Backend, Event, Exit, Limits, ObservedState, Source, Spec, Target, Volume, VolumeSource,
};

/// How long something that must happen may take on a loaded machine.
pub(super) const SOON: Duration = Duration::from_secs(90);

/// What a case found wrong.
#[derive(Debug, Clone)]
pub struct Failure(pub String);

impl<E: fmt::Display> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Failure(format!($($message)+)));
        }
    };
}
pub(super) use ensure;

/// What one case works with.
pub struct World {
    factory: Arc<dyn Factory>,
    backend: Mutex<Option<Arc<dyn Backend>>>,
    pub(super) facts: Facts,
    made: Mutex<Vec<SandboxId>>,
    snapshots: Mutex<Vec<SnapshotId>>,
    pools: Mutex<Vec<String>>,
    directories: Mutex<Vec<PathBuf>>,
}

/// A sandbox a case has made.
pub(super) struct Made {
    pub(super) id: SandboxId,
    pub(super) token: String,
}

impl World {
    /// On `backend`, or on one that is opened now.
    pub(super) async fn open(
        factory: Arc<dyn Factory>,
        backend: Option<Arc<dyn Backend>>,
    ) -> World {
        let backend = match backend {
            Some(backend) => backend,
            None => factory.open().await,
        };
        World {
            facts: factory.facts(),
            factory,
            backend: Mutex::new(Some(backend)),
            made: Mutex::default(),
            snapshots: Mutex::default(),
            pools: Mutex::default(),
            directories: Mutex::default(),
        }
    }

    /// Gives the backend on to the next case.
    pub(super) fn close(self) -> Arc<dyn Backend> {
        self.backend()
    }

    /// The backend under test.
    pub(super) fn backend(&self) -> Arc<dyn Backend> {
        let backend = self.backend.lock().unwrap_or_else(PoisonError::into_inner);
        backend.clone().expect("open except while it is reopened")
    }

    /// Drops the backend and opens another on what it left, as a restarted server does. No other
    /// handle on it may be alive.
    pub(super) async fn reopen(&self) {
        let old = self
            .backend
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(old);
        let new = self.factory.open().await;
        *self.backend.lock().unwrap_or_else(PoisonError::into_inner) = Some(new);
    }

    /// Lets time pass without a backend: `meanwhile` runs between the old and the new one.
    pub(super) async fn reopen_after<T>(&self, meanwhile: impl Future<Output = T>) -> T {
        let old = self
            .backend
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(old);
        let result = meanwhile.await;
        let new = self.factory.open().await;
        *self.backend.lock().unwrap_or_else(PoisonError::into_inner) = Some(new);
        result
    }

    pub(super) fn has(&self, need: Need) -> bool {
        let can = self.backend().capabilities();
        match need {
            Need::Shell => self.facts.has_shell,
            Need::Listen => self.facts.has_shell && self.facts.listen.is_some(),
            Need::HostVolumes => self.facts.host_root.is_some(),
            Need::NamedVolumes => self.facts.has_named_volumes,
            Need::Limits => self.facts.enforces_limits,
            Need::DiskLimit => can.disk_limit,
            Need::Pause => can.pause,
            Need::Snapshot => can.snapshot,
            Need::NetworkNone => can.network_none,
            Need::NetworkRules => can.network_rules,
            Need::WarmPools => self.backend().warm_pools().is_some(),
        }
    }

    /// A plain sandbox that waits for ever.
    pub(super) fn spec(&self) -> Spec {
        let id = format!("conf-{}", uuid::Uuid::new_v4().simple());
        let entrypoint = ["/bin/sh", "-c", "exec sleep 2147483647"];
        Spec {
            id: id.try_into().expect("a valid id"),
            source: Source::Image {
                reference: self.facts.image.clone(),
                auth: None,
            },
            platform: None,
            entrypoint: self
                .facts
                .has_shell
                .then(|| entrypoint.map(str::to_owned).to_vec()),
            env: BTreeMap::new(),
            limits: Limits::default(),
            volumes: Vec::new(),
            network: EgressPolicy::ALLOW_ALL,
            access_token: SecretString::from(uuid::Uuid::new_v4().simple().to_string()),
            labels: BTreeMap::from([("suite".to_owned(), "conformance".to_owned())]),
        }
    }

    /// A sandbox whose entrypoint is a shell script.
    pub(super) fn script(&self, script: &str) -> Spec {
        let entrypoint = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        Spec {
            entrypoint: Some(entrypoint),
            ..self.spec()
        }
    }

    pub(super) async fn create(&self, spec: Spec) -> Result<Made, Failure> {
        let made = self.note(&spec);
        self.backend().create(spec).await?;
        Ok(made)
    }

    /// Remembers to clean up after a sandbox the case makes itself.
    pub(super) fn note(&self, spec: &Spec) -> Made {
        use secrecy::ExposeSecret;
        self.made
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(spec.id.clone());
        Made {
            id: spec.id.clone(),
            token: spec.access_token.expose_secret().to_owned(),
        }
    }

    pub(super) async fn plain(&self) -> Result<Made, Failure> {
        self.create(self.spec()).await
    }

    /// A new id for a snapshot, which is removed after the case.
    pub(super) fn snapshot_id(&self) -> SnapshotId {
        let id = format!("conf-{}", uuid::Uuid::new_v4().simple());
        let id: SnapshotId = id.try_into().expect("a valid id");
        self.snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(id.clone());
        id
    }

    /// A new name for a pool, which is drained after the case.
    pub(super) fn pool(&self) -> String {
        let pool = format!("conf-{}", uuid::Uuid::new_v4().simple());
        self.pools
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(pool.clone());
        pool
    }

    /// The daemon of a sandbox.
    pub(super) async fn daemon(&self, made: &Made) -> Result<Daemon, Failure> {
        let stream = self.backend().connect(&made.id, Target::Control).await?;
        Daemon::open(stream, Some(made.token.clone())).await
    }

    /// Runs a shell command to its end.
    pub(super) async fn exec(&self, made: &Made, command: &str) -> Result<Output, Failure> {
        self.daemon(made).await?.run(command).await
    }

    /// Runs a shell command that must succeed; its output.
    pub(super) async fn output(&self, made: &Made, command: &str) -> Result<String, Failure> {
        let output = self.exec(made, command).await?;
        ensure!(output.code == Some(0), "{command:?} ended with {output:?}");
        Ok(output.stdout)
    }

    /// A fresh directory under the host root.
    pub(super) fn directory(&self) -> Result<PathBuf, Failure> {
        let root = self
            .facts
            .host_root
            .as_ref()
            .ok_or(Failure("no host root".to_owned()))?;
        let directory = root.join(format!("conf-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir_all(&directory)?;
        // Root inside is somebody else outside; the volume must be theirs to write.
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&directory, everybody)?;
        self.directories
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(directory.clone());
        Ok(directory)
    }

    /// A mount of a host path at `/mnt/volume`.
    pub(super) fn host_volume(&self, path: &Path, read_only: bool) -> Volume {
        let allowed = self.facts.host_root.clone().unwrap_or_default();
        Volume {
            name: "volume".to_owned(),
            source: VolumeSource::HostPath {
                path: path.display().to_string(),
                allowed_root: allowed.display().to_string(),
            },
            mount_path: "/mnt/volume".to_owned(),
            read_only,
            sub_path: None,
        }
    }

    /// Waits until a sandbox has ended, by event and by looking.
    pub(super) async fn until_exited(
        &self,
        id: &SandboxId,
        mut events: broadcast::Receiver<Event>,
    ) -> Result<Exit, Failure> {
        let wait = async {
            loop {
                match events.recv().await {
                    Ok(Event::Exited { id: of, exit }) if of == *id => return Ok(exit),
                    Ok(_) => {}
                    Err(error) => return Err(Failure::from(error)),
                }
            }
        };
        // It may have ended before the events were listened to.
        if let ObservedState::Exited(exit) = self.backend().inspect(id).await?.state {
            return Ok(exit);
        }
        let told = tokio::time::timeout(SOON, wait).await;
        let told = told.map_err(|_| Failure("its end was not told".to_owned()))??;
        match self.backend().inspect(id).await?.state {
            ObservedState::Exited(exit) => {
                ensure!(
                    exit.code == told.code,
                    "told {told:?}, but inspect says {exit:?}"
                );
                Ok(exit)
            }
            other => Err(Failure(format!(
                "told that it ended, but inspect says {other:?}"
            ))),
        }
    }

    /// Deletes a sandbox; nothing of it may be left.
    pub(super) async fn delete(&self, id: &SandboxId) -> Result<(), Failure> {
        self.backend().delete(id, Duration::ZERO).await?;
        let left = self.factory.leftovers(id).await;
        ensure!(left.is_empty(), "left over of {id}: {left:?}");
        Ok(())
    }

    /// Removes everything the case made.
    pub(super) async fn clean_up(&self) -> Result<(), Failure> {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        let mut result = Ok(());
        for id in made {
            result = self.delete(&id).await.and(result);
        }
        let snapshots = std::mem::take(
            &mut *self
                .snapshots
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for id in snapshots {
            let removed = self.backend().delete_snapshot(&id).await;
            result = removed.map_err(Failure::from).and(result);
        }
        let pools = std::mem::take(&mut *self.pools.lock().unwrap_or_else(PoisonError::into_inner));
        for pool in pools {
            if let Some(backend) = self.backend().warm_pools() {
                let drained = backend.drain(&pool).await;
                result = drained.map_err(Failure::from).and(result);
            }
        }
        let directories = std::mem::take(
            &mut *self
                .directories
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for directory in directories {
            // Left-over files of a failed case disturb nobody.
            let _ = std::fs::remove_dir_all(directory);
        }
        result
    }
}
