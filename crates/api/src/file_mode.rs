//! File modes as the protocol writes them: octal digits read as a decimal number, so that
//! `rwxr-xr-x` is the number 755.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::problem::Excerpt;

/// Permission bits with setuid, setgid and sticky: what `chmod` takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileMode(u16);

/// The largest mode in bits.
const BITS_MAX: u32 = 0o7777;

/// The largest mode as it is written.
const WRITTEN_MAX: u64 = 7777;

/// Why a number is not a mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{written} is not a file mode: write one to four octal digits as a number, for example 644 or 4755"
)]
pub struct ParseFileModeError {
    written: String,
}

impl FileMode {
    /// The mode with these bits; what is above setuid, setgid, sticky and permissions is dropped,
    /// so a whole `st_mode` may be given.
    pub const fn from_bits(bits: u32) -> Self {
        Self((bits & BITS_MAX) as u16)
    }

    /// The bits, as `chmod` takes them.
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// Whether this is the mode 0, which the protocol reads as "leave it as it is".
    pub const fn is_unset(self) -> bool {
        self.0 == 0
    }

    /// The mode that is written like this: 755 for `rwxr-xr-x`.
    pub fn from_written(written: u64) -> Result<Self, ParseFileModeError> {
        if written > WRITTEN_MAX {
            return Err(ParseFileModeError {
                written: written.to_string(),
            });
        }
        let mut bits = 0;
        let mut rest = written;
        for place in 0..4 {
            let digit = rest % 10;
            if digit > 7 {
                return Err(ParseFileModeError {
                    written: written.to_string(),
                });
            }
            bits |= (digit as u16) << (3 * place);
            rest /= 10;
        }
        Ok(Self(bits))
    }

    /// As it is written: 755 for `rwxr-xr-x`.
    pub const fn written(self) -> u32 {
        let bits = self.0 as u32;
        (bits >> 9 & 7) * 1000 + (bits >> 6 & 7) * 100 + (bits >> 3 & 7) * 10 + (bits & 7)
    }
}

impl std::str::FromStr for FileMode {
    type Err = ParseFileModeError;

    fn from_str(text: &str) -> Result<Self, ParseFileModeError> {
        let wrong = || ParseFileModeError {
            written: Excerpt(text).to_string(),
        };
        let digits = text.strip_prefix("0o").unwrap_or(text);
        // "0o" and a sign for setuid and the permissions: nothing longer is a mode.
        let is_short = (1..=5).contains(&digits.len());
        if !is_short || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        Self::from_written(digits.parse().map_err(|_| wrong())?)
    }
}

impl fmt::Debug for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileMode(0o{:o})", self.0)
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:o}", self.0)
    }
}

impl Serialize for FileMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.written())
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = FileMode;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a file mode as octal digits in a number, for example 644 or 4755")
            }

            fn visit_u64<E: de::Error>(self, written: u64) -> Result<FileMode, E> {
                FileMode::from_written(written).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, written: i64) -> Result<FileMode, E> {
                let wrong = || ParseFileModeError {
                    written: written.to_string(),
                };
                let written = u64::try_from(written).map_err(|_| E::custom(wrong()))?;
                self.visit_u64(written)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<FileMode, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl PartialSchema for FileMode {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::Integer))
            .minimum(Some(0))
            .maximum(Some(WRITTEN_MAX))
            .description(Some(
                "File mode: octal digits written as a number, for example 755.",
            ))
            .into()
    }
}

impl ToSchema for FileMode {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_mode_reads_back(bits in 0_u32..=BITS_MAX) {
            let mode = FileMode::from_bits(bits);
            prop_assert_eq!(FileMode::from_written(mode.written().into()), Ok(mode));
            prop_assert_eq!(mode.to_string().parse(), Ok(mode));
            let json = serde_json::to_string(&mode).unwrap();
            prop_assert_eq!(serde_json::from_str::<FileMode>(&json).unwrap(), mode);
        }

        #[test]
        fn any_number_or_text_is_read_or_refused(number in any::<i128>(), text in any::<String>()) {
            let _ = (text.parse::<FileMode>(), serde_json::from_str::<FileMode>(&number.to_string()));
        }
    }

    #[test]
    fn modes_are_octal_digits_read_as_a_number() {
        for (written, bits) in [
            (644, 0o644),
            (755, 0o755),
            (4755, 0o4755),
            (1777, 0o1777),
            (0, 0),
        ] {
            let mode = FileMode::from_written(written).unwrap();
            assert_eq!(mode.bits(), bits);
            assert_eq!(u64::from(mode.written()), written);
        }
        for wrong in [8, 648, 7778, 10000, u64::MAX] {
            assert!(FileMode::from_written(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn texts_are_taken_too() {
        for text in ["644", "0644", "0o644"] {
            assert_eq!(text.parse::<FileMode>().unwrap().bits(), 0o644, "{text}");
        }
        for text in ["", "0o", "rw-r--r--", "-644", "999", "77777", "00000644"] {
            assert!(text.parse::<FileMode>().is_err(), "{text}");
        }
    }
}
