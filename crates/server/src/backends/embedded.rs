//! The built-in runtime.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use daemon::config::Problems;
use lifecycle::backend::Backend;

use super::Entry;
use crate::config::{Config, RuntimeKind};
use crate::run::{Error, io_error};

pub(super) const ENTRY: Entry = Entry {
    kind: RuntimeKind::Embedded,
    check,
    open: |config| Box::pin(open(config)),
    doctor: |config| Ok(runtime::doctor::run(&(&settings(config)?).into())),
    data_dir: |config| &config.embedded.data_dir,
    data_dir_mut: |config| &mut config.embedded.data_dir,
};

fn check(config: &Config, problems: &mut Problems) {
    for address in &config.embedded.nameservers {
        if address.parse::<Ipv4Addr>().is_err() {
            problems.add(format!(
                "embedded.nameservers: {address:?} is not an IPv4 address"
            ));
        }
    }
}

async fn open(config: &Config) -> Result<Arc<dyn Backend>, Error> {
    let settings = settings(config).map_err(io_error("finding the own program"))?;
    let backend = runtime::Embedded::open(settings).await;
    Ok(Arc::new(backend.map_err(Error::Backend)?))
}

/// The built-in runtime's own settings.
pub fn settings(config: &Config) -> io::Result<runtime::Config> {
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
