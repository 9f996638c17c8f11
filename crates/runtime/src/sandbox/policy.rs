//! What a sandbox may reach, put in force and changed. Only sandboxes that were made with rules lead to the
//! egress gate, so only what those may reach can be changed.

use api::egress::policy::EgressPolicy;
use api::error_chain;
use api::id::SandboxId;
use lifecycle::backend::Error;

use super::record::Record;
use super::{Sandbox, build};
use crate::backend::Shared;
use crate::gate::{Gate, GateError};
use crate::net::{Network, Slot};

/// Puts the policy of a sandbox that leads to the gate in force, before it has a process.
pub(crate) async fn enforce(
    shared: &Shared,
    id: &SandboxId,
    policy: &EgressPolicy,
    slot: &Slot,
) -> Result<(), Error> {
    let (Network::Gated, Some(address)) = (slot.network, slot.address) else {
        return Ok(());
    };
    let set = gate(shared)?.set(address, id, policy).await;
    set.map_err(|error| unenforced(&error))
}

/// Changes what a sandbox may reach. The record first: a server that starts after a crash puts in force
/// what stands there.
pub(crate) async fn set(
    shared: &Shared,
    id: &SandboxId,
    policy: &EgressPolicy,
) -> Result<(), Error> {
    let gate = gate(shared)?;
    let sandbox = shared.sandboxes.get(id)?;
    let _change = sandbox.change.lock().await;
    if sandbox.live().is_none() {
        return Err(Error::NotFound(id.clone()));
    }
    let Some(earlier) = sandbox.policy() else {
        return unchanged(&sandbox, policy);
    };
    write(&sandbox, policy)?;
    let address = shared.pool.address_of(sandbox.record.slot);
    if let Err(error) = gate.set(address, id, policy).await {
        write(&sandbox, &earlier)?;
        return Err(unenforced(&error));
    }
    sandbox.set_policy(policy.clone());
    Ok(())
}

/// What a sandbox may reach now.
pub(crate) fn of(sandbox: &Sandbox) -> EgressPolicy {
    sandbox.policy().unwrap_or(match sandbox.record.network {
        Network::None => EgressPolicy::DENY_ALL,
        Network::Outside | Network::Gated => EgressPolicy::ALLOW_ALL,
    })
}

/// A sandbox that was made without rules does not lead to the gate, and keeps what it has.
fn unchanged(sandbox: &Sandbox, policy: &EgressPolicy) -> Result<(), Error> {
    if of(sandbox) == *policy {
        return Ok(());
    }
    Err(Error::Invalid {
        field: "networkPolicy",
        message:
            "the sandbox was made without rules, so that what it may reach cannot be changed; make \
                  a new sandbox with a networkPolicy that has rules"
                .to_owned(),
    })
}

fn write(sandbox: &Sandbox, policy: &EgressPolicy) -> Result<(), Error> {
    let record = Record {
        policy: Some(policy.clone()),
        ..sandbox.record.clone()
    };
    let written = record.write(&sandbox.directory());
    written.map_err(|source| {
        build::failed(
            format!("writing the record of sandbox {}", record.id),
            source,
        )
    })
}

fn gate(shared: &Shared) -> Result<&Gate, Error> {
    shared.gate.as_ref().ok_or_else(|| Error::Invalid {
        field: "networkPolicy",
        message: "the embedded backend cannot enforce rules on this machine; see the server's log"
            .to_owned(),
    })
}

fn unenforced(error: &GateError) -> Error {
    Error::Unavailable {
        backend: "embedded",
        message: format!(
            "the network policy cannot be enforced: {}",
            error_chain(error)
        ),
    }
}
