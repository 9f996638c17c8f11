//! What the routes share: the start-up facts and one registry per kind of thing.
//!
//! Feature modules that need state of their own make it inside their `router` and keep it
//! there; only what several modules use is here.

use crate::path::Environment;

/// Shared by all routes, behind an `Arc`.
pub(crate) struct Shared {
    /// The daemon's environment as it was at start, without the access token: what
    /// commands inherit and what `$NAME` in a path means.
    pub(crate) environment: Environment,
}
