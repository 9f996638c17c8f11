//! Says what this machine can do for sandboxes, what is missing, and the command that mends it.
//!
//! Every answer is tried, not guessed from a version, where trying leaves no trace. Nothing is
//! changed: what is made to find out is gone when the report is done.

mod host;
mod kernel;
mod shared;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use lifecycle::backend::Limits;
use lifecycle::doctor::{Check, Report, Section, Status};

use crate::net;

/// What to examine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the server keeps its state. Need not exist yet.
    pub data_dir: PathBuf,
    /// The program that becomes PID 1 of every sandbox.
    pub execd: PathBuf,
    /// Addresses and ids of the sandboxes.
    pub network: net::Config,
    /// What a sandbox may use.
    pub limits: Limits,
    /// Sandboxes that the machine is to hold at once.
    pub planned_sandboxes: u32,
}

impl From<&crate::Config> for Settings {
    fn from(config: &crate::Config) -> Self {
        Self {
            data_dir: config.data_dir.clone(),
            execd: config.execd.clone(),
            network: config.network.clone(),
            limits: config.default_limits.clone(),
            planned_sandboxes: config.planned_sandboxes,
        }
    }
}

/// Examines this machine. Blocks for some ten milliseconds.
pub fn run(settings: &Settings) -> Report {
    Report {
        sections: vec![
            kernel::privileges(),
            kernel::features(settings),
            kernel::cgroups(),
            host::disk(settings),
            host::network(settings),
            host::programs(settings),
            shared::tables(settings),
        ],
    }
}
