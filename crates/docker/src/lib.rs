//! The Docker backend: sandboxes as containers of a Docker engine, or of Podman's compatible
//! socket.
//!
//! A creation is two calls of the engine, create and start. execd is mounted, not uploaded, and is
//! PID 1; it asks for its token, the environment and its listening socket at a unix socket that is
//! mounted for it alone, so nothing secret is in the container's configuration, and no port is
//! published. What the engine has is kept in memory and fed by its events: get, list and proxying
//! make no call.
//!
//! It does not build images, make networks or touch containers that are not sandboxes.

#![forbid(unsafe_code)]

mod adopt;
mod backend;
mod config;
mod container;
mod create;
mod describe;
mod dial;
mod directory;
pub mod doctor;
mod engine;
mod feed;
mod handoff;
mod image;
mod labels;
mod logs;
mod removal;
mod sandbox;
mod shared_pull;
mod snapshot;
mod volume;

pub use backend::Docker;
pub use config::{Config, socket};
