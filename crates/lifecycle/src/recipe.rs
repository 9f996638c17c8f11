//! How to make a sandbox, in a form that can be kept: the request with its secrets, as the store
//! holds it until the sandbox is made.

use std::collections::BTreeMap;

use api::egress::policy::EgressPolicy;
use api::id::SnapshotId;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::admission::Admitted;
use crate::backend::{Limits, RegistryAuth, Source, Spec, Volume};
use crate::sandbox::{Origin, Sandbox, secret_text};

/// What `Backend::create` needs beyond what [`Sandbox`] already says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Recipe {
    source: StoredSource,
    entrypoint: Option<Vec<String>>,
    env: BTreeMap<String, StoredValue>,
    limits: Limits,
    volumes: Vec<Volume>,
    #[serde(with = "stored_network")]
    network: EgressPolicy,
}

/// An environment value: often a secret, so never printed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct StoredValue(#[serde(with = "secret_text")] SecretString);

#[derive(Debug, Clone, Serialize, Deserialize)]
enum StoredSource {
    Image {
        reference: String,
        auth: Option<StoredAuth>,
    },
    Snapshot(SnapshotId),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredAuth {
    username: String,
    #[serde(with = "secret_text")]
    password: SecretString,
}

/// A policy without rules is kept as one word: as it was before policies had rules, so that records and
/// fingerprints of keys stay what they were.
mod stored_network {
    use api::egress::policy::{EgressPolicy, PolicyMode};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    enum RulelessPolicy {
        Outside,
        None,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum StoredPolicy<P> {
        Ruleless(RulelessPolicy),
        Policy(P),
    }

    pub(super) fn serialize<S: Serializer>(
        policy: &EgressPolicy,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let kept = match policy.mode() {
            PolicyMode::AllowAll => StoredPolicy::Ruleless(RulelessPolicy::Outside),
            PolicyMode::DenyAll => StoredPolicy::Ruleless(RulelessPolicy::None),
            PolicyMode::Enforcing => StoredPolicy::Policy(policy),
        };
        kept.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<EgressPolicy, D::Error> {
        Ok(match StoredPolicy::<EgressPolicy>::deserialize(from)? {
            StoredPolicy::Ruleless(RulelessPolicy::Outside) => EgressPolicy::ALLOW_ALL,
            StoredPolicy::Ruleless(RulelessPolicy::None) => EgressPolicy::DENY_ALL,
            StoredPolicy::Policy(policy) => policy,
        })
    }
}

impl Recipe {
    /// Takes from the request what is needed to make the sandbox.
    pub(crate) fn new(admitted: &Admitted) -> Recipe {
        let request = admitted.request();
        let source = match &request.source {
            Source::Image { reference, auth } => StoredSource::Image {
                reference: reference.clone(),
                auth: auth.as_ref().map(|auth| StoredAuth {
                    username: auth.username.clone(),
                    password: auth.password.clone(),
                }),
            },
            Source::Snapshot(id) => StoredSource::Snapshot(id.clone()),
        };
        let keep = |(name, value): (&String, &String)| {
            (name.clone(), StoredValue(SecretString::from(value.clone())))
        };
        Recipe {
            source,
            entrypoint: request.entrypoint.clone(),
            env: request.env.iter().map(keep).collect(),
            limits: request.limits.clone(),
            volumes: admitted.volumes().to_vec(),
            network: request.network.clone(),
        }
    }

    /// What the filesystem starts as.
    pub(crate) fn source(&self) -> Source {
        match &self.source {
            StoredSource::Image { reference, auth } => Source::Image {
                reference: reference.clone(),
                auth: auth.as_ref().map(|auth| RegistryAuth {
                    username: auth.username.clone(),
                    password: auth.password.clone(),
                }),
            },
            StoredSource::Snapshot(id) => Source::Snapshot(id.clone()),
        }
    }

    /// The same without credentials, as clients see it.
    pub(crate) fn origin(&self) -> Origin {
        match &self.source {
            StoredSource::Image { reference, .. } => Origin::Image(reference.clone()),
            StoredSource::Snapshot(id) => Origin::Snapshot(id.clone()),
        }
    }

    /// What the backend is given.
    pub(crate) fn spec(&self, sandbox: &Sandbox, labels: BTreeMap<String, String>) -> Spec {
        let reveal = |(name, value): (&String, &StoredValue)| {
            (name.clone(), value.0.expose_secret().to_owned())
        };
        Spec {
            id: sandbox.id.clone(),
            source: self.source(),
            platform: sandbox.platform.clone(),
            entrypoint: self.entrypoint.clone(),
            env: self.env.iter().map(reveal).collect(),
            limits: self.limits.clone(),
            volumes: self.volumes.clone(),
            network: self.network.clone(),
            access_token: sandbox.access_token.clone(),
            labels,
        }
    }
}

/// What tells one request from another: a hash over everything it asks for, so that a key used
/// for a different request is noticed. Spelling on the wire (order, white space) has no part.
pub(crate) fn fingerprint(admitted: &Admitted) -> String {
    let request = admitted.request();
    let parts = (
        Recipe::new(admitted),
        &request.platform,
        request.timeout,
        &request.metadata,
        &request.extensions,
        request.renew_on_access,
    );
    let text = serde_json::to_vec(&parts).expect("maps have text keys, so this is valid JSON");
    hex::encode(Sha256::digest(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct StoredPolicy(#[serde(with = "stored_network")] EgressPolicy);

    #[test]
    fn policies_are_kept_as_records_have_them() {
        let rules =
            r#"{"default_action":"deny","rules":[{"action":"allow","target":"*.example.com"}]}"#;
        let words = [
            ("\"Outside\"", EgressPolicy::ALLOW_ALL),
            ("\"None\"", EgressPolicy::DENY_ALL),
        ];
        for (text, policy) in words {
            assert_eq!(
                serde_json::to_string(&StoredPolicy(policy.clone())).unwrap(),
                text
            );
            assert_eq!(
                serde_json::from_str::<StoredPolicy>(text).unwrap().0,
                policy
            );
        }
        let read = serde_json::from_str::<StoredPolicy>(rules).unwrap();
        assert_eq!(read.0.rules.len(), 1);
        assert_eq!(serde_json::to_string(&read).unwrap(), rules);
    }
}
