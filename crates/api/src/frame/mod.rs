//! The framing of event streams.
//!
//! A stream is not quite server-sent events. Published clients read two framings, and no stream
//! may mix them: *bare*, one JSON object and an empty line, and *data*, the same after `data: `.
//! Some clients cut streams into lines wherever Python's `str.splitlines` does, so the encoder
//! escapes every character that ends a line there, and an event is always one line.
//!
//! [`Encoder`] writes both framings, [`Decoder`] reads both and plain server-sent events, and
//! [`LineSplitter`] turns a process's raw output into the texts of events.

mod decode;
mod encode;
mod lines;

pub use decode::{DecodeError, Decoder, Frame, StreamItem};
pub use encode::Encoder;
pub use lines::{LineMode, LineSplitter};

/// How events are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// One JSON object and an empty line: what the published daemon sends.
    #[default]
    Bare,
    /// The same after `data: `, as server-sent events.
    Data,
}

/// The media type of every stream; one published client refuses any other.
pub const CONTENT_TYPE: &str = "text/event-stream";

/// No event we send is longer, so that clients with a fixed line buffer (4 MiB in one of them)
/// can read every stream.
pub const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// At most this many bytes of output go into one event. In the worst case each byte is a control
/// character and takes six (`\u0000`), which stays well under [`EVENT_BYTES_MAX`].
pub const TEXT_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests;
