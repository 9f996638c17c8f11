//! The rules for volumes.

use std::collections::BTreeSet;

use crate::error::ErrorCode;
use crate::label::is_domain_label;
use crate::problem::{Excerpt, Problems};
use crate::quantity::Quantity;
use crate::volume::{Ossfs, Pvc, Volume};

/// A sandbox has at most this many volumes.
const VOLUMES_MAX: usize = 64;

/// A path is at most this long: `PATH_MAX` of Linux, less its NUL.
const PATH_BYTES_MAX: usize = 4095;

/// A volume's name is at most this long, as a label of a domain name.
const NAME_BYTES_MAX: usize = 63;

/// A claim's name is at most this long, as a domain name.
const CLAIM_BYTES_MAX: usize = 253;

/// Checks every volume of a request.
pub(super) fn check_volumes(volumes: &[Volume], problems: &mut Problems) {
    if volumes.len() > VOLUMES_MAX {
        let message = format!(
            "has {} entries; at most {VOLUMES_MAX} are allowed",
            volumes.len()
        );
        problems.add("volumes", message);
        return;
    }
    let mut names = BTreeSet::new();
    let mut mount_paths = BTreeSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let at = format!("volumes[{index}]");
        check_volume(&at, volume, problems);
        if !names.insert(volume.name.as_str()) {
            let message = format!("{} is the name of another volume", Excerpt(&volume.name));
            problems.add_code(
                ErrorCode::VolumeDuplicateName,
                format!("{at}.name"),
                message,
            );
        }
        if !mount_paths.insert(volume.mount_path.trim_end_matches('/')) {
            let message = format!(
                "{} is where another volume is mounted",
                Excerpt(&volume.mount_path)
            );
            problems.add_code(
                ErrorCode::VolumeInvalidMountPath,
                format!("{at}.mountPath"),
                message,
            );
        }
    }
}

fn check_volume(at: &str, volume: &Volume, problems: &mut Problems) {
    if volume.name.len() > NAME_BYTES_MAX || !is_domain_label(&volume.name) {
        problems.add_code(
            ErrorCode::VolumeInvalidName,
            format!("{at}.name"),
            format!(
                "{} is not 1 to {NAME_BYTES_MAX} characters of a-z, 0-9 and '-' that begin and \
                 end with a letter or digit",
                Excerpt(&volume.name)
            ),
        );
    }
    let backends = [
        volume.host.is_some(),
        volume.pvc.is_some(),
        volume.ossfs.is_some(),
    ];
    if backends.iter().filter(|is_given| **is_given).count() != 1 {
        let message = "must have exactly one of host, pvc and ossfs";
        problems.add_code(ErrorCode::VolumeInvalidBackend, at, message);
    }
    check_mount_path(at, &volume.mount_path, problems);
    if let Some(sub_path) = &volume.sub_path {
        check_sub_path(at, sub_path, problems);
    }
    if let Some(host) = &volume.host {
        check_host_path(at, &host.path, problems);
    }
    if let Some(pvc) = &volume.pvc {
        check_pvc(at, pvc, problems);
    }
    if let Some(ossfs) = &volume.ossfs {
        check_ossfs(at, ossfs, problems);
    }
}

fn check_mount_path(at: &str, path: &str, problems: &mut Problems) {
    let is_root = path.bytes().all(|b| b == b'/');
    if is_root || !path.starts_with('/') || !is_clean(path) {
        problems.add_code(
            ErrorCode::VolumeInvalidMountPath,
            format!("{at}.mountPath"),
            format!(
                "{} is not an absolute path below / without '..' or NUL, such as /data",
                Excerpt(path)
            ),
        );
    }
}

fn check_sub_path(at: &str, path: &str, problems: &mut Problems) {
    if path.is_empty() || path.starts_with('/') || !is_clean(path) {
        problems.add_code(
            ErrorCode::VolumeInvalidSubPath,
            format!("{at}.subPath"),
            format!(
                "{} is not a relative path without '..' or NUL, such as a/b",
                Excerpt(path)
            ),
        );
    }
}

fn check_host_path(at: &str, path: &str, problems: &mut Problems) {
    let is_windows = matches!(path.as_bytes(), [drive, b':', b'\\' | b'/', ..]
        if drive.is_ascii_alphabetic());
    if !(path.starts_with('/') || is_windows) || !is_clean(path) {
        problems.add_code(
            ErrorCode::VolumeInvalidHostPath,
            format!("{at}.host.path"),
            format!(
                "{} is not an absolute path without '..' or NUL",
                Excerpt(path)
            ),
        );
    }
}

/// Whether a path could not lead out of where it stands, and could exist.
fn is_clean(path: &str) -> bool {
    path.len() <= PATH_BYTES_MAX
        && !path.contains('\0')
        && path.split(['/', '\\']).all(|component| component != "..")
}

fn check_pvc(at: &str, pvc: &Pvc, problems: &mut Problems) {
    if pvc.claim_name.len() > CLAIM_BYTES_MAX || !is_domain_label(&pvc.claim_name) {
        problems.add_code(
            ErrorCode::VolumeInvalidPvcName,
            format!("{at}.pvc.claimName"),
            format!(
                "{} is not 1 to {CLAIM_BYTES_MAX} characters of a-z, 0-9 and '-' that begin and \
                 end with a letter or digit",
                Excerpt(&pvc.claim_name)
            ),
        );
    }
    if let Some(storage) = &pvc.storage {
        let size = storage.parse::<Quantity>();
        problems.check(
            ErrorCode::SandboxInvalidParameter,
            format!("{at}.pvc.storage"),
            size,
        );
    }
}

fn check_ossfs(at: &str, ossfs: &Ossfs, problems: &mut Problems) {
    if !(3..=63).contains(&ossfs.bucket.len()) || !is_domain_label(&ossfs.bucket) {
        problems.add_code(
            ErrorCode::VolumeInvalidOssfsBucket,
            format!("{at}.ossfs.bucket"),
            format!(
                "{} is not 3 to 63 characters of a-z, 0-9 and '-'",
                Excerpt(&ossfs.bucket)
            ),
        );
    }
    if ossfs.endpoint.trim().is_empty() {
        let field = format!("{at}.ossfs.endpoint");
        let message = "is blank; name the host of the object store";
        problems.add_code(ErrorCode::VolumeInvalidOssfsEndpoint, field, message);
    }
    if !matches!(ossfs.version.as_str(), "1.0" | "2.0") {
        problems.add_code(
            ErrorCode::VolumeInvalidOssfsVersion,
            format!("{at}.ossfs.version"),
            format!("{} is not 1.0 or 2.0", Excerpt(&ossfs.version)),
        );
    }
    let has_key = ossfs
        .access_key_id
        .as_ref()
        .is_some_and(|id| !id.is_empty())
        && ossfs
            .access_key_secret
            .as_ref()
            .is_some_and(|key| !key.expose().is_empty());
    if !has_key {
        let field = format!("{at}.ossfs");
        let message = "needs both accessKeyId and accessKeySecret";
        problems.add_code(ErrorCode::VolumeInvalidOssfsCredentials, field, message);
    }
}
