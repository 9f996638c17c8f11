//! The contracts as pure data: ids, wire types, validation, error codes and stream framing of
//! the lifecycle, execution, egress and diagnostics protocols.
//!
//! Does no I/O and looks at nothing else of ours.

pub mod id;
