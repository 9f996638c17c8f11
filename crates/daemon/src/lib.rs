//! What a long-running process of ours does beside its work: configuration, logs, metrics, and tasks
//! that end in order.
//!
//! Knows no HTTP server, no sandbox and no backend. Everything here works on a runtime with a single
//! thread.

#![forbid(unsafe_code)]

#[cfg(feature = "config")]
pub mod config;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod notify;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod secret;
pub mod signal;
pub mod tasks;
pub mod telemetry;

pub use tasks::{TaskSpawner, Tasks};
