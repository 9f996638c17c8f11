//! What a sandbox carries with it in its backend, so that it can be known again: whose it is,
//! and enough to adopt it when the store is lost.
//!
//! Labels never change after creation. What may change later (metadata, expiration) is taken
//! from here only when nothing better is left.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::backend::{Platform, SandboxDetails};
use crate::caller::Tenant;
use crate::machine::after;
use crate::sandbox::{Origin, Reason, Sandbox, State, Status, new_token, secret_text};

/// The control plane it belongs to.
pub const CONTROL_PLANE: &str = "opensandbox.io/owner";
/// The store it is recorded in.
pub const STORE: &str = "opensandbox.io/store";
/// Its id, for people who look with the engine's own tools.
pub const ID: &str = "opensandbox.io/id";
/// What is needed to adopt it, as JSON. Holds the access token, so a backend must not show it
/// in descriptions.
pub const RECORD: &str = "opensandbox.io/record";

/// The part of a sandbox that adoption cannot do without.
#[derive(Serialize, Deserialize)]
struct AdoptionRecord {
    #[serde(default)]
    tenant: Tenant,
    origin: Origin,
    platform: Option<Platform>,
    entrypoint: Option<Vec<String>>,
    metadata: BTreeMap<String, String>,
    extensions: BTreeMap<String, String>,
    created_at: Timestamp,
    timeout: Option<Duration>,
    renew_on_access: Option<Duration>,
    #[serde(default)]
    secure_access: bool,
    #[serde(with = "secret_text")]
    access_token: SecretString,
}

/// The labels of a new sandbox.
pub(crate) fn of(sandbox: &Sandbox, control_plane: &str, store: &str) -> BTreeMap<String, String> {
    let kept = AdoptionRecord {
        tenant: sandbox.tenant.clone(),
        origin: sandbox.origin.clone(),
        platform: sandbox.platform.clone(),
        entrypoint: sandbox.entrypoint.clone(),
        metadata: sandbox.metadata.clone(),
        extensions: sandbox.extensions.clone(),
        created_at: sandbox.created_at,
        timeout: sandbox.timeout,
        renew_on_access: sandbox.renew_on_access,
        secure_access: sandbox.secure_access,
        access_token: sandbox.access_token.clone(),
    };
    let record = serde_json::to_string(&kept).expect("maps have text keys, so this is valid JSON");
    BTreeMap::from([
        (CONTROL_PLANE.to_owned(), control_plane.to_owned()),
        (STORE.to_owned(), store.to_owned()),
        (ID.to_owned(), sandbox.id.to_string()),
        (RECORD.to_owned(), record),
    ])
}

/// The published server's names start with this; all others are the user's metadata.
const PUBLISHED: &str = "opensandbox.io/";

/// From the labels that the published server puts on a container, those from which a new store
/// adopts it. That server keeps no token, so the sandbox gets one that only our proxy asks for.
pub fn published(
    labels: &BTreeMap<String, String>,
    image: &str,
    created_at: Timestamp,
) -> BTreeMap<String, String> {
    let ours = |name: &str| labels.get(&format!("{PUBLISHED}{name}"));
    let seconds = |text: &String| text.parse().ok().map(Duration::from_secs);
    let expires_at = ours("expires-at").and_then(|text| {
        // A time without a zone is UTC there.
        let with_zone = || format!("{text}Z").parse::<Timestamp>();
        text.parse().or_else(|_| with_zone()).ok()
    });
    let platform = ours("platform-os").zip(ours("platform-arch"));
    let extensions = labels.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix(PUBLISHED)?.strip_prefix("extensions.")?;
        Some((name.to_owned(), value.clone()))
    });
    let metadata = labels.iter().filter(|it| !it.0.starts_with(PUBLISHED));
    let kept = AdoptionRecord {
        tenant: Tenant::default(),
        origin: Origin::Image(image.to_owned()),
        platform: platform.map(|(os, arch)| Platform {
            os: os.clone(),
            arch: arch.clone(),
        }),
        entrypoint: None,
        metadata: metadata.map(|(k, v)| (k.clone(), v.clone())).collect(),
        extensions: extensions.collect(),
        created_at,
        timeout: expires_at.and_then(|at| Duration::try_from(at.duration_since(created_at)).ok()),
        renew_on_access: ours("access-renew-extend-seconds").and_then(seconds),
        secure_access: false,
        access_token: SecretString::from(uuid::Uuid::new_v4().simple().to_string()),
    };
    let record = serde_json::to_string(&kept).expect("maps have text keys, so this is valid JSON");
    let mut labels = labels.clone();
    let control_plane = crate::Config::default().control_plane;
    labels.insert(CONTROL_PLANE.to_owned(), control_plane);
    labels.insert(RECORD.to_owned(), record);
    labels
}

/// Whose a sandbox is that no record tells of; the built-in tenant's where its labels do not tell.
pub(crate) fn tenant(observed: &SandboxDetails) -> Tenant {
    let record = observed.labels.get(RECORD);
    let kept = record.and_then(|text| serde_json::from_str::<AdoptionRecord>(text).ok());
    kept.map(|kept| kept.tenant).unwrap_or_default()
}

/// A sandbox of a lost store, as far as its labels tell. `None` when they do not tell enough.
///
/// Renewals were lost with the store, so it gets its whole lifetime once more: living a little
/// longer is better than being killed although somebody renewed it.
pub(crate) fn adopt(observed: &SandboxDetails, now: Timestamp) -> Option<Sandbox> {
    let kept: AdoptionRecord = serde_json::from_str(observed.labels.get(RECORD)?).ok()?;
    Some(Sandbox {
        id: observed.id.clone(),
        tenant: kept.tenant,
        origin: kept.origin,
        image_digest: None,
        platform: kept.platform,
        entrypoint: kept.entrypoint,
        metadata: kept.metadata,
        extensions: kept.extensions,
        status: Status {
            state: State::Running,
            reason: Reason::ContainerRunning,
            message: "The sandbox was found without a record and adopted".to_owned(),
            last_transition_at: now,
        },
        created_at: kept.created_at,
        started_at: observed.started_at,
        timeout: kept.timeout,
        expires_at: kept.timeout.and_then(|timeout| after(now, timeout)),
        renew_on_access: kept.renew_on_access,
        secure_access: kept.secure_access,
        exit: None,
        access_token: kept.access_token,
        egress_token: new_token(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ObservedState;

    #[test]
    fn a_sandbox_of_the_published_server_can_be_adopted() {
        let labels = [
            ("opensandbox.io/id", "a"),
            (
                "opensandbox.io/expires-at",
                "2026-01-01T01:00:00.000000+00:00",
            ),
            ("opensandbox.io/platform-os", "linux"),
            ("opensandbox.io/platform-arch", "amd64"),
            ("opensandbox.io/extensions.pool", "warm"),
            ("team", "blue"),
        ];
        let labels = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let observed = SandboxDetails {
            id: "a".parse().unwrap(),
            state: ObservedState::Running,
            labels: published(&labels, "python:3.11", now),
            started_at: Some(now),
        };
        assert_eq!(
            observed.labels[CONTROL_PLANE],
            crate::Config::default().control_plane
        );
        let sandbox = adopt(&observed, now).unwrap();
        assert_eq!(
            sandbox.metadata,
            BTreeMap::from([("team".to_owned(), "blue".to_owned())])
        );
        assert_eq!(sandbox.timeout, Some(Duration::from_secs(3600)));
        assert_eq!(sandbox.extensions["pool"], "warm");
        assert_eq!(sandbox.platform.unwrap().arch, "amd64");
    }
}
