//! What is mounted into a sandbox, given to [`CreateSandbox::volume`](crate::CreateSandbox::volume).

pub use api::volume::{Host, Ossfs, Pvc, Volume};

/// A directory of the host. The operator decides which are allowed.
pub fn host(
    name: impl Into<String>,
    host_path: impl Into<String>,
    mount_path: impl Into<String>,
) -> Volume {
    Volume {
        name: name.into(),
        host: Some(Host {
            path: host_path.into(),
        }),
        mount_path: mount_path.into(),
        ..Volume::default()
    }
}

/// A named volume that outlives the sandbox; it is made when it does not exist.
pub fn named(
    name: impl Into<String>,
    claim_name: impl Into<String>,
    mount_path: impl Into<String>,
) -> Volume {
    Volume {
        name: name.into(),
        pvc: Some(Pvc {
            claim_name: claim_name.into(),
            create_if_not_exists: true,
            delete_on_sandbox_termination: false,
            storage_class: None,
            storage: None,
            access_modes: None,
        }),
        mount_path: mount_path.into(),
        ..Volume::default()
    }
}

/// The same volume, without writes.
#[must_use]
pub fn read_only(mut volume: Volume) -> Volume {
    volume.read_only = true;
    volume
}
