//! `tenants.toml` as the published server has it: tenants with their keys.
//!
//! It is read when the server starts and on SIGHUP; a file that cannot be used changes nothing.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use lifecycle::{GivenKey, Role, Tenant};
use serde::Deserialize;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("the tenants file {path} cannot be read; correct tenants.path")]
    Read {
        /// Where it should be.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// It says something impossible.
    #[error("the tenants file {path} cannot be used: {message}")]
    Invalid {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it; never a key.
        message: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tenants: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    /// Of Kubernetes, where a tenant is one. Here it means nothing.
    namespace: Option<String>,
    #[serde(default)]
    api_keys: Vec<String>,
    /// Ours: what holders of these keys may do.
    #[serde(default = "operator")]
    role: Role,
}

/// As in the published server: everything in the tenant but its keys, which are in the file.
fn operator() -> Role {
    Role::Operator
}

/// What the file says.
pub(super) struct Tenants {
    pub(super) keys: Vec<GivenKey>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) lengths: BTreeSet<usize>,
}

pub(super) fn read(path: &Path) -> Result<Tenants, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(&text).map_err(|message| Error::Invalid {
        path: path.to_owned(),
        message,
    })
}

fn parse(text: &str) -> Result<Tenants, String> {
    // The error as a whole shows the line, which may hold a key.
    let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let mut tenants = Tenants {
        keys: Vec::new(),
        tenants: Vec::new(),
        lengths: BTreeSet::new(),
    };
    let mut seen = BTreeSet::new();
    for (index, entry) in file.tenants.into_iter().enumerate() {
        let at = |what: &str| format!("tenants[{index}] ({:?}): {what}", entry.name);
        let name: Tenant = entry
            .name
            .parse()
            .map_err(|error| at(&format!("{error}")))?;
        if tenants.tenants.contains(&name) {
            return Err(at("there are two of this name"));
        }
        if let Some(namespace) = &entry.namespace {
            tracing::debug!(tenant = %name, namespace, "namespaces mean nothing without Kubernetes");
        }
        for key in &entry.api_keys {
            if key.trim().is_empty() {
                return Err(at("a key is blank"));
            }
            let hash = lifecycle::hash(key.as_bytes());
            if !seen.insert(hash) {
                return Err(at("a key stands in the file twice"));
            }
            tenants.lengths.insert(key.len());
            tenants.keys.push(GivenKey {
                // The file has no names of keys: the beginning of the hash tells them apart.
                name: format!("{name}-{}", hex::encode(&hash[..4])),
                tenant: name.clone(),
                role: entry.role,
                hash,
            });
        }
        tenants.tenants.push(name);
    }
    Ok(tenants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_form_is_read() {
        let read = parse(
            "[[tenants]]\nname = 'acme'\nnamespace = 'acme-ns'\napi_keys = ['one', 'other']\n\
             [[tenants]]\nname = 'beta'\napi_keys = []\nrole = 'admin'\n",
        )
        .unwrap();
        let names: Vec<_> = read.tenants.iter().map(Tenant::as_str).collect();
        assert_eq!(names, ["acme", "beta"]);
        assert_eq!(read.keys.len(), 2);
        assert_eq!(read.keys[0].hash, lifecycle::hash(b"one"));
        assert_eq!(read.keys[0].role, Role::Operator);
        assert!(parse("").unwrap().tenants.is_empty());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_showing_keys() {
        for (text, expected) in [
            ("[[tenants]]\nname = 'A b'", "a tenant's name has 1 to"),
            (
                "[[tenants]]\nname = 'a'\n[[tenants]]\nname = 'a'",
                "two of this name",
            ),
            ("[[tenants]]\nname = 'a'\napi_keys = ['']", "a key is blank"),
            (
                "[[tenants]]\nname = 'a'\napi_keys = ['k']\n[[tenants]]\nname = 'b'\napi_keys = ['k']",
                "a key stands in the file twice",
            ),
            ("[[tenants]]\nname = 'a'\nquota = 1", "unknown field"),
            (
                "[[tenants]]\nname = 'a'\nrole = 'server'",
                "unknown variant",
            ),
            ("[[tenants]]\napi_keys = ['secret-key'", ""),
        ] {
            let problem = parse(text).err().unwrap();
            assert!(problem.contains(expected), "{problem}");
            assert!(!problem.contains("secret-key"), "{problem}");
        }
    }
}
