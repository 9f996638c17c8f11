//! Reads streams as they arrive, in any pieces. Holds at most one event.
//!
//! Lines end with `\n` or `\r\n`. A line that begins with `{` or `[` is a whole event; `data:`
//! lines are gathered until an empty line, as server-sent events are.

use serde::Deserialize;

use crate::error::ErrorBody;
use crate::exec::event::Event;

/// Reads the events of one stream.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    /// The line that is arriving.
    line: Vec<u8>,
    /// The event that is arriving in `data:` lines, or the one last given out.
    data: Vec<u8>,
    id: Option<String>,
    name: Option<String>,
    has_data: bool,
    /// `data` and `name` belong to an event that was given out.
    is_given_out: bool,
    at_start: bool,
}

/// One event as it came over the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The JSON text. Not checked yet.
    pub data: &'a [u8],
    /// The last `id:` of the stream so far.
    pub id: Option<&'a str>,
    /// The event's own `event:`.
    pub name: Option<&'a str>,
}

/// What an execution stream carries.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamItem {
    /// An event.
    Event(Event),
    /// The stream broke on the daemon's side after it had begun: an error envelope.
    Failure(ErrorBody),
}

/// Why a stream cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// An event is longer than the limit.
    #[error("an event of the stream is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// A line is not part of an event stream.
    #[error(
        "the stream has a line that is neither JSON nor a field of server-sent events: {line:?}"
    )]
    NotAnEvent {
        /// Its beginning.
        line: String,
    },
    /// An event is not what it should be.
    #[error("an event of the stream is not readable: {message}")]
    Malformed {
        /// Where and why.
        message: String,
    },
}

impl Decoder {
    /// A decoder for events of at most `limit` bytes.
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            data: Vec::new(),
            id: None,
            name: None,
            has_data: false,
            is_given_out: false,
            at_start: true,
        }
    }

    /// Takes from the front of `input` until an event is complete or `input` is empty. Call it
    /// until it returns `None`, then again with more input.
    pub fn next<'a>(&'a mut self, input: &mut &[u8]) -> Result<Option<Frame<'a>>, DecodeError> {
        self.forget_given_out();
        loop {
            let Some(end) = memchr::memchr(b'\n', input) else {
                self.take(input, input.len())?;
                return Ok(None);
            };
            self.take(input, end)?;
            *input = &input[1..];
            if self.end_line()? {
                return Ok(Some(self.give_out()));
            }
        }
    }

    /// Ends the stream: returns an event that lacks its empty line or even its line end. Clients
    /// of the published daemon take such an event too.
    pub fn finish(&mut self) -> Result<Option<Frame<'_>>, DecodeError> {
        self.forget_given_out();
        let is_bare = self.end_line()?;
        Ok((is_bare || self.has_data).then(|| self.give_out()))
    }

    fn take(&mut self, input: &mut &[u8], length: usize) -> Result<(), DecodeError> {
        if self.line.len() + length > self.limit {
            return Err(DecodeError::TooLong { limit: self.limit });
        }
        self.line.extend_from_slice(&input[..length]);
        *input = &input[length..];
        Ok(())
    }

    /// Looks at a whole line; returns whether an event is complete.
    fn end_line(&mut self) -> Result<bool, DecodeError> {
        const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
        let mut line = std::mem::take(&mut self.line);
        let mut text: &[u8] = &line;
        if self.at_start {
            text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        }
        self.at_start = false;
        text = text.strip_suffix(b"\r").unwrap_or(text);
        let is_complete = self.look_at(text);
        line.clear();
        self.line = line;
        is_complete
    }

    fn look_at(&mut self, line: &[u8]) -> Result<bool, DecodeError> {
        if line.is_empty() {
            self.name = self.name.take().filter(|_| self.has_data);
            return Ok(self.has_data);
        }
        if matches!(line.trim_ascii_start().first(), Some(b'{' | b'[')) {
            self.append(line.trim_ascii())?;
            return Ok(true);
        }
        let Some(colon) = memchr::memchr(b':', line).filter(|at| is_field_name(&line[..*at]))
        else {
            return Err(DecodeError::NotAnEvent {
                line: excerpt(line),
            });
        };
        let value = &line[colon + 1..];
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => self.append(value)?,
            b"id" => self.id = Some(String::from_utf8_lossy(value).into_owned()),
            b"event" => self.name = Some(String::from_utf8_lossy(value).into_owned()),
            _ => {}
        }
        Ok(false)
    }

    fn append(&mut self, text: &[u8]) -> Result<(), DecodeError> {
        if self.has_data {
            self.data.push(b'\n');
        }
        if self.data.len() + text.len() > self.limit {
            return Err(DecodeError::TooLong { limit: self.limit });
        }
        self.data.extend_from_slice(text);
        self.has_data = true;
        Ok(())
    }

    fn give_out(&mut self) -> Frame<'_> {
        self.has_data = false;
        self.is_given_out = true;
        Frame {
            data: &self.data,
            id: self.id.as_deref(),
            name: self.name.as_deref(),
        }
    }

    fn forget_given_out(&mut self) {
        if self.is_given_out {
            self.data.clear();
            self.name = None;
            self.is_given_out = false;
        }
    }
}

/// Comments have an empty name; every other field is a word.
fn is_field_name(name: &[u8]) -> bool {
    name.iter()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The beginning of a line, so that an error never repeats a long input.
fn excerpt(line: &[u8]) -> String {
    const EXCERPT_BYTES: usize = 80;
    String::from_utf8_lossy(&line[..line.len().min(EXCERPT_BYTES)]).into_owned()
}

impl Frame<'_> {
    /// Reads the event as JSON of any type.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, DecodeError> {
        serde_json::from_slice(self.data).map_err(|error| DecodeError::Malformed {
            message: error.to_string(),
        })
    }

    /// Reads the event of an execution stream.
    pub fn item(&self) -> Result<StreamItem, DecodeError> {
        // An envelope has no `type`, so it never reads as an event.
        match self.json().map(StreamItem::Event) {
            Err(error) if self.is_failure() => {
                self.json().map(StreamItem::Failure).map_err(|_| error)
            }
            event => event,
        }
    }

    fn is_failure(&self) -> bool {
        #[derive(Deserialize)]
        struct Peek {
            r#type: Option<serde::de::IgnoredAny>,
            code: Option<serde::de::IgnoredAny>,
        }
        self.json::<Peek>()
            .is_ok_and(|peek| peek.r#type.is_none() && peek.code.is_some())
    }
}
