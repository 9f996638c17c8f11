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
use crate::error::{Error, Feature, Violation};
use crate::rights::Right;
use crate::service::{Service, within};
use crate::tenant_volumes;

impl Service {
    /// Images that are here, and what they take on disk where that can be told.
    pub async fn images(&self) -> Result<(Vec<Image>, Option<ImageUsage>), Error> {
        let inventory = self.machine(Right::Read)?;
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
            .machine(Right::Images)?
            .pull_image(reference, auth, platform, progress);
        call("pulling the image", deadlines::PULL, pull).await
    }

    /// Brings images here from an archive and answers their ids.
    pub async fn import_images(
        &self,
        archive: Archive,
        name: Option<&str>,
    ) -> Result<Vec<String>, Error> {
        let import = self.machine(Right::Images)?.import_images(archive, name);
        call("importing the images", deadlines::PULL, import).await
    }

    /// An image as an archive.
    pub async fn export_image(&self, reference: &str) -> Result<Archive, Error> {
        let export = self.machine(Right::Images)?.export_image(reference);
        call("exporting the image", deadlines::INVENTORY_DISK, export).await
    }

    /// Gives an image another name.
    pub async fn tag_image(&self, reference: &str, name: &str) -> Result<Image, Error> {
        let tagging = self.machine(Right::Images)?.tag_image(reference, name);
        call("naming the image", deadlines::INVENTORY_INDEX, tagging).await
    }

    /// Takes a name from an image.
    pub async fn remove_image(&self, reference: &str) -> Result<(), Error> {
        let removal = self.machine(Right::Images)?.remove_image(reference);
        call("removing the image", deadlines::INVENTORY_INDEX, removal).await
    }

    /// Removes what nobody needs.
    pub async fn prune_images(&self) -> Result<Pruned, Error> {
        let prune = self.machine(Right::Images)?.prune_images();
        call("pruning images", deadlines::INVENTORY_DISK, prune).await
    }

    /// Named volumes.
    pub async fn volumes(&self) -> Result<Vec<NamedVolume>, Error> {
        self.volume_right(Right::Read)?;
        let kept = self.kept_volumes().await?;
        Ok(kept.into_iter().filter_map(|it| self.given(it)).collect())
    }

    /// Volumes of all tenants, under the names that the backend has for them.
    pub(crate) async fn kept_volumes(&self) -> Result<Vec<NamedVolume>, Error> {
        let look = self.inventory()?.volumes();
        call("listing volumes", deadlines::INVENTORY_INDEX, look).await
    }

    /// A volume under the name that its tenant gave it, if it is the caller's.
    fn given(&self, volume: NamedVolume) -> Option<NamedVolume> {
        let name = tenant_volumes::given_name(&self.caller.tenant, &volume.name)?;
        let name = name.to_owned();
        Some(NamedVolume { name, ..volume })
    }

    /// Volumes belong to the whole tenant.
    fn volume_right(&self, right: Right) -> Result<(), Error> {
        self.plane.refuse_when_stopping()?;
        admission::allow(&self.caller, right)?;
        if admission::sees_all_of(&self.caller, &self.caller.tenant) {
            return Ok(());
        }
        Err(Error::Forbidden(
            "named volumes belong to the whole tenant, of which this key sees a part".to_owned(),
        ))
    }

    /// Makes a named volume.
    pub async fn create_volume(&self, name: &str) -> Result<NamedVolume, Error> {
        self.volume_right(Right::Change)?;
        let Some(kept) = tenant_volumes::kept_name(&self.caller.tenant, name) else {
            return Err(Error::NotAdmitted(vec![Violation::VolumeNameReserved {
                index: 0,
            }]));
        };
        let creation = self.inventory()?.create_volume(&kept);
        let made = call("making the volume", deadlines::INVENTORY_INDEX, creation).await?;
        let name = name.to_owned();
        Ok(NamedVolume { name, ..made })
    }

    /// Removes a named volume; while a sandbox has it mounted only if forced.
    pub async fn remove_volume(&self, name: &str, is_forced: bool) -> Result<(), Error> {
        self.volume_right(Right::Change)?;
        let Some(kept) = tenant_volumes::kept_name(&self.caller.tenant, name) else {
            return Err(backend::Error::VolumeNotFound(name.to_owned()).into());
        };
        let removal = self.inventory()?.remove_volume(&kept, is_forced);
        call("removing the volume", deadlines::INVENTORY_DISK, removal).await
    }

    /// Images are the machine's: for whoever runs it, in the built-in tenant.
    fn machine(&self, right: Right) -> Result<&dyn Inventory, Error> {
        self.plane.refuse_when_stopping()?;
        admission::allow(&self.caller, right)?;
        if !self.caller.tenant.is_built_in() {
            return Err(Error::Forbidden(
                "the images of this machine are for the built-in tenant; name an image when \
                 you make a sandbox, and it is brought here"
                    .to_owned(),
            ));
        }
        self.inventory()
    }

    fn inventory(&self) -> Result<&dyn Inventory, Error> {
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
