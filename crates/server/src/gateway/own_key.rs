//! The key that routes and links are signed with where the operator set none: made once, kept in a file
//! that only the server reads, so that what was signed outlives a restart.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use proxy::gateway::KeyRing;
use rand::Rng as _;

use crate::backends;
use crate::config::Config;
use crate::run::{Error, io_error};

/// The id of the key.
const KEY_ID: char = 'o';

/// As many bytes as the hash has (RFC 2104 3).
const KEY_BYTES: usize = 32;

const FILE: &str = "gateway.key";

pub(super) fn load(config: &Config) -> Result<KeyRing, Error> {
    let directory = backends::of(config.runtime.kind).data_dir(config);
    let path = directory.join(FILE);
    let key = read_or_make(&path);
    let key = key.map_err(io_error(format!(
        "reading or making the gateway's key {}",
        path.display()
    )))?;
    let keys = vec![(KEY_ID, key.to_vec().into())];
    Ok(KeyRing::new(KEY_ID, keys).expect("the id is a letter"))
}

fn read_or_make(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    match fs::read(path) {
        Ok(bytes) => bytes.try_into().map_err(|_| {
            let message =
                format!("it must have {KEY_BYTES} bytes; remove it and a new one is made");
            io::Error::new(io::ErrorKind::InvalidData, message)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path),
        Err(error) => Err(error),
    }
}

/// Written under another name first: a file that is there is whole.
fn make(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let key: [u8; KEY_BYTES] = rand::rng().random();
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let new = path.with_extension("key.new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(&key)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_for_the_server_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data").join(FILE);
        let made = read_or_make(&path).unwrap();
        assert_eq!(read_or_make(&path).unwrap(), made);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_file(&path).unwrap();
        assert_ne!(read_or_make(&path).unwrap(), made);
        fs::write(&path, b"short").unwrap();
        assert!(read_or_make(&path).is_err());
    }
}
