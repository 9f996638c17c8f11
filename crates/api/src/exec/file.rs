//! Files and directories.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::deserialize::null_as_default;
use crate::file_mode::FileMode;

/// The mode of an uploaded file or a new directory that names none.
pub const DEFAULT_MODE: FileMode = FileMode::from_bits(0o755);

/// Ids that `/v1/filesystem/{uid}/{gid}` takes; one more means "no change" to the kernel.
pub const FILESYSTEM_ID_MAX: u32 = u32::MAX - 1;

/// The pattern of a search that names none: everything.
pub const SEARCH_PATTERN_DEFAULT: &str = "**";

/// What is known of a file without following a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileInfo {
    /// Absolute path.
    pub path: String,
    /// Extension: the path again, percent-encoded, when its bytes are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_path: Option<String>,
    /// What it is.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<FileKind>,
    /// Size in bytes.
    pub size: u64,
    /// When its content last changed.
    pub modified_at: Timestamp,
    /// When it was made, or when its metadata last changed where the filesystem does not say.
    pub created_at: Timestamp,
    /// Its owner's name, or number where it has no name.
    pub owner: String,
    /// Its group's name, or number where it has no name.
    pub group: String,
    /// Its mode.
    pub mode: FileMode,
}

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, socket or pipe.
    Other,
}

/// Owner, group and mode to set; what is missing stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Permission {
    /// Owner by name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Group by name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Mode; 0 is as good as missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
}

/// The `metadata` part of an upload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileMetadata {
    /// Where the file goes; `~` and variables are expanded, parents are made.
    #[serde(default)]
    pub path: String,
    /// Owner by name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Group by name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Mode; 0 is as good as missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
}

/// One entry of `POST /files/mv`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RenameFileItem)]
pub struct Rename {
    /// From.
    pub src: String,
    /// To; must not exist.
    pub dest: String,
}

/// One file's entry of `POST /files/replace`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplaceFileContentItem)]
pub struct Replace {
    /// What to look for; not empty.
    #[schema(min_length = 1)]
    pub old: String,
    /// What to put in its place.
    pub new: String,
}

/// One file's entry in the answer of `POST /files/replace?verbose=true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplaceFileContentResult)]
pub struct Replaced {
    /// How often it was found.
    #[serde(rename = "replacedCount")]
    pub replaced_count: u64,
}

/// Body of `POST /files/permissions` and `POST /directories`.
pub type PermissionMap = BTreeMap<String, Permission>;

/// Body of `POST /files/replace`.
pub type ReplaceMap = BTreeMap<String, Replace>;

/// Answer of `POST /files/replace?verbose=true`.
pub type ReplacedMap = BTreeMap<String, Replaced>;

/// Answer of `GET /files/info`, by the path as it was asked for.
pub type FileInfoMap = BTreeMap<String, FileInfo>;

/// Query of `GET /files/search`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchQuery {
    /// Where to begin.
    #[serde(default)]
    pub path: String,
    /// A glob; nothing is [`SEARCH_PATTERN_DEFAULT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
}

/// Query of `GET /directories/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListDirectoryQuery {
    /// Which directory; not a symbolic link.
    #[serde(default)]
    pub path: String,
    /// How many levels; nothing is 1, and 0 lists nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
}

/// Query of `GET /files/download`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DownloadQuery {
    /// Which file.
    #[serde(default)]
    pub path: String,
    /// First line, from 1. Excludes a `Range` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// How many lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Query of `POST /files/replace`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplaceQuery {
    /// Answer how often each was found.
    #[serde(default)]
    pub verbose: bool,
}

/// Extension, query of `GET` and `PUT /directories/archive`: a directory as a tar stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveQuery {
    /// Which directory; made with its parents on `PUT`.
    #[serde(default)]
    pub path: String,
}

/// Extension, answer of `PUT /directories/archive`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArchiveResponse {
    /// Entries unpacked.
    pub entries: u64,
    /// Bytes of file content written.
    pub bytes: u64,
}

/// Paths given by a repeated `path` parameter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathsQuery {
    /// The paths.
    #[serde(default, deserialize_with = "null_as_default")]
    pub path: Vec<String>,
}
