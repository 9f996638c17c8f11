//! What the API says about a file: the `FileInfo` object.
//!
//! Links are described, never followed. `mode` is the permission bits written in octal and read as
//! a decimal number (0o644 is `644`), with the setuid, setgid and sticky bits in front when set
//! (`4755`, `1777`). `created_at` is the time of the last status change, as the clients of this API
//! have always been told.

use std::{borrow::Cow, fmt::Write as _};

use jiff::Timestamp;
use rustix::fs::{FileType, Stat};
use serde::Serialize;

use crate::identity::Accounts;

#[derive(Serialize)]
pub(super) struct FileInfo<'a> {
    path: Cow<'a, str>,
    /// The path again, percent-encoded, when its bytes are not UTF-8: a client can put it into a
    /// query as it stands, which `path` then cannot offer.
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_path: Option<String>,
    r#type: &'static str,
    size: i64,
    modified_at: Timestamp,
    created_at: Timestamp,
    owner: Cow<'a, str>,
    group: Cow<'a, str>,
    mode: u32,
}

impl<'a> FileInfo<'a> {
    pub(super) fn new(path: &'a [u8], stat: &Stat, accounts: &'a Accounts) -> Self {
        let text = String::from_utf8_lossy(path);
        Self {
            raw_path: matches!(text, Cow::Owned(_)).then(|| percent_encoded(path)),
            path: text,
            r#type: kind(stat),
            size: stat.st_size,
            modified_at: time(stat.st_mtime, stat.st_mtime_nsec as i64),
            created_at: time(stat.st_ctime, stat.st_ctime_nsec as i64),
            owner: name(accounts.user_name(stat.st_uid), stat.st_uid),
            group: name(accounts.group_name(stat.st_gid), stat.st_gid),
            mode: octal_digits(stat.st_mode & 0o7777),
        }
    }
}

fn name(known: Option<&str>, id: u32) -> Cow<'_, str> {
    known.map_or_else(|| Cow::Owned(id.to_string()), Cow::Borrowed)
}

fn kind(stat: &Stat) -> &'static str {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        _ => "other",
    }
}

/// A time outside what a date can hold (a filesystem may claim any 64-bit number) is the epoch.
fn time(seconds: i64, nanoseconds: i64) -> Timestamp {
    i32::try_from(nanoseconds)
        .ok()
        .and_then(|n| Timestamp::new(seconds, n).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

/// 0o755 as 755.
pub(super) fn octal_digits(mut mode: u32) -> u32 {
    let (mut digits, mut place) = (0, 1);
    while mode > 0 {
        digits += (mode & 7) * place;
        place *= 10;
        mode >>= 3;
    }
    digits
}

fn percent_encoded(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len() * 2);
    for &byte in path {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(mode: u32, path: &[u8]) -> serde_json::Value {
        let dir = tempfile::tempdir().unwrap();
        let mut stat = rustix::fs::stat(dir.path()).unwrap();
        stat.st_mode = mode;
        stat.st_uid = 4_000_000_000;
        stat.st_mtime = 1_700_000_000;
        stat.st_mtime_nsec = 5;
        serde_json::to_value(FileInfo::new(path, &stat, &Accounts::default())).unwrap()
    }

    #[test]
    fn modes_kinds_owners_and_times() {
        let file = described(0o100644, b"/a");
        assert_eq!(file["mode"], 644);
        assert_eq!(file["type"], "file");
        assert_eq!(file["owner"], "4000000000");
        assert_eq!(file["modified_at"], "2023-11-14T22:13:20.000000005Z");
        assert_eq!(file.get("raw_path"), None);
        assert_eq!(described(0o104755, b"/a")["mode"], 4755);
        assert_eq!(described(0o041777, b"/a")["type"], "directory");
        assert_eq!(described(0o041777, b"/a")["mode"], 1777);
        assert_eq!(described(0o120777, b"/a")["type"], "symlink");
        assert_eq!(described(0o010000, b"/a")["type"], "other");
        assert_eq!(described(0o010000, b"/a")["mode"], 0);
    }

    #[test]
    fn a_name_that_is_not_text_can_still_be_asked_for() {
        let file = described(0o100644, b"/a b/\xff%");
        assert_eq!(file["path"], "/a b/\u{fffd}%");
        assert_eq!(file["raw_path"], "/a%20b/%FF%25");
    }
}
