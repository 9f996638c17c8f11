//! The built-in runtime.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use api::quantity::Quantity;
use daemon::config::Problems;
use lifecycle::backend::Backend;

use super::Entry;
use crate::config::{Config, RuntimeKind, optional_quantity};
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
    for (key, value) in [
        ("default_cpu", &config.embedded.default_cpu),
        ("default_memory", &config.embedded.default_memory),
    ] {
        if let Err(error) = optional_quantity(value) {
            problems.add(format!("embedded.{key}: {error}"));
        }
    }
    let images = runtime::image::Config {
        aliases: config.embedded.image_aliases.clone(),
        default_registry: config.embedded.default_registry.clone(),
        ..runtime::image::Config::default()
    };
    if let Err(error) = images.check_aliases() {
        problems.add(format!("embedded.image_aliases: {error}"));
    }
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
    settings.images.aliases.clone_from(&ours.image_aliases);
    settings
        .images
        .host_directories
        .clone_from(&ours.host_directories);
    settings.images.limits.layer_bytes = ours.layer_bytes_max;
    settings.images.limits.layer_entries = ours.layer_entries_max;
    let quantity = |text| optional_quantity(text).ok().flatten();
    let unless_zero = |number: u64| Some(number).filter(|number| *number > 0);
    settings.default_limits.cpu_millis = quantity(&ours.default_cpu).and_then(Quantity::millis);
    settings.default_limits.memory_bytes = quantity(&ours.default_memory).map(Quantity::whole);
    settings.default_limits.pids = unless_zero(ours.default_pids);
    settings.default_limits.open_files = unless_zero(ours.default_open_files);
    settings.planned_sandboxes = ours.planned_sandboxes;
    settings.host_path_root = match config.storage.host_path_id {
        _ if config.storage.host_paths_as_root => runtime::HostPathRoot::Root,
        Some(id) => runtime::HostPathRoot::OwnerOr(id),
        None => runtime::HostPathRoot::Owner,
    };
    settings = settings.with_egress(config.egress.settings());
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
