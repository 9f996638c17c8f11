//! The execution contract: what the daemon inside a sandbox takes and answers.
//!
//! June 2026 and 1.1.1 forms are one set of types: 1.1.1 only added fields and routes.

pub mod code;
pub mod command;
pub mod event;
pub mod file;
pub mod isolated;
pub mod metrics;
pub mod pty;
pub mod session;

/// The header that carries the daemon's access token.
pub const ACCESS_TOKEN_HEADER: &str = "X-EXECD-ACCESS-TOKEN";

/// The TCP port on which the daemon listens inside a sandbox, and by which the proxy knows it.
pub const PORT: u16 = 44772;
