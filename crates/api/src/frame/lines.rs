//! Turns the raw output of a process into the texts of events: one per line, as UTF-8.
//!
//! A code point that arrives in two pieces is held until it is whole; what is not UTF-8 becomes
//! U+FFFD. When to give out a line that has no end yet is the caller's decision: it knows how
//! long nothing came.

use super::TEXT_BYTES_MAX;

/// What becomes of line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LineMode {
    /// Texts keep their line ends, so that putting them together gives the output again.
    #[default]
    Keep,
    /// For clients before 1.0: lines end at `\n`, `\r` or both together, the end is cut off, and
    /// an empty line is the text `"\n"`. A line is given out only when it has ended.
    Strip,
}

/// Cuts one stream of output into texts.
#[derive(Debug)]
pub struct LineSplitter {
    mode: LineMode,
    /// A line without its end, at most [`TEXT_BYTES_MAX`] bytes.
    held: Vec<u8>,
    /// The last line ended with `\r`: a `\n` that comes next belongs to it.
    after_return: bool,
    /// What was last given out had no line end: an end that comes next belongs to it.
    inside_line: bool,
}

impl LineSplitter {
    /// A splitter for one stream of output.
    pub const fn new(mode: LineMode) -> Self {
        Self {
            mode,
            held: Vec::new(),
            after_return: false,
            inside_line: false,
        }
    }

    /// Takes output and gives out every text that is complete.
    pub fn push(&mut self, mut bytes: &[u8], mut give: impl FnMut(&str)) {
        while !bytes.is_empty() {
            let room = TEXT_BYTES_MAX - self.held.len();
            let window = &bytes[..bytes.len().min(room)];
            let Some(end) = self.line_end(window) else {
                self.held.extend_from_slice(window);
                bytes = &bytes[window.len()..];
                if self.held.len() == TEXT_BYTES_MAX {
                    self.give_whole_characters(&mut give);
                }
                continue;
            };
            let (line, rest) = bytes.split_at(end);
            bytes = rest;
            if self.held.is_empty() {
                self.give_line(line, &mut give);
            } else {
                self.held.extend_from_slice(line);
                let held = std::mem::take(&mut self.held);
                self.give_line(&held, &mut give);
                self.held = held;
                self.held.clear();
            }
        }
    }

    /// Whether a line without its end is waiting.
    pub fn has_partial(&self) -> bool {
        !self.held.is_empty()
    }

    /// Gives out a line that has no end yet, but not half a character. Does nothing in
    /// [`LineMode::Strip`], where clients take every text for a whole line.
    pub fn flush(&mut self, mut give: impl FnMut(&str)) {
        if self.mode == LineMode::Keep {
            self.give_whole_characters(&mut give);
        }
    }

    /// Gives out what is left when the output has ended.
    pub fn finish(&mut self, mut give: impl FnMut(&str)) {
        if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            give(&String::from_utf8_lossy(&held));
        }
    }

    /// Where the first line of `bytes` ends, its line end included.
    fn line_end(&self, bytes: &[u8]) -> Option<usize> {
        let found = match self.mode {
            LineMode::Keep => memchr::memchr(b'\n', bytes),
            LineMode::Strip => memchr::memchr2(b'\n', b'\r', bytes),
        };
        found.map(|at| at + 1)
    }

    /// Gives out a line that ends with its line end.
    fn give_line(&mut self, line: &[u8], give: &mut impl FnMut(&str)) {
        if self.mode == LineMode::Keep {
            match std::str::from_utf8(line) {
                Ok(text) => give(text),
                Err(_) => give(&String::from_utf8_lossy(line)),
            }
            return;
        }
        let (content, end) = line.split_at(line.len() - 1);
        let is_rest_of_pair = content.is_empty() && end == b"\n" && self.after_return;
        let ends_given_out_line = content.is_empty() && self.inside_line;
        self.after_return = end == b"\r";
        self.inside_line = false;
        if is_rest_of_pair || ends_given_out_line {
            return;
        }
        match content {
            [] => give("\n"),
            _ => give(&String::from_utf8_lossy(content)),
        }
    }

    /// Gives out what is held, up to the last whole character.
    fn give_whole_characters(&mut self, give: &mut impl FnMut(&str)) {
        let whole = self.held.len() - unfinished_character(&self.held);
        if whole == 0 {
            return;
        }
        give(&String::from_utf8_lossy(&self.held[..whole]));
        self.held.drain(..whole);
        self.inside_line = true;
        self.after_return = false;
    }
}

/// How many bytes at the end begin a character that more bytes could complete.
fn unfinished_character(bytes: &[u8]) -> usize {
    // A character has at most four bytes, so an unfinished one at most three.
    for length in 1..=bytes.len().min(3) {
        let tail = &bytes[bytes.len() - length..];
        let wanted = match tail[0] {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            0x80..=0xBF => continue,
            _ => return 0,
        };
        let is_unfinished = wanted > length
            && matches!(std::str::from_utf8(tail), Err(error) if error.error_len().is_none());
        return if is_unfinished { length } else { 0 };
    }
    0
}
