//! The id of a request: the client's own where it sent a usable one, else a new one.

use std::fmt;
use std::sync::Arc;

use api::sandbox::REQUEST_ID_HEADER;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The header that carries it in requests and responses.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

// The contract's spelling; `HeaderName` takes lower case alone.
const _: () = assert!("x-request-id".eq_ignore_ascii_case(REQUEST_ID_HEADER));

/// Long enough for any tracing system's id, short enough to print in each log line.
const LENGTH_MAX: usize = 128;

/// The id of a request; an extension of every request to the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// The client's own id if it is of visible ASCII and not too long (it goes into logs and
    /// responses), else a new one.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self::from_header(headers.get(REQUEST_ID).map(HeaderValue::as_bytes))
    }

    /// The same from the value of the header.
    pub(crate) fn from_header(value: Option<&[u8]>) -> Self {
        let sent = value.and_then(|value| str::from_utf8(value).ok());
        match sent.map(str::trim) {
            Some(id) if is_usable(id) => Self(id.into()),
            _ => Self::random(),
        }
    }

    /// A new one.
    pub fn random() -> Self {
        // From the thread's own generator: a system call for each request would be felt.
        let id = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
        let mut text = [0; uuid::fmt::Simple::LENGTH];
        Self(Arc::from(&*id.simple().encode_lower(&mut text)))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.0).expect("an id is of visible ASCII")
    }
}

fn is_usable(id: &str) -> bool {
    (1..=LENGTH_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
