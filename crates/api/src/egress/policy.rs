//! The policy routes of the egress contract. They share their types with the lifecycle contract.

pub use crate::network_policy::{
    NetworkPolicy, NetworkRule, PolicyAction, PolicyMode, PolicyStatus,
};

/// Body of `PATCH /policy`: rules to put before the others.
pub type PolicyPatch = Vec<NetworkRule>;

/// Body of `DELETE /policy`: targets whose rules go.
pub type PolicyTargets = Vec<String>;

/// A policy has at most this many rules unless the operator says otherwise, as in the published
/// sidecar.
pub const RULES_MAX_DEFAULT: usize = 4096;

/// The body of a policy request is at most this long, as in the published sidecar.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
