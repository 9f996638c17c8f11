//! Why the service refused or failed. The HTTP layer maps each variant to a wire code in one
//! place; nothing else decides codes.

use std::sync::Arc;
use std::time::Duration;

use api::id::{SandboxId, SnapshotId};

use crate::backend;
use crate::sandbox::{SnapshotState, State};
use crate::store;

/// Why a call to the service failed. Cheap to clone, so that everyone who waits for one outcome
/// can have it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No such sandbox.
    #[error("there is no sandbox {0}")]
    NotFound(SandboxId),
    /// No such snapshot.
    #[error("there is no snapshot {0}")]
    SnapshotNotFound(SnapshotId),
    /// The sandbox is in a state that does not allow this.
    #[error("sandbox {id} is {state}; to {action} it must be {wanted}")]
    WrongState {
        /// Which.
        id: SandboxId,
        /// What was asked: `pause`, `resume`, `snapshot`, `renew`, `connect to`.
        action: &'static str,
        /// What it is.
        state: State,
        /// What it must be.
        wanted: &'static str,
    },
    /// The snapshot is in a state that does not allow this.
    #[error("snapshot {id} is {}; to {action} it must be {wanted}", .state.as_str())]
    SnapshotWrongState {
        /// Which.
        id: SnapshotId,
        /// What was asked.
        action: &'static str,
        /// What it is.
        state: SnapshotState,
        /// What it must be.
        wanted: &'static str,
    },
    /// The sandbox did not become ready in the time the caller was willing to wait.
    #[error("sandbox {id} is {state} after {} s of waiting: {message}", .waited.as_secs_f32())]
    NotReady {
        /// Which.
        id: SandboxId,
        /// What it is.
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
    /// The new expiration lies in the past.
    #[error("the expiration must be in the future")]
    ExpirationInPast,
    /// The sandbox has no lifetime to renew.
    #[error("sandbox {0} has no expiration (manual clean-up); delete it when you are done")]
    NoExpiration(SandboxId),
    /// The backend cannot do what a field asks for.
    #[error("{field}: {message}")]
    Unsupported {
        /// The request's field.
        field: &'static str,
        /// What is not possible and what to do.
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

impl From<backend::Error> for Error {
    fn from(error: backend::Error) -> Error {
        match error {
            backend::Error::NotFound(id) => Error::NotFound(id),
            backend::Error::SnapshotNotFound(id) => Error::SnapshotNotFound(id),
            other => Error::Backend(Arc::new(other)),
        }
    }
}
