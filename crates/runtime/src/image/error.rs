//! Why an image could not be had. Every variant says what to do next.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ImageId;

/// Why an image could not be had, kept or given away.
///
/// It is `Clone` because one pull has many waiters and each gets the same answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The text is not an image reference.
    #[error("{reference:?} is not an image reference: {message}")]
    InvalidReference {
        reference: String,
        /// What is wrong with it.
        message: String,
    },
    /// No registry and no local image has it.
    #[error("image {reference} was not found: {message}")]
    NotFound {
        reference: String,
        /// Where was looked and what to do.
        message: String,
    },
    /// The registry wants credentials, or other ones.
    #[error("the registry refused access to {reference}: {message}")]
    Unauthorized {
        reference: String,
        /// What the registry said.
        message: String,
    },
    /// The registry could not be reached, or broke off; every attempt was used up.
    #[error("registry {registry} failed: {message}")]
    Registry {
        /// The host asked.
        registry: String,
        /// What happened, on which attempt.
        message: String,
        /// Trying again later may help.
        is_transient: bool,
    },
    /// Data is not what its digest promises, or cannot be read as what it claims to be.
    #[error("{what} is corrupt: {message}")]
    Corrupt {
        /// Which blob or file.
        what: String,
        /// What does not fit.
        message: String,
    },
    /// The image exists, but not for the platform asked for.
    #[error("image {reference} is not built for {wanted}; it is built for {available}")]
    WrongPlatform {
        reference: String,
        /// Asked for.
        wanted: String,
        /// What there is.
        available: String,
    },
    /// A layer is larger than the store allows.
    #[error(
        "{what} exceeds the limit of {limit} {unit}; raise {setting} of the image store if you trust it"
    )]
    TooLarge {
        /// Which layer or document.
        what: String,
        limit: u64,
        unit: &'static str,
        /// The field of [`super::Limits`] that moves it.
        setting: &'static str,
    },
    /// The disk under the store is full.
    #[error("the disk under {} is full; free space or remove images, then try again", path.display())]
    DiskFull {
        /// The store's directory.
        path: PathBuf,
    },
    /// A lease, a snapshot or a reference still needs it.
    #[error("{what} is in use by {by}")]
    InUse { what: String, by: String },
    /// The id names nothing in this store.
    #[error("there is no image {0} in the store")]
    UnknownImage(ImageId),
    /// Everyone who waited for it has gone.
    #[error("the pull was cancelled")]
    Cancelled,
    /// A call of the operating system failed where none should.
    #[error("{action} failed")]
    Io {
        /// What was being done, with the path.
        action: String,
        #[source]
        source: Arc<io::Error>,
    },
}

impl Error {
    /// Trying the same again later may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Registry { is_transient, .. } => *is_transient,
            Self::DiskFull { .. } | Self::Cancelled => true,
            _ => false,
        }
    }

    /// An operating-system error with its action; a full disk becomes [`Error::DiskFull`].
    pub(super) fn io(action: &str, path: &Path, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Self::DiskFull {
                path: path.to_owned(),
            },
            _ => Self::Io {
                action: format!("{action} {}", path.display()),
                source: Arc::new(source),
            },
        }
    }
}
