//! What every root filesystem needs and an image may lack: places to mount `/proc`, `/sys` and
//! `/dev` on, and files in `/etc` about this sandbox's own name and network.
//!
//! They are put into the empty writable layer before it is mounted, not bound over the image:
//! plain files shadow whatever the image has there, a link included, so no path of the image is
//! followed, and the sandbox may edit them like any other.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::image::ImageId;

/// How many images' needs are remembered. They are cheap to find out again.
const REMEMBERED_MAX: usize = 1024;

/// The directories that the kernel's filesystems are mounted on.
const MOUNT_POINTS: [&str; 3] = ["proc", "sys", "dev"];

/// The files that are written for each sandbox.
pub(crate) const OWN_FILES: [&str; 3] = ["hostname", "hosts", "resolv.conf"];

/// What an image lacks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Skeleton {
    missing: Vec<&'static str>,
    etc: Etc,
}

#[derive(Debug, PartialEq, Eq)]
enum Etc {
    /// A directory with this mode and owner, or none.
    Directory { mode: u32, uid: u32, gid: u32 },
    /// Something else. It is left alone: the image does not want these files.
    Other,
}

/// What images lack, looked up once for each: layers never change.
#[derive(Debug, Default)]
pub(crate) struct Skeletons {
    known: Mutex<HashMap<ImageId, Arc<Skeleton>>>,
}

impl Skeletons {
    pub(crate) fn of(&self, image: &ImageId, layers: &[PathBuf]) -> io::Result<Arc<Skeleton>> {
        let known = || {
            self.known
                .lock()
                .expect("no code panics with this lock held")
        };
        if let Some(skeleton) = known().get(image) {
            return Ok(skeleton.clone());
        }
        let skeleton = Arc::new(Skeleton::look(layers)?);
        let mut known = known();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(image.clone(), skeleton.clone());
        Ok(skeleton)
    }
}

/// The contents of a sandbox's own files in `/etc`.
pub(crate) struct EtcFiles {
    pub(crate) hostname: String,
    pub(crate) hosts: String,
    pub(crate) resolv_conf: String,
}

impl Skeleton {
    fn look(layers: &[PathBuf]) -> io::Result<Self> {
        let mut missing = Vec::new();
        for name in MOUNT_POINTS {
            if topmost(layers, name)?.is_none() {
                missing.push(name);
            }
        }
        let etc = match topmost(layers, "etc")? {
            Some(found) if found.is_dir() => Etc::Directory {
                mode: found.mode() & 0o7777,
                uid: found.uid(),
                gid: found.gid(),
            },
            Some(_) => Etc::Other,
            None => Etc::Directory {
                mode: 0o755,
                uid: 0,
                gid: 0,
            },
        };
        Ok(Self { missing, etc })
    }

    /// Puts what is needed into `upper`, an empty writable layer on the host.
    pub(crate) fn fill(&self, upper: &Path, texts: &EtcFiles) -> io::Result<()> {
        for name in &self.missing {
            fs::create_dir(upper.join(name))?;
        }
        let Etc::Directory { mode, uid, gid } = self.etc else {
            return Ok(());
        };
        // This directory is merged with the image's and hides its owner and mode, so it gets
        // the same.
        let etc = upper.join("etc");
        fs::DirBuilder::new().mode(mode).create(&etc)?;
        if mode & !0o755 != 0 {
            fs::set_permissions(&etc, fs::Permissions::from_mode(mode))?;
        }
        if (uid, gid) != (0, 0) {
            lchown(&etc, Some(uid), Some(gid))?;
        }
        let texts = [&texts.hostname, &texts.hosts, &texts.resolv_conf];
        for (name, text) in OWN_FILES.into_iter().zip(texts) {
            fs::write(etc.join(name), text)?;
        }
        Ok(())
    }
}

/// What an overlay of `layers` shows under a name, as far as the topmost layer that has it.
fn topmost(layers: &[PathBuf], name: &str) -> io::Result<Option<fs::Metadata>> {
    for layer in layers {
        match fs::symlink_metadata(layer.join(name)) {
            // A whiteout: the layers below are covered.
            Ok(found) if found.file_type().is_char_device() && found.rdev() == 0 => {
                return Ok(None);
            }
            Ok(found) => return Ok(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> EtcFiles {
        EtcFiles {
            hostname: "h\n".to_owned(),
            hosts: "127.0.0.1 localhost\n".to_owned(),
            resolv_conf: "nameserver 192.0.2.1\n".to_owned(),
        }
    }

    #[test]
    fn an_empty_image_gets_all_it_needs() {
        let (layer, upper) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let skeleton = Skeleton::look(&[layer.path().to_owned()]).unwrap();
        skeleton.fill(upper.path(), &texts()).unwrap();
        for name in ["proc", "sys", "dev", "etc"] {
            assert!(upper.path().join(name).is_dir(), "{name}");
        }
        assert_eq!(
            fs::read_to_string(upper.path().join("etc/hostname")).unwrap(),
            "h\n"
        );
    }

    #[test]
    fn a_full_image_keeps_its_directories_and_the_mode_of_etc() {
        let (layer, upper) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["proc", "sys", "dev", "etc"] {
            fs::create_dir(layer.path().join(name)).unwrap();
        }
        let etc = layer.path().join("etc");
        fs::set_permissions(&etc, fs::Permissions::from_mode(0o1775)).unwrap();
        // A link that would lead out of the image if anything followed it.
        std::os::unix::fs::symlink("/elsewhere", etc.join("resolv.conf")).unwrap();
        let skeleton = Skeleton::look(&[layer.path().to_owned()]).unwrap();
        skeleton.fill(upper.path(), &texts()).unwrap();
        assert!(!upper.path().join("proc").exists());
        let etc = fs::symlink_metadata(upper.path().join("etc")).unwrap();
        assert_eq!(etc.mode() & 0o7777, 0o1775);
        let resolv = fs::symlink_metadata(upper.path().join("etc/resolv.conf")).unwrap();
        assert!(resolv.is_file());
    }
}
