//! Tenants: which there are, and what becomes of one that is removed.
//!
//! The built-in tenant always exists, and its administrators look after the others. Those that stand in the
//! configuration are changed there.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::admission;
use crate::caller::Tenant;
use crate::error::Error;
use crate::rights::Right;
use crate::sandbox::SnapshotFilter;
use crate::service::Service;
use crate::shared::Shared;
use crate::store::Write;
use crate::tenant_volumes;

/// Tenants of one server. Each costs a few hundred bytes, and every list is one answer.
const TENANTS_MAX: usize = 10_000;

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantRecord {
    /// Its name.
    pub name: Tenant,
    /// When it was made; for one of the configuration, when that was read.
    pub created_at: Timestamp,
    /// Whether it stands in the configuration.
    #[serde(skip)]
    pub is_given: bool,
}

/// The tenants besides the built-in one.
#[derive(Default)]
pub(crate) struct Tenants {
    index: RwLock<BTreeMap<Tenant, Arc<TenantRecord>>>,
}

impl Tenants {
    pub(crate) fn new(stored: Vec<TenantRecord>) -> Tenants {
        let tenants = Tenants::default();
        tenants.with_all(|index| {
            for record in stored {
                index.insert(record.name.clone(), Arc::new(record));
            }
        });
        tenants
    }

    fn with_all<T>(&self, change: impl FnOnce(&mut BTreeMap<Tenant, Arc<TenantRecord>>) -> T) -> T {
        change(&mut self.index.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn has(&self, tenant: &Tenant) -> bool {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        tenant.is_built_in() || index.contains_key(tenant)
    }

    /// Does something for a tenant that cannot be removed meanwhile.
    pub(crate) fn while_there<T>(
        &self,
        tenant: &Tenant,
        work: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        if !tenant.is_built_in() && !index.contains_key(tenant) {
            return Err(Error::TenantNotFound(tenant.to_string()));
        }
        Ok(work())
    }

    /// Takes over the tenants of a configuration in place of those of an earlier one. One that is recorded
    /// as well stays when it goes from the configuration.
    pub(crate) fn set_given(&self, given: Vec<Tenant>, now: Timestamp) {
        self.with_all(|index| {
            index.retain(|_, record| !record.is_given);
            for name in given.into_iter().filter(|name| !name.is_built_in()) {
                index.entry(name.clone()).or_insert_with(|| {
                    Arc::new(TenantRecord {
                        name,
                        created_at: now,
                        is_given: true,
                    })
                });
            }
        });
    }
}

impl Service {
    fn administer(&self) -> Result<(), Error> {
        admission::allow(&self.caller, Right::Keys)?;
        if self.caller.tenant.is_built_in() {
            return Ok(());
        }
        Err(Error::Forbidden(
            "only administrators of the built-in tenant look after tenants".to_owned(),
        ))
    }

    /// Every tenant but the built-in one, by name.
    pub fn tenants(&self) -> Result<Vec<Arc<TenantRecord>>, Error> {
        self.administer()?;
        let tenants = &self.shared().tenants;
        Ok(tenants.with_all(|index| index.values().cloned().collect()))
    }

    /// One tenant.
    pub fn tenant(&self, name: &str) -> Result<Arc<TenantRecord>, Error> {
        self.administer()?;
        let missing = || Error::TenantNotFound(name.to_owned());
        let tenant: Tenant = name.parse().map_err(|_| missing())?;
        let tenants = &self.shared().tenants;
        tenants
            .with_all(|index| index.get(&tenant).cloned())
            .ok_or_else(missing)
    }

    /// Makes a tenant.
    pub async fn create_tenant(&self, name: &str) -> Result<Arc<TenantRecord>, Error> {
        self.plane.refuse_when_stopping()?;
        self.administer()?;
        let name: Tenant = name.parse().map_err(|error: crate::ParseTenantError| {
            crate::keys::invalid("name", error.to_string())
        })?;
        let shared = self.shared();
        let _turn = shared.key_changes.lock().await;
        self.refuse_ended()?;
        if shared.tenants.has(&name) {
            let message = format!("there is a tenant {name} already");
            return Err(Error::TenantConflict(message));
        }
        if shared.tenants.with_all(|index| index.len()) >= TENANTS_MAX {
            let message = format!("this server has {TENANTS_MAX} tenants, and no room for more");
            return Err(Error::TenantConflict(message));
        }
        let record = Arc::new(TenantRecord {
            name: name.clone(),
            created_at: shared.clock.now(),
            is_given: false,
        });
        let writes = vec![Write::PutTenant(Arc::clone(&record))];
        self.write_access(writes, name.as_str()).await?;
        shared
            .tenants
            .with_all(|index| index.insert(name, Arc::clone(&record)));
        Ok(record)
    }

    /// Removes a tenant that has nothing any more, with its keys. What is open with them has ended when
    /// answered.
    pub async fn delete_tenant(&self, name: &str) -> Result<(), Error> {
        self.plane.refuse_when_stopping()?;
        let shared = self.shared();
        let _turn = shared.key_changes.lock().await;
        self.refuse_ended()?;
        let record = self.tenant(name)?;
        if record.is_given {
            let message = format!(
                "the tenant {name} stands in the configuration; remove it there and send SIGHUP"
            );
            return Err(Error::TenantConflict(message));
        }
        let volumes = self.volume_count(&record.name).await?;
        // From here on nothing is made for it, unless it stays.
        shared.tenants.with_all(|index| {
            refuse_with_belongings(shared, &record.name, volumes)?;
            index.remove(&record.name);
            Ok::<_, Error>(())
        })?;
        let keys = shared.api_keys.of_tenant(&record.name);
        let mut writes: Vec<Write> = keys.iter().cloned().map(Write::RemoveApiKey).collect();
        writes.push(Write::RemoveTenant(record.name.clone()));
        if let Err(error) = self.write_access(writes, name).await {
            shared
                .tenants
                .with_all(|index| index.insert(record.name.clone(), record.clone()));
            return Err(error);
        }
        shared.api_keys.remove_all(&keys);
        Ok(())
    }

    async fn volume_count(&self, tenant: &Tenant) -> Result<usize, Error> {
        if self.shared().backend.inventory().is_none() {
            return Ok(0);
        }
        let all = self.kept_volumes().await?;
        let is_its = |name: &str| tenant_volumes::given_name(tenant, name).is_some();
        Ok(all.iter().filter(|volume| is_its(&volume.name)).count())
    }
}

fn refuse_with_belongings(shared: &Shared, tenant: &Tenant, volumes: usize) -> Result<(), Error> {
    let sandboxes = shared
        .views()
        .iter()
        .filter(|it| it.tenant == *tenant)
        .count();
    let snapshots = shared.snapshots.matching(&SnapshotFilter::default());
    let snapshots = snapshots.iter().filter(|it| it.tenant == *tenant).count();
    if sandboxes + snapshots + volumes == 0 {
        return Ok(());
    }
    Err(Error::TenantConflict(format!(
        "the tenant {tenant} still has {sandboxes} sandboxes, {snapshots} snapshots and {volumes} \
         volumes; remove them with a key of its own first"
    )))
}
