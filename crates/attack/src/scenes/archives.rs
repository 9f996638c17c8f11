//! Archives and configurations of images that lie in wait for whoever unpacks and runs them.
//!
//! Each is refused, or leaves the host as it was: what it aims at is looked at afterwards.

use std::fs;
use std::path::PathBuf;

use runtime::image::Import;
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

use crate::case::Verdict;
use crate::world::{MARKER_TEXT, Setup, World};

/// A tar by hand: no library writes what is wanted here.
#[derive(Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn entry(mut self, name: &str, kind: EntryType, link: &str, contents: &[u8]) -> Self {
        let mut header = Header::new_ustar();
        header.as_ustar_mut().expect("it is one").name[..name.len()]
            .copy_from_slice(name.as_bytes());
        let linked = &mut header.as_ustar_mut().expect("it is one").linkname;
        linked[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(contents.len() as u64);
        if kind.is_character_special() {
            // /dev/mem.
            let set = header
                .set_device_major(1)
                .and_then(|()| header.set_device_minor(1));
            set.expect("a device has numbers");
        }
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(contents);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, name: &str, contents: &str) -> Self {
        self.entry(name, EntryType::Regular, "", contents.as_bytes())
    }

    fn link(self, name: &str, target: &str) -> Self {
        self.entry(name, EntryType::Symlink, target, b"")
    }

    fn directory(self, name: &str) -> Self {
        self.entry(name, EntryType::Directory, "", b"")
    }

    fn finished(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }
}

/// A name of the temporary directory that an archive tries to write to.
fn victim(world: &World, name: &str) -> PathBuf {
    world.temp.path().join(format!("victim-{name}"))
}

/// Imports the archive, and, where that is taken, makes a sandbox of it. Nothing of the host has changed then.
async fn unpacked(world: &World, name: &'static str, archive: Archive) -> Verdict {
    let path = world.temp.path().join(format!("{name}.tar"));
    fs::write(&path, archive.finished()).expect("it is writable");
    let images = world.backend.images();
    let taken = images.import(&Import::RootfsTar(path), Some(name)).await;
    if taken.is_ok() {
        let id = world.new_id();
        let setup = Setup {
            image: name,
            ..Setup::default()
        };
        // Whether it starts does not matter; that it is looked at does.
        let _ = world.attack_as(&id, &setup, &["nothing"]).await;
        world.delete(&id).await;
    }
    untouched(world, name)
}

fn untouched(world: &World, name: &str) -> Verdict {
    let marker = fs::read_to_string(&world.marker).unwrap_or_default();
    let verdict = Verdict::of(marker == MARKER_TEXT, || {
        format!("the marker is {marker:?}")
    });
    let victim = victim(world, name);
    verdict.and(Verdict::of(fs::symlink_metadata(&victim).is_err(), || {
        format!("{} was made", victim.display())
    }))
}

/// Up from the layer to the root, and down again.
fn climbing(path: &std::path::Path) -> String {
    format!("../../../../../../../../..{}", path.display())
}

pub(crate) async fn climbs(world: &World) -> Verdict {
    const NAME: &str = "archive-climbs";
    let archive = Archive::default()
        .file(&climbing(&victim(world, NAME)), "escaped")
        .file(&climbing(&world.marker), "escaped");
    unpacked(world, NAME, archive).await
}

pub(crate) async fn absolute(world: &World) -> Verdict {
    const NAME: &str = "archive-absolute";
    let archive = Archive::default()
        .file(&victim(world, NAME).display().to_string(), "escaped")
        .file(&world.marker.display().to_string(), "escaped");
    unpacked(world, NAME, archive).await
}

pub(crate) async fn through_link(world: &World) -> Verdict {
    const NAME: &str = "archive-through-link";
    let parent = world.temp.path().display().to_string();
    let archive = Archive::default()
        .link("out", &parent)
        .file(&format!("out/victim-{NAME}"), "escaped")
        .link("file", &world.marker.display().to_string())
        .file("file", "escaped");
    unpacked(world, NAME, archive).await
}

pub(crate) async fn hard_link(world: &World) -> Verdict {
    const NAME: &str = "archive-hard-link";
    let marker = world.marker.display().to_string();
    let archive = Archive::default()
        .entry("near", EntryType::Link, &climbing(&world.marker), b"")
        .file("near", "escaped")
        .entry("far", EntryType::Link, &marker, b"")
        .file("far", "escaped");
    unpacked(world, NAME, archive).await
}

pub(crate) async fn swapped(world: &World) -> Verdict {
    const NAME: &str = "archive-swapped";
    let archive = Archive::default()
        .directory("place/")
        .file("place/first", "harmless")
        .link("place", &world.temp.path().display().to_string())
        .file(&format!("place/victim-{NAME}"), "escaped")
        .directory("place/")
        .file(&format!("place/victim-{NAME}"), "escaped");
    unpacked(world, NAME, archive).await
}

/// A device is left out, or is a file that nobody can open.
pub(crate) async fn device(world: &World) -> Verdict {
    const NAME: &str = "archive-device";
    let hostile = fs::read(world.hostile()).unwrap_or_default();
    let archive = Archive::default()
        .directory("proc/")
        .directory("sys/")
        .directory("dev/")
        .entry("hostile", EntryType::Regular, "", &hostile)
        .entry("memory", EntryType::Char, "", b"");
    let path = world.temp.path().join("archive-device.tar");
    fs::write(&path, archive.finished()).expect("it is writable");
    let images = world.backend.images();
    if images
        .import(&Import::RootfsTar(path), Some(NAME))
        .await
        .is_err()
    {
        return Verdict::Held;
    }
    let setup = Setup {
        image: NAME,
        ..Setup::default()
    };
    world
        .attack(&setup, &["unreadable_paths", "/memory"])
        .await
        .verdict()
}

/// One file of eight exabytes, of which the archive has a kilobyte.
pub(crate) async fn huge(world: &World) -> Verdict {
    const NAME: &str = "archive-huge";
    let mut header = Header::new_gnu();
    header.set_path("large").expect("a short name");
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(i64::MAX.unsigned_abs());
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.resize(2_048, b'x');
    let path = world.temp.path().join("archive-huge.tar");
    fs::write(&path, bytes).expect("it is writable");
    let images = world.backend.images();
    let taken = images.import(&Import::RootfsTar(path), Some(NAME)).await;
    Verdict::of(taken.is_err(), || "it was taken for an image".to_owned())
}

/// The working directory of an image is a descriptor that whoever starts the sandbox has open.
pub(crate) async fn workdir(world: &World) -> Verdict {
    let rootfs = Archive::default()
        .directory("proc/")
        .directory("sys/")
        .directory("dev/")
        .entry(
            "hostile",
            EntryType::Regular,
            "",
            &fs::read(world.hostile()).unwrap_or_default(),
        )
        .finished();
    let marker = world.marker.display().to_string();
    let mut verdict = Verdict::Held;
    for number in 3..12 {
        let name: &'static str = Box::leak(format!("workdir-{number}").into_boxed_str());
        let directory = world.temp.path().join(name);
        write_layout(&directory, &rootfs, &format!("/proc/self/fd/{number}"));
        let images = world.backend.images();
        if images
            .import(&Import::OciLayout(directory), Some(name))
            .await
            .is_err()
        {
            continue;
        }
        let id = world.new_id();
        let setup = Setup {
            image: name,
            ..Setup::default()
        };
        let spec = world.spec(&id, &setup, &["/hostile", "cwd_inside", &marker]);
        if lifecycle::backend::Backend::create(&world.backend, spec)
            .await
            .is_ok()
        {
            world.delete(&id).await;
            verdict = verdict.and(
                world
                    .attack(&setup, &["cwd_inside", &marker])
                    .await
                    .verdict(),
            );
        }
    }
    verdict
}

/// An image of one layer as a directory in the layout of OCI.
fn write_layout(directory: &std::path::Path, layer: &[u8], workdir: &str) {
    let blobs = directory.join("blobs/sha256");
    fs::create_dir_all(&blobs).expect("a directory can be made");
    let blob = |bytes: &[u8]| {
        let digest = hex::encode(Sha256::digest(bytes));
        fs::write(blobs.join(&digest), bytes).expect("it is writable");
        format!("sha256:{digest}")
    };
    let layer_digest = blob(layer);
    let config = serde_json::json!({
        "architecture": runtime::image::this_platform().arch, "os": "linux",
        "config": { "WorkingDir": workdir, "Cmd": ["/hostile", "nothing"] },
        "rootfs": { "type": "layers", "diff_ids": [layer_digest] },
    })
    .to_string();
    let config_digest = blob(config.as_bytes());
    let manifest = serde_json::json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config_digest, "size": config.len() },
        "layers": [{ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer_digest, "size": layer.len() }],
    })
    .to_string();
    let manifest_digest = blob(manifest.as_bytes());
    let index = serde_json::json!({
        "schemaVersion": 2,
        "manifests": [{ "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": manifest_digest, "size": manifest.len() }],
    });
    fs::write(directory.join("index.json"), index.to_string()).expect("it is writable");
    fs::write(
        directory.join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )
    .expect("it is writable");
}
