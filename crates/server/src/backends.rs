//! The backends that this server can be told to use, one module and one row of [`ALL`] each: what is
//! wrong with its settings, how it is opened, what `osb doctor` examines for it, and where it keeps its
//! state.
//!
//! What a backend does once it is open is its own crate's.

mod docker;
mod embedded;
mod kubernetes;

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use daemon::config::Problems;
use lifecycle::backend::Backend;
use lifecycle::doctor::Report;

use crate::config::{Config, RuntimeKind};
use crate::run::Error;

pub use embedded::settings as embedded_settings;

type Opening<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn Backend>, Error>> + Send + 'a>>;

/// A backend before it is opened.
pub(crate) struct Entry {
    kind: RuntimeKind,
    check: fn(&Config, &mut Problems),
    open: fn(&Config) -> Opening<'_>,
    doctor: fn(&Config) -> io::Result<Report>,
    data_dir: fn(&Config) -> &PathBuf,
    data_dir_mut: fn(&mut Config) -> &mut PathBuf,
}

/// Every backend.
pub(crate) const ALL: [Entry; 3] = [embedded::ENTRY, docker::ENTRY, kubernetes::ENTRY];

impl Entry {
    /// Says what is wrong with the backend's own settings, also while another is used.
    pub(crate) fn check(&self, config: &Config, problems: &mut Problems) {
        (self.check)(config, problems);
    }

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
