//! Status and text of what the gateway refuses, as the published gateway has them: plain text, and few
//! statuses, because what is answered there goes to clients of services and not of the API.

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use proxy::RequestId;
use proxy::gateway::Denied;
use proxy::gateway::link::LinkError;

use super::{Answer, ErrorCode as Code, of_lifecycle};
use crate::gateway::Error;
use crate::ingress;

/// How each text begins.
const PREFIX: &str = "OpenSandbox Ingress: ";

/// What a client without a right is asked for (RFC 9110 11.6.1).
const CHALLENGE: &str = "ApiKey header=\"OpenSandbox-Secure-Access\"";

/// The response to a request that the gateway refused or could not carry. Logs a failure that is the
/// server's own.
pub(crate) fn gateway_response(error: &proxy::Error<Error>, id: &RequestId) -> Response<Bytes> {
    let answer = answer(error, id);
    let status = answer.status;
    if status.is_server_error() {
        let error = api::error_chain(error).to_string();
        tracing::warn!(
            status = status.as_u16(),
            error,
            "a request to the gateway failed"
        );
    }
    let mut response = Response::new(format!("{PREFIX}{}\n", answer.message).into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, text);
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    if let Some(after) = answer.retry_after {
        let seconds = HeaderValue::from(after.as_secs().max(1));
        headers.insert(header::RETRY_AFTER, seconds);
    }
    if answer.code == Code::MissingOrInvalidSecureAccess {
        let challenge = HeaderValue::from_static(CHALLENGE);
        headers.insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

fn answer(error: &proxy::Error<Error>, id: &RequestId) -> Answer {
    let message = error.to_string();
    match error {
        proxy::Error::Sandbox(error) => of_gateway(error, message),
        proxy::Error::Malformed(_) | proxy::Error::NotTls => {
            Answer::new(400, Code::ValidationFailed, message)
        }
        proxy::Error::Connect => Answer::new(405, Code::MethodNotAllowed, message),
        proxy::Error::ServiceWorker => Answer::new(403, Code::Forbidden, message),
        proxy::Error::UpstreamClosed { .. } => {
            Answer::new(502, Code::BackendResponseFailed, message)
        }
        proxy::Error::Panicked => {
            let message = super::Error::Panicked(id.clone()).to_string();
            Answer::new(500, Code::SandboxInternalError, message)
        }
    }
}

fn of_gateway(error: &Error, message: String) -> Answer {
    match error {
        Error::Address(_) => Answer::new(400, Code::ValidationFailed, message),
        Error::Denied(denied) => match denied {
            Denied::Missing | Denied::Token | Denied::Signature(_) | Denied::TooLong => {
                Answer::new(401, Code::MissingOrInvalidSecureAccess, message)
            }
            Denied::NoKeys => Answer::new(503, Code::Unavailable, message),
            Denied::Throttled(after) => Answer::new(429, Code::RateLimited, message).retry(*after),
            Denied::StrangeHost => Answer::new(421, Code::Forbidden, message),
        },
        Error::Link(LinkError::Spent) => Answer::new(403, Code::Forbidden, message),
        Error::Link(LinkError::Busy) => Answer::new(503, Code::Unavailable, message),
        Error::Ingress(ingress::Error::Lifecycle(error)) => {
            let answer = of_lifecycle(error);
            let status = match answer.status.as_u16() {
                status @ (403 | 404 | 501 | 502 | 503) => status,
                // Paused, ended, or not ready in time.
                409 | 504 => 503,
                _ => 502,
            };
            Answer::new(status, answer.code, answer.message)
        }
        Error::Ingress(ingress::Error::EgressApi(_)) => {
            Answer::new(404, Code::RouteNotFound, message)
        }
        Error::Ingress(_) => Answer::new(502, Code::BackendConnectionFailed, message),
    }
}
