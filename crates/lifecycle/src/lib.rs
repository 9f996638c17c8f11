//! The brain of the control plane: what a sandbox is, how it changes, and what every backend and
//! store must do.
//!
//! Knows no HTTP, no SQL and no container engine.

pub mod backend;
mod behalf;
mod calls;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod creation;
mod deadlines;
mod error;
pub mod event;
#[cfg(feature = "fake")]
pub mod fake;
mod journal;
mod keeper;
pub mod labels;
mod machine;
mod metadata;
mod owner;
mod recipe;
mod reconcile;
mod sandbox;
mod service;
mod shared;
mod snapshots;
mod stock;
pub mod store;
mod subscription;
mod sys;
mod timers;

pub use behalf::Behalf;
pub use creation::KEY_KEPT;
pub use error::Error;
pub use recipe::Recipe;
pub use sandbox::{
    CreateRequest, Origin, Page, ParseStateError, Reason, Sandbox, SandboxFilter, Snapshot,
    SnapshotFilter, SnapshotState, State, Status,
};
pub use service::{Config, Creation, EndpointFacts, Health, IdempotencyKey, Service};
pub use subscription::{Live, Subscription};
