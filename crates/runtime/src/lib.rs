//! Containers without Docker: sandboxes made of kernel namespaces, an overlay of image layers,
//! cgroups and a seccomp filter, in a few milliseconds.

#![deny(unsafe_code)]

mod backend;
pub mod cgroup;
mod config;
pub mod doctor;
pub mod gate;
pub mod image;
mod init;
mod inventory;
mod lock;
pub mod net;
mod program;
mod protection;
mod sandbox;
mod seccomp;
pub mod spawner;
mod sys;

pub use ::egress::judge::Always;
pub use backend::Embedded;
pub use config::{Config, DEFAULT_LIMITS, Egress, HostPathRoot};
