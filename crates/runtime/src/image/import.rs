//! Images from files: OCI layouts, archives of `docker save` and `skopeo`, root filesystems.
//!
//! An archive is unpacked into a work directory by the same code that unpacks layers, so its
//! names are as little trusted; then it is read like a layout. Every blob is checked against
//! the digest that names it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use api::image_reference::ImageReference;
use jiff::Timestamp;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::digest::{Digest, HashingReader};
use super::disk::WorkDirectory;
use super::export::blob_path;
use super::index::{ImageName, ImageRecord};
use super::manifest::{
    self, CONTAINERD_NAME, Configuration, Descriptor, Document, Index, Manifest, REF_NAME, corrupt,
};
use super::pack::{TreeKind, pack};
use super::pull::{pair_layers, unpack_into_work};
use super::store::{Inner, Pin};
use super::unpack::{UnpackLimits, decompress};
use super::{Error, ImageConfig, ImageId, Import, this_platform};

/// Manifests and configurations are kilobytes.
const DOCUMENT_BYTES_MAX: u64 = 8 << 20;
/// An index may point to an index; nobody nests deeper.
const INDEX_DEPTH_MAX: usize = 3;
const READ_BYTES: usize = 256 << 10;

pub(super) fn import(
    store: &Arc<Inner>,
    import: &Import,
    name: Option<&ImageReference>,
    cancel: CancellationToken,
) -> Result<Vec<ImageId>, Error> {
    let limits = &store.config.limits;
    let bounds = UnpackLimits {
        bytes: limits.layer_bytes,
        entries: limits.layer_entries,
        cancel,
    };
    let importer = Importer {
        store,
        name,
        bounds,
    };
    match import {
        Import::OciLayout(path) => importer.layout(&open_directory(path)?),
        Import::OciArchive(path) => importer.archive(path, Importer::layout),
        Import::DockerArchive(path) => importer.archive(path, Importer::docker),
        Import::RootfsTar(path) => importer.rootfs_tar(path),
        Import::Directory(path) => importer.directory(path),
        Import::Detect(path) => self::import(store, &detect(path)?, name, importer.bounds.cancel),
    }
}

/// Looks into a file or directory for what it is.
fn detect(path: &Path) -> Result<Import, Error> {
    let path = path.to_owned();
    if path.join("oci-layout").is_file() {
        return Ok(Import::OciLayout(path));
    }
    if path.is_dir() {
        return Ok(Import::Directory(path));
    }
    let damaged = |e: io::Error| match e.raw_os_error() {
        Some(_) => Error::io("reading", &path, e),
        None => corrupt("the archive", &e.to_string()),
    };
    let file = File::open(&path).map_err(damaged)?;
    let stream = decompress(BufReader::with_capacity(READ_BYTES, file)).map_err(damaged)?;
    let mut reader = super::tar::Reader::new(stream);
    let mut is_docker = false;
    while let Some(entry) = reader.next().map_err(damaged)? {
        match entry.path.strip_prefix(b"./").unwrap_or(&entry.path) {
            b"oci-layout" => return Ok(Import::OciArchive(path)),
            b"manifest.json" => is_docker = true,
            _ => {}
        }
    }
    Ok(if is_docker {
        Import::DockerArchive(path)
    } else {
        Import::RootfsTar(path)
    })
}

fn open_directory(path: &Path) -> Result<OwnedFd, Error> {
    rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|e| Error::io("opening", path, e))
}

struct Importer<'a> {
    store: &'a Arc<Inner>,
    name: Option<&'a ImageReference>,
    bounds: UnpackLimits,
}

/// One image found in a layout or archive.
struct FoundImage {
    id: Digest,
    document: Vec<u8>,
    /// Where each layer's blob is, with its digest where the archive promises one.
    layers: Vec<(String, Option<Digest>, Digest)>,
    names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Importer<'_> {
    fn archive(
        &self,
        path: &Path,
        read: fn(&Self, &OwnedFd) -> Result<Vec<ImageId>, Error>,
    ) -> Result<Vec<ImageId>, Error> {
        let what = path.display().to_string();
        let (work, _) = unpack_into_work(self.store, open(path)?, &what, &self.bounds)?;
        read(self, &open_directory(&work.path().join("fs"))?)
    }

    fn layout(&self, root: &OwnedFd) -> Result<Vec<ImageId>, Error> {
        let bytes = read_file(root, "index.json")?;
        let index: Index = manifest::json("index.json", &bytes)?;
        let mut found: BTreeMap<Digest, FoundImage> = BTreeMap::new();
        let mut seen = Vec::new();
        for descriptor in &index.manifests {
            let names = names_of(descriptor);
            seen.extend(descriptor.platform.as_ref().map(ToString::to_string));
            match self.resolve(root, descriptor.clone()) {
                Ok(image) => found.entry(image.id).or_insert(image).names.extend(names),
                // Other platforms' images may lie beside ours.
                Err(Error::WrongPlatform { available, .. }) => seen.push(available),
                Err(error) => return Err(error),
            }
        }
        if found.is_empty() {
            let wanted = this_platform();
            return Err(Error::WrongPlatform {
                reference: "index.json".to_owned(),
                wanted: format!("{}/{}", wanted.os, wanted.arch),
                available: if seen.is_empty() {
                    "nothing".to_owned()
                } else {
                    seen.join(", ")
                },
            });
        }
        self.record(root, found.into_values().collect())
    }

    fn resolve(&self, root: &OwnedFd, mut descriptor: Descriptor) -> Result<FoundImage, Error> {
        for _ in 0..INDEX_DEPTH_MAX {
            let what = format!("the manifest {}", descriptor.digest);
            let bytes = read_blob(root, &descriptor)?;
            match Document::parse(&what, &bytes)? {
                Document::Index(manifests) => {
                    descriptor = manifest::select(&what, &manifests, &this_platform())?.clone();
                }
                Document::Image(manifest) => return self.found(root, descriptor.digest, &manifest),
            }
        }
        Err(corrupt("index.json", "its indexes point at each other"))
    }

    fn found(&self, root: &OwnedFd, id: Digest, manifest: &Manifest) -> Result<FoundImage, Error> {
        let what = format!("the configuration {}", manifest.config.digest);
        let document = read_blob(root, &manifest.config)?;
        let configuration = Configuration::parse(&what, &document)?;
        configuration.check_platform(&id.to_string(), &this_platform())?;
        let layers = pair_layers(&what, manifest, &configuration)?
            .into_iter()
            .map(|(blob, diff_id)| (blob_path(&blob.digest), Some(blob.digest), diff_id))
            .collect();
        Ok(FoundImage {
            id,
            document,
            layers,
            names: Vec::new(),
        })
    }

    fn docker(&self, root: &OwnedFd) -> Result<Vec<ImageId>, Error> {
        let bytes = read_file(root, "manifest.json")?;
        let images: Vec<DockerImage> = manifest::json("manifest.json", &bytes)?;
        let mut found = Vec::new();
        for image in images {
            let document = read_file(root, &image.config)?;
            let configuration = Configuration::parse(&image.config, &document)?;
            configuration.check_platform(&image.config, &this_platform())?;
            if image.layers.is_empty() || image.layers.len() != configuration.diff_ids.len() {
                return Err(corrupt(
                    "manifest.json",
                    "its layers are not those of the configuration",
                ));
            }
            let layers = image.layers.into_iter().zip(configuration.diff_ids);
            found.push(FoundImage {
                id: Digest::of(&document),
                document,
                layers: layers
                    .map(|(path, diff_id)| (path, None, diff_id))
                    .collect(),
                names: image.repo_tags.unwrap_or_default(),
            });
        }
        if found.is_empty() {
            return Err(corrupt("manifest.json", "it names no image"));
        }
        self.record(root, found)
    }

    /// Unpacks the layers of what was found and records it.
    fn record(&self, root: &OwnedFd, found: Vec<FoundImage>) -> Result<Vec<ImageId>, Error> {
        if let Some(name) = self.name
            && found.len() > 1
        {
            let names: Vec<String> = found.into_iter().flat_map(|image| image.names).collect();
            return Err(Error::InvalidReference {
                reference: name.to_string(),
                message: format!(
                    "the archive holds several images, which cannot share one name; import it \
                     without a name to keep theirs: {}",
                    names.join(", ")
                ),
            });
        }
        let mut ids = Vec::new();
        for image in found {
            let mut pins = Vec::new();
            for (path, blob, diff_id) in &image.layers {
                pins.push(self.layer(root, path, *blob, *diff_id)?);
            }
            let names = match self.name {
                Some(name) => vec![name.to_string()],
                None => self.full_names(&image.names)?,
            };
            ids.push(self.add(image.id, &image.document, &names)?);
        }
        Ok(ids)
    }

    fn full_names(&self, names: &[String]) -> Result<Vec<String>, Error> {
        if names.is_empty() {
            return Err(Error::InvalidReference {
                reference: String::new(),
                message: "the archive does not say what its image is called; give it a name"
                    .to_owned(),
            });
        }
        names
            .iter()
            .map(|name| Ok(self.store.parse(name)?.to_string()))
            .collect()
    }

    fn layer(
        &self,
        root: &OwnedFd,
        path: &str,
        blob: Option<Digest>,
        diff_id: Digest,
    ) -> Result<Pin, Error> {
        if let Some(pin) = self.store.pin(&diff_id) {
            return Ok(pin);
        }
        let what = format!("the layer {path}");
        let mut file = File::from(open_in(root, path)?);
        if let Some(expected) = blob {
            let mut reader = HashingReader::new(&mut file);
            io::copy(&mut reader, &mut io::sink())
                .map_err(|e| Error::io("reading", Path::new(path), e))?;
            let (digest, _) = reader.finish();
            if digest != expected {
                return Err(corrupt(&what, &format!("its digest is {digest}")));
            }
            file.rewind()
                .map_err(|e| Error::io("reading", Path::new(path), e))?;
        }
        let input = BufReader::with_capacity(READ_BYTES, file);
        let (work, unpacked) = unpack_into_work(self.store, input, &what, &self.bounds)?;
        if unpacked.diff_id != diff_id {
            let message = format!(
                "uncompressed its digest is {}, not {diff_id}",
                unpacked.diff_id
            );
            return Err(corrupt(&what, &message));
        }
        self.store.add_layer(&work, unpacked)
    }

    fn rootfs_tar(&self, path: &Path) -> Result<Vec<ImageId>, Error> {
        let names = self.required_name()?;
        let what = path.display().to_string();
        let (work, unpacked) = unpack_into_work(self.store, open(path)?, &what, &self.bounds)?;
        self.single_layer(&work, unpacked, &names)
    }

    /// A directory is packed and unpacked in one go: one way in for all files.
    fn directory(&self, path: &Path) -> Result<Vec<ImageId>, Error> {
        let names = self.required_name()?;
        let (reader, writer) = io::pipe().map_err(|e| Error::io("making a pipe for", path, e))?;
        let what = path.display().to_string();
        let file_bytes_max = self.bounds.bytes;
        let (packed, unpacked) = std::thread::scope(|scope| {
            let packing = scope.spawn(move || {
                pack(
                    path,
                    io::BufWriter::new(writer),
                    TreeKind::Plain,
                    file_bytes_max,
                )
            });
            let input = BufReader::with_capacity(READ_BYTES, reader);
            // The reader is dropped with the unpacking, so a failure there ends the packing.
            let unpacked = unpack_into_work(self.store, input, &what, &self.bounds);
            (packing.join().expect("packing does not panic"), unpacked)
        });
        match (packed, unpacked) {
            (Ok(()), Ok((work, unpacked))) => self.single_layer(&work, unpacked, &names),
            // Unpacking stopped first and packing ran into the closed pipe.
            (Err(error), Err(cause)) if is_broken_pipe(&error) => Err(cause),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// Where the archive lies is no business of whoever sent it.
    fn required_name(&self) -> Result<Vec<String>, Error> {
        match self.name {
            Some(name) => Ok(vec![name.to_string()]),
            None => Err(Error::InvalidReference {
                reference: String::new(),
                message: "a root filesystem has no name of its own; give it one".to_owned(),
            }),
        }
    }

    fn single_layer(
        &self,
        work: &WorkDirectory,
        unpacked: super::unpack::Unpacked,
        names: &[String],
    ) -> Result<Vec<ImageId>, Error> {
        let _pin = self.store.add_layer(work, unpacked)?;
        let platform = ImageConfig::default().platform;
        let document = serde_json::json!({
            "os": platform.os,
            "architecture": platform.arch,
            "config": { "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"] },
            "rootfs": { "type": "layers", "diff_ids": [unpacked.diff_id] },
        });
        let document = document.to_string().into_bytes();
        Ok(vec![self.add(Digest::of(&document), &document, names)?])
    }

    fn add(&self, id: Digest, document: &[u8], names: &[String]) -> Result<ImageId, Error> {
        let configuration = Configuration::parse("the configuration", document)?;
        let record = ImageRecord {
            id: ImageId(id.to_string().into()),
            layers: configuration.diff_ids,
            config: Arc::new(configuration.config),
            document: String::from_utf8_lossy(document).into(),
            created_at: Timestamp::now(),
        };
        let platform = this_platform();
        let names: Vec<ImageName> = names
            .iter()
            .map(|name| ImageName::new(name.clone(), &platform))
            .collect();
        Ok(self.store.add_image(record, &names)?.image().clone())
    }
}

fn is_broken_pipe(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
}

/// What an index calls an image. A bare tag, as some tools write it, is no name.
fn names_of(descriptor: &Descriptor) -> Option<String> {
    let full = descriptor.annotations.get(CONTAINERD_NAME);
    let name = full.or_else(|| descriptor.annotations.get(REF_NAME))?;
    (full.is_some() || name.contains(['/', ':'])).then(|| name.clone())
}

fn open(path: &Path) -> Result<BufReader<File>, Error> {
    let file = File::open(path).map_err(|e| Error::io("opening", path, e))?;
    Ok(BufReader::with_capacity(READ_BYTES, file))
}

/// A file of a layout, by the name its documents give it, which stays within the layout.
fn open_in(root: &OwnedFd, name: &str) -> Result<OwnedFd, Error> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    // Without waiting, should it be a pipe.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::io::retry_on_intr(|| {
        rustix::fs::openat2(root.as_fd(), name, flags, Mode::empty(), resolve)
    });
    let file = opened.map_err(|e| match e {
        rustix::io::Errno::NOENT => corrupt(name, "the archive names it but does not hold it"),
        other => Error::io("opening", Path::new(name), other),
    })?;
    match rustix::fs::fstat(&file).map(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode)) {
        Ok(rustix::fs::FileType::RegularFile) => Ok(file),
        _ => Err(corrupt(name, "it is not a file")),
    }
}

fn read_file(root: &OwnedFd, name: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let mut file = File::from(open_in(root, name)?).take(DOCUMENT_BYTES_MAX + 1);
    file.read_to_end(&mut bytes)
        .map_err(|e| Error::io("reading", Path::new(name), e))?;
    if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
        return Err(corrupt(
            name,
            "it is larger than any manifest or configuration",
        ));
    }
    Ok(bytes)
}

fn read_blob(root: &OwnedFd, descriptor: &Descriptor) -> Result<Vec<u8>, Error> {
    let bytes = read_file(root, &blob_path(&descriptor.digest))?;
    match Digest::of(&bytes) {
        digest if digest == descriptor.digest => Ok(bytes),
        digest => Err(corrupt(
            &descriptor.digest.to_string(),
            &format!("its digest is {digest}"),
        )),
    }
}
