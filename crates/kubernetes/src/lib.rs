//! The Kubernetes backend: sandboxes as pods of a cluster.
//!
//! A creation is two writes: a Secret with what must not be seen, and a pod. An init container brings execd into
//! any image, also one without a shell; execd is PID 1 and reads its token and environment from a file that is gone
//! before anything else runs. One watch keeps what the cluster has in memory: get, list and proxying make no call of
//! the API server, and every wait is for that watch.
//!
//! It schedules nothing, limits no network (that is for NetworkPolicies of the cluster), and neither pauses nor
//! snapshots. Pods that are not sandboxes are left alone.

#![forbid(unsafe_code)]

mod backend;
mod call;
mod config;
mod create;
mod describe;
mod dial;
pub mod doctor;
mod feed;
mod image;
mod logs;
mod names;
mod node;
mod pod;
mod removal;
mod sandbox;
mod secret;
mod status;
mod template;
mod volume;

pub use backend::Kubernetes;
pub use config::{Config, PullPolicy, Security};
