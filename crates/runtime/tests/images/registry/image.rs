//! Images made from nothing: layers, manifests and indexes, and pushing them.

use std::io::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// How a layer is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    Gzip,
    Zstd,
}

/// Which family of media types a manifest uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Oci,
    Docker,
}

/// A layer's tar, by adding entries.
pub(crate) struct Layer {
    archive: tar::Builder<Vec<u8>>,
}

impl Default for Layer {
    fn default() -> Self {
        Self {
            archive: tar::Builder::new(Vec::new()),
        }
    }
}

impl Layer {
    pub(crate) fn file(mut self, path: &str, contents: impl AsRef<[u8]>) -> Self {
        self.add(path, contents.as_ref(), 0o644);
        self
    }

    pub(crate) fn program(mut self, path: &str, contents: impl AsRef<[u8]>) -> Self {
        self.add(path, contents.as_ref(), 0o755);
        self
    }

    pub(crate) fn directory(mut self, path: &str) -> Self {
        let mut header = header(tar::EntryType::Directory, 0, 0o755);
        self.archive
            .append_data(&mut header, path, std::io::empty())
            .expect("an entry");
        self
    }

    pub(crate) fn symlink(mut self, path: &str, target: &str) -> Self {
        let mut header = header(tar::EntryType::Symlink, 0, 0o777);
        self.archive
            .append_link(&mut header, path, target)
            .expect("an entry");
        self
    }

    /// Bytes that do not compress, so that a transfer takes them all.
    pub(crate) fn noise(self, path: &str, bytes: usize) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .flatten()
        .take(bytes)
        .collect();
        self.file(path, noise)
    }

    /// A root filesystem of one static program and its names.
    pub(crate) fn busybox(self) -> Self {
        let busybox = std::fs::read("/bin/busybox")
            .expect("these tests need a static busybox: apt-get install busybox-static");
        let mut layer = self
            .directory("bin")
            .directory("tmp")
            .directory("etc")
            .file("etc/passwd", "root:x:0:0:root:/:/bin/sh\n")
            .program("bin/busybox", busybox);
        for name in [
            "sh", "ls", "cat", "echo", "sleep", "id", "env", "mkdir", "rm", "touch", "true",
        ] {
            layer = layer.symlink(&format!("bin/{name}"), "busybox");
        }
        layer
    }

    pub(crate) fn tar(self) -> Vec<u8> {
        self.archive.into_inner().expect("the archive ends")
    }

    fn add(&mut self, path: &str, contents: &[u8], mode: u32) {
        let mut header = header(tar::EntryType::Regular, contents.len() as u64, mode);
        self.archive
            .append_data(&mut header, path, contents)
            .expect("an entry");
    }
}

fn header(kind: tar::EntryType, size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(1_700_000_000);
    header
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

fn compressed(tar: &[u8], form: Form) -> Vec<u8> {
    match form {
        Form::Plain => tar.to_vec(),
        Form::Zstd => zstd::encode_all(tar, 3).expect("compression"),
        Form::Gzip => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(tar).expect("compression");
            out.finish().expect("compression")
        }
    }
}

/// An image whose parts are all here.
pub(crate) struct Image {
    pub(crate) manifest: Vec<u8>,
    pub(crate) manifest_type: &'static str,
    pub(crate) config: Vec<u8>,
    pub(crate) layers: Vec<Vec<u8>>,
    /// The same uncompressed.
    pub(crate) tars: Vec<Vec<u8>>,
}

impl Image {
    /// An image of these layers, bottom first.
    pub(crate) fn new(family: Family, layers: Vec<(Vec<u8>, Form)>, config: &Value) -> Self {
        let (tars, forms): (Vec<_>, Vec<_>) = layers.into_iter().unzip();
        let blobs: Vec<Vec<u8>> = tars
            .iter()
            .zip(&forms)
            .map(|(tar, form)| compressed(tar, *form))
            .collect();
        let mut document = json!({ "os": "linux", "architecture": architecture() });
        document.as_object_mut().expect("an object").extend(
            config
                .as_object()
                .expect("an object")
                .iter()
                .map(|(k, v)| (k.clone(), v.clone())),
        );
        let diff_ids: Vec<String> = tars.iter().map(|tar| digest(tar)).collect();
        document["rootfs"] = json!({ "type": "layers", "diff_ids": diff_ids });
        let config = document.to_string().into_bytes();
        let (manifest_type, config_type) = match family {
            Family::Oci => (
                "application/vnd.oci.image.manifest.v1+json",
                "application/vnd.oci.image.config.v1+json",
            ),
            Family::Docker => (
                "application/vnd.docker.distribution.manifest.v2+json",
                "application/vnd.docker.container.image.v1+json",
            ),
        };
        let descriptors: Vec<Value> = blobs
            .iter()
            .zip(&forms)
            .map(|(blob, form)| {
                json!({ "mediaType": layer_type(family, *form), "digest": digest(blob), "size": blob.len() })
            })
            .collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": manifest_type,
            "config": { "mediaType": config_type, "digest": digest(&config), "size": config.len() },
            "layers": descriptors,
        });
        let manifest = manifest.to_string().into_bytes();
        Self {
            manifest,
            manifest_type,
            config,
            layers: blobs,
            tars,
        }
    }

    /// One gzipped layer, nothing configured.
    pub(crate) fn of(layer: Layer) -> Self {
        Self::new(Family::Oci, vec![(layer.tar(), Form::Gzip)], &json!({}))
    }

    pub(crate) fn id(&self) -> String {
        digest(&self.manifest)
    }
}

/// This machine's processor, in the names images use.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn layer_type(family: Family, form: Form) -> &'static str {
    match (family, form) {
        (Family::Docker, _) => "application/vnd.docker.image.rootfs.diff.tar.gzip",
        (Family::Oci, Form::Plain) => "application/vnd.oci.image.layer.v1.tar",
        (Family::Oci, Form::Gzip) => "application/vnd.oci.image.layer.v1.tar+gzip",
        (Family::Oci, Form::Zstd) => "application/vnd.oci.image.layer.v1.tar+zstd",
    }
}

/// An index of images by architecture.
pub(crate) fn index(images: &[(&str, &Image)]) -> Vec<u8> {
    let manifests: Vec<Value> = images
        .iter()
        .map(|(architecture, image)| {
            json!({
                "mediaType": image.manifest_type,
                "digest": image.id(),
                "size": image.manifest.len(),
                "platform": { "os": "linux", "architecture": architecture },
            })
        })
        .collect();
    let media_type = "application/vnd.oci.image.index.v1+json";
    let index = json!({ "schemaVersion": 2, "mediaType": media_type, "manifests": manifests });
    index.to_string().into_bytes()
}

/// Pushes with the header that lets us in, if one is needed.
pub(crate) struct Pusher {
    pub(crate) host: String,
    pub(crate) authorization: Option<String>,
}

impl Pusher {
    pub(crate) fn to(host: String) -> Self {
        Self {
            host,
            authorization: None,
        }
    }

    pub(crate) async fn push(&self, repository: &str, tag: &str, image: &Image) {
        for blob in image.layers.iter().chain([&image.config]) {
            self.blob(repository, blob).await;
        }
        self.manifest(repository, tag, image.manifest_type, &image.manifest)
            .await;
    }

    pub(crate) async fn manifest(
        &self,
        repository: &str,
        tag: &str,
        media_type: &str,
        bytes: &[u8],
    ) {
        let url = format!("http://{}/v2/{repository}/manifests/{tag}", self.host);
        let request = client()
            .put(url)
            .header("content-type", media_type)
            .body(bytes.to_vec());
        self.send(request).await;
    }

    async fn blob(&self, repository: &str, bytes: &[u8]) {
        let url = format!("http://{}/v2/{repository}/blobs/uploads/", self.host);
        let started = self.send(client().post(url)).await;
        let location = started.headers()["location"]
            .to_str()
            .expect("an address")
            .to_owned();
        let location = if location.starts_with('/') {
            format!("http://{}{location}", self.host)
        } else {
            location
        };
        let joint = if location.contains('?') { '&' } else { '?' };
        let url = format!("{location}{joint}digest={}", digest(bytes));
        let request = client()
            .put(url)
            .header("content-type", "application/octet-stream")
            .body(bytes.to_vec());
        self.send(request).await;
    }

    async fn send(&self, mut request: reqwest::RequestBuilder) -> reqwest::Response {
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let response = request.send().await.expect("the registry answers");
        assert!(response.status().is_success(), "{response:?}");
        response
    }
}

fn client() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client")
}
