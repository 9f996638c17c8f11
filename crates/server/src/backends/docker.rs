//! A Docker engine.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use daemon::config::Problems;
use lifecycle::backend::Backend;
use lifecycle::doctor::Report;

use super::Entry;
use crate::config::{Config, RuntimeKind};
use crate::run::{Error, io_error};

pub(super) const ENTRY: Entry = Entry {
    kind: RuntimeKind::Docker,
    check,
    open: |config| Box::pin(open(config)),
    doctor,
    data_dir: |config| &config.docker.data_dir,
    data_dir_mut: |config| &mut config.docker.data_dir,
};

fn check(config: &Config, problems: &mut Problems) {
    if let Some(host) = &config.docker.host
        && let Err(problem) = docker::socket(host)
    {
        problems.add(format!("docker.host: {problem}"));
    }
    let secure = &config.secure_runtime;
    if secure.kind.is_empty() {
        if secure.docker_runtime.is_some() {
            problems.add("secure_runtime.docker_runtime has no effect without secure_runtime.type");
        }
    } else if config.runtime.kind == RuntimeKind::Embedded {
        problems.add(
            "secure_runtime.type needs runtime.type = \"docker\" or \"kubernetes\": the embedded runtime isolates \
             sandboxes by the kernel's own means only",
        );
    } else if config.runtime.kind == RuntimeKind::Docker && secure.runtime().is_none() {
        problems.add(format!(
            "secure_runtime.type = {:?} is neither gvisor nor kata; name the engine's runtime in \
             secure_runtime.docker_runtime",
            secure.kind
        ));
    }
}

async fn open(config: &Config) -> Result<Arc<dyn Backend>, Error> {
    let settings = settings(config).map_err(io_error("finding the own program"))?;
    let backend = docker::Docker::open(settings).await;
    Ok(Arc::new(backend.map_err(Error::Backend)?))
}

fn doctor(config: &Config) -> io::Result<Report> {
    let settings = settings(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let engine = runtime.block_on(docker::doctor::examine(&settings));
    Ok(Report {
        sections: vec![engine],
    })
}

/// The Docker runtime's own settings.
fn settings(config: &Config) -> io::Result<docker::Config> {
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
