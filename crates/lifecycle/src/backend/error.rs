//! Why a backend fails.

use api::id::{SandboxId, SnapshotId};

/// Why a connection could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No such sandbox here.
    #[error("there is no sandbox {0}")]
    NotFound(SandboxId),
    /// It is paused; resume it first.
    #[error("the sandbox is paused")]
    Paused,
    /// It has ended.
    #[error("the sandbox has ended")]
    Ended,
    /// Nothing listens on that port.
    #[error("nothing listens on port {0} inside the sandbox")]
    NotListening(u16),
    /// The connection failed for another reason.
    #[error("could not connect into the sandbox: {0}")]
    Failed(String),
}

/// Why a backend call failed. The service maps each variant to a wire code in one place.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such sandbox.
    #[error("there is no sandbox {0}")]
    NotFound(SandboxId),
    /// No such snapshot.
    #[error("there is no snapshot {0}")]
    SnapshotNotFound(SnapshotId),
    /// The sandbox is in a state that does not allow this.
    #[error("the sandbox is {state}; it must be {wanted}")]
    WrongState {
        /// The state that it is in.
        state: &'static str,
        /// The states in which this is allowed.
        wanted: &'static str,
    },
    /// Something still stands on it.
    #[error("{what} is in use by {by}")]
    InUse {
        /// The snapshot or volume, with its name.
        what: String,
        /// A sandbox or snapshot, with its id.
        by: String,
    },
    /// The request names something this backend cannot do or the kernel refuses.
    #[error("{field}: {message}")]
    Invalid {
        /// The request's field.
        field: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
    /// No such named volume.
    #[error("there is no volume {0}")]
    VolumeNotFound(String),
    /// What was given as an image is none, or a damaged one.
    #[error("the archive is not a usable image: {0}")]
    ImageInvalid(String),
    /// The image does not exist.
    #[error("image {reference} was not found: {message}")]
    ImageNotFound {
        /// As the user wrote it.
        reference: String,
        /// Where was looked.
        message: String,
    },
    /// The registry refused the credentials, or wants some.
    #[error("the registry refused access to image {reference}: {message}")]
    ImageUnauthorized {
        /// As the user wrote it.
        reference: String,
        /// What the registry said.
        message: String,
    },
    /// The image could not be fetched or unpacked.
    #[error("image {reference} could not be pulled: {message}")]
    ImagePull {
        /// As the user wrote it.
        reference: String,
        /// What failed.
        message: String,
        /// Trying again may help.
        is_transient: bool,
    },
    /// PID 1 or the entrypoint did not start.
    #[error("the sandbox did not start: {message}")]
    Start {
        /// What failed and what to do.
        message: String,
    },
    /// The machine has run out of something.
    #[error("out of {what}: {message}")]
    Exhausted {
        /// Of what: disk, memory, pids, network slots.
        what: &'static str,
        /// What to do.
        message: String,
    },
    /// The backend itself does not work now.
    #[error("the {backend} backend is not available: {message}")]
    Unavailable {
        /// The backend's name.
        backend: &'static str,
        /// Why and what to do.
        message: String,
    },
    /// A call of the operating system or engine failed where none should.
    #[error("{action} failed")]
    Io {
        /// What was being done, with the path or id.
        action: String,
        /// What the call said.
        #[source]
        source: std::io::Error,
    },
    /// A bug or a damaged state directory.
    #[error("{0}")]
    Internal(String),
}
