//! Snapshots: images that the engine commits, under the published server's names.
//!
//! A commit takes over the container's configuration. Ours has no environment and no token in it,
//! its labels are blanked, and the command becomes the image's own again.

use api::id::SnapshotId;
use bollard::models::{ContainerConfig, ImageSummary};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptionsBuilder,
};
use jiff::Timestamp;
use lifecycle::backend::{Error, SnapshotDetails, Source};

use crate::backend::Shared;
use crate::engine::{EngineError, exhausted, is_full};
use crate::image::{self, SNAPSHOTS};
use crate::labels;
use crate::sandbox::{Sandbox, State};

pub(crate) async fn take(
    shared: &Shared,
    sandbox: &Sandbox,
    id: &SnapshotId,
) -> Result<SnapshotDetails, Error> {
    let wrong = |state| Error::WrongState {
        state,
        wanted: "running or paused",
    };
    match sandbox.state() {
        State::Running | State::Paused => {}
        State::Exited(_) => return Err(wrong("ended")),
        State::Made => return Err(wrong("not started")),
        State::Gone => return Err(Error::NotFound(sandbox.id.clone())),
    }
    let _change = sandbox.change.lock().await;
    let engine = &shared.engine;
    let base = shared.images.find(engine, &sandbox.image).await;
    let base = base.map_err(EngineError::into_error)?;
    let (command, base_size) =
        base.map_or_else(Default::default, |it| (it.command.clone(), it.size));
    let mut blanked = labels::blank();
    blanked.insert(labels::SNAPSHOT.to_owned(), id.to_string());
    blanked.insert(labels::BASE_SIZE.to_owned(), base_size.to_string());
    let config = ContainerConfig {
        // As one entrypoint: the engine would fill an empty command with the container's.
        entrypoint: Some(command),
        cmd: Some(Vec::new()),
        labels: Some(blanked),
        ..ContainerConfig::default()
    };
    let options = CommitContainerOptionsBuilder::default()
        .container(&sandbox.container)
        .repo(SNAPSHOTS)
        .tag(id.as_str())
        .pause(sandbox.state() == State::Running)
        .build();
    let call = engine.api.commit_container(options, config);
    match engine.call("committing a container", call).await {
        Ok(_) => {}
        Err(failure) if failure.status() == Some(404) => {
            return Err(Error::NotFound(sandbox.id.clone()));
        }
        Err(failure) if is_full(failure.message()) => return Err(exhausted(failure.message())),
        Err(failure) => return Err(failure.into_error()),
    }
    // The event may come after the answer; what was known of this name is old now.
    shared.images.changed();
    let name = image::name(&Source::Snapshot(id.clone()));
    let made = shared.images.find(engine, &name);
    let made = made.await.map_err(EngineError::into_error)?;
    let size = made.map_or(0, |image| image.size);
    Ok(SnapshotDetails {
        id: id.clone(),
        size_bytes: size.saturating_sub(base_size),
        created_at: Timestamp::now(),
    })
}

pub(crate) async fn remove(shared: &Shared, id: &SnapshotId) -> Result<(), Error> {
    let name = image::name(&Source::Snapshot(id.clone()));
    let engine = &shared.engine;
    let found = shared
        .images
        .find(engine, &name)
        .await
        .map_err(EngineError::into_error)?;
    let Some(image) = found else { return Ok(()) };
    let in_use = |by: String| Error::InUse {
        what: format!("snapshot {id}"),
        by,
    };
    let user = shared
        .sandboxes
        .all()
        .into_iter()
        .find(|sandbox| sandbox.image == image.id);
    if let Some(user) = user {
        return Err(in_use(format!("sandbox {}", user.id)));
    }
    let options = RemoveImageOptionsBuilder::default().build();
    let call = engine.api.remove_image(&name, Some(options), None);
    let removed = engine.call("removing an image", call).await;
    shared.images.changed();
    match removed {
        Ok(_) => Ok(()),
        Err(failure) if failure.status() == Some(404) => Ok(()),
        Err(failure) if failure.status() == Some(409) => Err(in_use(failure.message().to_owned())),
        Err(failure) => Err(failure.into_error()),
    }
}

pub(crate) async fn list(shared: &Shared) -> Result<Vec<SnapshotDetails>, Error> {
    let filters = std::collections::HashMap::from([("reference", vec![SNAPSHOTS])]);
    let options = ListImagesOptionsBuilder::default()
        .filters(&filters)
        .build();
    let call = shared.engine.api.list_images(Some(options));
    let images = shared.engine.call("listing the snapshots", call).await;
    let images = images.map_err(EngineError::into_error)?;
    Ok(images.iter().flat_map(details).collect())
}

fn details(image: &ImageSummary) -> Vec<SnapshotDetails> {
    let base = image
        .labels
        .get(labels::BASE_SIZE)
        .and_then(|size| size.parse().ok());
    let size = u64::try_from(image.size).unwrap_or(0);
    let tags = image
        .repo_tags
        .iter()
        .filter_map(|tag| tag.strip_prefix(SNAPSHOTS)?.strip_prefix(':'));
    tags.filter_map(|tag| {
        Some(SnapshotDetails {
            id: tag.parse().ok()?,
            size_bytes: size.saturating_sub(base.unwrap_or(0)),
            created_at: Timestamp::from_second(image.created).ok()?,
        })
    })
    .collect()
}
