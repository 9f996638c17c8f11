//! Images and volumes for operators, while the server runs.
//!
//! Archives pass through a file of the staging directory, because finding out what one is takes
//! a look at all of it. A removed volume leaves by one rename, under the same lock that new
//! sandboxes are entered with; its contents go behind.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use jiff::Timestamp;
use lifecycle::backend::{
    Archive, Error, Image, ImageUsage, Inventory, NamedVolume, Platform, Pruned, PullProgress,
    RegistryAuth, Source,
};
use rand::distr::{Alphanumeric, SampleString as _};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use crate::backend::{Embedded, Shared};
use crate::image::{self, Import};
use crate::sandbox::build::failed;
use crate::sandbox::create::image_error;
use crate::sandbox::{copy, volume};

/// Enough letters that no two names meet.
const NAME_LETTERS: usize = 16;

#[async_trait]
impl Inventory for Embedded {
    async fn images(&self) -> Result<Vec<Image>, Error> {
        let image = |image: image::Image| Image {
            id: image.id.as_str().to_owned(),
            references: image.references,
            platform: image.platform.to_string(),
            size_bytes: image.size_bytes,
            created_at: image.created_at,
            users: Some(image.users as u64),
            entrypoint: Some(image.config.entrypoint.clone()),
            cmd: Some(image.config.cmd.clone()),
        };
        Ok(self.images().list().into_iter().map(image).collect())
    }

    async fn image_usage(&self) -> Result<Option<ImageUsage>, Error> {
        let usage = self.images().usage().await;
        let usage = usage.map_err(|error| of_image(error, "the image store"))?;
        Ok(Some(ImageUsage {
            layers_bytes: usage.layers_bytes,
            snapshots_bytes: usage.snapshots_bytes,
            other_bytes: usage.other_bytes,
            reclaimable_bytes: usage.reclaimable_bytes,
        }))
    }

    async fn pull_image(
        &self,
        reference: &str,
        auth: Option<&RegistryAuth>,
        platform: Option<&Platform>,
        progress: mpsc::Sender<PullProgress>,
    ) -> Result<String, Error> {
        if reference == image::HOST {
            return Ok(image::HOST.to_owned());
        }
        let pull = self
            .images()
            .pull(reference, auth, platform, Some(progress));
        let id = pull.await.map_err(|error| of_image(error, reference))?;
        Ok(id.as_str().to_owned())
    }

    async fn import_images(
        &self,
        archive: Archive,
        name: Option<&str>,
    ) -> Result<Vec<String>, Error> {
        let staged = Staged::new(&self.shared)?;
        let path = staged.file();
        receive(archive, &path).await?;
        let import = Import::Detect(path);
        let ids = self.images().import(&import, name).await;
        let ids = ids.map_err(|error| of_archive(error, name))?;
        Ok(ids.iter().map(|id| id.as_str().to_owned()).collect())
    }

    async fn export_image(&self, reference: &str) -> Result<Archive, Error> {
        let staged = Staged::new(&self.shared)?;
        let path = staged.file();
        let export = self.images().export(reference, &path).await;
        export.map_err(|error| of_image(error, reference))?;
        // The name goes now, the bytes when they have been read.
        let file = tokio::fs::File::open(&path).await;
        Ok(Box::new(file.map_err(|source| {
            failed("opening an exported image".to_owned(), source)
        })?))
    }

    async fn tag_image(&self, reference: &str, name: &str) -> Result<Image, Error> {
        let tagged = self.images().tag(reference, name).await;
        let id = tagged.map_err(|error| of_image(error, reference))?;
        let images = Inventory::images(self).await?;
        let found = images.into_iter().find(|image| image.id == id.as_str());
        // Removed by somebody else since.
        found.ok_or_else(|| Error::ImageNotFound {
            reference: reference.to_owned(),
            message: "it was removed meanwhile".to_owned(),
        })
    }

    async fn remove_image(&self, reference: &str) -> Result<(), Error> {
        let removal = self.images().remove(reference).await;
        removal.map_err(|error| of_image(error, reference))
    }

    async fn prune_images(&self) -> Result<Pruned, Error> {
        let gone = self.images().gc().await;
        let gone = gone.map_err(|error| of_image(error, "the image store"))?;
        Ok(Pruned {
            images: gone.images as u64,
            layers: gone.layers as u64,
            bytes: gone.bytes,
        })
    }

    async fn volumes(&self) -> Result<Vec<NamedVolume>, Error> {
        let directory = self.shared.layout.volumes();
        let list = move || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in fs::read_dir(&directory)? {
                names.extend(entry?.file_name().into_string());
            }
            names.sort();
            Ok(names)
        };
        let names = blocking("listing volumes", list).await?;
        Ok(names.iter().map(|name| look(&self.shared, name)).collect())
    }

    async fn create_volume(&self, name: &str) -> Result<NamedVolume, Error> {
        volume::create(name, &self.shared.layout.volumes())?;
        Ok(look(&self.shared, name))
    }

    async fn remove_volume(&self, name: &str, is_forced: bool) -> Result<(), Error> {
        if !volume::is_claim(name) {
            return Err(Error::VolumeNotFound(name.to_owned()));
        }
        let path = self.shared.layout.volumes().join(name);
        let staged = Staged::new(&self.shared)?;
        self.shared
            .sandboxes
            .with_users(name, |users| match users.first() {
                Some(user) if !is_forced => Err(Error::InUse {
                    what: format!("volume {name}"),
                    by: format!("sandbox {user}"),
                }),
                _ => fs::rename(&path, staged.file()).map_err(|source| match source.kind() {
                    io::ErrorKind::NotFound => Error::VolumeNotFound(name.to_owned()),
                    _ => failed(format!("removing volume {name}"), source),
                }),
            })
    }
}

/// A volume as it is now.
fn look(shared: &Shared, name: &str) -> NamedVolume {
    let path = shared.layout.volumes().join(name);
    let made = fs::metadata(path).and_then(|data| data.created().or_else(|_| data.modified()));
    NamedVolume {
        name: name.to_owned(),
        created_at: made.ok().and_then(|at| Timestamp::try_from(at).ok()),
        users: shared.sandboxes.with_users(name, |users| users),
    }
}

/// A directory that goes, with all in it, when nobody needs it any more; at the latest the next
/// server removes it.
struct Staged(PathBuf);

impl Staged {
    fn new(shared: &Shared) -> Result<Self, Error> {
        let name = Alphanumeric.sample_string(&mut rand::rng(), NAME_LETTERS);
        let path = shared.layout.staging().join(name);
        match fs::create_dir(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(failed(format!("making {}", path.display()), source)),
        }
    }

    fn file(&self) -> PathBuf {
        self.0.join("it")
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.0);
        // A large tree takes a while, and this may be a thread that must not wait.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = copy::remove_tree(&path) {
                tracing::warn!(path = %path.display(), error = %api::error_chain(&error), "a staged directory is left over");
            }
        });
    }
}

/// Writes an archive to a file as it comes.
async fn receive(mut archive: Archive, path: &Path) -> Result<(), Error> {
    let mut file = tokio::fs::File::create_new(path)
        .await
        .map_err(|source| failed("making a file for an archive".to_owned(), source))?;
    let copied = async {
        tokio::io::copy(&mut archive, &mut file).await?;
        file.flush().await
    };
    copied.await.map_err(|source| match source.raw_os_error() {
        // No call of this system failed: the sender did.
        None => Error::ImageInvalid(format!("it did not arrive whole: {source}")),
        Some(_) => failed("keeping an archive".to_owned(), source),
    })
}

async fn blocking<T: Send + 'static>(
    action: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| Error::Internal(format!("{action} panicked: {error}")))?;
    done.map_err(|source| failed(action.to_owned(), source))
}

fn of_image(error: image::Error, reference: &str) -> Error {
    let source = Source::Image {
        reference: reference.to_owned(),
        auth: None,
    };
    image_error(error, &source)
}

/// What an archive holds is the sender's fault.
fn of_archive(error: image::Error, name: Option<&str>) -> Error {
    match error {
        image::Error::Corrupt { .. } | image::Error::TooLarge { .. } => {
            Error::ImageInvalid(error.to_string())
        }
        error => of_image(error, name.unwrap_or("of the archive")),
    }
}
