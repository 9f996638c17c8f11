//! How the Docker backend is set up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How the Docker backend is set up. [`Config::new`] gives the defaults for a data directory.
#[derive(Debug, Clone)]
pub struct Config {
    /// The engine's unix socket.
    pub socket: PathBuf,
    /// Where control sockets, tokens and execd lie. One server at a time, and the engine must see
    /// it under the same name.
    pub data_dir: PathBuf,
    /// The program that becomes PID 1 of every sandbox: a static executable. A file beside it
    /// whose name ends in `-arm64` or the like is for that processor.
    pub execd: PathBuf,
    /// `host`, `bridge`, `none`, or the name of a network.
    pub network_mode: String,
    /// How long one call of the engine may take.
    pub call_timeout: Duration,
    /// Capabilities that sandboxes do not get.
    pub drop_capabilities: Vec<String>,
    /// An AppArmor profile that the kernel knows; the engine's own where there is none.
    pub apparmor_profile: Option<String>,
    /// A file with a seccomp profile; the engine's own where there is none.
    pub seccomp_profile: Option<PathBuf>,
    /// Programs in a sandbox cannot gain privileges.
    pub no_new_privileges: bool,
    /// Processes in one sandbox, where its request says nothing.
    pub pids_limit: u64,
    /// Environment of every sandbox, below the request's own.
    pub env: BTreeMap<String, String>,
    /// Bind mounts of every sandbox, as `host:inside[:ro]`.
    pub binds: Vec<String>,
    /// The engine's runtime with a kernel of its own that sandboxes run in, such as `runsc`.
    pub secure_runtime: Option<String>,
}

/// Where engines listen unless told otherwise.
pub(crate) const DEFAULT_SOCKET: &str = "/var/run/docker.sock";

impl Config {
    /// The defaults for a server whose state is in `data_dir`: execd beside the running program.
    pub fn new(data_dir: impl Into<PathBuf>) -> std::io::Result<Self> {
        Ok(Self {
            socket: DEFAULT_SOCKET.into(),
            data_dir: data_dir.into(),
            execd: std::env::current_exe()?.with_file_name("execd"),
            network_mode: "bridge".to_owned(),
            call_timeout: Duration::from_secs(180),
            drop_capabilities: Vec::new(),
            apparmor_profile: None,
            seccomp_profile: None,
            no_new_privileges: true,
            pids_limit: 4096,
            env: BTreeMap::new(),
            binds: Vec::new(),
            secure_runtime: None,
        })
    }
}

/// The socket that an address such as `unix:///run/docker.sock` means.
pub fn socket(address: &str) -> Result<PathBuf, String> {
    let path = match address.split_once("://") {
        Some(("unix", path)) => path,
        Some((scheme, _)) => {
            return Err(format!(
                "an engine at {scheme}:// cannot be used: sandboxes are reached through sockets \
                 on this machine; give a local engine as unix:///path/to/docker.sock"
            ));
        }
        None => address,
    };
    if Path::new(path).is_absolute() {
        Ok(path.into())
    } else {
        Err(format!(
            "{address:?} is not the address of an engine; write unix:///var/run/docker.sock"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_of_this_machine_are_engines() {
        let path = |text: &str| socket(text).map(|path| path.display().to_string());
        assert_eq!(path("unix:///run/d.sock").unwrap(), "/run/d.sock");
        assert_eq!(path("/run/d.sock").unwrap(), "/run/d.sock");
        assert!(path("tcp://10.0.0.1:2375").unwrap_err().contains("tcp://"));
        assert!(path("ssh://host").unwrap_err().contains("unix://"));
        assert!(path("docker.sock").unwrap_err().contains("not the address"));
    }
}
