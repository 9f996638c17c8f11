//! Which settings of the runtime, of storage, tenants and metrics cannot be, alone or together.

use api::quantity::{ParseQuantityError, Quantity};
use daemon::config::Problems;

use super::{Config, Server, StoreKind, Tenants};
use crate::backends;

/// Where tenants come from, if not from the API alone.
pub(super) const PROVIDER_FILE: &str = "file";

pub(super) fn tenants(tenants: &Tenants, problems: &mut Problems) {
    match (tenants.provider.as_str(), &tenants.path) {
        ("", _) => {}
        (PROVIDER_FILE, Some(_)) => {}
        (PROVIDER_FILE, None) => problems
            .add("tenants.provider = \"file\" needs tenants.path (or SANDBOX_TENANTS_CONFIG_PATH)"),
        (other, _) => problems.add(format!(
            "tenants.provider must be \"file\" or empty, not {other:?}"
        )),
    }
}

pub(super) fn runtime(config: &Config, problems: &mut Problems) {
    if backends::find(config.runtime.kind).is_none() {
        problems.add(format!(
            "runtime.type = {:?} is not supported yet; use \"embedded\", which needs no engine",
            config.runtime.kind.name()
        ));
    }
    for backend in &backends::ALL {
        backend.check(config, problems);
    }
    if config.store.kind == StoreKind::Postgresql && config.store.postgresql.dsn.is_none() {
        problems.add(
            "store.type = \"postgresql\" needs store.postgresql.dsn (or \
             OPENSANDBOX_STORE_POSTGRESQL_DSN)",
        );
    }
    let directories = backends::ALL.iter().map(|backend| backend.data_dir(config));
    for path in directories.chain(config.store.path.as_deref()) {
        if !path.is_absolute() && !path.starts_with("~") {
            problems.add(format!(
                "{} must be an absolute path, or begin with ~/",
                path.display()
            ));
        }
    }
}

/// A quantity, or nothing where none is written.
pub(crate) fn optional_quantity(text: &str) -> Result<Option<Quantity>, ParseQuantityError> {
    match text.trim() {
        "" => Ok(None),
        text => text.parse().map(Some),
    }
}

pub(super) fn storage(config: &Config, problems: &mut Problems) {
    let storage = &config.storage;
    for path in &storage.allowed_host_paths {
        if !path.is_absolute() {
            problems.add(format!(
                "storage.allowed_host_paths: {} must be an absolute path",
                path.display()
            ));
        }
    }
    if !storage.allowed_host_paths.is_empty() && !config.server.has_key() {
        problems.add(
            "storage.allowed_host_paths needs an API key: without one every account of this \
             machine could write to those directories as their owner. Set server.api_key, or add \
             a named key with `osb server new-key NAME`",
        );
    }
    if storage.host_path_id == Some(0) {
        problems.add(
            "storage.host_path_id must not be root's; storage.host_paths_as_root = true is how to \
             say that",
        );
    }
    if storage.host_path_id.is_some() && storage.host_paths_as_root {
        problems.add("storage.host_path_id has no effect with storage.host_paths_as_root = true");
    }
}

pub(super) fn log(log: &super::Log, problems: &mut Problems) {
    if let Err(error) = log.level.parse::<daemon::telemetry::Filter>() {
        problems.add(format!("log.level: {error}"));
    }
    if let Err(error) = log.format.parse::<daemon::telemetry::Format>() {
        problems.add(format!("log.format: {error}"));
    }
}

/// The value of `server.host` that means no address.
pub(super) const NO_HOST: &str = "none";

/// Longest path of a unix socket: 108 bytes with the zero at the end (unix(7)), less what the name has
/// more while the socket is made (`socket.rs`).
const SOCKET_PATH_BYTES_MAX: usize = 95;

/// Where else than at an address the server listens.
pub(super) fn socket(server: &Server, problems: &mut Problems) {
    let Some(path) = &server.socket else {
        if server.host == NO_HOST {
            problems.add("server.host is none, so server.socket must say where to listen");
        }
        return;
    };
    let length = path.as_os_str().len();
    if !path.is_absolute() || length > SOCKET_PATH_BYTES_MAX {
        problems.add(format!(
            "server.socket must be a path from / of at most {SOCKET_PATH_BYTES_MAX} bytes, not {}",
            path.display()
        ));
    }
}
