//! What a sandbox may reach, put in force and changed.
//!
//! A sandbox that was made without rules does not lead to the egress gate. When it first gets some, its
//! network is led there: connections that it has then end, whatever the rules say, because the way that
//! carried them is gone. From then on a change keeps what it allows, and the sandbox stays with the gate, also
//! where it may reach everything again.

use std::os::fd::AsFd;
use std::sync::Arc;

use api::egress::policy::EgressPolicy;
use api::error_chain;
use api::id::SandboxId;
use lifecycle::backend::Error;

use super::record::Record;
use super::{Alive, Sandbox, build};
use crate::backend::Shared;
use crate::gate::{Gate, GateError};
use crate::net::{self, Network, Slot};

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
    shared: &Arc<Shared>,
    id: &SandboxId,
    policy: &EgressPolicy,
) -> Result<(), Error> {
    let gate = gate(shared)?;
    let sandbox = shared.sandboxes.get(id)?;
    let _change = sandbox.change.lock().await;
    let Some(alive) = sandbox.live() else {
        return Err(Error::NotFound(id.clone()));
    };
    let earlier = sandbox.policy();
    // A gate that knows of the sandbox is told again: it may have done what it could not answer.
    if earlier.is_none() && of(&sandbox) == *policy {
        return Ok(());
    }
    write(&sandbox, Some(policy))?;
    let address = shared.pool.address_of(sandbox.record.slot);
    if let Err(error) = gate.set(address, id, policy).await {
        write(&sandbox, earlier.as_ref())?;
        return Err(unenforced(&error));
    }
    sandbox.set_policy(Some(policy.clone()));
    if earlier.is_none()
        && let Err(error) = lead(shared, &sandbox, &alive, Network::Gated).await
    {
        return Err(led_nowhere(shared, &sandbox, &alive, &error).await);
    }
    Ok(())
}

/// What a sandbox may reach now.
pub(crate) fn of(sandbox: &Sandbox) -> EgressPolicy {
    sandbox.policy().unwrap_or(match sandbox.record.network {
        Network::None => EgressPolicy::DENY_ALL,
        Network::Outside | Network::Gated => EgressPolicy::ALLOW_ALL,
    })
}

/// Leads sandboxes to the gate that should lead there and do not: an earlier server died before it had led them
/// there, or a gate died with its namespace while no server was there. Where there is no gate, they lead nowhere.
pub(crate) async fn lead_again(shared: &Arc<Shared>) {
    let mut gated: Vec<_> = shared.sandboxes.all();
    gated.retain(|sandbox| sandbox.policy().is_some() && sandbox.live().is_some());
    if gated.is_empty() {
        return;
    }
    let slots: Vec<u32> = gated.iter().map(|sandbox| sandbox.record.slot).collect();
    let pool = shared.pool.clone();
    let looked = tokio::task::spawn_blocking(move || pool.gated(&slots)).await;
    // Where it cannot be known, all are led again.
    let there = looked.ok().and_then(Result::ok).unwrap_or_default();
    let to = match shared.gate {
        Some(_) => Network::Gated,
        None => Network::None,
    };
    for sandbox in gated {
        let Some(alive) = sandbox.live() else {
            continue;
        };
        if there.contains(&sandbox.record.slot) {
            continue;
        }
        match lead(shared, &sandbox, &alive, to).await {
            Ok(()) => {
                tracing::info!(sandbox_id = %sandbox.id(), to = ?to, "a sandbox's network was led anew");
            }
            Err(error) => {
                tracing::error!(sandbox_id = %sandbox.id(), error = %error_chain(&error), "a sandbox with a network policy reaches nothing");
                close(shared, &sandbox, &alive).await;
            }
        }
    }
}

/// Sees to it that a sandbox which could not be led to the gate reaches nothing, also where its network still leads
/// outside; ends it where that fails, too.
async fn close(shared: &Arc<Shared>, sandbox: &Sandbox, alive: &Arc<Alive>) {
    if let Err(error) = lead(shared, sandbox, alive, Network::None).await {
        tracing::error!(sandbox_id = %sandbox.id(), error = %error_chain(&error), "a sandbox whose network could not be closed is ended");
        if let Err(error) = sandbox.kill() {
            tracing::error!(sandbox_id = %sandbox.id(), error = %error_chain(&error), "it could not be ended");
        }
    }
}

async fn lead(
    shared: &Arc<Shared>,
    sandbox: &Sandbox,
    alive: &Arc<Alive>,
    to: Network,
) -> Result<(), net::Error> {
    let (pool, slot, alive) = (shared.pool.clone(), sandbox.record.slot, alive.clone());
    let led = tokio::task::spawn_blocking(move || pool.lead(slot, alive.net.as_fd(), to)).await;
    led.unwrap_or_else(|panicked| {
        Err(net::Error::Kernel {
            action: "leading a sandbox to the egress gate".to_owned(),
            source: std::io::Error::other(panicked),
        })
    })
}

/// The network of a sandbox could not be led to the gate: has it lead where it led before, and else nowhere.
async fn led_nowhere(
    shared: &Arc<Shared>,
    sandbox: &Sandbox,
    alive: &Arc<Alive>,
    error: &net::Error,
) -> Error {
    let mut message = format!(
        "its network cannot be led to the egress gate: {}",
        error_chain(error)
    );
    match lead(shared, sandbox, alive, sandbox.record.network).await {
        Ok(()) => {
            sandbox.set_policy(None);
            if let Some(gate) = &shared.gate {
                // What it keeps is about an address that nobody comes from.
                let address = shared.pool.address_of(sandbox.record.slot);
                let _ = gate.forget(address).await;
            }
            if let Err(error) = write(sandbox, None) {
                return error;
            }
        }
        // The record still says that it leads to the gate: the next server tries again.
        Err(error) => {
            let why = error_chain(&error);
            message =
                format!("{message}; it has no network now, as that could not be undone: {why}");
        }
    }
    Error::Unavailable {
        backend: "embedded",
        message,
    }
}

fn write(sandbox: &Sandbox, policy: Option<&EgressPolicy>) -> Result<(), Error> {
    let record = Record {
        network: match policy {
            Some(_) => Network::Gated,
            None => sandbox.record.network,
        },
        policy: policy.cloned(),
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
