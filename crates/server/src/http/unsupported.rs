//! Routes of the contract for things that no backend here has, answered with the published
//! server's own codes.

use api::error::ErrorCode;

use super::{Error, not_supported};

/// `/pools`
pub(super) async fn pools() -> Error {
    let message = "pools need the Kubernetes runtime, which this server does not have yet";
    not_supported(ErrorCode::KubernetesPoolNotSupported, message)
}

/// `/templates`
pub(super) async fn templates() -> Error {
    let message = "templates need the Kubernetes runtime, which this server does not have yet";
    not_supported(ErrorCode::FsbApiNotSupported, message)
}
