//! The gate: what decides, outside a sandbox, what the sandbox reaches, and carries what it may.
//!
//! A sandbox with a network policy has one way out, which ends here: the gate answers its questions for
//! names and accepts its connections, whatever address they were meant for. It judges each by the policy
//! ([`judge`]), dials an address that it has resolved itself, and relays. What it does not carry does not
//! pass: there is no other way, so nothing has to be filtered.
//!
//! It parses what sandboxes send, so it is a process of its own with neither the store nor a key. It knows
//! no namespaces and no firewall: who starts it gives it sockets whose peers cannot lie about their
//! address.

#![deny(unsafe_code)]

pub mod control;
mod dns;
mod gate;
pub mod judge;
mod relay;
mod sandbox;
mod serve;
mod sniff;
pub mod special;

pub use dns::Upstreams;
pub use serve::{Host, Sockets, serve};
