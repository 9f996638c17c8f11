//! The heads of HTTP/1.1 messages as bytes: parsed where they lie in a buffer, without a copy.
//!
//! Strict wherever two parsers of the same bytes could disagree about where a message ends, because
//! the bytes behind it would become a request or a response that nobody sent (request smuggling,
//! RFC 9112 11.2). Knows no sockets; the bodies are in `body`.

use std::mem::MaybeUninit;

use crate::body::Length;

/// Headers in one message. Browsers and services send a few dozen.
pub const HEADERS_MAX: usize = 100;

/// Why bytes are not a message that may be forwarded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The head does not parse.
    #[error("its head cannot be read: {0}")]
    Head(httparse::Error),
    /// Two parsers could disagree about the length of its body.
    #[error("{0}")]
    Length(&'static str),
    /// The body does not follow the chunked coding (RFC 9112 7.1).
    #[error("its body is not in chunks as its head says")]
    Chunk,
    /// The connection ended before the body did.
    #[error("it ends in the middle")]
    Cut,
}

/// Start and end of a part, as offsets into the bytes of a head.
type Span = (usize, usize);

/// Parses heads. One is kept for each connection, so that its list of headers is allocated once.
#[derive(Debug, Default)]
pub struct HeadParser {
    len: usize,
    minor_version: u8,
    status: u16,
    method: Span,
    target: Span,
    reason: Span,
    headers: Vec<(Span, Span)>,
}

impl HeadParser {
    /// Parses the head of a request; `false` while it is incomplete.
    pub fn parse_request(&mut self, bytes: &[u8]) -> Result<bool, Malformed> {
        let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(bytes, &mut room);
        let httparse::Status::Complete(len) = parsed.map_err(Malformed::Head)? else {
            return Ok(false);
        };
        self.len = len;
        self.minor_version = request.version.unwrap_or_default();
        self.method = span(bytes, request.method.unwrap_or_default().as_bytes());
        self.target = span(bytes, request.path.unwrap_or_default().as_bytes());
        self.take_headers(bytes, request.headers);
        Ok(true)
    }

    /// Parses the head of a response; `false` while it is incomplete.
    pub fn parse_response(&mut self, bytes: &[u8]) -> Result<bool, Malformed> {
        let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            bytes,
            &mut room,
        );
        let httparse::Status::Complete(len) = parsed.map_err(Malformed::Head)? else {
            return Ok(false);
        };
        self.status = response.code.unwrap_or_default();
        // httparse accepts 000-099; no such status class exists (RFC 9110 15).
        if self.status < 100 {
            return Err(Malformed::Head(httparse::Error::Status));
        }
        self.len = len;
        self.minor_version = response.version.unwrap_or_default();
        let reason = response.reason.unwrap_or_default();
        // httparse returns a static empty string for a reason phrase with obs-text in it, and that
        // string has no offset in these bytes.
        self.reason = if reason.is_empty() {
            (0, 0)
        } else {
            span(bytes, reason.as_bytes())
        };
        self.take_headers(bytes, response.headers);
        Ok(true)
    }

    fn take_headers(&mut self, bytes: &[u8], headers: &[httparse::Header<'_>]) {
        self.headers.clear();
        let spans = headers.iter().map(|header| {
            (
                span(bytes, header.name.as_bytes()),
                span(bytes, header.value),
            )
        });
        self.headers.extend(spans);
    }

    /// The head that was parsed last, in the bytes that it was parsed from.
    pub fn head<'a>(&'a self, bytes: &'a [u8]) -> Head<'a> {
        Head {
            parsed: self,
            bytes,
        }
    }
}

fn span(whole: &[u8], part: &[u8]) -> Span {
    if part.is_empty() {
        return (0, 0);
    }
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    (start, start + part.len())
}

/// The head of a request or of a response.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    parsed: &'a HeadParser,
    bytes: &'a [u8],
}

impl<'a> Head<'a> {
    fn text(self, (start, end): Span) -> &'a str {
        // httparse checks that methods, targets, reasons and header names are UTF-8.
        str::from_utf8(&self.bytes[start..end]).unwrap_or_default()
    }

    /// Bytes of the head, with the empty line at its end.
    pub fn byte_len(self) -> usize {
        self.parsed.len
    }

    /// The method of a request.
    pub fn method(self) -> &'a str {
        self.text(self.parsed.method)
    }

    /// The target of a request, as the client wrote it.
    pub fn target(self) -> &'a str {
        self.text(self.parsed.target)
    }

    /// The status of a response.
    pub fn status(self) -> u16 {
        self.parsed.status
    }

    /// The reason phrase of a response.
    pub fn reason(self) -> &'a str {
        self.text(self.parsed.reason)
    }

    /// Whether the version is HTTP/1.1 rather than HTTP/1.0; httparse accepts no other.
    pub fn is_1_1(self) -> bool {
        self.parsed.minor_version == 1
    }

    /// All headers in the order and case of the message.
    pub fn headers(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.parsed
            .headers
            .iter()
            .map(move |&(name, (start, end))| (self.text(name), &self.bytes[start..end]))
    }

    /// The values of a header, by its name in any case.
    pub fn values(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers()
            .filter(move |(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The elements of a header whose value is a list (RFC 9110 5.6.1).
    pub fn items(self, name: &str) -> impl Iterator<Item = &'a str> {
        self.values(name)
            .filter_map(|value| str::from_utf8(value).ok())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|item| !item.is_empty())
    }

    /// Whether the sender keeps the connection open for another message (RFC 9112 9.3).
    pub fn keeps_alive(self) -> bool {
        let is_said = |word: &str| {
            self.items("connection")
                .any(|item| item.eq_ignore_ascii_case(word))
        };
        self.is_1_1() && !is_said("close")
    }

    /// The length of the request's body (RFC 9112 6.3).
    pub fn request_length(self) -> Result<Length, Malformed> {
        match (self.is_chunked()?, self.content_length()?) {
            (true, Some(_)) => Err(Malformed::Length(
                "it has both Content-Length and Transfer-Encoding",
            )),
            (true, None) if !self.is_1_1() => {
                Err(Malformed::Length("HTTP/1.0 knows no Transfer-Encoding"))
            }
            (true, None) => Ok(Length::Chunked),
            (false, length) => Ok(length.map_or(Length::Exactly(0), Length::Exactly)),
        }
    }

    /// The length of the response's body (RFC 9112 6.3). `is_to_head`: the request was HEAD.
    pub fn response_length(self, is_to_head: bool) -> Result<Length, Malformed> {
        let (is_chunked, length) = (self.is_chunked()?, self.content_length()?);
        if is_to_head || matches!(self.status(), 100..=199 | 204 | 304) {
            return Ok(Length::Exactly(0));
        }
        match (is_chunked, length) {
            // Transfer-Encoding overrides Content-Length, which is not forwarded (RFC 9112 6.3).
            (true, _) if self.is_1_1() => Ok(Length::Chunked),
            (true, _) => Err(Malformed::Length("HTTP/1.0 knows no Transfer-Encoding")),
            (false, Some(length)) => Ok(Length::Exactly(length)),
            (false, None) => Ok(Length::UntilClosed),
        }
    }

    fn is_chunked(self) -> Result<bool, Malformed> {
        let mut values = self.values("transfer-encoding");
        match (values.next(), values.next()) {
            (None, _) => Ok(false),
            (Some(value), None) if value.trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(true),
            _ => Err(Malformed::Length(
                "its Transfer-Encoding is not chunked, and nothing else is understood",
            )),
        }
    }

    /// The value of Content-Length. Repeating the same value is allowed (RFC 9110 8.6).
    pub fn content_length(self) -> Result<Option<u64>, Malformed> {
        const UNCLEAR: Malformed = Malformed::Length("its Content-Length is not one number");
        let mut stated = None;
        for value in self.values("content-length") {
            for part in value.split(|byte| *byte == b',') {
                let digits = part.trim_ascii();
                let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
                let text = str::from_utf8(digits).ok().filter(|_| is_number);
                let length: u64 = text.and_then(|text| text.parse().ok()).ok_or(UNCLEAR)?;
                if stated.is_some_and(|stated| stated != length) {
                    return Err(UNCLEAR);
                }
                stated = Some(length);
            }
        }
        Ok(stated)
    }
}

/// Appends a header line.
pub fn put_header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The time now as the value of a Date header.
pub fn date() -> String {
    httpdate::fmt_http_date(std::time::SystemTime::now())
}

/// Where the head that these bytes begin with ends, if an empty line at or behind offset `from` ends
/// it: the same place as httparse finds, which skips empty lines before the request line and ends a
/// head at the first one behind it. A search costs a tenth of parsing.
pub fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    let start = bytes
        .iter()
        .position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    // The line feed before the empty line may already have been there.
    let from = from.saturating_sub(2).max(start);
    memchr::memchr_iter(b'\n', &bytes[from..]).find_map(|at| {
        let end = from + at + 1;
        match &bytes[end..] {
            [b'\n', ..] => Some(end + 1),
            [b'\r', b'\n', ..] => Some(end + 2),
            _ => None,
        }
    })
}

/// The target in the request line that these bytes begin with, found without parsing anything else:
/// between its first two spaces. Where that is not what httparse finds, httparse refuses the head.
pub fn peek_target(bytes: &[u8]) -> Option<&str> {
    let start = bytes
        .iter()
        .position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    let target = &bytes[start + memchr::memchr(b' ', &bytes[start..])? + 1..];
    let end = memchr::memchr2(b' ', b'\n', target)?;
    str::from_utf8(&target[..end]).ok()
}

#[cfg(test)]
mod tests;
