//! What a new sandbox may use.

use lifecycle::backend::{Error, Limits};

use super::disk_image;
use crate::backend::Shared;
use crate::config::Config;
use crate::protection::Protection;

/// What was asked for over the defaults; what this backend cannot hold anybody to is refused.
pub(super) fn of(shared: &Shared, wanted: &Limits) -> Result<Limits, Error> {
    let refuse = |message: &str| {
        Err(Error::Invalid {
            field: "resourceLimits",
            message: message.to_owned(),
        })
    };
    if wanted.gpus.is_some_and(|count| count > 0) {
        return refuse("the embedded backend has no GPUs to give; use the docker backend");
    }
    let default = &shared.config.default_limits;
    let disk_bytes = wanted.disk_bytes.or(default.disk_bytes);
    match (disk_bytes, &shared.disk_images) {
        (Some(_), Err(why)) => {
            return refuse(&format!("this server cannot limit disk space: {why}"));
        }
        (Some(bytes), Ok(_)) => {
            if let Some(problem) = disk_image::size_problem(bytes) {
                return refuse(&problem);
            }
        }
        _ => {}
    }
    let group = shared.tree.defaults();
    Ok(Limits {
        cpu_millis: wanted.cpu_millis.or(group.cpu_millis),
        memory_bytes: wanted.memory_bytes.or(group.memory_bytes),
        pids: wanted.pids.or(group.pids),
        open_files: wanted
            .open_files
            .or_else(|| default_open_files(&defaults(&shared.config))),
        disk_bytes,
        gpus: None,
    })
}

/// What a group has that nothing is asked for.
pub(crate) fn defaults(config: &Config) -> Limits {
    match Protection::DefaultLimits.is_on() {
        true => config.default_limits.clone(),
        false => Limits::default(),
    }
}

/// Nobody can be given more than the server itself may have.
fn default_open_files(default: &Limits) -> Option<u64> {
    let own = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    default
        .open_files
        .map(|files| own.map_or(files, |own| files.min(own)))
}
