//! The brain of the control plane: what a sandbox is, how it changes, and what every backend and
//! store must do.
//!
//! Knows no HTTP, no SQL and no container engine.

mod admission;
pub mod backend;
mod caller;
mod calls;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod control_plane;
mod creation;
mod deadlines;
pub mod doctor;
mod ended;
mod error;
pub mod event;
#[cfg(feature = "fake")]
pub mod fake;
mod inventory;
mod journal;
pub mod labels;
mod machine;
mod metadata;
mod names;
mod observer;
mod owner;
mod recipe;
mod reconcile;
mod record_writer;
pub mod registry;
mod sandbox;
mod service;
mod shared;
mod snapshots;
pub mod store;
mod subscription;
mod sys;
mod timers;

pub use admission::Rules;
pub use caller::{AuditContext, Caller, Role, Tenant};
pub use control_plane::{Config, ControlPlane, Health};
pub use creation::KEY_KEPT;
pub use ended::{ENDED_KEPT, ENDED_MAX, Ended, EndedRecord};
pub use error::{Absent, Error, Feature, Violation};
pub use observer::{CreationTimes, Observer};
pub use recipe::Recipe;
pub use sandbox::{
    CreateRequest, Origin, Page, ParseStateError, Reason, Sandbox, SandboxFilter, Snapshot,
    SnapshotFilter, SnapshotState, State, Status, VolumeRequest, VolumeRequestSource,
};
pub use service::{CreateOutcome, Service};
pub use subscription::{Live, Subscription};
