//! The egress contract: a sandbox's network policy and its credential vault.

pub mod policy;
pub mod vault;
