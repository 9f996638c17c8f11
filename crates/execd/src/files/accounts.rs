//! The sandbox's user and group names, parsed again only when their files change.
//!
//! Naming the owners of 100,000 files then costs two stats. What the tables mean is
//! `crate::identity`'s business; this keeps one parsed copy.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    sync::{Arc, Mutex, PoisonError},
};

use super::error::{Error, Result};
use crate::identity::Accounts;

/// What tells that a file is the one that was parsed: device, inode, size, modification time.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

fn stamp(path: &str) -> Stamp {
    let m = fs::metadata(path).ok()?;
    Some((m.dev(), m.ino(), m.size(), m.mtime(), m.mtime_nsec()))
}

struct Parsed {
    stamps: [Stamp; 2],
    accounts: Arc<Accounts>,
}

static PARSED: Mutex<Option<Parsed>> = Mutex::new(None);

/// The accounts as the files say now.
pub(super) fn current() -> Arc<Accounts> {
    let stamps = [stamp("/etc/passwd"), stamp("/etc/group")];
    let mut parsed = PARSED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = parsed.as_ref()
        && known.stamps == stamps
    {
        return known.accounts.clone();
    }
    let accounts = Arc::new(Accounts::load());
    *parsed = Some(Parsed {
        stamps,
        accounts: accounts.clone(),
    });
    accounts
}

/// A user by name, or by number if no user has that name, as chown(1) reads it.
pub(super) fn find_user(accounts: &Accounts, text: &str) -> Result<u32> {
    accounts
        .uid_of(text)
        .or_else(|| number(text))
        .ok_or_else(|| Error::UnknownAccount(text.to_string()))
}

/// A group by name, or by number if no group has that name.
pub(super) fn find_group(accounts: &Accounts, text: &str) -> Result<u32> {
    accounts
        .gid_of(text)
        .or_else(|| number(text))
        .ok_or_else(|| Error::UnknownAccount(text.to_string()))
}

/// `u32::MAX` means "leave as it is" to the kernel and is nobody's id.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_first_then_numbers() {
        let accounts = current();
        assert_eq!(find_user(&accounts, "root").unwrap(), 0);
        assert_eq!(find_user(&accounts, "4242").unwrap(), 4242);
        assert_eq!(find_group(&accounts, "0").unwrap(), 0);
        for wrong in ["4294967295", "-1", "", "no such name"] {
            assert!(find_user(&accounts, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unchanged_files_are_not_parsed_twice() {
        assert!(Arc::ptr_eq(&current(), &current()));
    }
}
