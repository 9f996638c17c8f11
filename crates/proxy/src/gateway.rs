//! A gateway: requests name their sandbox and port by a host name, by a header or by the beginning of
//! their path, all three at one listener, and show a right to go there.
//!
//! Pure but for two bounded memories: failed guesses (`attempts`) and codes that were used (`link`).
//! Which sandboxes there are, and what is answered to whom is refused, is the caller's.

mod access;
mod address;
mod attempts;
mod keys;
pub mod link;

pub use access::{Access, Allowed, Denied, Protected, Right};
pub use address::{Address, AddressError, Addressing, HostNames};
pub use attempts::Attempts;
pub use keys::KeyRing;

/// The header by which a response says that it came through a gateway, as the published one's do.
pub const POWERED_BY: (&str, &str) = ("reverse-proxy-server-powerby", "OpenSandbox-ingress");
