//! The brain of the control plane: what a sandbox is, how it changes, and what every backend and
//! store must do.
//!
//! Knows no HTTP, no SQL and no container engine.

pub mod backend;
