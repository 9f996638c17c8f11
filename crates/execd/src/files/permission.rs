//! Owner, group and mode as clients write them, and how they are put on files.

use std::{
    fmt,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Gid, Mode, Uid, chmodat, chownat, fchmod, fchown},
    io::Result as IoResult,
};
use serde::{Deserialize, Deserializer, de};

use super::{
    accounts,
    error::{Error, Result},
};
use crate::identity::Accounts;

/// The wire form. Absent, null and, for the mode, 0 mean "leave as it is".
#[derive(Debug, Default, Clone, Deserialize)]
pub(super) struct Permission {
    #[serde(default)]
    owner: Option<String>,
    #[serde(default)]
    group: Option<String>,
    #[serde(default, deserialize_with = "mode")]
    mode: Option<u32>,
}

/// The same with names looked up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mode: Option<u32>,
}

impl Permission {
    pub(super) fn look_up(&self, accounts: &Accounts) -> Result<Attributes> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Ok(Attributes {
            uid: given(&self.owner)
                .map(|name| accounts::find_user(accounts, &name))
                .transpose()?,
            gid: given(&self.group)
                .map(|name| accounts::find_group(accounts, &name))
                .transpose()?,
            mode: self.mode,
        })
    }
}

impl Attributes {
    /// Puts them on what `path` names, through a symbolic link as chmod(1) and chown(1) do.
    pub(super) fn apply_to(self, path: &Path) -> Result<()> {
        self.apply(
            |uid, gid| chownat(CWD, path, uid, gid, AtFlags::empty()),
            |mode| chmodat(CWD, path, mode, AtFlags::empty()),
        )
        .map_err(|(doing, e)| Error::io(doing, path, e))
    }

    /// Puts them on an open file; `shown` is its name in an error.
    pub(super) fn apply_to_fd(self, file: BorrowedFd<'_>, shown: &Path) -> Result<()> {
        self.apply(|uid, gid| fchown(file, uid, gid), |mode| fchmod(file, mode))
            .map_err(|(doing, e)| Error::io(doing, PathBuf::from(shown), e))
    }

    /// The owner first: giving a file away clears its setuid and setgid bits.
    fn apply(
        self,
        chown: impl FnOnce(Option<Uid>, Option<Gid>) -> IoResult<()>,
        chmod: impl FnOnce(Mode) -> IoResult<()>,
    ) -> Result<(), (&'static str, rustix::io::Errno)> {
        if self.uid.is_some() || self.gid.is_some() {
            chown(self.uid.map(Uid::from_raw), self.gid.map(Gid::from_raw))
                .map_err(|e| ("changing the owner of", e))?;
        }
        if let Some(mode) = self.mode {
            chmod(Mode::from_raw_mode(mode)).map_err(|e| ("changing the mode of", e))?;
        }
        Ok(())
    }
}

/// 755 or "0755": octal digits, written as a decimal number or as text.
fn mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    struct Digits;

    impl<'de> de::Visitor<'de> for Digits {
        type Value = Option<u32>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("permission bits as octal digits, like 755")
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
            Err(E::custom(format!("mode {number} is negative")))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            match u32::from_str_radix(text.strip_prefix("0o").unwrap_or(text), 8) {
                Ok(0) => Ok(None),
                Ok(bits) if bits <= 0o7777 => Ok(Some(bits)),
                _ => Err(E::custom(format!(
                    "mode {text} is not octal digits up to 7777, like 755"
                ))),
            }
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
    }

    deserializer.deserialize_any(Digits)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn parse(json: &str) -> Result<Permission, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn modes_are_octal_digits() {
        let mode = |json: &str| parse(&format!(r#"{{"mode":{json}}}"#)).unwrap().mode;
        assert_eq!(mode("755"), Some(0o755));
        assert_eq!(mode("4755"), Some(0o4755));
        assert_eq!(mode("7"), Some(0o7));
        assert_eq!(mode("\"0644\""), Some(0o644));
        assert_eq!(mode("\"0o644\""), Some(0o644));
        assert_eq!(mode("0"), None);
        assert_eq!(mode("null"), None);
        assert_eq!(parse("{}").unwrap().mode, None);
        for wrong in ["789", "-1", "10000", "\"rwx\"", "7.5", "[]", "99999999999"] {
            assert!(parse(&format!(r#"{{"mode":{wrong}}}"#)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn owners_are_names_or_numbers_and_null_is_none() {
        let accounts = accounts::current();
        let of = |json: &str| parse(json).unwrap().look_up(&accounts);
        assert_eq!(
            of(r#"{"owner":"root","group":"12","mode":null}"#).unwrap(),
            Attributes {
                uid: Some(0),
                gid: Some(12),
                mode: None
            }
        );
        assert_eq!(
            of(r#"{"owner":null,"group":""}"#).unwrap(),
            Attributes::default()
        );
        assert!(matches!(
            of(r#"{"owner":"no such"}"#),
            Err(Error::UnknownAccount(_))
        ));
    }

    #[test]
    fn the_setuid_bit_outlives_a_change_of_owner_in_the_same_request() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "").unwrap();
        let me = rustix::process::geteuid().as_raw();
        Attributes {
            uid: Some(me),
            gid: None,
            mode: Some(0o4755),
        }
        .apply_to(&file)
        .unwrap();
        assert_eq!(
            std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777,
            0o4755
        );
    }
}
