//! Rules of the operator that a request to make a sandbox breaks, as problems with its fields.

use api::error::ErrorCode;
use api::problem::Problem;
use lifecycle::Violation;

/// A rule of the operator that a request to make a sandbox breaks, at the field that breaks it.
pub(super) fn problem(violation: &Violation) -> Problem {
    use ErrorCode::{SandboxInvalidParameter, VolumeHostPathNotAllowed, VolumeUnsupportedBackend};
    let (code, index, field, message) = match violation {
        Violation::LifetimeTooLong { asked, max } => {
            let (asked, max) = (asked.as_secs(), max.as_secs());
            let message = format!("is {asked} seconds; this server allows at most {max}");
            return Problem::with_code(SandboxInvalidParameter, "timeout", message);
        }
        Violation::HostPathNotAllowed { index } => (
            VolumeHostPathNotAllowed,
            index,
            "host.path",
            "is not below a directory of storage.allowed_host_paths",
        ),
        Violation::VolumeNameReserved { index } => (
            VolumeUnsupportedBackend,
            index,
            "pvc.claimName",
            "begins as the names of other tenants' volumes do; take another",
        ),
        Violation::StorageClass { index } => (
            VolumeUnsupportedBackend,
            index,
            "pvc.storageClass",
            "this server has no storage classes; leave it out",
        ),
        Violation::ObjectStore { index } => (
            VolumeUnsupportedBackend,
            index,
            "ossfs",
            "this server mounts host paths and named volumes only",
        ),
    };
    Problem::with_code(code, format!("volumes[{index}].{field}"), message)
}
