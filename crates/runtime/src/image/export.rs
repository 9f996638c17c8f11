//! An image as an `oci-archive` tar that any engine can load.
//!
//! Layers are packed anew from their unpacked trees, so digests differ from those the image was
//! pulled under; files, owners, modes and the configuration are the same.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::digest::Digest;
use super::disk::{self, WorkDirectory};
use super::index::snapshot_of;
use super::manifest::{
    Descriptor, Index, Manifest, OCI_CONFIG, OCI_INDEX, OCI_LAYER_GZIP, OCI_MANIFEST, REF_NAME,
};
use super::pack::{TreeKind, pack};
use super::store::Inner;
use super::{Error, ImageConfig, ImageId};

/// Fast: an export is read once or twice, and time is what its user waits for.
const COMPRESSION: flate2::Compression = flate2::Compression::new(3);

/// A layer packed into a file.
struct Packed {
    path: PathBuf,
    blob: Descriptor,
    diff_id: Digest,
}

pub(super) fn export(
    store: &Inner,
    image: &ImageId,
    name: &str,
    destination: &Path,
) -> Result<(), Error> {
    let stack = store.index().stack(&store.directory, image)?;
    if !stack.binds.is_empty() {
        return Err(Error::InvalidReference {
            reference: name.to_owned(),
            message: "it stands on this machine's own directories, which cannot be given away; \
                      use a sandbox from a real image"
                .to_owned(),
        });
    }
    let work = WorkDirectory::new(&store.directory)?;
    let mut layers = Vec::new();
    for (number, layer) in stack.layers.iter().rev().enumerate() {
        let path = work.path().join(number.to_string());
        layers.push(pack_layer(layer, path, store.config.limits.layer_bytes)?);
    }
    let document = document(store, image, &stack.config, &layers);
    let partial = partial_of(destination);
    let written = write_archive(&partial, &layers, &document, name);
    let finished = written.and_then(|()| {
        std::fs::rename(&partial, destination)?;
        disk::sync_directory(directory_of(destination))
    });
    finished.map_err(|e| {
        let _ = std::fs::remove_file(&partial);
        Error::io("writing", destination, e)
    })
}

fn directory_of(destination: &Path) -> &Path {
    match destination.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn partial_of(destination: &Path) -> PathBuf {
    let name = destination
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    destination.with_file_name(format!(".{name}.{:08x}", rand::random::<u32>()))
}

fn pack_layer(layer: &Path, path: PathBuf, file_bytes_max: u64) -> Result<Packed, Error> {
    let failed = |e| Error::io("writing", &path, e);
    let file = HashingWriter::new(BufWriter::new(File::create(&path).map_err(failed)?));
    let mut tar = HashingWriter::new(flate2::write::GzEncoder::new(file, COMPRESSION));
    pack(layer, &mut tar, TreeKind::Layer, file_bytes_max)?;
    let (gzip, diff_id, _) = tar.finish();
    let (mut file, digest, size) = gzip.finish().map_err(failed)?.finish();
    file.flush().map_err(failed)?;
    let blob = descriptor(OCI_LAYER_GZIP, digest, size);
    Ok(Packed {
        path,
        blob,
        diff_id,
    })
}

fn descriptor(media_type: &str, digest: Digest, size: u64) -> Descriptor {
    let media_type = media_type.to_owned();
    Descriptor {
        media_type,
        digest,
        size,
        platform: None,
        annotations: Default::default(),
    }
}

/// The image's own configuration with the layers as packed now.
fn document(store: &Inner, image: &ImageId, config: &ImageConfig, layers: &[Packed]) -> Vec<u8> {
    let index = store.index();
    let mut bottom = image.clone();
    let mut snapshots = 0;
    while let Some(record) = snapshot_of(&bottom).and_then(|id| index.snapshots.get(&id)) {
        bottom = record.parent.clone();
        snapshots += 1;
    }
    let original = index
        .images
        .get(&bottom)
        .map(|record| record.document.clone());
    drop(index);
    let mut document: Value = original
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_else(
            || json!({ "os": config.platform.os, "architecture": config.platform.arch }),
        );
    let diff_ids: Vec<String> = layers
        .iter()
        .map(|layer| layer.diff_id.to_string())
        .collect();
    document["rootfs"] = json!({ "type": "layers", "diff_ids": diff_ids });
    if let Some(history) = document.get_mut("history").and_then(Value::as_array_mut) {
        for _ in 0..snapshots {
            history.push(json!({ "created_by": "snapshot" }));
        }
    }
    document.to_string().into_bytes()
}

fn write_archive(path: &Path, layers: &[Packed], document: &[u8], name: &str) -> io::Result<()> {
    let config = descriptor(OCI_CONFIG, Digest::of(document), document.len() as u64);
    let manifest = Manifest {
        schema_version: 2,
        media_type: OCI_MANIFEST.to_owned(),
        config: config.clone(),
        layers: layers.iter().map(|layer| layer.blob.clone()).collect(),
    };
    let manifest = serde_json::to_vec(&manifest)?;
    let mut entry = descriptor(OCI_MANIFEST, Digest::of(&manifest), manifest.len() as u64);
    entry
        .annotations
        .insert(REF_NAME.to_owned(), name.to_owned());
    let manifest_digest = entry.digest;
    let index = Index {
        schema_version: 2,
        media_type: OCI_INDEX.to_owned(),
        manifests: vec![entry],
    };
    let index = serde_json::to_vec(&index)?;
    let mut archive = tar::Builder::new(BufWriter::new(File::create_new(path)?));
    let mut add = |name: &str, bytes: &[u8]| {
        archive.append_data(&mut file_header(bytes.len() as u64), name, bytes)
    };
    add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    add("index.json", &index)?;
    add(&blob_path(&manifest_digest), &manifest)?;
    add(&blob_path(&config.digest), document)?;
    let mut written = std::collections::HashSet::new();
    for Packed { path, blob, .. } in layers {
        if written.insert(blob.digest) {
            let file = File::open(path)?;
            archive.append_data(&mut file_header(blob.size), blob_path(&blob.digest), file)?;
        }
    }
    let mut out = archive.into_inner()?;
    out.flush()?;
    out.get_ref().sync_all()
}

pub(super) fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn file_header(size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    header
}

/// Passes bytes on, hashing and counting them.
struct HashingWriter<W> {
    inner: W,
    hasher: Sha256,
    bytes: u64,
}

impl<W: Write> HashingWriter<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
            bytes: 0,
        }
    }

    fn finish(self) -> (W, Digest, u64) {
        (self.inner, self.hasher.into(), self.bytes)
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
