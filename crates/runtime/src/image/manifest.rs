//! The JSON documents of images: OCI and Docker (version 2, schema 2) manifests, indexes and
//! configurations. Only the fields that are used; no I/O.

use std::collections::BTreeMap;

use lifecycle::backend::Platform;
use serde::{Deserialize, Deserializer, Serialize};

use super::digest::Digest;
use super::{Error, ImageConfig, ImagePlatform};

pub(super) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const OCI_LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// What a client says it understands when it asks for a manifest.
pub(super) const ACCEPT: [&str; 4] = [OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_LIST];

/// The name under which an image of an OCI layout says what it is called.
pub(super) const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The same, as containerd and Docker write it: with the registry.
pub(super) const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// Images have at most this many layers: overlayfs stacks 500, and snapshots add to it.
pub(super) const LAYERS_MAX: usize = 256;

/// A pointer to a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) platform: Option<ImagePlatform>,
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub(super) annotations: BTreeMap<String, String>,
}

/// What stands for an image: one manifest, or one per platform.
#[derive(Debug)]
pub(super) enum Document {
    Image(Manifest),
    Index(Vec<Descriptor>),
}

/// One image for one platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) schema_version: u32,
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
}

/// A list of images.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    pub(super) schema_version: u32,
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) manifests: Vec<Descriptor>,
}

impl Document {
    /// Tells an image from an index by its fields: the media type is optional in OCI documents
    /// and a header about it may lie.
    pub(super) fn parse(what: &str, bytes: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Probe {
            schema_version: u32,
            config: Option<serde::de::IgnoredAny>,
            manifests: Option<serde::de::IgnoredAny>,
        }
        let probe: Probe = json(what, bytes)?;
        match probe {
            Probe {
                schema_version: 1, ..
            } => Err(corrupt(
                what,
                "it is a schema 1 manifest, which no current builder writes; push the image again",
            )),
            Probe {
                config: Some(_),
                manifests: None,
                ..
            } => {
                let manifest: Manifest = json(what, bytes)?;
                if manifest.layers.len() > LAYERS_MAX {
                    return Err(corrupt(
                        what,
                        &format!("it has more than {LAYERS_MAX} layers"),
                    ));
                }
                Ok(Self::Image(manifest))
            }
            Probe {
                config: None,
                manifests: Some(_),
                ..
            } => Ok(Self::Index(json::<Index>(what, bytes)?.manifests)),
            _ => Err(corrupt(
                what,
                "it is neither an image manifest nor an index",
            )),
        }
    }
}

/// The manifest for a platform among those of an index. Where variants differ the plainest one
/// is taken, which every processor of that architecture runs.
pub(super) fn select<'a>(
    reference: &str,
    manifests: &'a [Descriptor],
    wanted: &Platform,
) -> Result<&'a Descriptor, Error> {
    let plainness = |descriptor: &&Descriptor| {
        let variant = descriptor
            .platform
            .as_ref()
            .map_or("", |p| p.variant.as_str());
        match (wanted.arch.as_str(), variant) {
            (_, "") => 0,
            ("arm64", "v8") | ("amd64", "v1") => 1,
            // 32-bit ARM: the newest variant that common boards run.
            ("arm", "v7") => 1,
            ("arm", "v6") => 2,
            _ => 9,
        }
    };
    let fits = |descriptor: &&Descriptor| match &descriptor.platform {
        Some(platform) => platform.os == wanted.os && platform.arch == wanted.arch,
        None => manifests.len() == 1,
    };
    manifests
        .iter()
        .filter(fits)
        .min_by_key(plainness)
        .ok_or_else(|| {
            let mut available: Vec<String> = manifests
                .iter()
                .filter_map(|descriptor| descriptor.platform.as_ref())
                .filter(|platform| platform.os != "unknown")
                .map(ToString::to_string)
                .collect();
            available.sort();
            available.dedup();
            wrong_platform(reference, wanted, &available.join(", "))
        })
}

/// An image's configuration, of which the raw text is kept for export.
#[derive(Debug, Clone)]
pub(super) struct Configuration {
    pub(super) diff_ids: Vec<Digest>,
    pub(super) config: ImageConfig,
}

impl Configuration {
    pub(super) fn parse(what: &str, bytes: &[u8]) -> Result<Self, Error> {
        let raw: RawConfiguration = json(what, bytes)?;
        let config = raw.config;
        Ok(Self {
            diff_ids: raw.rootfs.diff_ids,
            config: ImageConfig {
                entrypoint: config.entrypoint,
                cmd: config.cmd,
                env: config
                    .env
                    .iter()
                    .filter_map(|line| split_env(line))
                    .collect(),
                workdir: config.working_dir,
                user: config.user,
                exposed_ports: config.exposed_ports.into_keys().collect(),
                labels: config.labels,
                stop_signal: config.stop_signal,
                platform: ImagePlatform {
                    os: raw.os,
                    arch: raw.architecture,
                    variant: raw.variant,
                },
            },
        })
    }

    /// Refuses an image whose configuration names another platform than asked for.
    pub(super) fn check_platform(&self, reference: &str, wanted: &Platform) -> Result<(), Error> {
        let built = &self.config.platform;
        let fits = |built: &str, wanted: &str| built.is_empty() || built == wanted;
        if fits(&built.os, &wanted.os) && fits(&built.arch, &wanted.arch) {
            Ok(())
        } else {
            Err(wrong_platform(reference, wanted, &built.to_string()))
        }
    }
}

fn split_env(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
}

/// The image configuration document. Its keys are Go's, capitalised in the inner part.
#[derive(Deserialize)]
struct RawConfiguration {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    variant: String,
    #[serde(default, deserialize_with = "or_default")]
    config: RawConfig,
    rootfs: Rootfs,
}

#[derive(Deserialize)]
struct Rootfs {
    #[serde(deserialize_with = "or_default")]
    diff_ids: Vec<Digest>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct RawConfig {
    #[serde(deserialize_with = "or_default")]
    entrypoint: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    cmd: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    env: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    working_dir: String,
    #[serde(deserialize_with = "or_default")]
    user: String,
    #[serde(deserialize_with = "or_default")]
    exposed_ports: BTreeMap<String, serde::de::IgnoredAny>,
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    stop_signal: Option<String>,
}

/// Builders write `null` for what is empty.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    d: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

pub(super) fn json<'a, T: Deserialize<'a>>(what: &str, bytes: &'a [u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|e| corrupt(what, &e.to_string()))
}

pub(super) fn corrupt(what: &str, message: &str) -> Error {
    Error::Corrupt {
        what: what.to_owned(),
        message: message.to_owned(),
    }
}

fn wrong_platform(reference: &str, wanted: &Platform, available: &str) -> Error {
    let available = if available.is_empty() {
        "no platform it names"
    } else {
        available
    };
    Error::WrongPlatform {
        reference: reference.to_owned(),
        wanted: format!("{}/{}", wanted.os, wanted.arch),
        available: available.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(platform: Option<(&str, &str, &str)>) -> Descriptor {
        Descriptor {
            media_type: OCI_MANIFEST.to_owned(),
            digest: Digest::of(format!("{platform:?}").as_bytes()),
            size: 1,
            platform: platform.map(|(os, arch, variant)| ImagePlatform {
                os: os.to_owned(),
                arch: arch.to_owned(),
                variant: variant.to_owned(),
            }),
            annotations: BTreeMap::new(),
        }
    }

    fn choose(manifests: &[Descriptor], arch: &str) -> Result<String, Error> {
        let wanted = Platform {
            os: "linux".to_owned(),
            arch: arch.to_owned(),
        };
        select("x", manifests, &wanted).map(|d| {
            d.platform
                .as_ref()
                .map_or("-".to_owned(), ToString::to_string)
        })
    }

    #[test]
    fn the_plainest_fitting_platform_is_chosen() {
        let manifests = [
            descriptor(Some(("unknown", "unknown", ""))),
            descriptor(Some(("windows", "amd64", ""))),
            descriptor(Some(("linux", "amd64", "v3"))),
            descriptor(Some(("linux", "amd64", ""))),
            descriptor(Some(("linux", "arm", "v6"))),
            descriptor(Some(("linux", "arm", "v7"))),
        ];
        assert_eq!(choose(&manifests, "amd64").unwrap(), "linux/amd64");
        assert_eq!(choose(&manifests, "arm").unwrap(), "linux/arm/v7");
        assert_eq!(choose(&[descriptor(None)], "riscv64").unwrap(), "-");
        let Err(Error::WrongPlatform { available, .. }) = choose(&manifests, "s390x") else {
            panic!("an image for another machine was chosen");
        };
        assert_eq!(
            available,
            "linux/amd64, linux/amd64/v3, linux/arm/v6, linux/arm/v7, windows/amd64"
        );
    }

    #[test]
    fn configurations_with_nulls_are_read() {
        let digest = Digest::of(b"");
        let text = format!(
            r#"{{"os":"linux","architecture":"arm64","rootfs":{{"type":"layers","diff_ids":["{digest}"]}},
            "config":{{"Env":["A=b=c","broken",""],"Cmd":null,"Entrypoint":["/x"],"ExposedPorts":{{"80/tcp":{{}}}},
            "Labels":null,"WorkingDir":"/w","User":"1:2","StopSignal":"SIGINT"}}}}"#
        );
        let parsed = Configuration::parse("x", text.as_bytes()).unwrap();
        assert_eq!(parsed.diff_ids, [digest]);
        assert_eq!(parsed.config.command(), ["/x"]);
        assert_eq!(parsed.config.env, [("A".to_owned(), "b=c".to_owned())]);
        assert_eq!(parsed.config.exposed_ports, ["80/tcp"]);
        let wanted = Platform {
            os: "linux".to_owned(),
            arch: "amd64".to_owned(),
        };
        assert!(matches!(
            parsed.check_platform("x", &wanted),
            Err(Error::WrongPlatform { .. })
        ));
    }

    #[test]
    fn documents_are_known_by_their_fields() {
        let bad = |text: &str| match Document::parse("x", text.as_bytes()) {
            Err(Error::Corrupt { message, .. }) => message,
            other => panic!("{other:?}"),
        };
        assert!(bad(r#"{"schemaVersion":1,"fsLayers":[]}"#).contains("schema 1"));
        assert!(bad(r#"{"schemaVersion":2}"#).contains("neither"));
        assert!(bad(r#"{"schemaVersion":2,"config":{},"manifests":[]}"#).contains("neither"));
        assert!(bad("[]").contains("expected"));
    }
}
