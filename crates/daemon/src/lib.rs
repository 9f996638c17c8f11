//! What every long-running process of ours does the same way: configuration, logs, metrics, a
//! tree of tasks that ends in order, and one HTTP shell.
//!
//! Knows no route, no sandbox and no backend. Forces no runtime flavour on its user: everything
//! here works on a single thread.

#![forbid(unsafe_code)]

#[cfg(feature = "config")]
pub mod config;
pub mod http;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod notify;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod secret;
pub mod signal;
pub mod tasks;
pub mod telemetry;

pub use tasks::{Spawner, Tasks};
