//! Routes of the contract for things that no backend here has, answered with the published
//! server's own codes.

use api::error::ErrorCode;
use http::Method;
use lifecycle::Right;

use super::audit::CallerService;
use super::extract::OfSandbox;
use super::{Error, not_supported};

/// `/sandboxes/{id}/networkpolicy`
pub(super) async fn network_policy(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    method: Method,
) -> Result<(), Error> {
    service.get(&id)?;
    service.require(match method {
        Method::GET => Right::Read,
        _ => Right::Change,
    })?;
    let message = "outbound policies are not supported by this server yet";
    Err(not_supported(ErrorCode::SandboxApiNotSupported, message))
}

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
