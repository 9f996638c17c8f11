//! Images and volumes as operators look after them: calls of the backend, each bounded in time.
//!
//! Nothing of this is in the store: the backend alone knows what it keeps.

use std::future::Future;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::admission;
use crate::backend::{
    self, Archive, Image, ImageUsage, Inventory, NamedVolume, Platform, Pruned, PullProgress,
    RegistryAuth,
};
use crate::deadlines;
use crate::error::{Error, Feature};
use crate::service::{Service, within};

impl Service {
    /// Images that are here, and what they take on disk where that can be told.
    pub async fn images(&self) -> Result<(Vec<Image>, Option<ImageUsage>), Error> {
        let inventory = self.inventory()?;
        let look = async { Ok((inventory.images().await?, inventory.image_usage().await?)) };
        call("listing images", deadlines::INVENTORY_INDEX, look).await
    }

    /// Brings an image here and answers its id. Ends with the caller.
    pub async fn pull_image(
        &self,
        reference: &str,
        auth: Option<&RegistryAuth>,
        platform: Option<&Platform>,
        progress: mpsc::Sender<PullProgress>,
    ) -> Result<String, Error> {
        let pull = self
            .inventory()?
            .pull_image(reference, auth, platform, progress);
        call("pulling the image", deadlines::PULL, pull).await
    }

    /// Brings images here from an archive and answers their ids.
    pub async fn import_images(
        &self,
        archive: Archive,
        name: Option<&str>,
    ) -> Result<Vec<String>, Error> {
        let import = self.inventory()?.import_images(archive, name);
        call("importing the images", deadlines::PULL, import).await
    }

    /// An image as an archive.
    pub async fn export_image(&self, reference: &str) -> Result<Archive, Error> {
        let export = self.inventory()?.export_image(reference);
        call("exporting the image", deadlines::INVENTORY_DISK, export).await
    }

    /// Gives an image another name.
    pub async fn tag_image(&self, reference: &str, name: &str) -> Result<Image, Error> {
        let tagging = self.inventory()?.tag_image(reference, name);
        call("naming the image", deadlines::INVENTORY_INDEX, tagging).await
    }

    /// Takes a name from an image.
    pub async fn remove_image(&self, reference: &str) -> Result<(), Error> {
        let removal = self.inventory()?.remove_image(reference);
        call("removing the image", deadlines::INVENTORY_INDEX, removal).await
    }

    /// Removes what nobody needs.
    pub async fn prune_images(&self) -> Result<Pruned, Error> {
        let prune = self.inventory()?.prune_images();
        call("pruning images", deadlines::INVENTORY_DISK, prune).await
    }

    /// Named volumes.
    pub async fn volumes(&self) -> Result<Vec<NamedVolume>, Error> {
        let look = self.inventory()?.volumes();
        call("listing volumes", deadlines::INVENTORY_INDEX, look).await
    }

    /// Makes a named volume.
    pub async fn create_volume(&self, name: &str) -> Result<NamedVolume, Error> {
        let creation = self.inventory()?.create_volume(name);
        call("making the volume", deadlines::INVENTORY_INDEX, creation).await
    }

    /// Removes a named volume; while a sandbox has it mounted only if forced.
    pub async fn remove_volume(&self, name: &str, is_forced: bool) -> Result<(), Error> {
        let removal = self.inventory()?.remove_volume(name, is_forced);
        call("removing the volume", deadlines::INVENTORY_DISK, removal).await
    }

    fn inventory(&self) -> Result<&dyn Inventory, Error> {
        self.plane.refuse_when_stopping()?;
        admission::operate(&self.caller)?;
        let backend = &self.plane.shared.backend;
        backend.inventory().ok_or_else(|| Error::Unsupported {
            feature: Feature::Inventory,
            message: format!(
                "the {} backend keeps its images and volumes to itself; use the engine's own tools",
                backend.name()
            ),
        })
    }
}

async fn call<T>(
    action: &'static str,
    after: Duration,
    work: impl Future<Output = Result<T, backend::Error>>,
) -> Result<T, Error> {
    Ok(within(action, after, work).await??)
}
