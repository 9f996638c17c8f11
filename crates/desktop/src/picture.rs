//! Pictures: cut, made smaller, encoded. Knows nothing of X.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::limits::PICTURES_MAX;

/// JPEG's usual middle way between size and looks.
const QUALITY_DEFAULT: u8 = 80;

/// A rectangle of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Region {
    pub(crate) x: u16,
    pub(crate) y: u16,
    pub(crate) width: u16,
    pub(crate) height: u16,
}

/// How a picture is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    #[default]
    Png,
    #[serde(alias = "jpg")]
    Jpeg,
}

impl Format {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
        }
    }
}

/// What a caller wants to see.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScreenshotOptions {
    /// `x,y,width,height` on the screen; all of it when left out.
    pub(crate) region: Option<String>,
    /// The longest edge of the picture; larger ones are made smaller.
    pub(crate) max_edge: Option<u16>,
    #[serde(default)]
    pub(crate) format: Format,
    /// Of a JPEG, 1 to 100.
    pub(crate) quality: Option<u8>,
    /// Whether the mouse pointer is drawn.
    #[serde(default)]
    pub(crate) cursor: bool,
}

impl ScreenshotOptions {
    /// The region on a screen of this size.
    pub(crate) fn region(&self, (width, height): (u16, u16)) -> Result<Region> {
        let Some(text) = &self.region else {
            return Ok(Region {
                x: 0,
                y: 0,
                width,
                height,
            });
        };
        let bad = || {
            Error::Invalid(format!(
                "region is x,y,width,height inside the screen of {width}x{height}, not {text:?}"
            ))
        };
        let numbers: Vec<u16> = text
            .split(',')
            .map(|part| part.trim().parse().map_err(|_| bad()))
            .collect::<Result<_>>()?;
        let [x, y, w, h] = numbers[..] else {
            return Err(bad());
        };
        let fits = |at: u16, length: u16, all: u16| {
            length > 0 && u32::from(at) + u32::from(length) <= u32::from(all)
        };
        if !fits(x, w, width) || !fits(y, h, height) {
            return Err(bad());
        }
        Ok(Region {
            x,
            y,
            width: w,
            height: h,
        })
    }

    /// The size of the picture of a region.
    pub(crate) fn size(&self, region: Region) -> Result<(u16, u16)> {
        let (width, height) = (region.width, region.height);
        let longest = width.max(height);
        match self.max_edge {
            Some(0) => Err(Error::Invalid("max_edge is at least 1".to_owned())),
            Some(max) if max < longest => {
                let scaled = |edge: u16| {
                    let exact = u32::from(edge) * u32::from(max) / u32::from(longest);
                    u16::try_from(exact.max(1)).unwrap_or(edge)
                };
                Ok((scaled(width), scaled(height)))
            }
            _ => Ok((width, height)),
        }
    }

    pub(crate) fn quality(&self) -> Result<u8> {
        match (self.quality, self.format) {
            (None, _) => Ok(QUALITY_DEFAULT),
            (Some(_), Format::Png) => Err(Error::Invalid(
                "quality is for format=jpeg; a PNG loses nothing".to_owned(),
            )),
            (Some(quality @ 1..=100), Format::Jpeg) => Ok(quality),
            (Some(quality), Format::Jpeg) => Err(Error::Invalid(format!(
                "quality is 1 to 100, not {quality}"
            ))),
        }
    }
}

/// Pixels as the X server gives them: blue, green, red, nothing.
#[derive(Debug, Clone)]
pub(crate) struct Pixels {
    pub(crate) width: u16,
    pub(crate) height: u16,
    pub(crate) bgrx: Vec<u8>,
}

/// The mouse pointer's picture: alpha, red, green, blue, already multiplied by alpha.
pub(crate) struct Cursor {
    pub(crate) x: i32,
    pub(crate) y: i32,
    pub(crate) width: u16,
    pub(crate) height: u16,
    pub(crate) argb: Vec<u32>,
}

impl Pixels {
    /// Draws the pointer onto a picture of this region.
    pub(crate) fn draw(&mut self, cursor: &Cursor, region: Region) {
        let width = usize::from(cursor.width).max(1);
        for (row, line) in cursor
            .argb
            .chunks(width)
            .take(usize::from(cursor.height))
            .enumerate()
        {
            let y = cursor.y + row as i32 - i32::from(region.y);
            for (column, &source) in line.iter().enumerate() {
                let x = cursor.x + column as i32 - i32::from(region.x);
                let is_inside = (0..i32::from(self.width)).contains(&x)
                    && (0..i32::from(self.height)).contains(&y);
                if !is_inside {
                    continue;
                }
                let at = (y as usize * usize::from(self.width) + x as usize) * 4;
                let rest = 255 - (source >> 24);
                for (channel, shift) in [0, 8, 16].into_iter().enumerate() {
                    let over = (source >> shift) & 0xff;
                    let under = u32::from(self.bgrx[at + channel]);
                    self.bgrx[at + channel] = (over + under * rest / 255).min(255) as u8;
                }
            }
        }
    }

    /// The same picture with this size: each pixel is the mean of those it stands for.
    pub(crate) fn scaled(&self, width: u16, height: u16) -> Self {
        if (width, height) == (self.width, self.height) {
            return self.clone();
        }
        let (from_width, from_height) = (usize::from(self.width), usize::from(self.height));
        let (to_width, to_height) = (usize::from(width), usize::from(height));
        let mut bgrx = Vec::with_capacity(to_width * to_height * 4);
        // Each target row reads its source rows once, into sums for each column.
        let edges: Vec<usize> = (0..=to_width).map(|x| x * from_width / to_width).collect();
        let mut sums = vec![[0_u32; 3]; to_width];
        for row in 0..to_height {
            let first = row * from_height / to_height;
            let last = ((row + 1) * from_height / to_height).max(first + 1);
            sums.fill([0; 3]);
            for y in first..last {
                let line = &self.bgrx[y * from_width * 4..(y + 1) * from_width * 4];
                for (x, sum) in sums.iter_mut().enumerate() {
                    let end = edges[x + 1].max(edges[x] + 1);
                    for pixel in line[edges[x] * 4..end * 4].chunks_exact(4) {
                        sum[0] += u32::from(pixel[0]);
                        sum[1] += u32::from(pixel[1]);
                        sum[2] += u32::from(pixel[2]);
                    }
                }
            }
            for (x, sum) in sums.iter().enumerate() {
                let columns = edges[x + 1].max(edges[x] + 1) - edges[x];
                let count = (columns * (last - first)) as u32;
                bgrx.extend(sum.map(|channel| (channel / count) as u8));
                bgrx.push(0);
            }
        }
        Self {
            width,
            height,
            bgrx,
        }
    }

    pub(crate) fn encode(&self, format: Format, quality: u8) -> Result<Vec<u8>> {
        match format {
            Format::Png => self.png(),
            Format::Jpeg => self.jpeg(quality),
        }
    }

    fn png(&self) -> Result<Vec<u8>> {
        let failed = |e: png::EncodingError| Error::Failed(format!("encoding a PNG: {e}"));
        let mut rgb = vec![0; usize::from(self.width) * usize::from(self.height) * 3];
        for (to, from) in rgb.chunks_exact_mut(3).zip(self.bgrx.chunks_exact(4)) {
            to.copy_from_slice(&[from[2], from[1], from[0]]);
        }
        let mut out = Vec::with_capacity(rgb.len() / 8);
        let (width, height) = (u32::from(self.width), u32::from(self.height));
        let mut encoder = png::Encoder::new(&mut out, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        // A model waits for the picture; twice the bytes on a local wire cost less than the time.
        encoder.set_compression(png::Compression::Fastest);
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(&rgb).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(out)
    }

    fn jpeg(&self, quality: u8) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        jpeg_encoder::Encoder::new(&mut out, quality)
            .encode(
                &self.bgrx,
                self.width,
                self.height,
                jpeg_encoder::ColorType::Bgra,
            )
            .map_err(|e| Error::Failed(format!("encoding a JPEG: {e}")))?;
        Ok(out)
    }
}

/// Where the coordinates of a picture lie on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Frame {
    /// The number under which actions may name this picture. 0 is the screen itself.
    pub(crate) id: u64,
    pub(crate) width: u16,
    pub(crate) height: u16,
    pub(crate) region: Region,
}

impl Frame {
    /// The point of the screen in the middle of what a pixel of the picture shows.
    pub(crate) fn on_screen(&self, x: i32, y: i32) -> Result<(i16, i16)> {
        let map = |name: &str, at: i32, length: u16, start: u16, real: u16| {
            if !(0..i32::from(length)).contains(&at) {
                let of = if self.id == 0 {
                    "the screen".to_owned()
                } else {
                    format!("picture {}", self.id)
                };
                return Err(Error::Invalid(format!(
                    "{name}={at} is outside {of}, which is {}x{}",
                    self.width, self.height
                )));
            }
            let real = (i64::from(at) * 2 + 1) * i64::from(real) / (i64::from(length) * 2);
            i16::try_from(i64::from(start) + real)
                .map_err(|_| Error::Invalid(format!("{name}={at} is too far out")))
        };
        let region = self.region;
        Ok((
            map("x", x, self.width, region.x, region.width)?,
            map("y", y, self.height, region.y, region.height)?,
        ))
    }
}

/// The coordinates of the last pictures that were answered.
#[derive(Default)]
pub(crate) struct Frames {
    kept: Mutex<(u64, VecDeque<Frame>)>,
}

impl Frames {
    /// Remembers a picture and gives it its number.
    pub(crate) fn keep(&self, region: Region, (width, height): (u16, u16)) -> Frame {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0 += 1;
        let frame = Frame {
            id: kept.0,
            width,
            height,
            region,
        };
        if kept.1.len() == PICTURES_MAX {
            kept.1.pop_front();
        }
        kept.1.push_back(frame);
        frame
    }

    /// The picture with this number, the last one without, the screen for 0 or when there is none.
    pub(crate) fn find(&self, id: Option<u64>, (width, height): (u16, u16)) -> Result<Frame> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let region = Region {
            x: 0,
            y: 0,
            width,
            height,
        };
        let screen = Frame {
            id: 0,
            width,
            height,
            region,
        };
        match id {
            Some(0) => Ok(screen),
            Some(id) => kept.1.iter().find(|frame| frame.id == id).copied().ok_or_else(|| {
                Error::NotFound(format!(
                    "picture {id} is not among the last {PICTURES_MAX}; take another, or use 0 for coordinates of the screen"
                ))
            }),
            None => Ok(kept.1.back().copied().unwrap_or(screen)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> ScreenshotOptions {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_region_must_lie_on_the_screen() {
        let screen = (100, 50);
        let good = options(r#"{"region": "10, 20, 30, 30"}"#)
            .region(screen)
            .unwrap();
        assert_eq!(
            good,
            Region {
                x: 10,
                y: 20,
                width: 30,
                height: 30
            }
        );
        for bad in [
            "",
            "1,2,3",
            "1,2,3,4,5",
            "0,0,0,1",
            "0,0,101,1",
            "99,0,2,1",
            "-1,0,1,1",
            "0,0,65535,65535",
            "a,b,c,d",
        ] {
            let error = ScreenshotOptions {
                region: Some(bad.to_owned()),
                ..ScreenshotOptions::default()
            }
            .region(screen)
            .unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{bad}: {error}");
        }
    }

    #[test]
    fn the_longest_edge_is_kept() {
        let region = Region {
            x: 0,
            y: 0,
            width: 1280,
            height: 800,
        };
        assert_eq!(
            options(r#"{"max_edge": 640}"#).size(region).unwrap(),
            (640, 400)
        );
        assert_eq!(
            options(r#"{"max_edge": 5000}"#).size(region).unwrap(),
            (1280, 800)
        );
        assert_eq!(options(r#"{"max_edge": 1}"#).size(region).unwrap(), (1, 1));
        assert!(options(r#"{"max_edge": 0}"#).size(region).is_err());
    }

    #[test]
    fn coordinates_of_a_picture_lead_back_to_the_screen() {
        let frames = Frames::default();
        let region = Region {
            x: 100,
            y: 200,
            width: 400,
            height: 300,
        };
        let frame = frames.keep(region, (200, 150));
        assert_eq!(frame.on_screen(0, 0).unwrap(), (101, 201));
        assert_eq!(frame.on_screen(199, 149).unwrap(), (499, 499));
        assert!(frame.on_screen(200, 0).is_err() && frame.on_screen(0, -1).is_err());
        assert_eq!(frames.find(None, (1000, 1000)).unwrap(), frame);
        assert_eq!(
            frames
                .find(Some(0), (1000, 1000))
                .unwrap()
                .on_screen(7, 8)
                .unwrap(),
            (7, 8)
        );
        assert!(matches!(
            frames.find(Some(99), (1, 1)),
            Err(Error::NotFound(_))
        ));
    }

    #[test]
    fn a_smaller_picture_is_the_mean_of_the_larger() {
        let line = [
            [0, 0, 0, 0],
            [100, 200, 50, 0],
            [10, 10, 10, 0],
            [30, 30, 30, 0],
        ];
        let pixels = Pixels {
            width: 4,
            height: 1,
            bgrx: line.concat(),
        };
        assert_eq!(pixels.scaled(2, 1).bgrx, [50, 100, 25, 0, 20, 20, 20, 0]);
    }

    #[test]
    fn a_png_gives_back_every_pixel() {
        let bgrx: Vec<u8> = (0..64 * 32 * 4).map(|at| (at * 7 % 251) as u8).collect();
        let pixels = Pixels {
            width: 64,
            height: 32,
            bgrx,
        };
        let encoded = pixels.encode(Format::Png, 0).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(encoded))
            .read_info()
            .unwrap();
        let mut decoded = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut decoded).unwrap();
        for (seen, was) in decoded.chunks_exact(3).zip(pixels.bgrx.chunks_exact(4)) {
            assert_eq!(seen, [was[2], was[1], was[0]]);
        }
    }
}
