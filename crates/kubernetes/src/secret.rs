//! The Secret of a sandbox: what execd is handed over, what the service keeps with the sandbox, and the credentials of
//! the image's registry. It is there before the pod that needs it, and nothing of it is in the pod's own description.

use std::collections::BTreeMap;

use api::id::SandboxId;
use api::image_reference::ImageReference;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use lifecycle::backend::{Error, RegistryAuth, Source, Spec};
use lifecycle::execd;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use crate::call::{CallError, Cluster};
use crate::names;

/// What execd is handed over.
pub(crate) const HANDOFF: &str = "handoff";
/// The labels of the request, as JSON: a record in them has the token.
const LABELS: &str = "labels";
/// The token, for a server that starts again.
const TOKEN: &str = "token";
/// Where the kubelet looks for a registry's credentials (type kubernetes.io/dockerconfigjson).
const REGISTRIES: &str = ".dockerconfigjson";

/// A Secret may have a mebibyte (Kubernetes, MaxSecretSize); the rest is labels and keys.
const ENVIRONMENT_BYTES_MAX: usize = 768 * 1024;

/// What a Secret keeps of its sandbox.
pub(crate) struct Kept {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) token: Option<SecretString>,
}

/// The Secret of a new sandbox.
pub(crate) fn of(spec: &Spec) -> Result<Secret, Error> {
    let mut env = spec.env.clone();
    env.insert("OPENSANDBOX_ID".to_owned(), spec.id.to_string());
    let handoff = execd::handoff(&spec.access_token, &env, spec.limits.open_files);
    if handoff.len() > ENVIRONMENT_BYTES_MAX {
        return Err(Error::Invalid {
            field: "env",
            message: format!(
                "the environment has {} bytes; a Secret of the cluster holds {ENVIRONMENT_BYTES_MAX}",
                handoff.len()
            ),
        });
    }
    let labels = json!(spec.labels).to_string().into_bytes();
    let token = spec.access_token.expose_secret().as_bytes().to_vec();
    let mut data = BTreeMap::from([
        (HANDOFF.to_owned(), ByteString(handoff)),
        (LABELS.to_owned(), ByteString(labels)),
        (TOKEN.to_owned(), ByteString(token)),
    ]);
    let mut kind = "Opaque";
    if let Some((reference, auth)) = credentials(&spec.source) {
        data.insert(
            REGISTRIES.to_owned(),
            ByteString(registries(reference, auth)?),
        );
        kind = "kubernetes.io/dockerconfigjson";
    }
    let marks = [names::MAKER, (names::ID, spec.id.as_str())];
    Ok(made(&names::of(&spec.id), &marks, kind, data))
}

/// A Secret with nothing but the credentials for an image.
pub(crate) fn for_pull(name: &str, reference: &str, auth: &RegistryAuth) -> Result<Secret, Error> {
    let data = BTreeMap::from([(
        REGISTRIES.to_owned(),
        ByteString(registries(reference, auth)?),
    )]);
    let marks = [names::MAKER, (names::PULL, "true")];
    Ok(made(name, &marks, "kubernetes.io/dockerconfigjson", data))
}

fn made(
    name: &str,
    marks: &[(&str, &str)],
    kind: &str,
    data: BTreeMap<String, ByteString>,
) -> Secret {
    let labels = marks.iter();
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(
                labels
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                    .collect(),
            ),
            ..ObjectMeta::default()
        },
        type_: Some(kind.to_owned()),
        // Kubelets need not watch what cannot change.
        immutable: Some(true),
        data: Some(data),
        ..Secret::default()
    }
}

/// The image and the credentials for its registry, where there are any.
pub(crate) fn credentials(source: &Source) -> Option<(&str, &RegistryAuth)> {
    match source {
        Source::Image {
            reference,
            auth: Some(auth),
        } => Some((reference, auth)),
        _ => None,
    }
}

fn registries(reference: &str, auth: &RegistryAuth) -> Result<Vec<u8>, Error> {
    let parsed = reference
        .parse::<ImageReference>()
        .map_err(|error| Error::Invalid {
            field: "image.uri",
            message: format!("{error}"),
        })?;
    // The name under which kubelets look for Docker Hub's (pkg/credentialprovider/keyring.go).
    let registry = match parsed.registry() {
        "docker.io" => "https://index.docker.io/v1/",
        other => other,
    };
    let entry = json!({ "username": auth.username, "password": auth.password.expose_secret() });
    Ok(json!({ "auths": { registry: entry } })
        .to_string()
        .into_bytes())
}

pub(crate) async fn create(cluster: &Cluster, secret: &Secret) -> Result<(), CallError> {
    let api: Api<Secret> = cluster.api();
    let params = PostParams::default();
    let call = api.create(&params, secret);
    cluster.call("making a Secret", call).await.map(drop)
}

/// `Ok` when there is none.
pub(crate) async fn remove(cluster: &Cluster, name: &str) -> Result<(), CallError> {
    let api: Api<Secret> = cluster.api();
    let params = DeleteParams::default();
    match cluster
        .call("removing a Secret", api.delete(name, &params))
        .await
    {
        Err(failure) if failure.status() == Some(404) => Ok(()),
        other => other.map(drop),
    }
}

/// What is kept of one sandbox, if anything is.
pub(crate) async fn get(cluster: &Cluster, name: &str) -> Result<Option<Kept>, CallError> {
    let api: Api<Secret> = cluster.api();
    let found = cluster.call("reading a Secret", api.get_opt(name)).await?;
    Ok(found.map(|secret| kept(&secret)))
}

/// Every Secret of a sandbox.
pub(crate) async fn list(cluster: &Cluster) -> Result<Vec<Secret>, CallError> {
    let api: Api<Secret> = cluster.api();
    let params = ListParams::default().labels(names::ID);
    let found = cluster
        .call("listing the Secrets", api.list(&params))
        .await?;
    Ok(found.items)
}

/// The sandbox that a Secret is of.
pub(crate) fn id(secret: &Secret) -> Option<SandboxId> {
    secret
        .metadata
        .labels
        .as_ref()?
        .get(names::ID)?
        .parse()
        .ok()
}

pub(crate) fn kept(secret: &Secret) -> Kept {
    let bytes = |key: &str| {
        secret
            .data
            .as_ref()?
            .get(key)
            .map(|value| value.0.as_slice())
    };
    let labels = bytes(LABELS).and_then(|json| serde_json::from_slice(json).ok());
    let token = bytes(TOKEN).and_then(|token| std::str::from_utf8(token).ok());
    Kept {
        labels: labels.unwrap_or_default(),
        token: token.map(SecretString::from),
    }
}

#[cfg(test)]
mod tests {
    use api::egress::policy::EgressPolicy;
    use lifecycle::backend::Limits;

    use super::*;

    fn spec(source: Source) -> Spec {
        Spec {
            id: "a".parse().unwrap(),
            source,
            platform: None,
            entrypoint: Some(vec!["sleep".to_owned()]),
            env: BTreeMap::from([("K".to_owned(), "v".to_owned())]),
            limits: Limits::default(),
            volumes: Vec::new(),
            network: EgressPolicy::ALLOW_ALL,
            access_token: SecretString::from("the-token"),
            labels: BTreeMap::from([("l".to_owned(), "m \"q\"\n".to_owned())]),
        }
    }

    fn image(reference: &str, password: Option<&str>) -> Source {
        Source::Image {
            reference: reference.to_owned(),
            auth: password.map(|password| RegistryAuth {
                username: "u".to_owned(),
                password: SecretString::from(password),
            }),
        }
    }

    #[test]
    fn what_is_kept_is_read() {
        let spec = spec(image("x", None));
        let secret = of(&spec).unwrap();
        let kept = kept(&secret);
        assert_eq!(kept.labels, spec.labels);
        assert_eq!(kept.token.unwrap().expose_secret(), "the-token");
        assert_eq!(id(&secret), Some(spec.id));
    }

    #[test]
    fn credentials_are_for_the_image_s_registry() {
        let auths = |reference: &str| {
            let secret = of(&spec(image(reference, Some("p")))).unwrap();
            let text = secret.data.unwrap()[REGISTRIES].0.clone();
            serde_json::from_slice::<serde_json::Value>(&text).unwrap()["auths"].clone()
        };
        assert_eq!(
            auths("python:3")["https://index.docker.io/v1/"]["username"],
            "u"
        );
        assert_eq!(
            auths("registry.example:5000/a/b")["registry.example:5000"]["password"],
            "p"
        );
    }

    #[test]
    fn an_environment_that_no_secret_holds_is_refused() {
        let mut spec = spec(image("x", None));
        spec.env
            .insert("BIG".to_owned(), "x".repeat(ENVIRONMENT_BYTES_MAX));
        assert!(matches!(
            of(&spec),
            Err(Error::Invalid { field: "env", .. })
        ));
    }
}
