//! Whether others on this machine can read the secrets of a configuration file.

use std::os::unix::fs::MetadataExt as _;

use daemon::config::Loaded;

use super::Config;

/// Permission bits by which a group, or everybody, may read a file.
const READABLE_BY_OTHERS: u32 = 0o044;

/// What a secret is shown as among the settings.
const HIDDEN: &str = "[hidden]";

/// Secrets in a file that others may read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exposure {
    /// What is the matter.
    pub(crate) problem: String,
    /// The command that mends it.
    pub(crate) fix: String,
}

/// Whether others than its owner may read the file, and it holds a secret.
pub(crate) fn exposure(loaded: &Loaded<Config>) -> Option<Exposure> {
    let path = loaded.file.as_deref()?;
    // What was set by a variable or a flag is not in the file.
    let in_file = format!("{} line ", path.display());
    let secret = loaded
        .changed
        .iter()
        .find(|change| change.value == HIDDEN && change.origin.starts_with(&in_file))?;
    let mode = std::fs::metadata(path).ok()?.mode();
    (mode & READABLE_BY_OTHERS != 0).then(|| Exposure {
        problem: format!(
            "{} holds {} and has mode {:04o}: other users of this machine can read it",
            path.display(),
            secret.key,
            mode & 0o7777
        ),
        fix: format!("chmod 600 {}", path.display()),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::{load, sources};

    #[test]
    fn a_secret_in_a_file_that_others_may_read_is_noticed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        let exposed = |text: &str, mode, variables: &[(&str, &str)]| {
            std::fs::write(path, text).unwrap();
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            let variables = variables.iter();
            let variables = variables.map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            let sources = sources(Some(path.to_owned()), Vec::new(), variables.collect());
            exposure(&load(&sources).unwrap())
        };
        let key = "[server]\napi_key = 'k'";
        let found = exposed(key, 0o644, &[]).unwrap();
        assert!(found.problem.contains("server.api_key"), "{found:?}");
        assert!(found.fix.starts_with("chmod 600 /"), "{found:?}");
        assert!(!found.problem.contains("'k'"), "{found:?}");
        assert!(exposed(key, 0o640, &[]).is_some());
        let dsn = "[store]\ntype = 'postgresql'\n[store.postgresql]\ndsn = 'postgresql://a:b@c/d'";
        assert!(exposed(dsn, 0o604, &[]).is_some());
        assert_eq!(exposed(key, 0o600, &[]), None);
        let variable = [("OPENSANDBOX_SERVER_API_KEY", "k")];
        assert_eq!(exposed("[server]\nport = 1", 0o644, &variable), None);
    }
}
