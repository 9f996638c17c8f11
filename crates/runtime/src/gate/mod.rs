//! The egress gate of a server: the process that carries what sandboxes with a policy may reach
//! (`crates/egress`), and the server's end of it.
//!
//! The gate outlives the server, because sandboxes do: the next server finds it by its socket. When it dies
//! the sandboxes that lead to it reach nothing until the server has started another, which takes over the
//! namespace. If the server is gone as well the namespace goes with the gate, and those sandboxes stay
//! without a network: closed, never open.

mod client;
mod process;

pub(crate) use client::{Gate, GateError};
pub use process::main;

use std::net::Ipv4Addr;
use std::path::PathBuf;

use api::egress::policy::EgressPolicy;
use api::error_chain;
use api::id::SandboxId;
use egress::control::Entry;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::net::{Ipv4Network, Pool, SlotIndex};

/// Has the gate of a server running, and the pool lead to it. A machine where it cannot run has sandboxes all
/// the same: those with rules are refused.
pub(crate) async fn open(
    config: &Config,
    pool: &Pool,
    sandboxes: Vec<(SlotIndex, SandboxId, EgressPolicy)>,
) -> Option<Gate> {
    let entry = |(slot, id, policy): (SlotIndex, SandboxId, EgressPolicy)| Entry {
        address: pool.address_of(slot).into(),
        id: id.to_string(),
        policy,
    };
    match Gate::open(config, sandboxes.into_iter().map(entry).collect()).await {
        Ok((gate, namespace)) => {
            pool.lead_to(namespace);
            Some(gate)
        }
        Err(error) => {
            tracing::warn!(error = %error_chain(&error), "network policies with rules are refused");
            None
        }
    }
}

/// The socket of the gate in the data directory.
const SOCKET: &str = "egress.sock";

/// What a gate says on its standard output when it can be connected to; anything else is why it cannot.
const READY: &str = "ready";

/// What a gate is started with, as JSON on its command line.
#[derive(Debug, Serialize, Deserialize)]
struct Start {
    data_dir: PathBuf,
    prefix: String,
    addresses: Ipv4Network,
    /// In place of the host's own.
    nameservers: Option<Vec<Ipv4Addr>>,
    /// The namespace of an earlier gate.
    namespace: Option<PathBuf>,
}
