//! Ready sandboxes of the fake host: shapes that wait for a claim.

use std::collections::{BTreeMap, VecDeque};

use async_trait::async_trait;

use super::{Backend, Call, Held, Item, calls};
use crate::backend::{
    Claim, Created, Error, ObservedState, Source, Spec, WarmPools, WarmSpec, all_or_nothing,
};

#[async_trait]
impl WarmPools for Backend {
    async fn prepare(&self, pool: &str, spec: WarmSpec) -> Result<(), Error> {
        let afterwards = self.strike(Call::Prepare).await?;
        {
            let mut held = self.lock();
            held.use_source(&spec.source)?;
            held.ready
                .entry(pool.to_owned())
                .or_default()
                .push_back(spec);
        }
        afterwards.come().await;
        Ok(())
    }

    async fn claim(&self, pool: &str, claim: Claim) -> Result<Option<Created>, Error> {
        let afterwards = self.strike(Call::Claim).await?;
        let claimed = self.lock().claim(pool, claim)?;
        afterwards.come().await;
        Ok(claimed)
    }

    async fn ready(&self) -> Result<BTreeMap<String, usize>, Error> {
        let held = self.lock();
        let count = |(pool, ready): (&String, &VecDeque<WarmSpec>)| (pool.clone(), ready.len());
        Ok(held.ready.iter().map(count).collect())
    }

    async fn drain(&self, pool: &str) -> Result<(), Error> {
        let mut held = self.lock();
        for gone in held.ready.remove(pool).into_iter().flatten() {
            held.release_source(&gone.source);
        }
        Ok(())
    }
}

impl Held {
    fn claim(&mut self, pool: &str, claim: Claim) -> Result<Option<Created>, Error> {
        if self.sandboxes.contains_key(&claim.id) {
            return Err(Error::Invalid {
                field: "id",
                message: format!("sandbox {} exists already", claim.id),
            });
        }
        if !self.capabilities.network_rules {
            all_or_nothing("fake", &claim.network)?;
        }
        let Some(ready) = self.ready.get_mut(pool) else {
            return Ok(None);
        };
        let shape = ready.pop_front();
        if ready.is_empty() {
            self.ready.remove(pool);
        }
        Ok(shape.map(|shape| {
            let item = Item {
                state: ObservedState::Running,
                ..Item::new(Spec::of_claim(shape, claim))
            };
            let created = calls::created(item.spec.clone(), item.started_at);
            self.sandboxes.insert(item.spec.id.clone(), item);
            created
        }))
    }

    /// Counts one more user of what a sandbox is made from, which must be here.
    pub(super) fn use_source(&mut self, source: &Source) -> Result<(), Error> {
        match source {
            Source::Image { reference, .. } if !self.local.contains(reference) => {
                Err(Backend::image_error(reference))
            }
            Source::Image { .. } => Ok(()),
            Source::Snapshot(id) => match self.snapshots.get_mut(id) {
                Some((_, users)) => {
                    *users += 1;
                    Ok(())
                }
                None => Err(Error::SnapshotNotFound(id.clone())),
            },
        }
    }

    /// Counts one user less.
    pub(super) fn release_source(&mut self, source: &Source) {
        if let Source::Snapshot(snapshot) = source
            && let Some((_, users)) = self.snapshots.get_mut(snapshot)
        {
            *users -= 1;
        }
    }

    /// Fails where rules about the network are said to be nothing that this backend has.
    pub(super) fn enforces_rules(&self) -> Result<(), Error> {
        match self.capabilities.network_rules {
            true => Ok(()),
            false => Err(Error::Invalid {
                field: "networkPolicy",
                message: "the fake backend does not enforce rules".to_owned(),
            }),
        }
    }
}
