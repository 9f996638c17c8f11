//! A film as a file: JPEG pictures in an AVI container (RIFF, "AVI RIFF File Reference").
//!
//! Every picture stands for the same time. One that equals the one before is a chunk without bytes,
//! which players show as the same picture again, so a still screen costs eight bytes a picture. The
//! head's counts and the index are written when the film ends.

use std::fs::File;
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::Path;

/// Where the counts stand that are known at the end.
const RIFF_SIZE_AT: u64 = 4;
const TOTAL_FRAMES_AT: u64 = 48;
const STREAM_LENGTH_AT: u64 = 140;
const MOVI_SIZE_AT: u64 = 216;
/// Where the pictures begin: the index counts from the word `movi`.
const MOVI_AT: u64 = 220;
const HEADER_BYTES: usize = 224;
/// A picture that can be shown alone.
const KEY_FRAME: u32 = 0x10;
const HAS_INDEX: u32 = 0x10;

/// A film that is being written.
pub(crate) struct Film {
    file: BufWriter<File>,
    /// The place and the length of every picture.
    index: Vec<(u32, u32)>,
    bytes: u64,
}

impl Film {
    pub(crate) fn create(
        path: &Path,
        width: u16,
        height: u16,
        frames_per_second: u8,
    ) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create_new(path)?);
        file.write_all(&header(width, height, frames_per_second))?;
        Ok(Self {
            file,
            index: Vec::new(),
            bytes: HEADER_BYTES as u64,
        })
    }

    /// Adds a picture; an empty one repeats the one before.
    pub(crate) fn add(&mut self, jpeg: &[u8]) -> io::Result<()> {
        let length = u32::try_from(jpeg.len()).map_err(io::Error::other)?;
        let at = u32::try_from(self.bytes - MOVI_AT).map_err(io::Error::other)?;
        self.file.write_all(b"00dc")?;
        self.file.write_all(&length.to_le_bytes())?;
        self.file.write_all(jpeg)?;
        // Chunks begin at even places.
        let padding = jpeg.len() % 2;
        self.file.write_all(&[0][..padding])?;
        self.index.push((at, length));
        self.bytes += 8 + jpeg.len() as u64 + padding as u64;
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn frames(&self) -> usize {
        self.index.len()
    }

    /// Writes the index and the counts.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let movi_end = self.bytes;
        let index_bytes = (self.index.len() * 16) as u32;
        self.file.write_all(b"idx1")?;
        self.file.write_all(&index_bytes.to_le_bytes())?;
        for &(at, length) in &self.index {
            let flags = if length == 0 { 0 } else { KEY_FRAME };
            self.file.write_all(b"00dc")?;
            for word in [flags, at, length] {
                self.file.write_all(&word.to_le_bytes())?;
            }
        }
        let frames = self.index.len() as u32;
        let counts = [
            (
                RIFF_SIZE_AT,
                (movi_end + 8 + u64::from(index_bytes) - 8) as u32,
            ),
            (TOTAL_FRAMES_AT, frames),
            (STREAM_LENGTH_AT, frames),
            (MOVI_SIZE_AT, (movi_end - MOVI_AT) as u32),
        ];
        for (at, count) in counts {
            self.file.seek(SeekFrom::Start(at))?;
            self.file.write_all(&count.to_le_bytes())?;
        }
        self.file.flush()
    }
}

fn header(width: u16, height: u16, frames_per_second: u8) -> Vec<u8> {
    let (width, height) = (u32::from(width), u32::from(height));
    let rate = u32::from(frames_per_second);
    let mut out = Vec::with_capacity(HEADER_BYTES);
    let words = |out: &mut Vec<u8>, words: &[u32]| {
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
    };
    out.extend(b"RIFF\0\0\0\0AVI LIST");
    words(&mut out, &[192]);
    out.extend(b"hdrlavih");
    let per_frame_us = 1_000_000 / rate;
    words(
        &mut out,
        &[
            56,
            per_frame_us,
            0,
            0,
            HAS_INDEX,
            0,
            0,
            1,
            0,
            width,
            height,
            0,
            0,
            0,
            0,
        ],
    );
    out.extend(b"LIST");
    words(&mut out, &[116]);
    out.extend(b"strlstrh");
    words(&mut out, &[56]);
    out.extend(b"vidsMJPG");
    words(&mut out, &[0, 0, 0, 1, rate, 0, 0, 0, u32::MAX, 0]);
    for edge in [0, 0, width as u16, height as u16] {
        out.extend(edge.to_le_bytes());
    }
    out.extend(b"strf");
    words(&mut out, &[40, 40, width, height]);
    // One plane, 24 bits.
    out.extend([1, 0, 24, 0]);
    out.extend(b"MJPG");
    words(&mut out, &[width * height * 3, 0, 0, 0, 0]);
    out.extend(b"LIST\0\0\0\0movi");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: u64) -> u32 {
        let at = at as usize;
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn counts_and_index_lead_to_the_pictures() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("film.avi");
        let mut film = Film::create(&path, 320, 200, 10).unwrap();
        for jpeg in [&b"first"[..], b"", b"last!!"] {
            film.add(jpeg).unwrap();
        }
        assert_eq!(film.frames(), 3);
        film.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(&bytes[MOVI_AT as usize..HEADER_BYTES], b"movi");
        assert_eq!(
            &bytes[MOVI_SIZE_AT as usize - 4..MOVI_SIZE_AT as usize],
            b"LIST"
        );
        assert_eq!(word(&bytes, RIFF_SIZE_AT) as usize, bytes.len() - 8);
        assert_eq!(
            (
                word(&bytes, TOTAL_FRAMES_AT),
                word(&bytes, STREAM_LENGTH_AT)
            ),
            (3, 3)
        );
        let index = MOVI_AT + u64::from(word(&bytes, MOVI_SIZE_AT));
        assert_eq!(&bytes[index as usize..index as usize + 4], b"idx1");
        let last = index + 8 + 2 * 16;
        let at = MOVI_AT + u64::from(word(&bytes, last + 8));
        assert_eq!((word(&bytes, at + 4), word(&bytes, last + 12)), (6, 6));
        assert_eq!(&bytes[at as usize + 8..at as usize + 14], b"last!!");
    }
}
