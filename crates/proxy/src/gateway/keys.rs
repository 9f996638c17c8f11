//! The keys that routes are signed with: one signs, all verify, so that a new one can come before an old
//! one goes.

use api::signed_route::v2::{self, Claim};
use api::signed_route::{Signature, VerifyError, v1};
use secrecy::{ExposeSecret as _, SecretSlice};

/// Keys by their ids.
pub struct KeyRing {
    active: char,
    keys: Vec<(char, SecretSlice<u8>)>,
}

impl KeyRing {
    /// Keys of which `active` signs. `None` where it is not among them, an id is there twice, or an id is
    /// not a digit or a lower case letter.
    pub fn new(active: char, keys: Vec<(char, SecretSlice<u8>)>) -> Option<Self> {
        let is_id = |id: char| id.is_ascii_digit() || id.is_ascii_lowercase();
        let is_once = |id: char| keys.iter().filter(|(other, _)| *other == id).count() == 1;
        let is_right = keys.iter().all(|(id, _)| is_id(*id) && is_once(*id));
        let has_active = keys.iter().any(|(id, _)| *id == active);
        (is_right && has_active).then_some(Self { active, keys })
    }

    fn secret(&self, id: char) -> Option<&[u8]> {
        let (_, secret) = self.keys.iter().find(|(own, _)| *own == id)?;
        Some(secret.expose_secret())
    }

    /// Signs with version 1, which is for one port and knows no revocation.
    pub fn sign_v1(&self, sandbox_id: &str, port: u16, expires: u64) -> Signature {
        let secret = self.secret(self.active).unwrap_or_default();
        let signed = v1::Signature::sign(secret, self.active, sandbox_id, port, expires);
        Signature::V1(signed.expect("the id was checked"))
    }

    /// Signs with version 2.
    pub fn sign(&self, claim: &Claim<'_>) -> v2::Signature {
        let secret = self.secret(self.active).unwrap_or_default();
        v2::Signature::sign(secret, self.active, claim).expect("the id was checked")
    }

    /// Verifies version 1.
    pub(super) fn verify_v1(
        &self,
        signature: &v1::Signature,
        (sandbox_id, port): (&str, u16),
        now: u64,
    ) -> Result<(), VerifyError> {
        let secret = self.secret(signature.key_id());
        let secret = secret.ok_or(VerifyError::Wrong)?;
        signature.verify(secret, sandbox_id, port, now)
    }

    /// Verifies version 2.
    pub(super) fn verify(
        &self,
        signature: &v2::Signature,
        claim: &Claim<'_>,
        now: u64,
    ) -> Result<(), VerifyError> {
        let secret = self.secret(signature.key_id());
        signature.verify(secret.ok_or(VerifyError::Wrong)?, claim, now)
    }
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<char> = self.keys.iter().map(|(id, _)| *id).collect();
        write!(f, "KeyRing {{ active: {:?}, ids: {ids:?} }}", self.active)
    }
}
