//! Pictures at a terminal that can show them: by the protocol of kitty, that of iTerm2, or sixel.
//!
//! Which one a terminal has is known by its name, or said with `--graphics`: asking it would take
//! its answer from what is typed ahead.

use std::io::{self, IsTerminal as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;

/// kitty takes pieces of at most this; graphics protocol, "Remote client".
const KITTY_PIECE: usize = 4096;

/// A picture of more pixels than a large screen has is not for a terminal; it is saved all the same.
const PIXELS_MAX: usize = 16_000_000;

/// Shades of each colour in the palette of sixel: 6 × 6 × 6 of its 256 registers.
const SHADES: usize = 6;

/// How pictures are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Graphics {
    None,
    Kitty,
    Iterm,
    Sixel,
}

/// What was said about pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// As the terminal's name says.
    Auto,
    /// By the protocol of kitty.
    Kitty,
    /// By the protocol of iTerm2.
    Iterm,
    /// As sixels.
    Sixel,
    /// Not at all.
    None,
}

impl Graphics {
    /// What the terminal can, if results go to one.
    pub(super) fn of(choice: Choice) -> Self {
        match choice {
            _ if !io::stdout().is_terminal() => Self::None,
            Choice::Kitty => Self::Kitty,
            Choice::Iterm => Self::Iterm,
            Choice::Sixel => Self::Sixel,
            Choice::None => Self::None,
            Choice::Auto => {
                let read = |name: &str| std::env::var(name).unwrap_or_default();
                let program = [read("TERM_PROGRAM"), read("LC_TERMINAL")].join(" ");
                by_name(&read("TERM"), &program, &read("KITTY_WINDOW_ID"))
            }
        }
    }

    /// Shows a picture in the form of PNG.
    pub(super) fn show(self, png: &[u8]) -> io::Result<()> {
        let text = match self {
            Self::None => return Ok(()),
            Self::Kitty => kitty(png),
            Self::Iterm => iterm(png),
            // One that cannot be read was saved; nothing is lost.
            Self::Sixel => match sixel(png) {
                Some(text) => text,
                None => return Ok(()),
            },
        };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.write_all(b"\n")?;
        out.flush()
    }
}

fn by_name(term: &str, program: &str, kitty_window: &str) -> Graphics {
    let has = |words: &[&str], text: &str| words.iter().any(|word| text.contains(word));
    if !kitty_window.is_empty() || has(&["kitty", "ghostty"], term) || has(&["ghostty"], program) {
        Graphics::Kitty
    } else if has(&["iTerm", "WezTerm", "vscode"], program) {
        Graphics::Iterm
    } else if has(&["foot", "mlterm", "sixel", "contour", "yaft"], term)
        || has(&["mintty", "contour"], program)
    {
        Graphics::Sixel
    } else {
        Graphics::None
    }
}

fn kitty(png: &[u8]) -> String {
    let data = STANDARD.encode(png);
    let pieces: Vec<&[u8]> = data.as_bytes().chunks(KITTY_PIECE).collect();
    let mut out = String::new();
    for (index, piece) in pieces.iter().enumerate() {
        let more = u8::from(index + 1 < pieces.len());
        let head = if index == 0 { "a=T,f=100," } else { "" };
        let piece = std::str::from_utf8(piece).expect("base64 is ASCII");
        out += &format!("\x1b_G{head}m={more};{piece}\x1b\\");
    }
    out
}

fn iterm(png: &[u8]) -> String {
    let (size, data) = (png.len(), STANDARD.encode(png));
    format!("\x1b]1337;File=inline=1;size={size}:{data}\x07")
}

/// A picture as sixels: bands of six rows, one pass over each for every colour in it.
fn sixel(png: &[u8]) -> Option<String> {
    let (width, height, pixels) = palette_pixels(png)?;
    let mut out = format!("\x1bPq\"1;1;{width};{height}");
    for colour in 0..SHADES.pow(3) {
        let percent = |place: u32| (colour / SHADES.pow(place) % SHADES) * 100 / (SHADES - 1);
        out += &format!("#{colour};2;{};{};{}", percent(2), percent(1), percent(0));
    }
    for top in (0..height).step_by(6) {
        let rows = 6.min(height - top);
        let at = |x: usize, row: usize| pixels[(top + row) * width + x];
        let mut colours: Vec<Option<u8>> = (0..rows)
            .flat_map(|row| (0..width).map(move |x| (x, row)))
            .map(|(x, row)| at(x, row))
            .collect();
        colours.sort_unstable();
        colours.dedup();
        for colour in colours.into_iter().flatten() {
            out += &format!("#{colour}");
            let bits = (0..width).map(|x| {
                (0..rows).fold(0_u8, |bits, row| {
                    bits | u8::from(at(x, row) == Some(colour)) << row
                })
            });
            repeated(&mut out, bits);
            out.push('$');
        }
        out.push('-');
    }
    Some(out + "\x1b\\")
}

/// Sixels, with runs of the same one counted.
fn repeated(out: &mut String, bits: impl Iterator<Item = u8>) {
    let mut run: Option<(u8, usize)> = None;
    let mut flush = |run: Option<(u8, usize)>| {
        if let Some((bits, count)) = run {
            let letter = char::from(63 + bits);
            match count {
                1..=3 => out.extend(std::iter::repeat_n(letter, count)),
                _ => *out += &format!("!{count}{letter}"),
            }
        }
    };
    for bits in bits {
        match &mut run {
            Some((known, count)) if *known == bits => *count += 1,
            _ => flush(run.replace((bits, 1))),
        }
    }
    flush(run);
}

/// Width, height and each pixel as a colour of the palette; nothing where it is transparent.
fn palette_pixels(png: &[u8]) -> Option<(usize, usize, Vec<Option<u8>>)> {
    let mut decoder = png::Decoder::new(io::Cursor::new(png));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().ok()?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    if width.checked_mul(height)? > PIXELS_MAX {
        return None;
    }
    let mut buffer = vec![0; reader.output_buffer_size()?];
    let frame = reader.next_frame(&mut buffer).ok()?;
    let shade = |value: u8| (usize::from(value) * (SHADES - 1) + 127) / 255;
    let colour = |red, green, blue| {
        let index = (shade(red) * SHADES + shade(green)) * SHADES + shade(blue);
        Some(u8::try_from(index).expect("the palette has 216 colours"))
    };
    let size = frame.color_type.samples();
    let pixels = buffer[..frame.buffer_size()].chunks_exact(size);
    let pixel = |pixel: &[u8]| match *pixel {
        [grey] => colour(grey, grey, grey),
        [grey, alpha] if alpha > 127 => colour(grey, grey, grey),
        [red, green, blue] => colour(red, green, blue),
        [red, green, blue, alpha] if alpha > 127 => colour(red, green, blue),
        _ => None,
    };
    Some((width, height, pixels.map(pixel).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn red_square() -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = png::Encoder::new(&mut out, 8, 7);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&[255, 0, 0].repeat(56)).unwrap();
        drop(writer);
        out
    }

    #[test]
    fn terminals_are_known_by_name() {
        assert_eq!(by_name("xterm-kitty", "", ""), Graphics::Kitty);
        assert_eq!(by_name("xterm-256color", "iTerm.app ", ""), Graphics::Iterm);
        assert_eq!(by_name("foot", "", ""), Graphics::Sixel);
        assert_eq!(by_name("xterm-256color", "", ""), Graphics::None);
    }

    #[test]
    fn pictures_are_written_as_the_protocols_say() {
        let png = red_square();
        let written = kitty(&vec![0; KITTY_PIECE]);
        assert!(written.starts_with("\x1b_Ga=T,f=100,m=1;") && written.ends_with("\x1b\\"));
        assert!(written.contains("\x1b_Gm=0;"));
        let size = png.len();
        assert!(iterm(&png).starts_with(&format!("\x1b]1337;File=inline=1;size={size}:")));
        // Two bands: six rows of the one colour (all bits, 126), then one row (one bit, 64).
        let sixels = sixel(&png).unwrap();
        assert!(sixels.starts_with("\x1bPq\"1;1;8;7") && sixels.ends_with("\x1b\\"));
        assert!(sixels.contains("#180;2;100;0;0"), "{sixels}");
        assert!(sixels.ends_with("#180!8~$-#180!8@$-\x1b\\"), "{sixels}");
        assert_eq!(sixel(b"no picture"), None);
    }
}
