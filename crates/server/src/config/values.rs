//! Types of single settings that are more than a text or a number.

use std::collections::BTreeSet;

use daemon::config::{Problems, TomlValue};
use lifecycle::event::AuditEntry;
use serde::Deserialize;

/// Where sandboxes are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeKind {
    /// The built-in runtime.
    Embedded,
    /// A Docker engine.
    Docker,
    /// A Kubernetes cluster.
    Kubernetes,
}

impl RuntimeKind {
    /// As it is written in the configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Docker => "docker",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// Where acknowledged facts are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// A file.
    Sqlite,
    /// A server.
    Postgresql,
}

/// A named API key, as its hash.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKey {
    /// Whose it is, for the audit trail.
    pub name: String,
    /// SHA-256 of the key, in hexadecimal digits.
    pub sha256: String,
}

/// Named API keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ApiKeys(pub Vec<ApiKey>);

/// The name of the key that is set by `server.api_key`.
pub(crate) const DEFAULT_KEY_NAME: &str = "default";

/// Names appear in each line of the audit trail.
const NAME_BYTES_MAX: usize = 64;

impl ApiKeys {
    pub(super) fn check(&self, problems: &mut Problems) {
        let mut seen = BTreeSet::from([
            DEFAULT_KEY_NAME,
            crate::access::ANONYMOUS,
            AuditEntry::SERVER,
        ]);
        for key in &self.0 {
            let name = key.name.as_str();
            let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.@".contains(&b);
            if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
                problems.add(format!(
                    "server.api_keys: the name {name:?} must have 1 to {NAME_BYTES_MAX} of a-z, \
                     A-Z, 0-9 and -_.@"
                ));
            }
            if !seen.insert(name) {
                problems.add(format!("server.api_keys: the name {name:?} is taken"));
            }
            if key.digest().is_none() {
                problems.add(format!(
                    "server.api_keys: sha256 of {name:?} must have 64 hexadecimal digits; \
                     `printf %s KEY | sha256sum` prints it"
                ));
            }
        }
    }
}

impl ApiKey {
    /// The hash as bytes.
    pub(crate) fn digest(&self) -> Option<[u8; 32]> {
        let mut digest = [0; 32];
        hex::decode_to_slice(&self.sha256, &mut digest).ok()?;
        Some(digest)
    }
}

/// A setting that is one value.
macro_rules! leaf {
    ($type:ty, $kind:literal, $show:expr) => {
        impl ::daemon::config::Setting for $type {
            const KIND: &'static str = $kind;

            fn show(&self) -> Option<::daemon::config::TomlValue> {
                let show: fn(&Self) -> ::daemon::config::TomlValue = $show;
                Some(show(self))
            }
        }

        impl ::daemon::config::Described for $type {
            fn describe(
                &self,
                path: String,
                docs: &'static [&'static str],
                keys: &mut Vec<::daemon::config::Key>,
            ) {
                ::daemon::config::Key::add(self, path, docs, keys);
            }
        }
    };
}
pub(super) use leaf;

leaf!(RuntimeKind, "embedded, docker or kubernetes", |kind| kind
    .name()
    .into());
leaf!(StoreKind, "sqlite or postgresql", |kind| match kind {
    StoreKind::Sqlite => "sqlite".into(),
    StoreKind::Postgresql => "postgresql".into(),
});
leaf!(ApiKeys, "a list of { name, sha256 }", |_| TomlValue::Array(
    Vec::new()
));
