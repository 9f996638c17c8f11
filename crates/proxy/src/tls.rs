//! The certificate that a listener shows and its key, read from files, and replaced while it listens.
//!
//! Knows no HTTP. Files are read when they are asked to be ([`Tls::reload`]): who notices that they changed is the
//! caller's business.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// The names of HTTP's versions in TLS (RFC 7301 6, RFC 9113 3.1).
pub(crate) const ALPN_HTTP2: &[u8] = b"h2";
const ALPN_HTTP1: &[u8] = b"http/1.1";

/// The first byte of a connection on which TLS is spoken: a handshake record (RFC 8446 5.1).
pub(crate) const HANDSHAKE: u8 = 22;

/// Why a certificate cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("{} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: pem::Error,
    },
    /// There is no certificate in the file.
    #[error("{} has no certificate: a section that begins with -----BEGIN CERTIFICATE-----", .0.display())]
    NoCertificate(PathBuf),
    /// The key belongs to another certificate.
    #[error(
        "the key in {} does not belong to the first certificate in {}: put the server's own certificate first, or use its key", key.display(), certificate.display()
    )]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// They cannot be used for another reason.
    #[error("the certificate in {} cannot be used with the key in {}", certificate.display(), key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

/// The certificate of a listener.
#[derive(Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    shown: Arc<Shown>,
}

/// What connections from now on are shown.
#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl Tls {
    /// Reads a certificate, with those of its issuers behind it, and its key, both as PEM.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let shown = read(certificate, key)?;
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            shown: Arc::new(Shown(RwLock::new(Arc::new(shown)))),
        })
    }

    /// The files.
    pub fn files(&self) -> [&Path; 2] {
        [&self.certificate, &self.key]
    }

    /// Reads the files again, for connections from now on; whether they hold another certificate. With an error
    /// the one before stays.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let read = read(&self.certificate, &self.key)?;
        let mut shown = self.shown.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_other = shown.cert != read.cert;
        *shown = Arc::new(read);
        Ok(is_other)
    }

    /// What makes TLS connections of plain ones.
    pub(crate) fn acceptor(&self, has_http2: bool) -> TlsAcceptor {
        let config = ServerConfig::builder_with_provider(provider());
        let config = config
            .with_safe_default_protocol_versions()
            .expect("the provider has what TLS 1.2 and 1.3 need");
        let shown = Arc::clone(&self.shown);
        let mut config = config.with_no_client_auth().with_cert_resolver(shown);
        config.alpn_protocols = match has_http2 {
            true => vec![ALPN_HTTP2.to_vec(), ALPN_HTTP1.to_vec()],
            false => vec![ALPN_HTTP1.to_vec()],
        };
        TlsAcceptor::from(Arc::new(config))
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let shown = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&shown))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn read(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::File { path, source }
    };
    let chain = CertificateDer::pem_file_iter(certificate).map_err(unreadable(certificate))?;
    let chain: Vec<_> = chain
        .collect::<Result<_, _>>()
        .map_err(unreadable(certificate))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate(certificate.to_owned()));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(unreadable(key))?;
    CertifiedKey::from_der(chain, secret, &provider()).map_err(|source| {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        match source {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsError::Mismatch { certificate, key }
            }
            source => TlsError::Unusable {
                certificate,
                key,
                source,
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) = (
            directory.join(format!("{name}.pem")),
            directory.join(format!("{name}.key")),
        );
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        (certificate, key)
    }

    #[test]
    fn what_is_wrong_with_files_is_said_and_the_certificate_before_stays() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let (certificate, key) = write(directory, "own");
        let (other_certificate, other_key) = write(directory, "other");
        let tls = Tls::load(&certificate, &key).unwrap();
        assert!(!tls.reload().unwrap(), "nothing changed");
        let text = |error: TlsError| api::error_chain(&error).to_string();
        let mismatch = text(Tls::load(&certificate, &other_key).unwrap_err());
        assert!(mismatch.contains("other.key does not belong to the first certificate in"));
        let absent = text(Tls::load(&directory.join("none.pem"), &key).unwrap_err());
        assert!(absent.contains("none.pem cannot be read"), "{absent}");
        let swapped = text(Tls::load(&key, &certificate).unwrap_err());
        assert!(swapped.contains("has no certificate"), "{swapped}");
        let no_key = text(Tls::load(&certificate, &certificate).unwrap_err());
        assert!(no_key.contains("cannot be read"), "{no_key}");
        // Half of a replacement is no replacement.
        let before = Arc::clone(&tls.shown.0.read().unwrap());
        std::fs::copy(&other_certificate, &certificate).unwrap();
        assert!(matches!(tls.reload(), Err(TlsError::Mismatch { .. })));
        assert_eq!(tls.shown.0.read().unwrap().cert, before.cert);
        std::fs::copy(&other_key, &key).unwrap();
        assert!(tls.reload().unwrap());
        assert_ne!(tls.shown.0.read().unwrap().cert, before.cert);
    }
}
