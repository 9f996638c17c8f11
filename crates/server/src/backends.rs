//! The backends that this server can be told to use, one row each: how it is opened, what
//! `osb doctor` examines for it, and where it keeps its state.
//!
//! Another backend is a crate, its kind and section in the configuration, and a row in [`ALL`].
//! What a backend does once it is open is its own crate's.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lifecycle::backend::Backend;
use runtime::doctor::Report;

use crate::config::{Config, RuntimeKind};
use crate::run::{Error, io_error};

type Opening<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn Backend>, Error>> + Send + 'a>>;

/// A backend before it is opened.
pub(crate) struct Entry {
    kind: RuntimeKind,
    open: fn(&Config) -> Opening<'_>,
    doctor: fn(&Config) -> io::Result<Report>,
    data_dir: fn(&Config) -> &PathBuf,
    data_dir_mut: fn(&mut Config) -> &mut PathBuf,
}

/// Every backend.
pub(crate) const ALL: [Entry; 2] = [
    Entry {
        kind: RuntimeKind::Embedded,
        open: |config| Box::pin(open_embedded(config)),
        doctor: |config| Ok(runtime::doctor::run(&(&embedded_settings(config)?).into())),
        data_dir: |config| &config.embedded.data_dir,
        data_dir_mut: |config| &mut config.embedded.data_dir,
    },
    Entry {
        kind: RuntimeKind::Docker,
        open: |config| Box::pin(open_docker(config)),
        doctor: |config| engine_report(&docker_settings(config)?),
        data_dir: |config| &config.docker.data_dir,
        data_dir_mut: |config| &mut config.docker.data_dir,
    },
];

impl Entry {
    /// Examines what this machine can do for the backend. Blocks.
    pub(crate) fn doctor(&self, config: &Config) -> io::Result<Report> {
        (self.doctor)(config)
    }

    /// Where the backend keeps its state.
    pub(crate) fn data_dir<'a>(&self, config: &'a Config) -> &'a Path {
        (self.data_dir)(config)
    }

    /// The same, to be changed while the settings are read.
    pub(crate) fn data_dir_mut<'a>(&self, config: &'a mut Config) -> &'a mut PathBuf {
        (self.data_dir_mut)(config)
    }
}

/// The backend of a kind, where there is one.
pub(crate) fn find(kind: RuntimeKind) -> Option<&'static Entry> {
    const { &ALL }.iter().find(|entry| entry.kind == kind)
}

/// The backend of a kind that the check of the settings let pass.
pub(crate) fn of(kind: RuntimeKind) -> &'static Entry {
    find(kind).expect("a kind without a backend is refused when the settings are read")
}

/// Opens the backend that the configuration names.
pub(crate) async fn open(config: &Config) -> Result<Arc<dyn Backend>, Error> {
    (of(config.runtime.kind).open)(config).await
}

async fn open_embedded(config: &Config) -> Result<Arc<dyn Backend>, Error> {
    let settings = embedded_settings(config).map_err(io_error("finding the own program"))?;
    let backend = runtime::Embedded::open(settings).await;
    Ok(Arc::new(backend.map_err(Error::Backend)?))
}

async fn open_docker(config: &Config) -> Result<Arc<dyn Backend>, Error> {
    let settings = docker_settings(config).map_err(io_error("finding the own program"))?;
    let backend = docker::Docker::open(settings).await;
    Ok(Arc::new(backend.map_err(Error::Backend)?))
}

/// The built-in runtime's own settings.
pub fn embedded_settings(config: &Config) -> io::Result<runtime::Config> {
    let ours = &config.embedded;
    let mut settings = runtime::Config::new(&ours.data_dir)?;
    if let Some(execd) = &config.runtime.execd_path {
        settings.execd.clone_from(execd);
    }
    settings
        .images
        .default_registry
        .clone_from(&ours.default_registry);
    settings.images.mirrors.clone_from(&ours.registry_mirrors);
    settings
        .images
        .insecure_registries
        .clone_from(&ours.insecure_registries);
    settings
        .images
        .host_directories
        .clone_from(&ours.host_directories);
    settings.images.limits.layer_bytes = ours.layer_bytes_max;
    settings.images.limits.layer_entries = ours.layer_entries_max;
    settings.network.ready_outside = ours.ready_sandboxes as usize;
    settings.ready_cgroups = ours.ready_sandboxes as usize;
    let nameservers: Vec<_> = ours
        .nameservers
        .iter()
        .filter_map(|it| it.parse().ok())
        .collect();
    if !nameservers.is_empty() {
        settings = settings.with_nameservers(nameservers);
    }
    Ok(settings)
}

/// The Docker runtime's own settings.
fn docker_settings(config: &Config) -> io::Result<docker::Config> {
    let ours = &config.docker;
    let mut settings = docker::Config::new(&ours.data_dir)?;
    if let Some(execd) = &config.runtime.execd_path {
        settings.execd.clone_from(execd);
    }
    let host = ours
        .host
        .clone()
        .or_else(|| std::env::var("DOCKER_HOST").ok());
    if let Some(host) = host.filter(|host| !host.is_empty()) {
        settings.socket = docker::socket(&host).map_err(io::Error::other)?;
    }
    settings.network_mode.clone_from(&ours.network_mode);
    settings.call_timeout = Duration::from_secs(ours.api_timeout.max(1));
    settings
        .drop_capabilities
        .clone_from(&ours.drop_capabilities);
    settings.apparmor_profile.clone_from(&ours.apparmor_profile);
    settings.seccomp_profile = ours.seccomp_profile.as_ref().map(PathBuf::from);
    settings.no_new_privileges = ours.no_new_privileges;
    settings.pids_limit = ours.pids_limit;
    settings.env.clone_from(&ours.sandbox_env);
    settings.binds.clone_from(&ours.sandbox_binds);
    settings.secure_runtime = config.secure_runtime.runtime();
    Ok(settings)
}

/// What the Docker engine can do, in the doctor's form.
fn engine_report(settings: &docker::Config) -> io::Result<runtime::doctor::Report> {
    use docker::doctor::Verdict;
    use runtime::doctor::{Check, Report, Section, Status};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let findings = runtime.block_on(docker::doctor::examine(settings));
    let check = |finding: docker::doctor::Finding| Check {
        name: finding.name,
        status: match finding.verdict {
            Verdict::Good => Status::Ok,
            Verdict::Poor => Status::Degraded,
            Verdict::Bad => Status::Failed,
        },
        detail: finding.detail,
        fix: None,
    };
    Ok(Report {
        sections: vec![Section {
            name: "Docker engine",
            checks: findings.into_iter().map(check).collect(),
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_at_most_one_entry_and_a_directory_of_its_own() {
        let mut config = Config::default();
        for (index, entry) in ALL.iter().enumerate() {
            *entry.data_dir_mut(&mut config) = PathBuf::from(format!("/{index}"));
        }
        for (index, entry) in ALL.iter().enumerate() {
            assert_eq!(
                of(entry.kind).data_dir(&config),
                Path::new(&format!("/{index}"))
            );
        }
    }
}
