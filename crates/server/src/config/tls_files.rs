//! The files of a certificate, of the server's or its gateway's. What is in them is read by `tls`.

use std::path::PathBuf;

use daemon::config::Problems;
use daemon::section;

section! {
    /// A certificate and its key, as PEM, read again whenever they change. `osb server tls init` makes
    /// them for a server that has none from elsewhere.
    pub struct TlsFiles {
        /// The server's certificate, with those of its issuers behind it.
        certificate: Option<PathBuf> = None,
        /// Its private key.
        key: Option<PathBuf> = None,
    }
}

impl TlsFiles {
    /// One is of no use without the other. Whether they can be used is found when they are read.
    pub(super) fn check(&self, path: &str, problems: &mut Problems) {
        match (&self.certificate, &self.key) {
            (Some(_), None) => problems.add(format!("{path}.certificate needs {path}.key")),
            (None, Some(_)) => problems.add(format!("{path}.key needs {path}.certificate")),
            _ => {}
        }
    }
}
