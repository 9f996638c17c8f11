//! What objects of the cluster are called and carry, so that they can be known again. Where the published server has
//! a name for something it is the same here.

use api::id::SandboxId;
use sha2::{Digest as _, Sha256};

/// On everything of a sandbox: its id.
pub(crate) const ID: &str = "opensandbox.io/id";
/// On a pod, as an annotation: named volumes that go with it, as a JSON list.
pub(crate) const VOLUMES: &str = "opensandbox.io/volume-managed-by";
/// On a volume claim: that a server made it, and with this value.
pub(crate) const VOLUME_MAKER: (&str, &str) = (VOLUMES, "server");
/// On what exists only to fetch an image.
pub(crate) const PULL: &str = "opensandbox.io/pull";
/// Who made it, for people who look with the cluster's own tools.
pub(crate) const MAKER: (&str, &str) = ("app.kubernetes.io/managed-by", "opensandbox");

/// The container of a pod that is the sandbox. The published server's name.
pub(crate) const CONTAINER: &str = "sandbox";
/// The init container that brings execd. The published server's name.
pub(crate) const INSTALLER: &str = "execd-installer";

/// Names of pods may have so many bytes (RFC 1123, as Kubernetes reads it), and hosts are called like them.
const NAME_BYTES_MAX: usize = 63;

/// The name of a sandbox's pod and of its Secret. Ids may have letters that names may not.
pub(crate) fn of(id: &SandboxId) -> String {
    let plain = format!("sandbox-{id}");
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if plain.len() <= NAME_BYTES_MAX && plain.bytes().all(is_allowed) && !plain.ends_with('-') {
        return plain;
    }
    format!("sandbox-{}", short_hash(id.as_str()))
}

/// Enough of a hash for a name.
pub(crate) fn short_hash(text: &str) -> String {
    hex::encode(&Sha256::digest(text)[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_has_a_name_that_the_cluster_takes() {
        let name = |id: &str| of(&id.parse().unwrap());
        assert_eq!(name("5f0c-a1"), "sandbox-5f0c-a1");
        for id in ["With_Underscore", "ends-", &"x".repeat(60)] {
            let name = name(id);
            assert_eq!(name.len(), "sandbox-".len() + 32, "{id}");
            assert_ne!(name, of(&"other".parse().unwrap()));
        }
        assert_ne!(name("A"), name("a"));
    }
}
