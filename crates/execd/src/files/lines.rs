//! Lines of a text file: from the `offset`-th, at most `limit` of them.
//!
//! Lines are joined with a line feed and none follows the last; a carriage return before a line
//! feed belongs to the line's end. Works on pieces of the file as they are read, so neither a long
//! file nor a long line is ever held whole.

/// Picks the wanted lines out of a stream of bytes.
pub(super) struct Lines {
    /// Lines still to leave out.
    skip: u64,
    /// Lines still to give, the current one included.
    left: u64,
    /// Whether something of the output was given, so that the next line needs a separator.
    begun: bool,
    /// A carriage return that may belong to the line's end, not yet given.
    held_return: bool,
    /// Whether the current wanted line has begun.
    in_line: bool,
}

impl Lines {
    /// `offset` counts from 1; `limit` of `None` is all that follow.
    pub(super) fn new(offset: u64, limit: Option<u64>) -> Self {
        Self {
            skip: offset.saturating_sub(1),
            left: limit.unwrap_or(u64::MAX),
            begun: false,
            held_return: false,
            in_line: false,
        }
    }

    /// Whether nothing more will come out, whatever is fed.
    pub(super) fn done(&self) -> bool {
        self.left == 0
    }

    /// Takes a piece of the file and appends what is wanted of it to `out`.
    pub(super) fn feed(&mut self, mut piece: &[u8], out: &mut Vec<u8>) {
        while self.skip > 0 {
            let Some(at) = memchr::memchr(b'\n', piece) else {
                return;
            };
            piece = &piece[at + 1..];
            self.skip -= 1;
        }
        while !piece.is_empty() && self.left > 0 {
            if !self.in_line {
                self.in_line = true;
                if std::mem::replace(&mut self.begun, true) {
                    out.push(b'\n');
                }
            }
            let end = memchr::memchr(b'\n', piece);
            self.text(&piece[..end.unwrap_or(piece.len())], out);
            let Some(end) = end else { return };
            self.held_return = false;
            self.in_line = false;
            self.left -= 1;
            piece = &piece[end + 1..];
        }
    }

    /// Gives text of the current line. A carriage return at its end is held back: only what follows
    /// tells whether it ends the line; at the end of the file it does.
    fn text(&mut self, text: &[u8], out: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        if std::mem::take(&mut self.held_return) {
            out.push(b'\r');
        }
        let plain = text.strip_suffix(b"\r").unwrap_or(text);
        self.held_return = plain.len() < text.len();
        out.extend_from_slice(plain);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pick(text: &[u8], offset: u64, limit: Option<u64>, size: usize) -> Vec<u8> {
        let mut lines = Lines::new(offset, limit);
        let mut out = Vec::new();
        for piece in text.chunks(size) {
            lines.feed(piece, &mut out);
        }
        out
    }

    /// The same by the plain definition: split, drop the ends, join.
    fn expected(text: &str, offset: u64, limit: Option<u64>) -> String {
        let all: Vec<&str> = text.split('\n').collect();
        // What follows the last line feed is a line only if it is not empty.
        let all = if text.ends_with('\n') || text.is_empty() {
            &all[..all.len() - 1]
        } else {
            &all[..]
        };
        let wanted = all.iter().skip(usize::try_from(offset - 1).unwrap());
        let wanted: Vec<&str> = wanted
            .take(limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap()))
            .map(|line| line.strip_suffix('\r').unwrap_or(line))
            .collect();
        wanted.join("\n")
    }

    #[test]
    fn examples() {
        assert_eq!(pick(b"a\nb\nc\n", 2, Some(1), 100), b"b");
        assert_eq!(pick(b"a\r\nb\r\nc", 1, None, 1), b"a\nb\nc");
        assert_eq!(pick(b"a\n\nb", 1, None, 2), b"a\n\nb");
        assert_eq!(pick(b"a\rb\n", 1, None, 2), b"a\rb");
        assert_eq!(pick(b"a\n", 5, None, 2), b"");
        assert_eq!(pick(b"\n\n", 1, None, 2), b"\n");
    }

    #[test]
    fn says_when_the_rest_need_not_be_read() {
        let mut lines = Lines::new(1, Some(1));
        let mut out = Vec::new();
        lines.feed(b"a", &mut out);
        assert!(!lines.done());
        lines.feed(b"\nb", &mut out);
        assert!(lines.done());
    }

    proptest! {
        #[test]
        fn agrees_with_the_plain_definition(
            text in "[ab\r\n]{0,40}", offset in 1u64..8, limit in prop::option::of(1u64..8), size in 1usize..10,
        ) {
            let got = String::from_utf8(pick(text.as_bytes(), offset, limit, size)).unwrap();
            prop_assert_eq!(got, expected(&text, offset, limit));
        }
    }
}
