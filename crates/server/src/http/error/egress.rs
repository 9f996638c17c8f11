//! Errors as the egress API of a sandbox tells them: plain text, and 400 for every body that is not what it should
//! be, because its published clients expect that.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use super::Error;

/// What a client without the token is asked for (RFC 9110 11.6.1).
const CHALLENGE: &str = "ApiKey header=\"OPENSANDBOX-EGRESS-AUTH\"";

/// An error in the form of that API.
pub(in crate::http) struct Plain(pub(in crate::http) Error);

impl<E: Into<Error>> From<E> for Plain {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Plain {
    fn into_response(self) -> Response {
        let message = format!("{}\n", self.0.envelope().message);
        let (mut parts, _) = self.0.into_bytes().into_parts();
        if parts.status == StatusCode::UNPROCESSABLE_ENTITY {
            parts.status = StatusCode::BAD_REQUEST;
        }
        if parts.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static(CHALLENGE);
            parts.headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        parts.headers.insert(header::CONTENT_TYPE, text);
        Response::from_parts(parts, message.into())
    }
}
