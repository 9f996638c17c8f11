//! Where `osb up` keeps the server of a user of this machine.
//!
//! How such a socket is spoken to is in `config`; the server is started by the command line.

use std::path::PathBuf;

use crate::config::{ConnectionConfig, UNIX_SCHEME};

/// The variable that says where `osb up` keeps its socket, instead of `/run/opensandbox-up`.
pub const ENV_UP_DIR: &str = "OPEN_SANDBOX_UP_DIR";

impl ConnectionConfig {
    /// The domain of the server that `osb up` started for this user, if it did:
    /// `unix:///run/opensandbox-up/UID/api.sock`.
    pub fn local_domain() -> Option<String> {
        let socket = Self::up_directory().join("api.sock");
        // A path that is not text could not be written as a domain.
        let domain = format!("{UNIX_SCHEME}{}", socket.to_str()?);
        socket.exists().then_some(domain)
    }

    /// Where `osb up` keeps what belongs to this user's server. Of root by way of sudo it is that of the
    /// user who called.
    pub fn up_directory() -> PathBuf {
        let own = rustix::process::geteuid();
        let caller = std::env::var("SUDO_UID").ok();
        let caller = caller.and_then(|uid| uid.parse().ok());
        let user = caller.filter(|_| own.is_root()).unwrap_or(own.as_raw());
        let base = std::env::var_os(ENV_UP_DIR).filter(|path| !path.is_empty());
        let base = base.map_or_else(|| PathBuf::from("/run/opensandbox-up"), PathBuf::from);
        base.join(user.to_string())
    }
}
