//! What the routes share: the start-up facts and one registry per kind of thing.
//!
//! Feature modules that need state of their own make it inside their `router` and keep it
//! there; only what several modules use is here.

use std::path::PathBuf;
use std::sync::Arc;

use crate::command::Commands;
use crate::output::Spool;
use crate::path::Environment;
use crate::process::Processes;
use crate::pty::Ptys;
use crate::session::Sessions;

/// Shared by all routes, behind an `Arc`.
pub(crate) struct Shared {
    /// The daemon's environment as it was at start, without the access token: what
    /// commands inherit and what `$NAME` in a path means.
    pub(crate) environment: Environment,
    /// The file of further variables for commands, read anew for each.
    pub(crate) envs_file: PathBuf,
    pub(crate) processes: Processes,
    pub(crate) spool: Arc<Spool>,
    pub(crate) commands: Commands,
    pub(crate) sessions: Sessions,
    pub(crate) ptys: Ptys,
}

/// A new id: a random UUID (version 4) in hexadecimal, without dashes, as the published
/// daemon writes them.
pub(crate) fn fresh_id<T>() -> T
where
    T: TryFrom<String>,
    T::Error: std::fmt::Debug,
{
    let mut bytes = random::<16>();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    T::try_from(hex(&bytes)).expect("hexadecimal digits are an id")
}

/// Unguessable bytes.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(
        got,
        Ok(N),
        "the kernel gives up to 256 random bytes at once"
    );
    bytes
}

/// Lowercase hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
