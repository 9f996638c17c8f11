//! The server over real HTTP on a port of its own, on a backend and a store in memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod access;
mod browser;
mod clients;
mod ended;
mod gateway;
mod http2;
mod inventory;
mod matrix;
mod monitoring;
mod operations;
mod policy;
mod proxy;
mod raw;
mod sandboxes;
mod services;
mod support;
mod tenancy;
mod tls;
