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
pub mod execd;
#[cfg(feature = "fake")]
pub mod fake;
mod inventory;
mod journal;
mod keys;
pub mod labels;
pub mod log_tail;
mod machine;
mod metadata;
mod names;
mod observer;
mod owner;
mod policy;
mod recipe;
mod reconcile;
mod record_writer;
pub mod registry;
mod rights;
mod sandbox;
mod service;
mod shared;
mod snapshots;
mod steps;
pub mod store;
mod subscription;
mod sys;
mod tenant_volumes;
mod tenants;
mod timers;

pub use admission::Rules;
pub use caller::{AuditContext, Caller, KeyUse, ParseTenantError, Tenant};
pub use control_plane::{Config, ControlPlane, Health};
pub use creation::KEY_KEPT;
pub use ended::{ENDED_KEPT, ENDED_MAX, Ended, EndedRecord};
pub use error::{Absent, Error, Feature, Violation};
pub use keys::{
    ApiKey, GivenKey, KEY_LENGTH, KeyHash, KeyIndex, KeySummary, NewKey, NewToken, PreviousHash,
    hash, new_api_key,
};
pub use observer::{CreationTimes, Observer};
pub use policy::{PolicyChange, PolicyOutcome};
pub use recipe::Recipe;
pub use rights::{Right, Role, Scope};
pub use sandbox::{
    CreateRequest, Origin, Page, ParseStateError, Reason, Sandbox, SandboxFilter, Snapshot,
    SnapshotFilter, SnapshotState, State, Status, VolumeRequest, VolumeRequestSource,
};
pub use service::{CreateOutcome, Service};
pub use subscription::{Live, Subscription};
pub use tenants::TenantRecord;
