//! A server that is known by the fingerprint of its certificate, or of the authority that signed it, rather than by
//! an authority that this machine trusts. `osb server tls init` makes such a certificate.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sha2::{Digest as _, Sha256};

use crate::config::{ConnectionConfig, ENV_TLS_FINGERPRINT};
use crate::error::{Error, Result};

/// The SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TlsFingerprint([u8; 32]);

impl FromStr for TlsFingerprint {
    type Err = Error;

    /// 64 hexadecimal digits, with or without colons, and `sha256:` before them or not.
    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim().to_ascii_lowercase();
        let digits = text
            .strip_prefix("sha256:")
            .unwrap_or(&text)
            .replace(':', "");
        let mut bytes = [0; 32];
        let pairs = digits.as_bytes().chunks(2);
        let is_whole = digits.len() == 64 && digits.bytes().all(|it| it.is_ascii_hexdigit());
        for (byte, pair) in bytes
            .iter_mut()
            .zip(pairs)
            .take(if is_whole { 32 } else { 0 })
        {
            let pair = std::str::from_utf8(pair).unwrap_or_default();
            *byte = u8::from_str_radix(pair, 16).unwrap_or_default();
        }
        if is_whole {
            return Ok(Self(bytes));
        }
        Err(Error::Config {
            origin: "tls_fingerprint".to_owned(),
            message: "write the 64 hexadecimal digits of a certificate's SHA-256".to_owned(),
        })
    }
}

impl fmt::Display for TlsFingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for TlsFingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// A client that speaks to the server alone whose fingerprint was set, if one was.
pub(crate) fn pinned(
    builder: reqwest::ClientBuilder,
    config: &ConnectionConfig,
    http1_only: bool,
) -> Result<reqwest::ClientBuilder> {
    let Some(fingerprint) = config.tls_fingerprint else {
        return Ok(builder);
    };
    if config.scheme() != "https" {
        return Err(Error::Config {
            origin: "tls_fingerprint".to_owned(),
            message: "is of no use without TLS: set the protocol to https".to_owned(),
        });
    }
    Ok(builder.tls_backend_preconfigured(fingerprint.client(http1_only)?))
}

impl TlsFingerprint {
    fn is_of(self, certificate: &CertificateDer<'_>) -> bool {
        Sha256::digest(certificate)[..] == self.0
    }

    /// TLS with servers that this is the fingerprint of, and no others.
    fn client(self, http1_only: bool) -> Result<ClientConfig> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let config = config
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Config {
                origin: "tls".to_owned(),
                message: error.to_string(),
            })?;
        let verifier = Arc::new(Pinned {
            fingerprint: self,
            provider,
        });
        let mut config = config
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if !http1_only {
            config.alpn_protocols.insert(0, b"h2".to_vec());
        }
        Ok(config)
    }
}

/// Takes a server that shows the certificate itself, or one for its name that the certificate's owner signed.
#[derive(Debug)]
struct Pinned {
    fingerprint: TlsFingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        status: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        if self.fingerprint.is_of(own) {
            return Ok(ServerCertVerified::assertion());
        }
        let authority = others.iter().find(|it| self.fingerprint.is_of(it));
        let Some(authority) = authority else {
            return Err(rustls::Error::General(format!(
                "the server shows no certificate with the fingerprint that was set ({ENV_TLS_FINGERPRINT}); it is \
                 another server, or its authority was made anew"
            )));
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let provider = Arc::clone(&self.provider);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(own, others, name, status, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_written_in_any_of_the_usual_ways() {
        let plain = "00ff".repeat(16);
        let colons = vec!["00:FF"; 16].join(":");
        for text in [plain.clone(), colons, format!("SHA256:{plain}")] {
            let read: TlsFingerprint = text.parse().unwrap();
            assert_eq!(read.to_string(), plain, "{text}");
        }
        for wrong in ["", "00", "sha1:00", &"0g".repeat(32), &"é".repeat(32)] {
            assert!(wrong.parse::<TlsFingerprint>().is_err(), "{wrong}");
        }
    }
}
