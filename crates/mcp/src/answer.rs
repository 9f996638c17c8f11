//! What tools answer, with the names of the published server: those of its Python models, not
//! those of the wire.

use std::collections::BTreeMap;

use opensandbox::wire::exec::file::FileInfo;
use opensandbox::wire::sandbox::{PaginationInfo, Sandbox};
use opensandbox::wire::snapshot::Snapshot;
use schemars::JsonSchema;
use serde::Serialize;

/// That something was done.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Status {
    /// What was done.
    pub(crate) status: String,
}

pub(crate) fn status(done: &str) -> Status {
    Status {
        status: done.to_owned(),
    }
}

/// A sandbox with its id in front.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SandboxAnswer {
    /// The sandbox's id: give it to every other tool.
    pub(crate) sandbox_id: String,
    /// What the server knows of it.
    pub(crate) info: SandboxInfo,
}

/// What the server knows of a sandbox.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SandboxInfo {
    id: String,
    status: SandboxStatus,
    entrypoint: Vec<String>,
    /// When it is deleted by itself; null is never.
    expires_at: Option<String>,
    created_at: String,
    image: Option<Image>,
    snapshot_id: Option<String>,
    platform: Option<Platform>,
    allocation: Option<Allocation>,
    metadata: Option<BTreeMap<String, String>>,
    extensions: Option<BTreeMap<String, String>>,
}

/// What a sandbox is doing.
#[derive(Debug, Serialize, JsonSchema)]
struct SandboxStatus {
    /// Pending, Running, Pausing, Paused, Resuming, Stopping, Terminated or Failed.
    state: String,
    reason: Option<String>,
    message: Option<String>,
    last_transition_at: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Image {
    image: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Platform {
    os: String,
    arch: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Allocation {
    mode: String,
    pool_ref: String,
    state: String,
}

impl From<Sandbox> for SandboxInfo {
    fn from(sandbox: Sandbox) -> Self {
        Self {
            id: sandbox.id.to_string(),
            status: SandboxStatus {
                state: sandbox.status.state.to_string(),
                reason: sandbox.status.reason,
                message: sandbox.status.message,
                last_transition_at: sandbox.status.last_transition_at.map(|at| at.to_string()),
            },
            entrypoint: sandbox.entrypoint.unwrap_or_default(),
            expires_at: sandbox.expires_at.map(|at| at.to_string()),
            created_at: sandbox.created_at.to_string(),
            image: sandbox.image.map(|image| Image { image: image.uri }),
            snapshot_id: sandbox.snapshot_id.map(Into::into),
            platform: sandbox.platform.map(|platform| Platform {
                os: platform.os,
                arch: platform.arch,
            }),
            allocation: sandbox.allocation.map(|allocation| Allocation {
                mode: "pool".to_owned(),
                pool_ref: allocation.pool_ref,
                state: "allocated".to_owned(),
            }),
            metadata: sandbox.metadata,
            extensions: sandbox.extensions,
        }
    }
}

/// One page of sandboxes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SandboxPage {
    /// Newest first.
    pub(crate) sandbox_infos: Vec<SandboxInfo>,
    pub(crate) pagination: Pagination,
}

/// Where a page stands.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Pagination {
    page: u64,
    page_size: u64,
    total_items: u64,
    total_pages: u64,
    has_next_page: bool,
}

impl From<PaginationInfo> for Pagination {
    fn from(info: PaginationInfo) -> Self {
        Self {
            page: info.page,
            page_size: info.page_size,
            total_items: info.total_items,
            total_pages: info.total_pages,
            has_next_page: info.has_next_page,
        }
    }
}

/// A file or directory.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Entry {
    path: String,
    /// file, directory, symlink or other.
    r#type: Option<String>,
    /// The mode's octal digits: 644 is rw-r--r--.
    mode: u32,
    owner: String,
    group: String,
    /// In bytes.
    size: u64,
    modified_at: String,
    created_at: String,
}

impl From<FileInfo> for Entry {
    fn from(file: FileInfo) -> Self {
        let kind = file.kind.and_then(|kind| serde_json::to_value(kind).ok());
        Self {
            path: file.path,
            r#type: kind.and_then(|kind| Some(kind.as_str()?.to_owned())),
            mode: written_mode(file.mode.bits()),
            owner: file.owner,
            group: file.group,
            size: file.size,
            modified_at: file.modified_at.to_string(),
            created_at: file.created_at.to_string(),
        }
    }
}

/// The octal digits read as a decimal number.
fn written_mode(bits: u32) -> u32 {
    (0..4).fold(0, |written, place| {
        written + ((bits >> (3 * place)) & 7) * 10_u32.pow(place)
    })
}

/// Files and directories.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Entries {
    pub(crate) result: Vec<Entry>,
    /// More were found than are answered: ask for a smaller part.
    pub(crate) truncated: bool,
}

/// At most this many entries are answered: more would fill a model's context and help nobody.
const ENTRIES_MAX: usize = 1000;

impl Entries {
    pub(crate) fn of(mut files: Vec<FileInfo>) -> Self {
        let truncated = files.len() > ENTRIES_MAX;
        files.truncate(ENTRIES_MAX);
        Self {
            result: files.into_iter().map(Into::into).collect(),
            truncated,
        }
    }
}

/// A snapshot of a sandbox's file system.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SnapshotInfo {
    /// Give it to sandbox_restore.
    snapshot_id: String,
    /// The sandbox it was made of.
    sandbox_id: String,
    name: Option<String>,
    /// Creating, Ready, Deleting or Failed.
    state: String,
    message: Option<String>,
    created_at: String,
}

impl From<Snapshot> for SnapshotInfo {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            snapshot_id: snapshot.id.to_string(),
            sandbox_id: snapshot.sandbox_id.to_string(),
            name: snapshot.name,
            state: snapshot.status.state.to_string(),
            message: snapshot.status.message,
            created_at: snapshot.created_at.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_as_their_octal_digits() {
        assert_eq!(written_mode(0o644), 644);
        assert_eq!(written_mode(0o4755), 4755);
        assert_eq!(written_mode(0), 0);
    }
}
