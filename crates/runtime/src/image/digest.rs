//! SHA-256 digests as images use them, and readers that compute one while bytes pass.
//!
//! Only `sha256` is spoken: every registry and builder in use writes it, and a second algorithm
//! would be a second way to name one layer.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use api::image_reference::ImageReference;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Error;

/// A SHA-256 digest. Its text is safe as a file name by construction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest by which a reference names its image, if it does.
    pub(super) fn of_reference(reference: &ImageReference) -> Result<Option<Self>, Error> {
        let parse = |digest: &str| {
            digest.parse().map_err(|_| Error::InvalidReference {
                reference: reference.to_string(),
                message: "its digest cannot be checked here; give one of the form \
                          sha256:<64 hex digits in lower case>"
                    .to_owned(),
            })
        };
        reference.digest().map(parse).transpose()
    }

    pub(super) fn hex(&self) -> String {
        hex::encode(self.0)
    }

    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let is_lower_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 64 || !text.bytes().all(is_lower_hex) {
            return None;
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

impl From<Sha256> for Digest {
    fn from(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.strip_prefix("sha256:")
            .and_then(Self::from_hex)
            .ok_or_else(|| {
                format!("{text:?} is not a digest of the form sha256:<64 hex digits in lower case>")
            })
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

/// Passes bytes through, hashing and counting them.
pub(super) struct HashingReader<R> {
    inner: R,
    hasher: Sha256,
    bytes: u64,
}

impl<R: Read> HashingReader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
            bytes: 0,
        }
    }

    /// The digest of everything read, and how much that was.
    pub(super) fn finish(self) -> (Digest, u64) {
        (self.hasher.into(), self.bytes)
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_form_is_a_digest() {
        let digest = Digest::of(b"");
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse::<Digest>().unwrap(), digest);
        for bad in [
            "",
            "sha256:",
            "sha512:00",
            "sha256:../../etc/passwd",
            &text.to_uppercase(),
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
