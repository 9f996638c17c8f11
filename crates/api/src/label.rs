//! The rules for metadata: those of Kubernetes labels, so that metadata works on every backend.

use std::collections::BTreeMap;

use crate::error::ErrorCode;
use crate::problem::{Excerpt, Problems};
use crate::sandbox::RESERVED_METADATA_PREFIX;

/// A key's name, and a value, are at most this long.
pub const LABEL_BYTES_MAX: usize = 63;

/// A key's prefix is at most this long.
pub const PREFIX_BYTES_MAX: usize = 253;

/// A sandbox has at most this many labels: far more than anyone uses, few enough to compare.
pub const LABELS_MAX: usize = 256;

/// Why a key or value is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The key's prefix is not a domain name.
    #[error(
        "the prefix of key {key} is not a domain name of at most 253 lower case characters, \
         such as example.com"
    )]
    Prefix {
        /// The key.
        key: String,
    },
    /// The key's name breaks the rules.
    #[error(
        "key {key} is not 1 to 63 characters of A-Z, a-z, 0-9, '-', '_' and '.' that begin and \
         end with a letter or digit, after an optional prefix and '/'"
    )]
    Key {
        /// The key.
        key: String,
    },
    /// The value breaks the rules.
    #[error(
        "value {value} of key {key} is not up to 63 characters of A-Z, a-z, 0-9, '-', '_' and \
         '.' that begin and end with a letter or digit"
    )]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// The key belongs to the server.
    #[error("key {key} begins with {RESERVED_METADATA_PREFIX}, which is reserved for the server")]
    Reserved {
        /// The key.
        key: String,
    },
}

/// Checks a key.
pub fn check_key(key: &str) -> Result<(), LabelError> {
    let quoted = || Excerpt(key).to_string();
    if key.starts_with(RESERVED_METADATA_PREFIX) {
        return Err(LabelError::Reserved { key: quoted() });
    }
    let name = match key.split_once('/') {
        Some((prefix, name)) if is_domain(prefix) => name,
        Some(_) => return Err(LabelError::Prefix { key: quoted() }),
        None => key,
    };
    if name.is_empty() || !is_label_text(name) {
        return Err(LabelError::Key { key: quoted() });
    }
    Ok(())
}

/// Checks a value; it may be empty.
pub fn check_value(key: &str, value: &str) -> Result<(), LabelError> {
    if is_label_text(value) {
        return Ok(());
    }
    Err(LabelError::Value {
        key: Excerpt(key).to_string(),
        value: Excerpt(value).to_string(),
    })
}

/// Checks the metadata of a new sandbox.
pub fn check_metadata(metadata: &BTreeMap<String, String>, problems: &mut Problems) {
    let entries = metadata.iter().map(|(key, value)| (key, Some(value)));
    check_entries(ErrorCode::SandboxInvalidMetadataLabel, entries, problems);
}

/// Checks a change of metadata. The published server has another code for it.
pub fn check_patch(patch: &BTreeMap<String, Option<String>>, problems: &mut Problems) {
    let entries = patch.iter().map(|(key, value)| (key, value.as_ref()));
    check_entries(ErrorCode::InvalidMetadataLabel, entries, problems);
}

fn check_entries<'a>(
    code: ErrorCode,
    entries: impl ExactSizeIterator<Item = (&'a String, Option<&'a String>)>,
    problems: &mut Problems,
) {
    if entries.len() > LABELS_MAX {
        let message = format!(
            "has {} entries; at most {LABELS_MAX} are allowed",
            entries.len()
        );
        problems.add_code(code, "metadata", message);
        return;
    }
    for (key, value) in entries {
        problems.check(code, "metadata", check_key(key));
        if let Some(value) = value {
            problems.check(code, "metadata", check_value(key, value));
        }
    }
}

fn is_label_text(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let ends_well = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LABEL_BYTES_MAX
        && ends_well(bytes.first())
        && ends_well(bytes.last())
        && text.bytes().all(legal)
}

/// Whether this is a lower case domain name, as RFC 1123 has it.
pub(crate) fn is_domain(text: &str) -> bool {
    text.len() <= PREFIX_BYTES_MAX && text.split('.').all(is_domain_label)
}

/// Whether this is one label of a lower case domain name, of any length.
pub fn is_domain_label(label: &str) -> bool {
    let legal = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-');
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_follow_the_rules_of_kubernetes() {
        for key in ["a", "A.b_c-9", "example.com/name", "x/y", &"k".repeat(63)] {
            assert_eq!(check_key(key), Ok(()), "{key}");
        }
        for key in [
            "",
            "-a",
            "a-",
            "a b",
            "é",
            "/a",
            "a/",
            "A.com/x",
            "a/b/c",
            "opensandbox.io/id",
            &"k".repeat(64),
        ] {
            assert!(check_key(key).is_err(), "{key}");
        }
    }

    #[test]
    fn values_may_be_empty_but_have_no_blanks() {
        for value in ["", "a", "1.2-x_Y", &"v".repeat(63)] {
            assert_eq!(check_value("k", value), Ok(()), "{value}");
        }
        for value in ["Data Processing", ".", "a.", "é", "a/b", &"v".repeat(64)] {
            assert!(check_value("k", value).is_err(), "{value}");
        }
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let metadata = BTreeMap::from([
            ("-a".to_owned(), "b c".to_owned()),
            ("opensandbox.io/id".to_owned(), "x".to_owned()),
        ]);
        let mut problems = Problems::new();
        check_metadata(&metadata, &mut problems);
        let problems = problems.into_result(()).unwrap_err();
        assert_eq!(problems.len(), 3);
        assert!(
            problems
                .iter()
                .all(|p| p.code == ErrorCode::SandboxInvalidMetadataLabel)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_allowed_or_refused(key in any::<String>(), value in any::<String>()) {
            let _ = (check_key(&key), check_value(&key, &value));
        }

        #[test]
        fn what_fits_the_pattern_is_allowed(
            key in "([a-z0-9]{1,5}(-[a-z0-9]{1,5})?\\.[a-z]{1,3}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
            value in "([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?",
        ) {
            prop_assert_eq!(check_key(&key), Ok(()));
            prop_assert_eq!(check_value(&key, &value), Ok(()));
        }
    }
}
