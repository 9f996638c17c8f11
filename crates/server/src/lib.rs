//! The lifecycle server: HTTP, access, the SQL store, admission to the proxy, and the wiring of them
//! with a backend.
//!
//! Decides nothing about a sandbox's life: that is `lifecycle`.

#![forbid(unsafe_code)]

mod tls;
mod tls_init;

pub mod access;
mod backends;
mod command;
pub mod config;
pub mod gateway;
pub mod http;
pub mod ingress;
pub mod metrics;
mod published;
pub mod run;
mod socket;
pub mod store;
mod stream_end;
pub mod traces;

pub use backends::embedded_settings;
pub use command::{doctor, main};
