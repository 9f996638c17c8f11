//! One line that is being typed: what keys do to it, and how it is drawn.
//!
//! Pure: bytes of a terminal go in, text for a terminal comes out. The keys are those that shells
//! have by default.

use std::collections::VecDeque;

use unicode_width::UnicodeWidthChar as _;

/// What the tab key writes, as Python's own prompt does.
const INDENT: &str = "    ";

/// More is not looked through by anybody who presses a key for each line.
const HISTORY_LINES_MAX: usize = 1000;

/// An escape sequence is never longer; what is, is not one.
const SEQUENCE_BYTES_MAX: usize = 16;

const ESCAPE: u8 = 0x1b;

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Tab,
    Enter,
    Backspace,
    Delete,
    Left,
    Right,
    WordLeft,
    WordRight,
    Home,
    End,
    Up,
    Down,
    /// Removes what is behind the cursor.
    CutEnd,
    /// Removes what is before it.
    CutStart,
    /// Removes the word before it.
    CutWord,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    EndOfInput,
    /// Ctrl-L.
    ClearScreen,
    /// One that does nothing here.
    Other,
}

/// Takes keys out of bytes, of which the last may still be missing.
#[derive(Debug, Default)]
pub(super) struct Keys {
    rest: Vec<u8>,
}

impl Keys {
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.rest.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut at = 0;
        while let Some((key, length)) = first(&self.rest[at..]) {
            keys.push(key);
            at += length;
        }
        self.rest.drain(..at);
        keys
    }
}

/// The first key and its bytes; nothing while it is not whole.
fn first(bytes: &[u8]) -> Option<(Key, usize)> {
    let byte = *bytes.first()?;
    let key = match byte {
        b'\r' | b'\n' => Key::Enter,
        b'\t' => Key::Tab,
        0x7f | 0x08 => Key::Backspace,
        ESCAPE => return sequence(bytes),
        0x01..0x20 => control(byte),
        0x00 => Key::Other,
        _ => return letter(bytes),
    };
    Some((key, 1))
}

fn control(byte: u8) -> Key {
    match byte | 0x60 {
        b'a' => Key::Home,
        b'b' => Key::Left,
        b'c' => Key::Interrupt,
        b'd' => Key::EndOfInput,
        b'e' => Key::End,
        b'f' => Key::Right,
        b'k' => Key::CutEnd,
        b'l' => Key::ClearScreen,
        b'n' => Key::Down,
        b'p' => Key::Up,
        b'u' => Key::CutStart,
        b'w' => Key::CutWord,
        _ => Key::Other,
    }
}

fn letter(bytes: &[u8]) -> Option<(Key, usize)> {
    let length = match bytes[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    let text = bytes.get(..length)?;
    match std::str::from_utf8(text) {
        Ok(text) => text
            .chars()
            .next()
            .map(|letter| (Key::Char(letter), length)),
        Err(_) => Some((Key::Other, 1)),
    }
}

/// What begins with the escape key: arrows and their like.
fn sequence(bytes: &[u8]) -> Option<(Key, usize)> {
    match *bytes.get(1)? {
        b'[' | b'O' => {
            let end = bytes[2..]
                .iter()
                .position(|byte| (0x40..=0x7e).contains(byte));
            let Some(end) = end else {
                let is_over = bytes.len() > SEQUENCE_BYTES_MAX;
                return is_over.then_some((Key::Other, bytes.len()));
            };
            let key = match &bytes[2..=end + 2] {
                b"A" => Key::Up,
                b"B" => Key::Down,
                b"C" => Key::Right,
                b"D" => Key::Left,
                b"H" | b"1~" | b"7~" => Key::Home,
                b"F" | b"4~" | b"8~" => Key::End,
                b"3~" => Key::Delete,
                b"1;5C" | b"1;3C" => Key::WordRight,
                b"1;5D" | b"1;3D" => Key::WordLeft,
                _ => Key::Other,
            };
            Some((key, end + 3))
        }
        b'b' => Some((Key::WordLeft, 2)),
        b'f' => Some((Key::WordRight, 2)),
        _ => Some((Key::Other, 2)),
    }
}

/// The line, the cursor, and the lines before.
#[derive(Debug, Default)]
pub(super) struct Line {
    text: Vec<char>,
    /// So many letters are before the cursor.
    at: usize,
    history: VecDeque<String>,
    /// Which of the history is shown; one past its end is the line itself.
    shown: usize,
    /// The line itself, while an older one is shown.
    own: Vec<char>,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The line, which is then empty and remembered.
    pub(super) fn take(&mut self) -> String {
        let text: String = std::mem::take(&mut self.text).into_iter().collect();
        if !text.trim().is_empty() && self.history.back() != Some(&text) {
            self.history.push_back(text.clone());
            if self.history.len() > HISTORY_LINES_MAX {
                self.history.pop_front();
            }
        }
        self.clear();
        text
    }

    /// Throws the line away.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.own.clear();
        self.at = 0;
        self.shown = self.history.len();
    }

    /// Does what a key does to the line.
    pub(super) fn press(&mut self, key: Key) {
        match key {
            Key::Char(letter) => self.insert(&letter.to_string()),
            Key::Tab => self.insert(INDENT),
            Key::Backspace => self.cut(self.at.saturating_sub(1), self.at),
            Key::Delete | Key::EndOfInput => {
                self.cut(self.at, (self.at + 1).min(self.text.len()));
            }
            Key::Left => self.at = self.at.saturating_sub(1),
            Key::Right => self.at = (self.at + 1).min(self.text.len()),
            Key::WordLeft => self.at = self.word_before(),
            Key::WordRight => self.at = self.word_after(),
            Key::Home => self.at = 0,
            Key::End => self.at = self.text.len(),
            Key::Up => self.show(self.shown.saturating_sub(1)),
            Key::Down => self.show((self.shown + 1).min(self.history.len())),
            Key::CutEnd => self.cut(self.at, self.text.len()),
            Key::CutStart => self.cut(0, self.at),
            Key::CutWord => self.cut(self.word_before(), self.at),
            Key::Enter | Key::Interrupt | Key::ClearScreen | Key::Other => {}
        }
    }

    fn insert(&mut self, text: &str) {
        let count = text.chars().count();
        self.text.splice(self.at..self.at, text.chars());
        self.at += count;
    }

    fn cut(&mut self, from: usize, to: usize) {
        self.text.drain(from..to);
        self.at = from;
    }

    fn word_before(&self) -> usize {
        let mut at = self.at;
        while at > 0 && !self.text[at - 1].is_alphanumeric() {
            at -= 1;
        }
        while at > 0 && self.text[at - 1].is_alphanumeric() {
            at -= 1;
        }
        at
    }

    fn word_after(&self) -> usize {
        let mut at = self.at;
        while at < self.text.len() && !self.text[at].is_alphanumeric() {
            at += 1;
        }
        while at < self.text.len() && self.text[at].is_alphanumeric() {
            at += 1;
        }
        at
    }

    fn show(&mut self, which: usize) {
        if which == self.shown {
            return;
        }
        if self.shown == self.history.len() {
            self.own.clone_from(&self.text);
        }
        self.shown = which;
        self.text = match self.history.get(which) {
            Some(older) => older.chars().collect(),
            None => std::mem::take(&mut self.own),
        };
        self.at = self.text.len();
    }
}

/// What is on the screen of a line.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    /// The cursor is so many rows below the first.
    row: usize,
}

impl Drawn {
    /// What draws the line anew over itself, behind a prompt of so many columns.
    pub(super) fn again(&mut self, line: &Line, prompt: (&str, usize), columns: usize) -> String {
        let (prompt, indent) = prompt;
        let width = |letters: &[char]| -> usize {
            letters
                .iter()
                .map(|letter| letter.width().unwrap_or(0))
                .sum()
        };
        let columns = columns.max(1);
        let (before, all) = (width(&line.text[..line.at]), width(&line.text));
        let (end, cursor) = (indent + all, indent + before);
        let mut out = self.to_start();
        out.push_str("\x1b[J");
        out.push_str(prompt);
        out.extend(&line.text);
        if end.is_multiple_of(columns) && end > 0 {
            // A terminal wraps only when the next letter comes; the cursor is there already.
            out.push_str("\r\n");
        }
        let up = end / columns - cursor / columns;
        if up > 0 {
            out.push_str(&format!("\x1b[{up}A"));
        }
        out.push('\r');
        if cursor % columns > 0 {
            out.push_str(&format!("\x1b[{}C", cursor % columns));
        }
        self.row = cursor / columns;
        out
    }

    /// What puts the cursor where the line begins.
    fn to_start(&self) -> String {
        match self.row {
            0 => "\r".to_owned(),
            rows => format!("\r\x1b[{rows}A"),
        }
    }

    /// From now on another line is drawn, below.
    pub(super) fn leave(&mut self) {
        self.row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(bytes: &[u8]) -> Line {
        let mut line = Line::default();
        let mut keys = Keys::default();
        for key in keys.feed(bytes) {
            match key {
                Key::Enter => drop(line.take()),
                key => line.press(key),
            }
        }
        line
    }

    #[track_caller]
    fn check(bytes: &[u8], text: &str, at: usize) {
        let line = typed(bytes);
        let found: String = line.text.iter().collect();
        assert_eq!((found.as_str(), line.at), (text, at));
    }

    #[test]
    fn keys_change_the_line() {
        check(b"abc", "abc", 3);
        check("aü€😀".as_bytes(), "aü€😀", 4);
        check(b"abc\x1b[D\x1b[DX", "aXbc", 2);
        check(b"abc\x01X\x05Y", "XabcY", 5);
        check(b"abc\x7f\x7f", "a", 1);
        check(b"abc\x1b[H\x1b[3~\x04", "c", 0);
        check(b"one two\x17", "one ", 4);
        check(b"one two\x1b[1;5D\x0b", "one ", 4);
        check(b"one two\x1bb\x15", "two", 0);
        check(b"\tx", "    x", 5);
        check(b"a\x1b[99;99~b\x1bOC", "ab", 2);
        check(b"\x1b[D\x7f\x1b[C\x1b[3~", "", 0);
    }

    #[test]
    fn lines_before_come_back() {
        check(b"one\rtwo\r\x1b[A", "two", 3);
        check(b"one\rtwo\r\x1b[A\x1b[A", "one", 3);
        check(b"one\rtwo\r\x1b[A\x1b[A\x1b[A", "one", 3);
        check(b"one\rhal\x1b[A\x1b[B", "hal", 3);
        check(b"one\rone\r\x1b[A\x1b[A", "one", 3);
        check(b"one\r   \r\x1b[A!", "one!", 4);
    }

    #[test]
    fn a_key_may_come_in_pieces() {
        let mut keys = Keys::default();
        assert_eq!(keys.feed(b"\x1b"), []);
        assert_eq!(keys.feed(b"["), []);
        assert_eq!(keys.feed(b"Ax"), [Key::Up, Key::Char('x')]);
        assert_eq!(keys.feed(&"€".as_bytes()[..2]), []);
        assert_eq!(keys.feed(&"€".as_bytes()[2..]), [Key::Char('€')]);
        assert_eq!(
            keys.feed(b"\xff\xc3("),
            [Key::Other, Key::Other, Key::Char('(')]
        );
        let long = [b"\x1b[".as_slice(), &[b'1'; 40]].concat();
        assert_eq!(keys.feed(&long), [Key::Other]);
    }

    #[test]
    fn a_long_line_is_drawn_over_itself() {
        let mut drawn = Drawn::default();
        let prompt = (">>> ", 4);
        let line = typed(b"abcdef");
        assert_eq!(
            drawn.again(&line, prompt, 80),
            "\r\x1b[J>>> abcdef\r\x1b[10C"
        );
        // Exactly full, then wrapped, with the cursor one row up.
        assert_eq!(drawn.again(&line, prompt, 10), "\r\x1b[J>>> abcdef\r\n\r");
        assert_eq!(drawn.row, 1);
        let line = typed(b"abcdefgh\x01");
        assert_eq!(
            drawn.again(&line, prompt, 10),
            "\r\x1b[1A\x1b[J>>> abcdefgh\x1b[1A\r\x1b[4C"
        );
        assert_eq!(drawn.row, 0);
        // Letters that are two columns wide.
        let line = typed("漢字".as_bytes());
        assert_eq!(drawn.again(&line, prompt, 80), "\r\x1b[J>>> 漢字\r\x1b[8C");
    }
}
