//! A layer's bytes on their way: uncompressed, bounded, and their errors told apart.

use std::io::{self, Read};
use std::path::Path;

use super::UnpackLimits;
use crate::image::Error;

/// The uncompressed form of a stream, known by its first bytes rather than by what a manifest
/// says: builders get media types wrong.
pub(in crate::image) fn decompress<'a>(
    mut input: impl io::BufRead + 'a,
) -> io::Result<Box<dyn Read + 'a>> {
    let refuse = |name: &str| {
        let message = format!("it is compressed with {name}; gzip, zstd and none are understood");
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    };
    match input.fill_buf()? {
        [0x1f, 0x8b, ..] => Ok(Box::new(flate2::bufread::MultiGzDecoder::new(input))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Box::new(zstd::Decoder::with_buffer(input)?)),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => refuse("xz"),
        [b'B', b'Z', b'h', ..] => refuse("bzip2"),
        _ => Ok(Box::new(input)),
    }
}

/// Ends with [`LimitExceeded`] instead of giving more than its share.
pub(super) struct Bounded<R> {
    pub(super) inner: R,
    pub(super) left: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("the layer is too large")]
struct LimitExceeded;

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or(io::Error::other(LimitExceeded))?;
        Ok(count)
    }
}

/// An error of reading: the machine's own, or the stream's.
pub(super) fn stream_error(what: &str, bounds: &UnpackLimits, error: io::Error) -> Error {
    if error
        .get_ref()
        .is_some_and(|inner| inner.is::<LimitExceeded>())
    {
        return too_large(what, bounds.bytes, "bytes", "layer_bytes");
    }
    if error.raw_os_error().is_some() {
        return Error::io("reading", Path::new(what), error);
    }
    let message = match error.kind() {
        io::ErrorKind::UnexpectedEof => "it ends too early".to_owned(),
        _ => error.to_string(),
    };
    Error::Corrupt {
        what: what.to_owned(),
        message,
    }
}

pub(super) fn too_large(
    what: &str,
    limit: u64,
    unit: &'static str,
    setting: &'static str,
) -> Error {
    Error::TooLarge {
        what: what.to_owned(),
        limit,
        unit,
        setting,
    }
}
