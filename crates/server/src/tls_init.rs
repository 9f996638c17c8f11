//! `osb server tls init`: a certificate authority for a server that has no certificate from elsewhere, and the
//! server's certificate, which it signs.
//!
//! Clients pin the authority by its fingerprint, so that the server's certificate can be renewed without telling
//! them. The authority's key is used for nothing else, and may be kept elsewhere between renewals.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use sha2::{Digest as _, Sha256};

/// The names that a server on one machine is reached by.
const OWN_NAMES: [&str; 4] = ["localhost", "*.localhost", "127.0.0.1", "::1"];

/// Browsers of one vendor take no longer ones (Apple, "About upcoming limits on trusted certificates").
const SERVER_DAYS: i64 = 825;
const AUTHORITY_DAYS: i64 = 3650;

/// Clocks of clients may be behind.
const EARLIER_DAYS: i64 = 1;

const NAME: &str = "OSB server authority";

/// Why nothing was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is an authority already.
    #[error(
        "{} is there already; --renew makes a new certificate of the server with it", .0.display()
    )]
    Exists(PathBuf),
    /// There is none to renew with.
    #[error("{} cannot be read; run this without --renew first", path.display())]
    NoAuthority {
        /// The authority's key.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A name is none.
    #[error("{name:?} is no name of a host and no address")]
    Name {
        /// The name.
        name: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// A certificate or key cannot be made or read.
    #[error("the certificate cannot be made")]
    Making(#[from] rcgen::Error),
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Writing {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What was made.
pub(crate) struct Made {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// What clients pin.
    pub(crate) fingerprint: String,
}

/// Makes an authority and a certificate for these names besides those of the machine itself; with `renew` only
/// the certificate.
pub(crate) fn init(directory: &Path, names: &[String], renew: bool) -> Result<Made, Error> {
    let made = |name: &str| directory.join(name);
    let (authority_path, authority_key_path) = (made("ca.pem"), made("ca.key"));
    let authority_key = if renew {
        let text =
            fs::read_to_string(&authority_key_path).map_err(|source| Error::NoAuthority {
                path: authority_key_path.clone(),
                source,
            })?;
        KeyPair::from_pem(&text)?
    } else {
        if let Some(there) = [&authority_path, &authority_key_path]
            .into_iter()
            .find(|path| path.exists())
        {
            return Err(Error::Exists(there.clone()));
        }
        fs::create_dir_all(directory).map_err(|source| Error::Writing {
            path: directory.to_owned(),
            source,
        })?;
        KeyPair::generate()?
    };
    let parameters = authority();
    if !renew {
        let certificate = parameters.self_signed(&authority_key)?;
        write(&authority_key_path, &authority_key.serialize_pem(), 0o600)?;
        write(&authority_path, &certificate.pem(), 0o644)?;
    }
    let authority_pem =
        fs::read_to_string(&authority_path).map_err(|source| Error::NoAuthority {
            path: authority_path.clone(),
            source,
        })?;
    let issuer = Issuer::new(parameters, authority_key);
    let key = KeyPair::generate()?;
    let certificate = server(names)?.signed_by(&key, &issuer)?;
    let (certificate_path, key_path) = (made("server.pem"), made("server.key"));
    // The key first: whoever watches the certificate finds both then.
    write(&key_path, &key.serialize_pem(), 0o600)?;
    write(
        &certificate_path,
        &format!("{}{authority_pem}", certificate.pem()),
        0o644,
    )?;
    Ok(Made {
        fingerprint: fingerprint(&authority_pem)?,
        authority: authority_path,
        certificate: certificate_path,
        key: key_path,
    })
}

fn authority() -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, NAME);
    // Of servers, and of no further authorities.
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_days(&mut parameters, AUTHORITY_DAYS);
    parameters
}

fn server(names: &[String]) -> Result<CertificateParams, Error> {
    let all = OWN_NAMES
        .into_iter()
        .chain(names.iter().map(String::as_str));
    let mut parameters = CertificateParams::default();
    for name in all {
        let one = CertificateParams::new(vec![name.to_owned()]);
        let one = one.map_err(|source| Error::Name {
            name: name.to_owned(),
            source,
        })?;
        parameters.subject_alt_names.extend(one.subject_alt_names);
    }
    parameters
        .distinguished_name
        .push(DnType::CommonName, "OSB server");
    parameters.use_authority_key_identifier_extension = true;
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    set_days(&mut parameters, SERVER_DAYS);
    Ok(parameters)
}

fn set_days(parameters: &mut CertificateParams, days: i64) {
    let day = |offset: i64| {
        let day = jiff::Zoned::now().date() + jiff::Span::new().days(offset);
        let part = |part: i8| u8::try_from(part).unwrap_or(1);
        rcgen::date_time_ymd(day.year().into(), part(day.month()), part(day.day()))
    };
    parameters.not_before = day(-EARLIER_DAYS);
    parameters.not_after = day(days);
}

/// The SHA-256 of the first certificate, as `openssl x509 -fingerprint` has it without its colons.
fn fingerprint(pem: &str) -> Result<String, Error> {
    use base64::Engine as _;
    let wrong = || Error::Making(rcgen::Error::CouldNotParseCertificate);
    let (_, rest) = pem
        .split_once("-----BEGIN CERTIFICATE-----")
        .ok_or_else(wrong)?;
    let (body, _) = rest
        .split_once("-----END CERTIFICATE-----")
        .ok_or_else(wrong)?;
    let text: String = body.split_whitespace().collect();
    let bytes = base64::prelude::BASE64_STANDARD
        .decode(text)
        .map_err(|_| wrong())?;
    Ok(hex::encode(Sha256::digest(bytes)))
}

/// Written under another name first: a file that is there is whole.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let write = || {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(|source| Error::Writing {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_authority_is_made_once_and_certificates_are_renewed_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("tls");
        let no = init(&directory, &[], true);
        assert!(matches!(no, Err(Error::NoAuthority { .. })));
        let made = init(&directory, &["box.example".to_owned()], false).unwrap();
        proxy::Tls::load(&made.certificate, &made.key).unwrap();
        for secret in ["ca.key", "server.key"] {
            let mode = fs::metadata(directory.join(secret)).unwrap().permissions();
            assert_eq!(mode.mode() & 0o777, 0o600, "{secret}");
        }
        assert!(matches!(
            init(&directory, &[], false),
            Err(Error::Exists(_))
        ));
        let before = fs::read(&made.certificate).unwrap();
        let renewed = init(&directory, &[], true).unwrap();
        assert_eq!(renewed.fingerprint, made.fingerprint);
        assert_eq!(renewed.fingerprint.len(), 64);
        assert_ne!(fs::read(&made.certificate).unwrap(), before);
        proxy::Tls::load(&made.certificate, &made.key).unwrap();
        let wrong = init(&directory, &["a b\u{e9}".to_owned()], true);
        assert!(matches!(wrong, Err(Error::Name { .. })));
    }
}
