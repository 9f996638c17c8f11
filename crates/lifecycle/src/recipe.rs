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
    source: KeptSource,
    entrypoint: Option<Vec<String>>,
    env: BTreeMap<String, KeptValue>,
    limits: Limits,
    volumes: Vec<Volume>,
    #[serde(with = "kept_network")]
    network: EgressPolicy,
}

/// An environment value: often a secret, so never printed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct KeptValue(#[serde(with = "secret_text")] SecretString);

#[derive(Debug, Clone, Serialize, Deserialize)]
enum KeptSource {
    Image {
        reference: String,
        auth: Option<KeptAuth>,
    },
    Snapshot(SnapshotId),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct KeptAuth {
    username: String,
    #[serde(with = "secret_text")]
    password: SecretString,
}

/// A policy without rules is kept as one word: as it was before policies had rules, so that records and
/// fingerprints of keys stay what they were.
mod kept_network {
    use api::egress::policy::{EgressPolicy, PolicyMode};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    enum Word {
        Outside,
        None,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Kept<P> {
        Word(Word),
        Policy(P),
    }

    pub(super) fn serialize<S: Serializer>(
        policy: &EgressPolicy,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let kept = match policy.mode() {
            PolicyMode::AllowAll => Kept::Word(Word::Outside),
            PolicyMode::DenyAll => Kept::Word(Word::None),
            PolicyMode::Enforcing => Kept::Policy(policy),
        };
        kept.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<EgressPolicy, D::Error> {
        Ok(match Kept::<EgressPolicy>::deserialize(from)? {
            Kept::Word(Word::Outside) => EgressPolicy::ALLOW_ALL,
            Kept::Word(Word::None) => EgressPolicy::DENY_ALL,
            Kept::Policy(policy) => policy,
        })
    }
}

impl Recipe {
    /// Takes from the request what is needed to make the sandbox.
    pub(crate) fn new(admitted: &Admitted) -> Recipe {
        let request = admitted.request();
        let source = match &request.source {
            Source::Image { reference, auth } => KeptSource::Image {
                reference: reference.clone(),
                auth: auth.as_ref().map(|auth| KeptAuth {
                    username: auth.username.clone(),
                    password: auth.password.clone(),
                }),
            },
            Source::Snapshot(id) => KeptSource::Snapshot(id.clone()),
        };
        let keep = |(name, value): (&String, &String)| {
            (name.clone(), KeptValue(SecretString::from(value.clone())))
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
            KeptSource::Image { reference, auth } => Source::Image {
                reference: reference.clone(),
                auth: auth.as_ref().map(|auth| RegistryAuth {
                    username: auth.username.clone(),
                    password: auth.password.clone(),
                }),
            },
            KeptSource::Snapshot(id) => Source::Snapshot(id.clone()),
        }
    }

    /// The same without credentials, as clients see it.
    pub(crate) fn origin(&self) -> Origin {
        match &self.source {
            KeptSource::Image { reference, .. } => Origin::Image(reference.clone()),
            KeptSource::Snapshot(id) => Origin::Snapshot(id.clone()),
        }
    }

    /// What the backend is given.
    pub(crate) fn spec(&self, sandbox: &Sandbox, labels: BTreeMap<String, String>) -> Spec {
        let reveal = |(name, value): (&String, &KeptValue)| {
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
    struct Kept(#[serde(with = "kept_network")] EgressPolicy);

    #[test]
    fn policies_are_kept_as_records_have_them() {
        let rules =
            r#"{"default_action":"deny","rules":[{"action":"allow","target":"*.example.com"}]}"#;
        let words = [
            ("\"Outside\"", EgressPolicy::ALLOW_ALL),
            ("\"None\"", EgressPolicy::DENY_ALL),
        ];
        for (text, policy) in words {
            assert_eq!(serde_json::to_string(&Kept(policy.clone())).unwrap(), text);
            assert_eq!(serde_json::from_str::<Kept>(text).unwrap().0, policy);
        }
        let read = serde_json::from_str::<Kept>(rules).unwrap();
        assert_eq!(read.0.rules.len(), 1);
        assert_eq!(serde_json::to_string(&read).unwrap(), rules);
    }
}
