//! The contracts as pure data: ids, wire types, validation, error codes and stream framing of
//! the lifecycle, execution, egress and diagnostics protocols.
//!
//! Does no I/O and looks at nothing else of ours.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod error;
pub mod exec;
pub mod file_mode;
pub mod id;
pub mod secret;
mod wire;
