//! Extensions of the lifecycle contract: the images and volumes that the backend keeps for
//! sandboxes to come (`/images`, `/volumes`). For holders of an API key only.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ErrorBody;
use crate::sandbox::{ImageSpec, PlatformSpec};

/// An image that is here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Its id: the digest of its configuration.
    pub id: String,
    /// The references that mean it, in full; empty for one that lost its last name.
    pub references: Vec<String>,
    /// What it was built for, as `linux/amd64`.
    pub platform: String,
    /// Bytes on disk; a layer shared with other images counts in each.
    pub size_bytes: u64,
    /// When it came here, or was built, as the backend knows it.
    pub created_at: Timestamp,
    /// Sandboxes and snapshots that stand on it now, where the backend knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<u64>,
    /// The fixed part of its command (`ENTRYPOINT`), where the backend knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// The arguments of that, or the command where there is none (`CMD`), where the backend knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<Vec<String>>,
}

/// What images take on disk, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageUsage {
    /// Layers of images, each counted once.
    pub layers_bytes: u64,
    /// Snapshots.
    pub snapshots_bytes: u64,
    /// Everything else, unfinished downloads included.
    pub other_bytes: u64,
    /// What `POST /images/prune` would free now.
    pub reclaimable_bytes: u64,
}

/// Answer of `GET /images`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListImagesResponse {
    /// All of them, by id.
    pub items: Vec<Image>,
    /// What they take, where the backend can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ImageUsage>,
}

/// `POST /images/pull`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PullImageRequest {
    /// The image, and how to get it.
    pub image: ImageSpec,
    /// The platform; nothing is the server's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformSpec>,
}

/// One event of the answer of `POST /images/pull`. `done` or `error` is the last; a stream that
/// ends without either was cut off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(
    tag = "type",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum PullEvent {
    /// What is to come is known.
    Resolved {
        /// Layers of the image.
        layers: u64,
        /// Bytes to download in all.
        total_bytes: u64,
    },
    /// How much has come.
    Downloaded {
        /// Bytes so far, over all layers.
        bytes: u64,
    },
    /// A layer is unpacked.
    Unpacked {
        /// Its digest.
        digest: String,
    },
    /// The image is here.
    Done {
        /// Its id.
        id: String,
    },
    /// It could not be brought here.
    Error {
        /// Why, as in an answer that is no success.
        error: ErrorBody,
    },
}

impl PullEvent {
    /// The event's name on the wire.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Resolved { .. } => "resolved",
            Self::Downloaded { .. } => "downloaded",
            Self::Unpacked { .. } => "unpacked",
            Self::Done { .. } => "done",
            Self::Error { .. } => "error",
        }
    }
}

/// Answer of `POST /images/import`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportImagesResponse {
    /// The ids of the images that were in the archive.
    pub ids: Vec<String>,
}

/// Answer of `POST /images/prune`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PruneImagesResponse {
    /// Images that went.
    pub images: u64,
    /// Layers that went.
    pub layers: u64,
    /// Bytes that were freed.
    pub bytes: u64,
}

/// A named volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSummary {
    /// Its name: what `volumes[].pvc.claimName` of a sandbox says.
    pub name: String,
    /// When it was made, where the backend knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Ids of the sandboxes that have it mounted.
    pub users: Vec<String>,
}

/// Answer of `GET /volumes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListVolumesResponse {
    /// All of them, by name.
    pub items: Vec<VolumeSummary>,
}

/// `POST /volumes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateVolumeRequest {
    /// Its name: letters, digits, `-`, `_` and `.`, beginning with a letter or digit.
    #[schema(
        min_length = 1,
        max_length = 253,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"
    )]
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_event_names_its_type_and_speaks_camel_case() {
        let event = PullEvent::Resolved {
            layers: 2,
            total_bytes: 10,
        };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(text, r#"{"type":"resolved","layers":2,"totalBytes":10}"#);
        assert_eq!(serde_json::from_str::<PullEvent>(&text).unwrap(), event);
    }
}
