//! Writes events into a buffer that the caller reuses. Nothing is allocated per event, because a
//! command may print hundreds of thousands of lines a second.

use std::io;

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter};

use super::Framing;
use crate::exec::event::{Event, EventKind};

/// Writes events in one framing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Encoder {
    framing: Framing,
}

impl Encoder {
    /// An encoder for this framing.
    pub const fn new(framing: Framing) -> Self {
        Self { framing }
    }

    /// Appends an event.
    pub fn event(self, out: &mut Vec<u8>, event: &Event) {
        self.json(out, event);
    }

    /// Appends an event that carries only text: the same bytes as [`Encoder::event`] with no
    /// [`Event`] to build, for the output of commands.
    pub fn text(
        self,
        out: &mut Vec<u8>,
        kind: EventKind,
        text: &str,
        timestamp: i64,
        seq: Option<u64>,
    ) {
        self.begin(out);
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(kind.as_str().as_bytes());
        out.extend_from_slice(b"\",\"text\":\"");
        escape_into(out, text);
        out.extend_from_slice(b"\",\"timestamp\":");
        if timestamp < 0 {
            out.push(b'-');
        }
        decimal_into(out, timestamp.unsigned_abs());
        if let Some(seq) = seq {
            out.extend_from_slice(b",\"seq\":");
            decimal_into(out, seq);
        }
        out.push(b'}');
        end(out);
    }

    /// Appends any value as an event: metrics, or the error envelope that ends a broken stream.
    pub fn json<T: Serialize>(self, out: &mut Vec<u8>, value: &T) {
        self.begin(out);
        line_into(out, value);
        end(out);
    }

    /// Appends a server-sent event with an id and a name, so that a browser can go on after it.
    /// Always in the data framing.
    pub fn named<T: Serialize>(self, out: &mut Vec<u8>, id: u64, name: &str, value: &T) {
        out.extend_from_slice(b"id: ");
        decimal_into(out, id);
        out.extend_from_slice(b"\nevent: ");
        // A line break in the name would end the field.
        out.extend(name.bytes().filter(|byte| !byte.is_ascii_control()));
        out.extend_from_slice(b"\ndata: ");
        line_into(out, value);
        end(out);
    }

    /// Appends a comment that keeps a stream of server-sent events alive. Only in the data
    /// framing: a bare stream has no comments.
    pub fn keep_alive(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b":\n\n");
    }

    fn begin(self, out: &mut Vec<u8>) {
        if self.framing == Framing::Data {
            out.extend_from_slice(b"data: ");
        }
    }
}

fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\n\n");
}

/// Appends a value as one line of JSON.
fn line_into<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    let start = out.len();
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, OneLine);
    if let Err(error) = value.serialize(&mut serializer) {
        // Only a map with keys that are not text fails here, and no wire type has one. Whatever
        // it is, half an object must not stay in the stream.
        out.truncate(start);
        out.extend_from_slice(b"{\"code\":\"RUNTIME_ERROR\",\"message\":\"");
        escape_into(out, &error.to_string());
        out.extend_from_slice(b"\"}");
    }
}

/// Compact JSON that also escapes the line ends of Unicode.
struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let bytes = fragment.as_bytes();
        let mut done = 0;
        let mut at = 0;
        while let Some(found) = memchr::memchr2(0xC2, 0xE2, &bytes[at..]) {
            at += found;
            match unicode_line_end(&bytes[at..]) {
                Some((escape, length)) => {
                    writer.write_all(&bytes[done..at])?;
                    writer.write_all(escape)?;
                    at += length;
                    done = at;
                }
                None => at += 1,
            }
        }
        writer.write_all(&bytes[done..])
    }

    fn write_char_escape<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        match escape {
            CharEscape::AsciiControl(byte) => writer.write_all(&control_escape(byte)),
            CharEscape::Quote => writer.write_all(b"\\\""),
            CharEscape::ReverseSolidus => writer.write_all(b"\\\\"),
            CharEscape::Solidus => writer.write_all(b"/"),
            CharEscape::Backspace => writer.write_all(b"\\b"),
            CharEscape::FormFeed => writer.write_all(b"\\f"),
            CharEscape::LineFeed => writer.write_all(b"\\n"),
            CharEscape::CarriageReturn => writer.write_all(b"\\r"),
            CharEscape::Tab => writer.write_all(b"\\t"),
        }
    }
}

/// The escape of the line end that these bytes begin with, and its length in UTF-8: U+0085,
/// U+2028 and U+2029.
fn unicode_line_end(bytes: &[u8]) -> Option<(&'static [u8], usize)> {
    match bytes {
        [0xC2, 0x85, ..] => Some((b"\\u0085", 2)),
        [0xE2, 0x80, 0xA8, ..] => Some((b"\\u2028", 3)),
        [0xE2, 0x80, 0xA9, ..] => Some((b"\\u2029", 3)),
        _ => None,
    }
}

/// Bytes that need a look: controls, quote, backslash, and the first bytes of the line ends of
/// Unicode.
const NEEDS_A_LOOK: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[0xC2] = true;
    table[0xE2] = true;
    table
};

/// Appends the inside of a JSON string.
fn escape_into(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let mut done = 0;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if !NEEDS_A_LOOK[usize::from(byte)] {
            at += 1;
            continue;
        }
        let control;
        let (escape, length): (&[u8], usize) = match byte {
            b'"' => (b"\\\"", 1),
            b'\\' => (b"\\\\", 1),
            b'\n' => (b"\\n", 1),
            b'\r' => (b"\\r", 1),
            b'\t' => (b"\\t", 1),
            0x08 => (b"\\b", 1),
            0x0C => (b"\\f", 1),
            0xC2 | 0xE2 => match unicode_line_end(&bytes[at..]) {
                Some(found) => found,
                None => {
                    at += 1;
                    continue;
                }
            },
            _ => {
                control = control_escape(byte);
                (&control, 1)
            }
        };
        out.extend_from_slice(&bytes[done..at]);
        out.extend_from_slice(escape);
        at += length;
        done = at;
    }
    out.extend_from_slice(&bytes[done..]);
}

fn control_escape(byte: u8) -> [u8; 6] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let high = HEX[usize::from(byte >> 4)];
    let low = HEX[usize::from(byte & 0xF)];
    [b'\\', b'u', b'0', b'0', high, low]
}

fn decimal_into(out: &mut Vec<u8>, mut number: u64) {
    // The longest u64 has 20 digits.
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
