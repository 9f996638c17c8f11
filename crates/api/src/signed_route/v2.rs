//! Version 2 of signed routes, which is ours: HMAC-SHA256 cut to 128 bits, for one port or for a whole
//! sandbox, with the id of its key and a number that is raised to revoke what was signed before.
//!
//! The same code signs what a browser is let in by: the code in a link, and the cookie that the code
//! becomes. What a signature is for is part of what is signed, so that none stands in for another.

use std::fmt;

use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::{VerifyError, from_base36, is_key_id, to_base36};

/// Bytes of the code that a signature keeps: 128 bits, which nobody guesses.
const MAC_BYTES: usize = 16;

/// What a signature lets its holder do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// Use a route.
    Route,
    /// Exchange a link's code, once, for a cookie.
    Code {
        /// What makes the code different from all others.
        nonce: &'a str,
        /// Until when the cookie holds, in Unix seconds.
        until: u64,
    },
    /// Send requests from a browser that has exchanged a code.
    Cookie,
}

/// What is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    /// What it is for.
    pub purpose: Purpose<'a>,
    /// The sandbox.
    pub sandbox_id: &'a str,
    /// The port; `None` is every port.
    pub port: Option<u16>,
    /// Until when, in Unix seconds.
    pub expires: u64,
    /// The sandbox's number at the time: a higher one revokes it.
    pub epoch: u64,
}

/// A signature and what it needs to be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// Until when it holds, in Unix seconds.
    pub expires: u64,
    /// Whether it holds for every port of the sandbox.
    pub is_for_all_ports: bool,
    key_id: u8,
    mac: [u8; MAC_BYTES],
}

impl Signature {
    /// Signs. `None` when the key's id is not a digit or a lower case letter.
    pub fn sign(secret: &[u8], key_id: char, claim: &Claim<'_>) -> Option<Self> {
        let key_id = u8::try_from(key_id).ok().filter(|id| is_key_id(*id))?;
        Some(Self {
            expires: claim.expires,
            is_for_all_ports: claim.port.is_none(),
            key_id,
            mac: mac(secret, claim),
        })
    }

    /// Which key made it.
    pub fn key_id(&self) -> char {
        char::from(self.key_id)
    }

    /// Whether it holds at this time, in Unix seconds, for what is asked. How long it holds and for which
    /// ports is the signature's to say, whatever the claim does.
    pub fn verify(&self, secret: &[u8], claim: &Claim<'_>, now: u64) -> Result<(), VerifyError> {
        let signed = Claim {
            port: claim.port.filter(|_| !self.is_for_all_ports),
            expires: self.expires,
            ..*claim
        };
        if !bool::from(mac(secret, &signed).ct_eq(&self.mac)) {
            return Err(VerifyError::Wrong);
        }
        if now > self.expires {
            return Err(VerifyError::Expired);
        }
        Ok(())
    }

    /// Reads what `Display` writes, with the expiry that stands before it.
    pub fn parse(expires: &str, text: &str) -> Option<Self> {
        let expires = from_base36(expires)?;
        let (scope, rest) = text.as_bytes().split_first()?;
        let (key_id, digits) = rest.split_first()?;
        let is_for_all_ports = match scope {
            b's' => true,
            b'p' => false,
            _ => return None,
        };
        if digits.len() != 2 * MAC_BYTES || !is_key_id(*key_id) {
            return None;
        }
        let mut mac = [0; MAC_BYTES];
        for (byte, pair) in mac.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = hex_value(pair[0])? << 4 | hex_value(pair[1])?;
        }
        Some(Self {
            expires,
            is_for_all_ports,
            key_id: *key_id,
            mac,
        })
    }
}

impl fmt::Display for Signature {
    /// `p` for one port or `s` for the sandbox, the key's id, and the code in hex; without the expiry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = if self.is_for_all_ports { 's' } else { 'p' };
        write!(f, "{scope}{}", self.key_id())?;
        self.mac.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Only lower case, so that each signature has one spelling.
fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

fn mac(secret: &[u8], claim: &Claim<'_>) -> [u8; MAC_BYTES] {
    let purpose = match claim.purpose {
        Purpose::Route => "route".to_owned(),
        Purpose::Code { nonce, until } => format!("code {nonce} {}", to_base36(until)),
        Purpose::Cookie => "cookie".to_owned(),
    };
    let port = claim.port.map_or("*".to_owned(), |port| port.to_string());
    let (id, expires, epoch) = (claim.sandbox_id, to_base36(claim.expires), claim.epoch);
    // No part has a line end in it: an id has letters, digits, dashes and underscores alone.
    let canonical = format!("v2\n{purpose}\n{id}\n{port}\n{expires}\n{epoch}\n");
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(canonical.as_bytes());
    let whole = mac.finalize().into_bytes();
    let mut kept = [0; MAC_BYTES];
    kept.copy_from_slice(&whole[..MAC_BYTES]);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: Claim<'_> = Claim {
        purpose: Purpose::Route,
        sandbox_id: "sb",
        port: Some(80),
        expires: 2_000_000_000,
        epoch: 0,
    };

    fn sign(claim: &Claim<'_>) -> Signature {
        Signature::sign(b"secret", 'k', claim).unwrap()
    }

    #[test]
    fn signatures_stay_what_they_were() {
        // Worked out with Python's hmac module.
        assert_eq!(
            sign(&CLAIM).to_string(),
            "pk0d2ab0aa0747cd87827cc198bb47b9eb"
        );
        let whole = Claim {
            port: None,
            ..CLAIM
        };
        assert_eq!(
            sign(&whole).to_string(),
            "sk863fe44d4a60c64c927f026ed4f8b8b5"
        );
        assert_eq!(Signature::sign(b"x", 'K', &CLAIM), None);
    }

    #[test]
    fn a_signature_holds_for_what_was_signed_and_nothing_else() {
        let signature = sign(&CLAIM);
        let verify = |claim: Claim<'_>| signature.verify(b"secret", &claim, 2_000_000_000);
        assert_eq!(verify(CLAIM), Ok(()));
        for other in [
            Claim {
                sandbox_id: "sc",
                ..CLAIM
            },
            Claim {
                port: Some(81),
                ..CLAIM
            },
            Claim {
                port: None,
                ..CLAIM
            },
            Claim { epoch: 1, ..CLAIM },
            Claim {
                purpose: Purpose::Cookie,
                ..CLAIM
            },
            Claim {
                purpose: Purpose::Code {
                    nonce: "n",
                    until: 1,
                },
                ..CLAIM
            },
        ] {
            assert_eq!(verify(other), Err(VerifyError::Wrong), "{other:?}");
        }
        let expired = signature.verify(b"secret", &CLAIM, 2_000_000_001);
        assert_eq!(expired, Err(VerifyError::Expired));
        let forged = signature.verify(b"other", &CLAIM, 0);
        assert_eq!(forged, Err(VerifyError::Wrong));
        let longer = Signature {
            expires: u64::MAX,
            ..signature
        };
        assert_eq!(longer.verify(b"secret", &CLAIM, 0), Err(VerifyError::Wrong));
        let wider = Signature {
            is_for_all_ports: true,
            ..signature
        };
        assert_eq!(wider.verify(b"secret", &CLAIM, 0), Err(VerifyError::Wrong));
    }

    #[test]
    fn one_of_a_sandbox_holds_for_every_port_of_it() {
        let signature = sign(&Claim {
            port: None,
            ..CLAIM
        });
        for port in [1, 80, 65535] {
            let claim = Claim {
                port: Some(port),
                ..CLAIM
            };
            assert_eq!(signature.verify(b"secret", &claim, 0), Ok(()), "{port}");
        }
    }

    #[test]
    fn each_signature_has_one_spelling() {
        let signature = sign(&CLAIM);
        let text = signature.to_string();
        assert_eq!(Signature::parse("x2qxvk", &text), Some(signature));
        for wrong in [
            text.to_uppercase(),
            text.replace('p', "q"),
            format!("{text}0"),
            text[1..].to_owned(),
            String::new(),
        ] {
            assert_eq!(Signature::parse("x2qxvk", &wrong), None, "{wrong}");
        }
        assert_eq!(Signature::parse("0x2qxvk", &text), None);
    }
}
