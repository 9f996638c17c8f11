//! The certificates of this server and its gateway: read from the files that the configuration names, and read
//! again when these change.
//!
//! What is shown to clients is `proxy::Tls`; certificates are made in `tls_init`.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::TaskSpawner;
use proxy::{Tls, TlsError};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use crate::config::{Config, TlsFiles};
use crate::run::{Error, io_error};

/// The certificates that are shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct Certificates {
    pub(crate) server: Option<Arc<Tls>>,
    pub(crate) gateway: Option<Arc<Tls>>,
}

impl Certificates {
    /// Reads what the configuration names, and watches it. A gateway without files of its own shows the server's.
    pub(crate) fn open(config: &Config, tasks: &TaskSpawner) -> Result<Self, Error> {
        let server = load(&config.server.tls)?;
        let gateway = load(&config.ingress.gateway.tls)?.or_else(|| server.clone());
        let certificates = Self { server, gateway };
        let watched = certificates.watch(tasks);
        watched.map_err(io_error("watching the directories of certificates"))?;
        Ok(certificates)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Tls>> {
        self.server.iter().chain(&self.gateway)
    }

    /// Reads the files again. What cannot be used changes nothing.
    pub(crate) fn reload(&self) {
        let mut done = BTreeSet::new();
        for tls in self.all().filter(|tls| done.insert(tls.files())) {
            let certificate = tls.files()[0].display();
            match tls.reload() {
                Ok(true) => tracing::info!(%certificate, "the certificate was replaced"),
                Ok(false) => {}
                Err(error) => tracing::warn!(
                    %certificate,
                    error = %api::error_chain(&error),
                    "the certificate was not replaced; the one before is still shown"
                ),
            }
        }
    }

    /// Reads the files again whenever something in their directories changes, until the server stops.
    fn watch(&self, tasks: &TaskSpawner) -> io::Result<()> {
        let files = self.all().flat_map(|tls| tls.files());
        let directories: BTreeSet<PathBuf> = files.filter_map(directory_of).collect();
        if directories.is_empty() {
            return Ok(());
        }
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // Directories rather than files: those are replaced by renaming others, or links to them (Kubernetes, certbot).
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::CREATE;
        for directory in &directories {
            inotify::add_watch(&watch, directory, flags)?;
        }
        // Its events are read as bytes from a pipe are (inotify(7)).
        let mut events = pipe::Receiver::from_owned_fd_unchecked(watch)?;
        // What changed before the watch began.
        self.reload();
        let (certificates, stopping) = (self.clone(), tasks.stopping());
        tasks.spawn("certificates", async move {
            let mut told = [0; 4096];
            while let Some(Ok(_)) = stopping.run_until_cancelled(events.read(&mut told)).await {
                certificates.reload();
            }
        });
        Ok(())
    }
}

fn load(files: &TlsFiles) -> Result<Option<Arc<Tls>>, TlsError> {
    let files = files.certificate.as_ref().zip(files.key.as_ref());
    let load = |(certificate, key): (&PathBuf, &PathBuf)| Tls::load(certificate, key);
    Ok(files.map(load).transpose()?.map(Arc::new))
}

fn directory_of(file: &Path) -> Option<PathBuf> {
    let parent = file.parent()?;
    Some(match parent.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => parent.to_owned(),
    })
}
