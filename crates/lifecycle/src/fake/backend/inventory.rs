//! Images and volumes of the fake host. An image's id is its reference, and an archive is text:
//! the names of the images in it.

use api::id::SandboxId;
use async_trait::async_trait;
use jiff::Timestamp;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use super::{Backend, Call, Held};
use crate::backend::{
    Archive, Error, Image, ImageUsage, Inventory, NamedVolume, Platform, Pruned, PullProgress,
    RegistryAuth, Source, VolumeSource,
};

#[async_trait]
impl Inventory for Backend {
    async fn images(&self) -> Result<Vec<Image>, Error> {
        self.strike(Call::Inventory).await?.come().await;
        let mut names: Vec<_> = self.lock().local.iter().cloned().collect();
        names.sort();
        let image = |name: String| Image {
            id: name.clone(),
            references: vec![name],
            platform: "linux/amd64".to_owned(),
            size_bytes: 100,
            created_at: Timestamp::UNIX_EPOCH,
            users: None,
            entrypoint: None,
            cmd: None,
        };
        Ok(names.into_iter().map(image).collect())
    }

    async fn image_usage(&self) -> Result<Option<ImageUsage>, Error> {
        Ok(None)
    }

    async fn pull_image(
        &self,
        reference: &str,
        _auth: Option<&RegistryAuth>,
        platform: Option<&Platform>,
        progress: mpsc::Sender<PullProgress>,
    ) -> Result<String, Error> {
        let source = Source::Image {
            reference: reference.to_owned(),
            auth: None,
        };
        crate::backend::Backend::pull(self, &source, platform, progress).await?;
        Ok(reference.to_owned())
    }

    async fn import_images(
        &self,
        mut archive: Archive,
        name: Option<&str>,
    ) -> Result<Vec<String>, Error> {
        let mut text = String::new();
        let read = archive.read_to_string(&mut text).await;
        read.map_err(|error| Error::ImageInvalid(error.to_string()))?;
        self.strike(Call::Inventory).await?.come().await;
        if text.is_empty() {
            return Err(Error::ImageInvalid("it is empty".to_owned()));
        }
        let names = match name {
            Some(name) => vec![name.to_owned()],
            None => text.split_whitespace().map(str::to_owned).collect(),
        };
        self.lock().local.extend(names.iter().cloned());
        Ok(names)
    }

    async fn export_image(&self, reference: &str) -> Result<Archive, Error> {
        self.strike(Call::Inventory).await?.come().await;
        if !self.lock().local.contains(reference) {
            return Err(Backend::image_error(reference));
        }
        let text = reference.to_owned().into_bytes();
        Ok(Box::new(std::io::Cursor::new(text)))
    }

    async fn tag_image(&self, reference: &str, name: &str) -> Result<Image, Error> {
        self.strike(Call::Inventory).await?.come().await;
        let is_known = self.lock().local.contains(reference);
        if !is_known {
            return Err(Backend::image_error(reference));
        }
        self.lock().local.insert(name.to_owned());
        let images = self.images().await?;
        let named = |image: &Image| image.references.iter().any(|it| it == name);
        let image = images.into_iter().find(named);
        image.ok_or_else(|| Backend::image_error(name))
    }

    async fn remove_image(&self, reference: &str) -> Result<(), Error> {
        self.strike(Call::Inventory).await?.come().await;
        if self.lock().local.remove(reference) {
            Ok(())
        } else {
            Err(Backend::image_error(reference))
        }
    }

    async fn prune_images(&self) -> Result<Pruned, Error> {
        self.strike(Call::Inventory).await?.come().await;
        Ok(Pruned {
            images: 0,
            layers: 0,
            bytes: 0,
        })
    }

    async fn volumes(&self) -> Result<Vec<NamedVolume>, Error> {
        self.strike(Call::Inventory).await?.come().await;
        let held = self.lock();
        Ok(held.volumes.iter().map(|name| held.volume(name)).collect())
    }

    async fn create_volume(&self, name: &str) -> Result<NamedVolume, Error> {
        self.strike(Call::Inventory).await?.come().await;
        let mut held = self.lock();
        held.volumes.insert(name.to_owned());
        Ok(held.volume(name))
    }

    async fn remove_volume(&self, name: &str, is_forced: bool) -> Result<(), Error> {
        self.strike(Call::Inventory).await?.come().await;
        let mut held = self.lock();
        if !held.volumes.contains(name) {
            return Err(Error::VolumeNotFound(name.to_owned()));
        }
        if let (Some(user), false) = (held.users(name).first(), is_forced) {
            return Err(Error::InUse {
                what: format!("volume {name}"),
                by: format!("sandbox {user}"),
            });
        }
        held.volumes.remove(name);
        Ok(())
    }
}

impl Held {
    fn volume(&self, name: &str) -> NamedVolume {
        NamedVolume {
            name: name.to_owned(),
            created_at: None,
            users: self.users(name),
        }
    }

    fn users(&self, name: &str) -> Vec<SandboxId> {
        let uses = |source: &VolumeSource| matches!(source, VolumeSource::Named { claim, .. } if claim == name);
        let of = |(id, item): (&SandboxId, &super::Item)| {
            let is_user = item.spec.volumes.iter().any(|volume| uses(&volume.source));
            is_user.then(|| id.clone())
        };
        self.sandboxes.iter().filter_map(of).collect()
    }
}
