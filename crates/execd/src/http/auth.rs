//! Who may call the daemon: whoever knows the token, on every route alike.

use api::exec::ACCESS_TOKEN_HEADER;
use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use subtle::ConstantTimeEq as _;

/// The access token; without one every call is admitted.
pub(crate) struct Token(Option<Vec<u8>>);

impl Token {
    /// Surrounding white space is not part of a token: a file or a pipe often ends in a
    /// newline. An empty token is none.
    pub(crate) fn new(token: &[u8]) -> Self {
        let token = token.trim_ascii();
        Self((!token.is_empty()).then(|| token.to_vec()))
    }

    /// Compares in constant time, so that the answer's delay tells nothing about how much
    /// of a guess was right.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.0 else { return true };
        headers
            .get(ACCESS_TOKEN_HEADER)
            .is_some_and(|given| bool::from(given.as_bytes().ct_eq(token)))
    }
}

/// The published clients know this body; it is not the shape of other errors.
pub(super) fn refusal() -> Response {
    let body =
        format!(r#"{{"error":"Unauthorized: invalid or missing header {ACCESS_TOKEN_HEADER}"}}"#);
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = super::problem::UNAUTHORIZED;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(token: &str, given: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(given) = given {
            headers.insert(ACCESS_TOKEN_HEADER, given.parse().unwrap());
        }
        Token::new(token.as_bytes()).admits(&headers)
    }

    #[test]
    fn only_the_exact_token_is_admitted() {
        assert!(admits("secret\n", Some("secret")));
        assert!(!admits("secret", Some("secre")));
        assert!(!admits("secret", Some("secrets")));
        assert!(!admits("secret", Some("")));
        assert!(!admits("secret", None));
    }

    #[test]
    fn no_token_admits_everyone() {
        assert!(admits(" \n", None));
        assert!(admits("", Some("anything")));
    }
}
