//! Typed ids. Each is a string on the wire and a type of its own in code, so that one kind can
//! never be passed for another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Ids are at most this long: longer than any id in use, short enough for a file name and a
/// label value.
pub const ID_BYTES_MAX: usize = 63;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "an id has 1 to {ID_BYTES_MAX} characters of a-z, A-Z, 0-9, '-' and '_', and begins with a letter or digit"
)]
pub struct ParseIdError;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            /// The id as it stands on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                check(text)?;
                Ok(Self(text.into()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseIdError;

            fn try_from(text: String) -> Result<Self, ParseIdError> {
                check(&text)?;
                Ok(Self(text.into_boxed_str()))
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.into_string()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// A sandbox.
    SandboxId
);
id!(
    /// A snapshot of a sandbox's filesystem.
    SnapshotId
);
id!(
    /// A command, foreground or background.
    CommandId
);
id!(
    /// A live shell.
    SessionId
);
id!(
    /// A terminal.
    PtyId
);
id!(
    /// A code context.
    ContextId
);
id!(
    /// One HTTP request, for logs and error answers.
    RequestId
);

fn check(text: &str) -> Result<(), ParseIdError> {
    let bytes = text.as_bytes();
    let legal = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let begins_well = bytes.first().is_some_and(u8::is_ascii_alphanumeric);
    if begins_well && bytes.len() <= ID_BYTES_MAX && bytes.iter().all(legal) {
        Ok(())
    } else {
        Err(ParseIdError)
    }
}
