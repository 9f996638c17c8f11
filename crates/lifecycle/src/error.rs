//! Why the service refused or failed. The HTTP layer maps each variant to a wire code in one
//! place; nothing else decides codes.

use std::sync::Arc;
use std::time::Duration;

use api::id::{SandboxId, SnapshotId};

use crate::backend;
use crate::ended::Ended;
use crate::sandbox::{SnapshotState, State};
use crate::store;

/// Why a call to the service failed. Cheap to clone, so that everyone who waits for one outcome
/// can have it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No such sandbox.
    #[error(transparent)]
    NotFound(Absent),
    /// No such snapshot.
    #[error("there is no snapshot {0}")]
    SnapshotNotFound(SnapshotId),
    /// The sandbox is in a state that does not allow this.
    #[error("sandbox {id} is {state}{}; to {action} it must be {wanted}", because(.why.as_deref()))]
    WrongState {
        /// The sandbox that was asked for.
        id: SandboxId,
        /// What was asked: `pause`, `resume`, `snapshot`, `renew`, `connect to`.
        action: &'static str,
        /// The state it was in when it was asked.
        state: State,
        /// Why it ended, where it has.
        why: Option<String>,
        /// The state in which this is allowed.
        wanted: &'static str,
    },
    /// The snapshot is in a state that does not allow this.
    #[error("snapshot {id} is {}; to {action} it must be {wanted}", .state.as_str())]
    SnapshotWrongState {
        /// The snapshot that was asked for.
        id: SnapshotId,
        /// What was asked: `delete`, `create a sandbox from it`.
        action: &'static str,
        /// The state it was in when it was asked.
        state: SnapshotState,
        /// The state in which this is allowed.
        wanted: &'static str,
    },
    /// The sandbox did not become ready in the time the caller was willing to wait.
    #[error("sandbox {id} is {state} after {} s of waiting: {message}", .waited.as_secs_f32())]
    NotReady {
        /// The sandbox that was asked for.
        id: SandboxId,
        /// The state it was in when it was asked.
        state: State,
        /// What it is busy with, as its status says.
        message: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The idempotency key was used for another request.
    #[error(
        "this Idempotency-Key was used for a different request; use a new key for a new request"
    )]
    KeyConflict,
    /// The sandbox that was made with the idempotency key is gone.
    #[error(
        "sandbox {0}, made with this Idempotency-Key, has been deleted; use a new key to make another"
    )]
    KeySpent(SandboxId),
    /// Another sandbox has the name.
    #[error(
        "the name {name} is taken{}; take another, or delete that one first",
        .by.as_ref().map(|id| format!(" by sandbox {id}")).unwrap_or_default()
    )]
    NameTaken {
        /// The name that was wanted.
        name: String,
        /// Who has it; nothing while it is being given to one.
        by: Option<SandboxId>,
    },
    /// The new expiration lies in the past.
    #[error("the expiration must be in the future")]
    ExpirationInPast,
    /// The sandbox has no lifetime to renew.
    #[error("sandbox {0} has no expiration (manual clean-up); delete it when you are done")]
    NoExpiration(SandboxId),
    /// This server or its backend cannot do what was asked for.
    #[error("{}: {message}", .feature.field())]
    Unsupported {
        /// The ability that is missing.
        feature: Feature,
        /// What is not possible and what to do.
        message: String,
    },
    /// A policy would have more rules than it may.
    #[error("the policy would have {rules} rules; at most {max} are allowed")]
    TooManyRules {
        /// How many it would have.
        rules: usize,
        /// How many it may have.
        max: usize,
    },
    /// The request breaks rules of the operator.
    #[error("the request is not admitted: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NotAdmitted(Vec<Violation>),
    /// The caller's role or scope does not allow this; says why.
    #[error("{0}")]
    Forbidden(String),
    /// No such key.
    #[error("there is no key {0}")]
    ApiKeyNotFound(String),
    /// The present keys do not allow this; says why.
    #[error("{0}")]
    ApiKeyConflict(String),
    /// No such tenant.
    #[error("there is no tenant {0}")]
    TenantNotFound(String),
    /// The present tenants, or what this one has, do not allow this; says why.
    #[error("{0}")]
    TenantConflict(String),
    /// What is asked for a key or a tenant makes no sense.
    #[error("{field}: {message}")]
    AccessInvalid {
        /// The field of the request.
        field: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// Nothing could be connected to.
    #[error(transparent)]
    Connect(#[from] backend::ConnectError),
    /// More requests for one sandbox than its queue holds.
    #[error("sandbox {0} has too many requests waiting; try again")]
    Busy(SandboxId),
    /// A backend call did not end in time. What it was doing may still happen; the state shown
    /// is what is known.
    #[error("{action} did not finish within {} s; the backend may be overloaded or stuck", .after.as_secs())]
    Timeout {
        /// What was being done.
        action: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] Arc<backend::Error>),
    /// The store failed; what was asked is not acknowledged.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The server is going down.
    #[error("the server is shutting down; try again in a moment")]
    ShuttingDown,
}

/// A sandbox that does not exist, or does not any more.
#[derive(Debug, Clone, thiserror::Error)]
#[error("there is no sandbox {id}{}", .ended.as_ref().map_or_else(String::new, |ended| format!(": {ended}")))]
pub struct Absent {
    /// The id that was asked for.
    pub id: SandboxId,
    /// What it was, where that is still known.
    pub ended: Option<Arc<Ended>>,
}

impl From<SandboxId> for Absent {
    fn from(id: SandboxId) -> Absent {
        Absent { id, ended: None }
    }
}

/// What a server or a backend may be unable to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Giving GPUs to a sandbox.
    Gpu,
    /// Limiting the size of a sandbox's disk.
    DiskLimit,
    /// A sandbox without a network.
    NoNetwork,
    /// Network rules by target.
    NetworkRules,
    /// Changing what a sandbox may reach.
    PolicyChange,
    /// Another platform than the machine's own.
    Platform,
    /// Renewal by access.
    RenewOnAccess,
    /// Making a sandbox from a snapshot.
    FromSnapshot,
    /// Taking a snapshot.
    Snapshot,
    /// Looking after images and volumes.
    Inventory,
    /// Taking up a creation whose record is damaged.
    DamagedRecord,
}

impl Feature {
    /// The field or the part that asks for it, as messages name it.
    pub const fn field(self) -> &'static str {
        match self {
            Feature::Gpu => "resourceLimits.gpu",
            Feature::DiskLimit => "resourceLimits.disk",
            Feature::NoNetwork => "network",
            Feature::NetworkRules | Feature::PolicyChange => "networkPolicy",
            Feature::Platform => "platform",
            Feature::RenewOnAccess => "extensions.access.renew.extend.seconds",
            Feature::FromSnapshot => "snapshotId",
            Feature::Snapshot => "snapshot",
            Feature::Inventory => "inventory",
            Feature::DamagedRecord => "record",
        }
    }
}

/// A rule of the operator that a request breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The lifetime asked for is longer than allowed.
    #[error("a lifetime of {} s is asked for; at most {} s are allowed", .asked.as_secs(), .max.as_secs())]
    LifetimeTooLong {
        /// The lifetime in the request.
        asked: Duration,
        /// The longest allowed.
        max: Duration,
    },
    /// A host path is not below an allowed directory.
    #[error("volume {index} is a host path that is not below an allowed directory")]
    HostPathNotAllowed {
        /// The volume's place in the request, from 0.
        index: usize,
    },
    /// A volume's name is one that other tenants' volumes have.
    #[error("volume {index} has a name that is reserved for other tenants")]
    VolumeNameReserved {
        /// The volume's place in the request, from 0.
        index: usize,
    },
    /// A volume asks for a storage class, and there are none.
    #[error("volume {index} asks for a storage class, and there are none")]
    StorageClass {
        /// The volume's place in the request, from 0.
        index: usize,
    },
    /// A volume is an object store, which nothing here mounts.
    #[error("volume {index} is an object store, which cannot be mounted")]
    ObjectStore {
        /// The volume's place in the request, from 0.
        index: usize,
    },
}

/// What stands behind a state in a message.
fn because(why: Option<&str>) -> String {
    why.map_or_else(String::new, |why| format!(" ({why})"))
}

impl From<backend::Error> for Error {
    fn from(error: backend::Error) -> Error {
        match error {
            backend::Error::NotFound(id) => Error::NotFound(id.into()),
            backend::Error::SnapshotNotFound(id) => Error::SnapshotNotFound(id),
            other => Error::Backend(Arc::new(other)),
        }
    }
}
