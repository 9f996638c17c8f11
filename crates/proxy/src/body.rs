//! How long the body of an HTTP/1.1 message is, and where it ends in the bytes that arrive.
//!
//! Strict about the chunked coding (RFC 9112 7.1) for the same reason as `message`. Knows no sockets.

use bytes::BytesMut;

use crate::message::Malformed;

/// Hex digits of a chunk's size: as many as a 64-bit number has.
const SIZE_DIGITS_MAX: u32 = 16;

/// Bytes of all chunk extensions and trailers of one body. They are dropped, so this only bounds the
/// work that a hostile sender can cause for nothing.
const DROPPED_BYTES_MAX: u64 = 64 * 1024;

/// The length of a body, as the head before it declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// This many bytes.
    Exactly(u64),
    /// Up to the last chunk, which has size 0.
    Chunked,
    /// Until the connection ends.
    UntilClosed,
}

/// What [`BodyFraming::filter`] did with a piece of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filtered {
    /// Bytes of the piece that belong to the body.
    pub used: usize,
    /// Bytes, now at the front of the piece, that are to be forwarded.
    pub kept: usize,
    /// Bytes of the piece that are not data, each of which was looked at by itself.
    pub framing: usize,
}

/// Follows a body through the bytes that arrive, to find its end.
#[derive(Debug)]
pub struct BodyFraming(Remaining);

#[derive(Debug)]
enum Remaining {
    Bytes(u64),
    Chunks(Chunks),
    All { has_ended: bool },
}

impl BodyFraming {
    /// The framing of a body of which nothing has arrived yet.
    pub fn new(length: Length) -> Self {
        Self(match length {
            Length::Exactly(bytes) => Remaining::Bytes(bytes),
            Length::Chunked => Remaining::Chunks(Chunks::default()),
            Length::UntilClosed => Remaining::All { has_ended: false },
        })
    }

    /// Whether the end of the body has been seen.
    pub fn is_done(&self) -> bool {
        match &self.0 {
            Remaining::Bytes(left) => *left == 0,
            Remaining::Chunks(chunks) => chunks.expects == Expects::Nothing,
            Remaining::All { has_ended } => *has_ended,
        }
    }

    /// The body is to end behind the present chunk, of which all was forwarded where it has come whole. Only
    /// a chunked body can end before its time and still be well-formed.
    pub fn end_at_chunk(&mut self) {
        if let Remaining::Chunks(chunks) = &mut self.0 {
            chunks.ends_at_chunk = true;
            chunks.end_if_due();
        }
    }

    /// Whether the body was ended before its sender did, so that its last chunk is still to be written.
    pub fn is_ended_early(&self) -> bool {
        matches!(&self.0, Remaining::Chunks(chunks) if chunks.is_ended_early)
    }

    /// Follows the next piece, and moves what is to be forwarded of it to its front: chunk extensions
    /// and trailers are dropped. Stops after `framing_max` bytes that are not data.
    pub fn filter(&mut self, bytes: &mut [u8], framing_max: usize) -> Result<Filtered, Malformed> {
        if let Remaining::Chunks(chunks) = &mut self.0 {
            return chunks.filter(bytes, framing_max);
        }
        let used = self.measure(bytes)?;
        Ok(Filtered {
            used,
            kept: used,
            framing: 0,
        })
    }

    /// Follows the next piece without changing it; returns how many of its bytes belong to the body.
    pub fn measure(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        match &mut self.0 {
            Remaining::Bytes(left) => Ok(advance(left, bytes.len())),
            Remaining::Chunks(chunks) => chunks.measure(bytes),
            Remaining::All { .. } => Ok(bytes.len()),
        }
    }

    /// Follows the next piece and appends what it holds of the body itself, without any framing; returns how many
    /// of its bytes belong to the body.
    pub fn decode(&mut self, bytes: &[u8], into: &mut BytesMut) -> Result<usize, Malformed> {
        if let Remaining::Chunks(chunks) = &mut self.0 {
            return chunks.decode(bytes, into);
        }
        let used = self.measure(bytes)?;
        into.extend_from_slice(&bytes[..used]);
        Ok(used)
    }

    /// The connection has ended; an error unless the body had.
    pub fn end_of_stream(&mut self) -> Result<(), Malformed> {
        if let Remaining::All { has_ended } = &mut self.0 {
            *has_ended = true;
        }
        if self.is_done() {
            Ok(())
        } else {
            Err(Malformed::Cut)
        }
    }
}

/// The state of the chunked coding.
#[derive(Debug, Default)]
struct Chunks {
    expects: Expects,
    /// The size of the chunk as far as its digits were read, then its bytes still to come.
    left: u64,
    digits: u32,
    dropped: u64,
    /// The next end of a chunk is the end of the body.
    ends_at_chunk: bool,
    is_ended_early: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Expects {
    #[default]
    Size,
    /// White space behind the size, which RFC 9112 7.1.1 asks recipients to accept.
    Space,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The first byte of a trailer field, or of the empty line behind the last one.
    TrailerStart,
    Trailer,
    TrailerLf,
    LastLf,
    Nothing,
}

/// Subtracts `count` from `left`, at most down to 0; returns how much it subtracted.
fn advance(left: &mut u64, count: usize) -> usize {
    let taken = usize::try_from(*left).map_or(count, |left| left.min(count));
    *left -= taken as u64;
    taken
}

impl Chunks {
    /// Ends the body where it is wanted, and no chunk has begun.
    fn end_if_due(&mut self) {
        if self.ends_at_chunk && self.expects == Expects::Size && self.digits == 0 {
            self.expects = Expects::Nothing;
            self.is_ended_early = true;
        }
    }

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

    fn decode(&mut self, bytes: &[u8], into: &mut BytesMut) -> Result<usize, Malformed> {
        let mut used = 0;
        while used < bytes.len() && self.expects != Expects::Nothing {
            if self.expects == Expects::Data {
                let count = self.data(bytes.len() - used);
                into.extend_from_slice(&bytes[used..used + count]);
                used += count;
            } else {
                self.step(bytes[used])?;
                used += 1;
            }
        }
        Ok(used)
    }

    /// Follows `count` bytes; returns how many of them are data of this chunk.
    fn data(&mut self, count: usize) -> usize {
        let taken = advance(&mut self.left, count);
        if self.left == 0 {
            self.expects = Expects::DataCr;
        }
        taken
    }

    fn filter(&mut self, bytes: &mut [u8], framing_max: usize) -> Result<Filtered, Malformed> {
        let (mut used, mut kept, mut framing) = (0, 0, 0);
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
            if framing == framing_max {
                break;
            }
            let byte = bytes[used];
            used += 1;
            framing += 1;
            if self.step(byte)? {
                bytes[kept] = byte;
                kept += 1;
            }
            self.end_if_due();
        }
        Ok(Filtered {
            used,
            kept,
            framing,
        })
    }

    /// Follows a byte that is not data; returns whether it is forwarded.
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

#[cfg(test)]
mod tests;
