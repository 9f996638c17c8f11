//! Version 1 of signed routes, which is the published protocol's: a keyed hash cut to 32 bits.
//!
//! That is little. Whoever verifies it must also limit how often one may try, and how long ahead it
//! may hold.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{VerifyError, from_base36, is_key_id, to_base36};

/// Hex digits of the hash that a signature keeps.
const HASH_DIGITS: usize = 8;

/// A signature and what it needs to be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// Until when it holds, in Unix seconds.
    pub expires: u64,
    /// The hash's first hex digits.
    hash: [u8; HASH_DIGITS],
    /// Which key made it: a digit or a lower case letter.
    key_id: u8,
}

impl Signature {
    /// Signs a route. `None` when the key's id is not a digit or a lower case letter.
    pub fn sign(
        secret: &[u8],
        key_id: char,
        sandbox_id: &str,
        port: u16,
        expires: u64,
    ) -> Option<Self> {
        let key_id = u8::try_from(key_id).ok().filter(|id| is_key_id(*id))?;
        Some(Self {
            expires,
            hash: hash(secret, sandbox_id, port, expires),
            key_id,
        })
    }

    /// Which key made it.
    pub fn key_id(&self) -> char {
        char::from(self.key_id)
    }

    /// Whether it holds for this route at this time, in Unix seconds.
    pub fn verify(
        &self,
        secret: &[u8],
        sandbox_id: &str,
        port: u16,
        now: u64,
    ) -> Result<(), VerifyError> {
        let right = hash(secret, sandbox_id, port, self.expires);
        if !bool::from(right.ct_eq(&self.hash)) {
            return Err(VerifyError::Wrong);
        }
        if now > self.expires {
            return Err(VerifyError::Expired);
        }
        Ok(())
    }

    /// Reads the last two parts of a signed route.
    pub(super) fn parse(expires: &str, hash_and_key: &str) -> Option<Self> {
        let expires = from_base36(expires)?;
        let bytes = hash_and_key.as_bytes();
        let (hash, rest) = bytes.split_first_chunk::<HASH_DIGITS>()?;
        let [key_id] = *rest else { return None };
        let is_hex = hash.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        (is_hex && is_key_id(key_id)).then_some(Self {
            expires,
            hash: *hash,
            key_id,
        })
    }
}

impl fmt::Display for Signature {
    /// The hash and the key's id, without the expiry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = self.hash.iter().map(|byte| char::from(*byte));
        write!(f, "{}{}", hash.collect::<String>(), self.key_id())
    }
}

/// `hex(SHA256(BE32(len secret) secret BE32(len canonical) canonical))[0:8]`.
fn hash(secret: &[u8], sandbox_id: &str, port: u16, expires: u64) -> [u8; HASH_DIGITS] {
    let canonical = format!("v1\nshort\n{sandbox_id}\n{port}\n{}\n", to_base36(expires));
    let mut hasher = Sha256::new();
    for part in [secret, canonical.as_bytes()] {
        // Keys and routes are far shorter than 4 GiB.
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
        hasher.update(length.to_be_bytes());
        hasher.update(part);
    }
    let digest = hasher.finalize();
    let mut digits = [0; HASH_DIGITS];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(digest) {
        pair[0] = hex_digit(byte >> 4);
        pair[1] = hex_digit(byte & 0xF);
    }
    digits
}

fn hex_digit(nibble: u8) -> u8 {
    match nibble {
        0..=9 => b'0' + nibble,
        _ => b'a' + nibble - 10,
    }
}
