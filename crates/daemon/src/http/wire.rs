//! HTTP/1.1 messages as bytes: heads, and how long the bodies behind them are. For whoever carries
//! messages on instead of answering them.
//!
//! Strict wherever two readers of the same bytes could disagree about where a message ends: what
//! comes behind it would then be a request or an answer that nobody sent. Knows no sockets.

use std::mem::MaybeUninit;

/// Headers of a message. Browsers and services send a few dozen.
pub const HEADERS_MAX: usize = 100;

/// Hex digits of a chunk's size: as many as a 64-bit number has.
const SIZE_DIGITS_MAX: u32 = 16;

/// Bytes of the extensions behind all chunk sizes, and of all trailers, of one body. They are
/// dropped, so this only bounds the work that a hostile sender can cause for nothing.
const DROPPED_BYTES_MAX: u64 = 64 * 1024;

/// Why bytes are not a message that may be carried on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The head is not one.
    #[error("its head cannot be read: {0}")]
    Head(httparse::Error),
    /// Somebody could read another length than somebody else.
    #[error("{0}")]
    Length(&'static str),
    /// The chunks of the body do not follow one another as they must.
    #[error("its body is not in chunks as its head says")]
    Chunk,
    /// It ended too early.
    #[error("it ends in the middle")]
    Cut,
}

/// Where something is in the bytes of a head.
type Span = (usize, usize);

/// Where the parts of a head are. Kept and used again, for it is filled for every message.
#[derive(Debug, Default)]
pub struct Head {
    len: usize,
    minor_version: u8,
    status: u16,
    method: Span,
    target: Span,
    reason: Span,
    headers: Vec<(Span, Span)>,
}

impl Head {
    /// Reads the head of a request; `false` when more of it is still to come.
    pub fn read_request(&mut self, bytes: &[u8]) -> Result<bool, Malformed> {
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

    /// Reads the head of an answer; `false` when more of it is still to come.
    pub fn read_answer(&mut self, bytes: &[u8]) -> Result<bool, Malformed> {
        let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut answer = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut answer,
            bytes,
            &mut room,
        );
        let httparse::Status::Complete(len) = parsed.map_err(Malformed::Head)? else {
            return Ok(false);
        };
        self.status = answer.code.unwrap_or_default();
        // Three digits that are no status: who writes them as a number writes fewer.
        if self.status < 100 {
            return Err(Malformed::Head(httparse::Error::Status));
        }
        self.len = len;
        self.minor_version = answer.version.unwrap_or_default();
        let reason = answer.reason.unwrap_or_default();
        // One with unusual characters is not in these bytes.
        self.reason = if reason.is_empty() {
            (0, 0)
        } else {
            span(bytes, reason.as_bytes())
        };
        self.take_headers(bytes, answer.headers);
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

    /// The message whose head these bytes begin with.
    pub fn of<'a>(&'a self, bytes: &'a [u8]) -> Message<'a> {
        Message { head: self, bytes }
    }
}

fn span(whole: &[u8], part: &[u8]) -> Span {
    if part.is_empty() {
        return (0, 0);
    }
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    (start, start + part.len())
}

/// The head of a message.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    head: &'a Head,
    bytes: &'a [u8],
}

impl<'a> Message<'a> {
    fn text(self, (start, end): Span) -> &'a str {
        // What is read as text is ASCII, as the parser made sure.
        str::from_utf8(&self.bytes[start..end]).unwrap_or_default()
    }

    /// How many bytes the head has.
    pub fn head_len(self) -> usize {
        self.head.len
    }

    /// A request's method.
    pub fn method(self) -> &'a str {
        self.text(self.head.method)
    }

    /// What a request is for, as it was written.
    pub fn target(self) -> &'a str {
        self.text(self.head.target)
    }

    /// An answer's status.
    pub fn status(self) -> u16 {
        self.head.status
    }

    /// An answer's status in words.
    pub fn reason(self) -> &'a str {
        self.text(self.head.reason)
    }

    /// Whether it is of HTTP/1.1 and not of HTTP/1.0.
    pub fn is_1_1(self) -> bool {
        self.head.minor_version == 1
    }

    /// All headers, as they were written.
    pub fn headers(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.head
            .headers
            .iter()
            .map(move |&(name, (start, end))| (self.text(name), &self.bytes[start..end]))
    }

    /// The values of a header.
    pub fn values(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers()
            .filter(move |(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The parts of a header that is a list.
    pub fn items(self, name: &str) -> impl Iterator<Item = &'a str> {
        self.values(name)
            .filter_map(|value| str::from_utf8(value).ok())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|item| !item.is_empty())
    }

    /// Whether its sender will use the connection again.
    pub fn keeps_open(self) -> bool {
        let is_said = |word: &str| {
            self.items("connection")
                .any(|item| item.eq_ignore_ascii_case(word))
        };
        self.is_1_1() && !is_said("close")
    }

    /// How long the body of this request is.
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

    /// How long the body of this answer is.
    pub fn answer_length(self, is_for_head: bool) -> Result<Length, Malformed> {
        let (is_chunked, length) = (self.is_chunked()?, self.content_length()?);
        if is_for_head || matches!(self.status(), 100..=199 | 204 | 304) {
            return Ok(Length::Exactly(0));
        }
        match (is_chunked, length) {
            // RFC 9112, 6.3: the length does not count then. It is not passed on.
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

    /// The length that the head states. The same one may be stated several times.
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

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// This many bytes.
    Exactly(u64),
    /// Until the chunk of no size.
    Chunked,
    /// Until the connection ends.
    UntilClosed,
}

/// What of the bytes of a body may be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// So many are dealt with.
    pub used: usize,
    /// So many, at the front, are to be passed on.
    pub kept: usize,
}

/// A body on its way.
#[derive(Debug)]
pub struct Body(Left);

#[derive(Debug)]
enum Left {
    Bytes(u64),
    Chunks(Chunks),
    All { has_ended: bool },
}

impl Body {
    /// A body of which nothing was seen yet.
    pub fn new(length: Length) -> Self {
        Self(match length {
            Length::Exactly(bytes) => Left::Bytes(bytes),
            Length::Chunked => Left::Chunks(Chunks::default()),
            Length::UntilClosed => Left::All { has_ended: false },
        })
    }

    /// Whether all of it was seen.
    pub fn is_done(&self) -> bool {
        match &self.0 {
            Left::Bytes(left) => *left == 0,
            Left::Chunks(chunks) => chunks.expects == Expects::Nothing,
            Left::All { has_ended } => *has_ended,
        }
    }

    /// Takes what came next, and moves what may be passed on to its front.
    pub fn pass(&mut self, bytes: &mut [u8]) -> Result<Passed, Malformed> {
        if let Left::Chunks(chunks) = &mut self.0 {
            return chunks.pass(bytes);
        }
        let used = self.measure(bytes)?;
        Ok(Passed { used, kept: used })
    }

    /// Takes what came next, all of which is passed on as it is; answers how much belongs to it.
    pub fn measure(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        match &mut self.0 {
            Left::Bytes(left) => Ok(advance(left, bytes.len())),
            Left::Chunks(chunks) => chunks.measure(bytes),
            Left::All { .. } => Ok(bytes.len()),
        }
    }

    /// Takes note that nothing more will come.
    pub fn close(&mut self) -> Result<(), Malformed> {
        if let Left::All { has_ended } = &mut self.0 {
            *has_ended = true;
        }
        if self.is_done() {
            Ok(())
        } else {
            Err(Malformed::Cut)
        }
    }
}

/// A body in chunks. Passed on as it came, without extensions and trailers.
#[derive(Debug, Default)]
struct Chunks {
    expects: Expects,
    /// Of the chunk: its size as read so far, then the bytes still to come.
    left: u64,
    digits: u32,
    dropped: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Expects {
    #[default]
    Size,
    /// Space behind the size.
    Space,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The first byte of a trailer's line, or of the empty one.
    TrailerStart,
    Trailer,
    TrailerLf,
    LastLf,
    Nothing,
}

/// Takes as much of `count` as is left.
fn advance(left: &mut u64, count: usize) -> usize {
    let taken = usize::try_from(*left).map_or(count, |left| left.min(count));
    *left -= taken as u64;
    taken
}

impl Chunks {
    fn measure(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut used = 0;
        while used < bytes.len() && self.expects != Expects::Nothing {
            if self.expects == Expects::Data {
                used += self.data(bytes.len() - used);
            } else {
                self.step(bytes[used])?;
                used += 1;
            }
        }
        Ok(used)
    }

    /// Takes as much of `count` bytes as is data of this chunk.
    fn data(&mut self, count: usize) -> usize {
        let taken = advance(&mut self.left, count);
        if self.left == 0 {
            self.expects = Expects::DataCr;
        }
        taken
    }

    fn pass(&mut self, bytes: &mut [u8]) -> Result<Passed, Malformed> {
        let (mut used, mut kept) = (0, 0);
        while used < bytes.len() && self.expects != Expects::Nothing {
            if self.expects == Expects::Data {
                let count = self.data(bytes.len() - used);
                if used != kept {
                    bytes.copy_within(used..used + count, kept);
                }
                used += count;
                kept += count;
                continue;
            }
            let byte = bytes[used];
            used += 1;
            if self.step(byte)? {
                bytes[kept] = byte;
                kept += 1;
            }
        }
        Ok(Passed { used, kept })
    }

    /// Takes a byte that is not data; answers whether it is passed on.
    fn step(&mut self, byte: u8) -> Result<bool, Malformed> {
        let (expects, is_kept) = match (self.expects, byte) {
            (Expects::Size, b'\r') if self.digits > 0 => (Expects::SizeLf, true),
            (Expects::Size, b';') if self.digits > 0 => (Expects::Extension, false),
            (Expects::Size, b' ' | b'\t') if self.digits > 0 => (Expects::Space, false),
            (Expects::Space, b'\r') => (Expects::SizeLf, true),
            (Expects::Space, b';') => (Expects::Extension, false),
            (Expects::Space, b' ' | b'\t') => (Expects::Space, false),
            (Expects::Size, _) => {
                let digit = char::from(byte).to_digit(16).ok_or(Malformed::Chunk)?;
                self.digits += 1;
                if self.digits > SIZE_DIGITS_MAX {
                    return Err(Malformed::Chunk);
                }
                self.left = self.left << 4 | u64::from(digit);
                (Expects::Size, true)
            }
            (Expects::Extension, b'\r') => (Expects::SizeLf, true),
            (Expects::Extension, _) if is_text(byte) => (Expects::Extension, false),
            (Expects::SizeLf, b'\n') => {
                self.digits = 0;
                let is_last = self.left == 0;
                (
                    if is_last {
                        Expects::TrailerStart
                    } else {
                        Expects::Data
                    },
                    true,
                )
            }
            (Expects::DataCr, b'\r') => (Expects::DataLf, true),
            (Expects::DataLf, b'\n') => (Expects::Size, true),
            (Expects::TrailerStart, b'\r') => (Expects::LastLf, true),
            (Expects::TrailerStart, _) if is_text(byte) => (Expects::Trailer, false),
            (Expects::Trailer, b'\r') => (Expects::TrailerLf, false),
            (Expects::Trailer, _) if is_text(byte) => (Expects::Trailer, false),
            (Expects::TrailerLf, b'\n') => (Expects::TrailerStart, false),
            (Expects::LastLf, b'\n') => (Expects::Nothing, true),
            _ => return Err(Malformed::Chunk),
        };
        if !is_kept {
            self.dropped += 1;
            if self.dropped > DROPPED_BYTES_MAX {
                return Err(Malformed::Chunk);
            }
        }
        self.expects = expects;
        Ok(is_kept)
    }
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}

/// Writes a header.
pub fn put_header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The time as a message states it.
pub fn date() -> String {
    httpdate::fmt_http_date(std::time::SystemTime::now())
}

/// Whether the head in these bytes may end in those from `from` on: none is whole without an empty
/// line, and looking for that costs less than reading the head again whenever a byte comes.
pub fn may_end(bytes: &[u8], from: usize) -> bool {
    let from = from.saturating_sub(2);
    let is_end = |at: usize| matches!(&bytes[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]);
    memchr::memchr_iter(b'\n', &bytes[from..]).any(|at| is_end(from + at))
}

#[cfg(test)]
mod tests;
