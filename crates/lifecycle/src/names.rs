//! Names of sandboxes: a label that no two living sandboxes of a tenant share.
//!
//! Decides who gets a name. What a name looks like is the rule of all labels (`api::label`).

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use api::id::SandboxId;
use api::sandbox::NAME_METADATA_KEY;

use crate::caller::Tenant;
use crate::error::Error;
use crate::sandbox::{Sandbox, State};
use crate::shared::Shared;

/// The names that are being given now, before a sandbox shows them.
#[derive(Clone, Default)]
pub(crate) struct Names {
    being_given: Arc<Mutex<HashSet<(Tenant, String)>>>,
}

/// A name that nobody else can have while this exists.
pub(crate) struct NameClaim {
    names: Names,
    name: (Tenant, String),
}

impl Drop for NameClaim {
    fn drop(&mut self) {
        let names = &self.names.being_given;
        let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
        names.remove(&self.name);
    }
}

/// Claims a name for a sandbox of a tenant; `of` is the sandbox that has it already, if it is to
/// be given anew. The claim is held until the sandbox shows the name.
pub(crate) fn claim(
    shared: &Shared,
    tenant: &Tenant,
    name: Option<&String>,
    of: Option<&SandboxId>,
) -> Result<Option<NameClaim>, Error> {
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let names = &shared.names;
    let being_given = &names.being_given;
    // Held while the others are looked at, so that of two who want one name the second waits.
    let mut being_given = being_given.lock().unwrap_or_else(PoisonError::into_inner);
    let has_it = |sandbox: &Arc<Sandbox>| {
        sandbox.tenant == *tenant
            && Some(&sandbox.id) != of
            && is_living(sandbox.status.state)
            && sandbox.metadata.get(NAME_METADATA_KEY) == Some(name)
    };
    if let Some(sandbox) = shared.views().iter().find(|sandbox| has_it(sandbox)) {
        return Err(Error::NameTaken {
            name: name.clone(),
            by: Some(sandbox.id.clone()),
        });
    }
    let pair = (tenant.clone(), name.clone());
    if !being_given.insert(pair.clone()) {
        return Err(Error::NameTaken {
            name: name.clone(),
            by: None,
        });
    }
    Ok(Some(NameClaim {
        names: names.clone(),
        name: pair,
    }))
}

/// The name that a change of metadata gives.
pub(crate) fn given(patch: &BTreeMap<String, Option<String>>) -> Option<&String> {
    patch.get(NAME_METADATA_KEY)?.as_ref()
}

/// One that has ended, or is about to, leaves its name to others.
fn is_living(state: State) -> bool {
    !matches!(state, State::Stopping | State::Terminated | State::Failed)
}
