//! Images: what the engine says about them, kept until it tells that one changed, and pulls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use api::error_chain;
use api::image_reference::{DEFAULT_REGISTRY, DEFAULT_TAG, ImageReference};
use bollard::auth::DockerCredentials;
use bollard::errors::Error as Cause;
use bollard::models::{CreateImageInfo, ImageInspect};
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::{FutureExt as _, StreamExt as _};
use lifecycle::backend::{Error, Platform, PullProgress, RegistryAuth, Source};
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use crate::engine::{Engine, EngineError, is_full};
use crate::shared_pull::{Key, PullError, SharedPull, SharedPulls};

/// Where snapshots are, as with the published server.
pub(crate) const SNAPSHOTS: &str = "opensandbox-snapshots";

/// A pull that reports nothing for this long has lost its registry: engines report several times
/// a second while they download or unpack.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// What is known of one image.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) id: String,
    /// The command that its containers run.
    pub(crate) command: Vec<String>,
    pub(crate) platform: Platform,
    pub(crate) size: u64,
}

/// Images the engine has been asked about.
#[derive(Default)]
pub(crate) struct Images {
    known: Mutex<Known>,
    pulls: Arc<SharedPulls>,
}

#[derive(Default)]
struct Known {
    images: HashMap<String, Arc<Image>>,
    /// Counts changes, so that an answer older than the last change is not kept.
    changes: u64,
    /// Events come in; without them nothing may be kept.
    is_fed: bool,
}

/// The engine's name for a source.
pub(crate) fn name(source: &Source) -> String {
    match source {
        Source::Snapshot(id) => format!("{SNAPSHOTS}:{id}"),
        Source::Image { reference, .. } => with_tag(reference),
    }
}

/// Without a tag an engine pulls every tag there is. What is no reference stays as it is: the
/// engine says what is wrong with it.
fn with_tag(text: &str) -> String {
    match text.parse::<ImageReference>() {
        Ok(reference) if reference.tag().or(reference.digest()).is_none() => {
            format!("{text}:{DEFAULT_TAG}")
        }
        _ => text.to_owned(),
    }
}

impl Images {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic while held")
    }

    /// Events come in from now on, or no longer.
    pub(crate) fn fed(&self, is_fed: bool) {
        let mut known = self.known();
        known.is_fed = is_fed;
        known.changes += 1;
        known.images.clear();
    }

    /// Some image changed.
    pub(crate) fn changed(&self) {
        let mut known = self.known();
        known.changes += 1;
        known.images.clear();
    }

    /// An image that is here; `None` when it is not.
    pub(crate) async fn find(
        &self,
        engine: &Engine,
        name: &str,
    ) -> Result<Option<Arc<Image>>, EngineError> {
        let changes = {
            let known = self.known();
            if let Some(image) = known.images.get(name) {
                return Ok(Some(image.clone()));
            }
            known.changes
        };
        let asked = engine.call("looking for an image", engine.api.inspect_image(name));
        let image = match asked.await {
            Ok(found) => Arc::new(image_of(found)),
            Err(failure) if failure.status() == Some(404) => return Ok(None),
            // A name that no image can have.
            Err(failure) if failure.status() == Some(400) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let mut known = self.known();
        if known.is_fed && known.changes == changes {
            known.images.insert(name.to_owned(), image.clone());
        }
        Ok(Some(image))
    }

    /// An image that is here and of the platform asked for.
    pub(crate) async fn find_for(
        &self,
        engine: &Engine,
        name: &str,
        platform: Option<&Platform>,
    ) -> Result<Option<Arc<Image>>, EngineError> {
        let found = self.find(engine, name).await?;
        Ok(found.filter(|image| platform.is_none_or(|wanted| image.platform == *wanted)))
    }

    /// Brings an image here.
    pub(crate) async fn pull(
        &self,
        engine: &Engine,
        reference: &str,
        auth: Option<&RegistryAuth>,
        platform: Option<&Platform>,
        progress: Option<mpsc::Sender<PullProgress>>,
    ) -> Result<(), Error> {
        let name = with_tag(reference);
        let platform = platform.map_or(String::new(), |it| format!("{}/{}", it.os, it.arch));
        let secret = auth.map(|auth| {
            let text = format!("{}\0{}", auth.username, auth.password.expose_secret());
            Sha256::digest(text).into()
        });
        let key: Key = (name.clone(), platform.clone(), secret);
        let credentials = auth.map(|auth| credentials(&name, auth));
        let engine = engine.clone();
        let start = move |shared| pull(engine, name, platform, credentials, shared).boxed();
        let ended = self.pulls.join(key, progress, start).await;
        ended.map_err(|error| error.into_error(reference))
    }
}

fn credentials(name: &str, auth: &RegistryAuth) -> DockerCredentials {
    // Credentials without an address are for Docker Hub.
    let registry = name
        .parse::<ImageReference>()
        .ok()
        .map(|reference| reference.registry().to_owned())
        .filter(|registry| registry != DEFAULT_REGISTRY);
    DockerCredentials {
        username: Some(auth.username.clone()),
        password: Some(auth.password.expose_secret().to_owned()),
        serveraddress: registry,
        ..DockerCredentials::default()
    }
}

async fn pull(
    engine: Engine,
    name: String,
    platform: String,
    credentials: Option<DockerCredentials>,
    shared: Arc<SharedPull>,
) -> Result<(), PullError> {
    let options = CreateImageOptionsBuilder::default()
        .from_image(&name)
        .platform(&platform)
        .build();
    let mut reports = std::pin::pin!(engine.api.create_image(Some(options), None, credentials));
    let mut progress = Progress::default();
    loop {
        match tokio::time::timeout(SILENCE_MAX, reports.next()).await {
            Ok(None) => return Ok(()),
            Ok(Some(Ok(report))) => progress.take(&report, &shared),
            Ok(Some(Err(cause))) => return Err(sort(&cause)),
            Err(_) => {
                return Err(PullError::Failed {
                    message: format!("nothing happened for {} s", SILENCE_MAX.as_secs()),
                    is_transient: true,
                });
            }
        }
    }
}

/// What the engine has said about each layer.
#[derive(Default)]
struct Progress {
    layers: HashMap<String, (u64, u64)>,
    told: (usize, u64),
}

impl Progress {
    fn take(&mut self, report: &CreateImageInfo, shared: &SharedPull) {
        let (Some(id), Some(status)) = (&report.id, report.status.as_deref()) else {
            return;
        };
        if status.starts_with("Pulling from") {
            return;
        }
        let layer = self.layers.entry(id.clone()).or_default();
        let number = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        match (status, &report.progress_detail) {
            ("Downloading", Some(detail)) => {
                *layer = (number(detail.current), number(detail.total));
            }
            ("Download complete", _) => layer.0 = layer.1,
            ("Pull complete", _) => shared.tell(&PullProgress::Unpacked { digest: id.clone() }),
            _ => {}
        }
        let sum = |part: fn(&(u64, u64)) -> u64| self.layers.values().map(part).sum::<u64>();
        let (bytes, total) = (sum(|layer| layer.0), sum(|layer| layer.1));
        // The engine learns of layers and their sizes one by one.
        if self.told != (self.layers.len(), total) {
            self.told = (self.layers.len(), total);
            shared.tell(&PullProgress::Resolved {
                layers: self.layers.len(),
                total_bytes: total,
            });
        }
        if status.starts_with("Download") {
            shared.tell(&PullProgress::Downloaded { bytes });
        }
    }
}

/// Engines tell registries' refusals apart by words only.
fn sort(cause: &Cause) -> PullError {
    let message = match cause {
        Cause::DockerResponseServerError { message, .. } => message.clone(),
        Cause::DockerStreamError { error } => error.clone(),
        other => error_chain(other).to_string(),
    };
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if has(&[
        "unauthorized",
        "authentication required",
        "no basic auth",
        "forbidden",
        "401",
        "403",
    ]) {
        return PullError::Unauthorized(message);
    }
    // "pull access denied" is what the engine makes of a registry that tells strangers nothing.
    if has(&[
        "manifest unknown",
        "not found",
        "does not exist",
        "no match for platform",
        "name unknown",
    ]) {
        return PullError::NotFound(message);
    }
    if has(&["denied"]) {
        return PullError::Unauthorized(message);
    }
    if is_full(&message) {
        return PullError::Full(message);
    }
    let is_transient = !has(&[
        "invalid reference format",
        "invalid argument",
        "unsupported",
    ]);
    PullError::Failed {
        message,
        is_transient,
    }
}

fn image_of(found: ImageInspect) -> Image {
    let config = found.config.unwrap_or_default();
    let mut command = config.entrypoint.unwrap_or_default();
    command.extend(config.cmd.unwrap_or_default());
    Image {
        id: found.id.unwrap_or_default(),
        command,
        platform: Platform {
            os: found.os.unwrap_or_else(|| "linux".to_owned()),
            arch: found.architecture.unwrap_or_default(),
        },
        size: found
            .size
            .and_then(|size| u64::try_from(size).ok())
            .unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_tag_means_the_latest() {
        assert_eq!(with_tag("python"), "python:latest");
        assert_eq!(with_tag("127.0.0.1:5000/a/b"), "127.0.0.1:5000/a/b:latest");
        assert_eq!(with_tag("a/b:1"), "a/b:1");
        let digest = format!("a@sha256:{}", "0".repeat(64));
        assert_eq!(with_tag(&digest), digest);
        assert_eq!(with_tag("not a name"), "not a name");
    }

    #[test]
    fn credentials_are_for_the_registry_of_the_image() {
        let auth = RegistryAuth {
            username: "me".to_owned(),
            password: "secret".to_owned().into(),
        };
        for (name, registry) in [
            ("python:3", None),
            ("o/tool:1", None),
            ("ghcr.io/o/tool:1", Some("ghcr.io")),
            ("localhost/a:1", Some("localhost")),
            ("127.0.0.1:5000/a:1", Some("127.0.0.1:5000")),
            ("Registry/a:1", Some("Registry")),
        ] {
            let found = credentials(name, &auth).serveraddress;
            assert_eq!(found.as_deref(), registry, "{name}");
        }
    }

    #[test]
    fn refusals_of_registries_are_told_apart() {
        let of = |message: &str| {
            sort(&Cause::DockerStreamError {
                error: message.to_owned(),
            })
        };
        let denied =
            "pull access denied for x, repository does not exist or may require 'docker login'";
        assert!(matches!(of(denied), PullError::NotFound(_)));
        assert!(matches!(
            of("manifest for x:y not found: manifest unknown"),
            PullError::NotFound(_)
        ));
        assert!(matches!(
            of("Get x: no basic auth credentials"),
            PullError::Unauthorized(_)
        ));
        assert!(matches!(
            of("write /x: no space left on device"),
            PullError::Full(_)
        ));
        let refused = of("dial tcp 127.0.0.1:9: connect: connection refused");
        assert!(matches!(
            refused,
            PullError::Failed {
                is_transient: true,
                ..
            }
        ));
    }
}
