//! The calls of the trait, on what the fake host holds.

use std::time::Duration;

use api::egress::policy::EgressPolicy;
use api::id::{SandboxId, SnapshotId};
use async_trait::async_trait;
use jiff::Timestamp;
use secrecy::ExposeSecret;
use tokio::sync::{broadcast, mpsc};

use super::{Backend, Call, Item, STREAM, name_of};
use crate::backend::{
    Capabilities, ConnectError, Created, Error, Event, LOG_PIECES, LogQuery, Logs, ObservedState,
    Platform, PullProgress, SandboxDetails, SnapshotDetails, Source, Spec, Stream, Target,
};
use crate::fake::http;

#[async_trait]
impl crate::backend::Backend for Backend {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn capabilities(&self) -> Capabilities {
        self.lock().capabilities
    }

    fn creations_max(&self) -> usize {
        self.lock().creations_max
    }

    async fn health(&self) -> Result<(), Error> {
        self.strike(Call::Health).await?.come().await;
        Ok(())
    }

    async fn is_local(&self, source: &Source, _platform: Option<&Platform>) -> bool {
        if self.strike(Call::IsLocal).await.is_err() {
            return false;
        }
        let held = self.lock();
        match source {
            Source::Image { reference, .. } => held.local.contains(reference),
            Source::Snapshot(id) => held.snapshots.contains_key(id),
        }
    }

    async fn pull(
        &self,
        source: &Source,
        _platform: Option<&Platform>,
        progress: mpsc::Sender<PullProgress>,
    ) -> Result<(), Error> {
        let Source::Image { reference, .. } = source else {
            return Ok(());
        };
        // A registry says what there is to download only of what it has.
        let is_there = self.lock().remote.contains(reference);
        if is_there {
            let _ = progress.try_send(PullProgress::Resolved {
                layers: 1,
                total_bytes: 100,
            });
        }
        let afterwards = self.strike(Call::Pull).await?;
        if is_there {
            let _ = progress.try_send(PullProgress::Downloaded { bytes: 100 });
        }
        {
            let mut held = self.lock();
            if !held.remote.contains(reference) && !held.local.contains(reference) {
                return Err(Backend::image_error(reference));
            }
            held.local.insert(reference.clone());
        }
        afterwards.come().await;
        Ok(())
    }

    async fn create(&self, spec: Spec) -> Result<Created, Error> {
        if let Source::Image { .. } = spec.source
            && !self.is_local(&spec.source, spec.platform.as_ref()).await
        {
            let (progress, _) = mpsc::channel(1);
            self.pull(&spec.source, spec.platform.as_ref(), progress)
                .await?;
        }
        self.put_down(&spec)?;
        // Half made while the fault strikes: a kill now leaves it so.
        let afterwards = match self.strike(Call::Create).await {
            Ok(afterwards) => afterwards,
            Err(error) => {
                self.lock().sandboxes.remove(&spec.id);
                return Err(error);
            }
        };
        let started_at = {
            let mut held = self.lock();
            let sandbox = held.sandboxes.get_mut(&spec.id);
            let sandbox = sandbox.ok_or_else(|| Error::NotFound(spec.id.clone()))?;
            sandbox.state = ObservedState::Running;
            sandbox.started_at
        };
        afterwards.come().await;
        Ok(created(spec, started_at))
    }

    async fn delete(&self, id: &SandboxId, _grace: Duration) -> Result<(), Error> {
        let afterwards = self.strike(Call::Delete).await?;
        {
            let mut held = self.lock();
            if let Some(gone) = held.sandboxes.remove(id) {
                held.release_source(&gone.spec.source);
            }
        }
        afterwards.come().await;
        Ok(())
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), Error> {
        let afterwards = self.strike(Call::Pause).await?;
        self.change(
            id,
            (&ObservedState::Running, "running"),
            ObservedState::Paused,
        )?;
        afterwards.come().await;
        Ok(())
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), Error> {
        let afterwards = self.strike(Call::Resume).await?;
        self.change(
            id,
            (&ObservedState::Paused, "paused"),
            ObservedState::Running,
        )?;
        afterwards.come().await;
        Ok(())
    }

    async fn snapshot(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<SnapshotDetails, Error> {
        let afterwards = self.strike(Call::Snapshot).await?;
        let details = {
            let mut held = self.lock();
            let sandbox = held
                .sandboxes
                .get(id)
                .ok_or_else(|| Error::NotFound(id.clone()))?;
            if !matches!(
                sandbox.state,
                ObservedState::Running | ObservedState::Paused
            ) {
                let wanted = "running or paused";
                return Err(Error::WrongState {
                    state: name_of(&sandbox.state),
                    wanted,
                });
            }
            let created_at = Timestamp::now();
            let details = SnapshotDetails {
                id: snapshot.clone(),
                size_bytes: 4096,
                created_at,
            };
            held.snapshots
                .insert(snapshot.clone(), (details.clone(), 0));
            details
        };
        afterwards.come().await;
        Ok(details)
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotId) -> Result<(), Error> {
        let afterwards = self.strike(Call::DeleteSnapshot).await?;
        {
            let mut held = self.lock();
            if held
                .snapshots
                .get(snapshot)
                .is_some_and(|(_, users)| *users > 0)
            {
                let what = format!("snapshot {snapshot}");
                return Err(Error::InUse {
                    what,
                    by: "a sandbox".to_owned(),
                });
            }
            held.snapshots.remove(snapshot);
        }
        afterwards.come().await;
        Ok(())
    }

    async fn list_snapshots(&self) -> Result<Vec<SnapshotDetails>, Error> {
        Ok(self
            .lock()
            .snapshots
            .values()
            .map(|(details, _)| details.clone())
            .collect())
    }

    async fn list(&self) -> Result<Vec<SandboxDetails>, Error> {
        let afterwards = self.strike(Call::List).await?;
        let all = {
            let held = self.lock();
            held.sandboxes
                .iter()
                .map(|(id, sandbox)| observe(id, sandbox))
                .collect()
        };
        afterwards.come().await;
        Ok(all)
    }

    async fn inspect(&self, id: &SandboxId) -> Result<SandboxDetails, Error> {
        let afterwards = self.strike(Call::Inspect).await?;
        let observed = self
            .lock()
            .sandboxes
            .get(id)
            .map(|sandbox| observe(id, sandbox));
        afterwards.come().await;
        observed.ok_or_else(|| Error::NotFound(id.clone()))
    }

    async fn connect(
        &self,
        id: &SandboxId,
        target: Target,
    ) -> Result<Box<dyn Stream>, ConnectError> {
        let failed = |error: Error| ConnectError::Failed(error.to_string());
        self.strike(Call::Connect)
            .await
            .map_err(failed)?
            .come()
            .await;
        let held = self.lock();
        let sandbox = held
            .sandboxes
            .get(id)
            .ok_or_else(|| ConnectError::NotFound(id.clone()))?;
        match sandbox.state {
            ObservedState::Running => {}
            ObservedState::Paused => return Err(ConnectError::Paused),
            ObservedState::Incomplete | ObservedState::Exited(_) => {
                return Err(ConnectError::Ended);
            }
        }
        if let Target::Port(port) = target
            && let Some(play) = sandbox.played.get(&port)
        {
            let (ours, theirs) = tokio::net::UnixStream::pair().expect("room for two sockets");
            let theirs = theirs.into_std().expect("a socket");
            return match play.try_send(theirs) {
                Ok(()) => Ok(Box::new(ours)),
                Err(_) => Err(ConnectError::NotListening(port)),
            };
        }
        if let Target::Port(port) = target
            && !sandbox.ports.contains(&port)
        {
            return Err(ConnectError::NotListening(port));
        }
        let (ours, theirs) = tokio::io::duplex(STREAM);
        let token = sandbox.spec.access_token.expose_secret().to_owned();
        tokio::spawn(http::serve(theirs, target, token));
        Ok(Box::new(ours))
    }

    async fn logs(&self, id: &SandboxId, query: LogQuery) -> Result<Logs, Error> {
        self.strike(Call::Logs).await?.come().await;
        let held = self.lock();
        let sandbox = held
            .sandboxes
            .get(id)
            .ok_or_else(|| Error::NotFound(id.clone()))?;
        let log = sandbox.log.borrow();
        let lines: Vec<_> = log.split_inclusive('\n').collect();
        let skip = lines.len().saturating_sub(query.tail_lines);
        let mut text = lines[skip..].concat();
        let mut cut = text.len().saturating_sub(query.max_bytes);
        while !text.is_char_boundary(cut) {
            cut += 1;
        }
        text.drain(..cut);
        Ok(Logs {
            truncated: text.len() < log.len(),
            text,
        })
    }

    async fn follow_logs(
        &self,
        id: &SandboxId,
        query: LogQuery,
    ) -> Result<mpsc::Receiver<String>, Error> {
        let mut events = self.events();
        let (mut log, mut seen) = {
            let held = self.lock();
            let item = held.sandboxes.get(id);
            let item = item.ok_or_else(|| Error::NotFound(id.clone()))?;
            let seen = item.log.borrow().len();
            (item.log.subscribe(), seen)
        };
        let first = self.logs(id, query).await?.text;
        let is_over = matches!(self.inspect(id).await?.state, ObservedState::Exited(_));
        let (send, pieces) = mpsc::channel(LOG_PIECES);
        let id = id.clone();
        tokio::spawn(async move {
            let mut piece = first;
            let mut is_over = is_over;
            loop {
                if !piece.is_empty() && send.send(piece).await.is_err() {
                    return;
                }
                piece = log.borrow_and_update()[seen..].to_owned();
                seen += piece.len();
                if !piece.is_empty() {
                    continue;
                }
                if is_over {
                    return;
                }
                tokio::select! {
                    changed = log.changed() => is_over |= changed.is_err(),
                    event = events.recv() => {
                        is_over |= matches!(event, Ok(Event::Exited { id: of, .. }) if of == id);
                    }
                    () = send.closed() => return,
                }
            }
        });
        Ok(pieces)
    }

    async fn describe(&self, id: &SandboxId) -> Result<String, Error> {
        let held = self.lock();
        let sandbox = held
            .sandboxes
            .get(id)
            .ok_or_else(|| Error::NotFound(id.clone()))?;
        Ok(format!("id: {id}\nstate: {}\n", name_of(&sandbox.state)))
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.host.events.subscribe()
    }

    async fn network_policy(&self, id: &SandboxId) -> Result<EgressPolicy, Error> {
        let held = self.lock();
        let sandbox = held.sandboxes.get(id);
        let sandbox = sandbox.ok_or_else(|| Error::NotFound(id.clone()))?;
        Ok(sandbox.spec.network.clone())
    }

    async fn set_network_policy(&self, id: &SandboxId, policy: &EgressPolicy) -> Result<(), Error> {
        let afterwards = self.strike(Call::SetNetworkPolicy).await?;
        {
            let mut held = self.lock();
            held.enforces_rules()?;
            let sandbox = held.sandboxes.get_mut(id);
            let sandbox = sandbox.ok_or_else(|| Error::NotFound(id.clone()))?;
            sandbox.spec.network = policy.clone();
        }
        afterwards.come().await;
        Ok(())
    }

    fn warm_pools(&self) -> Option<&dyn crate::backend::WarmPools> {
        self.lock()
            .has_warm_pools
            .then_some(self as &dyn crate::backend::WarmPools)
    }

    fn inventory(&self) -> Option<&dyn crate::backend::Inventory> {
        self.lock()
            .has_inventory
            .then_some(self as &dyn crate::backend::Inventory)
    }
}

/// What is answered for a sandbox that runs.
pub(super) fn created(spec: Spec, started_at: Timestamp) -> Created {
    let shell = || vec!["/bin/sh".to_owned()];
    let native = || Platform {
        os: "linux".to_owned(),
        arch: "amd64".to_owned(),
    };
    Created {
        started_at,
        entrypoint: spec.entrypoint.unwrap_or_else(shell),
        platform: spec.platform.unwrap_or_else(native),
        image_digest: None,
    }
}

fn observe(id: &SandboxId, sandbox: &Item) -> SandboxDetails {
    SandboxDetails {
        id: id.clone(),
        state: sandbox.state.clone(),
        labels: sandbox.spec.labels.clone(),
        started_at: Some(sandbox.started_at),
    }
}
