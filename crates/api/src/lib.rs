//! The contracts as pure data: ids, wire types, validation, error codes and stream framing of
//! the lifecycle, execution, egress and diagnostics protocols.
//!
//! Does no I/O and looks at nothing else of ours.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod access;
mod deserialize;
pub mod diagnostics;
pub mod egress;
pub mod endpoint;
pub mod error;
mod error_chain;
pub mod event;
pub mod exec;
pub mod file_mode;
pub mod frame;
pub mod id;
pub mod image_reference;
pub mod inventory;
pub mod json;
pub mod label;
pub mod metrics_event;
pub mod network_policy;
pub mod platform;
pub mod pool;
pub mod problem;
pub mod quantity;
pub mod query;
pub mod resource;
pub mod sandbox;
pub mod secret;
pub mod signed_route;
pub mod snapshot;
pub mod spec;
pub mod template;
pub mod validate;
pub mod version;
pub mod volume;

pub use error_chain::{ErrorChain, error_chain};
