//! A multipart/form-data body, taken apart as it arrives.
//!
//! Bytes go in as the connection delivers them and events come out; the content of a part is handed
//! on as slices of what came in, without a copy, except for the few bytes at a seam that might begin
//! a boundary. Does no I/O and knows nothing of files.

use bytes::{Bytes, BytesMut};
use memchr::memmem;

/// The head of one part. Browsers and clients send some 200 bytes; names may be long.
const HEAD_MAX: usize = 16 * 1024;

/// RFC 2046 allows boundaries of at most 70 characters.
const BOUNDARY_MAX: usize = 70;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Error {
    #[error("Content-Type is not multipart/form-data with a boundary")]
    ContentType,
    #[error("the head of a form part is longer than {HEAD_MAX} bytes")]
    HeadTooLong,
    #[error("a form part has no usable Content-Disposition name")]
    NoName,
    #[error("the form does not follow the multipart syntax: {0}")]
    Syntax(&'static str),
    #[error("the form ends before its closing boundary")]
    Truncated,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A part begins.
    Part { name: String },
    /// Some of the content of the part that began last; never empty.
    Data(Bytes),
    /// The part that began last is complete.
    EndOfPart,
    /// The closing boundary was seen; what follows it is ignored.
    EndOfForm,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Before the first boundary; anything here is ignored.
    Preamble,
    /// Right behind a boundary: either `--` (the end) or a line break.
    AfterBoundary,
    Head,
    Content,
    End,
}

pub(super) struct Multipart {
    /// `\r\n--boundary`.
    finder: memmem::Finder<'static>,
    mark: usize,
    state: State,
    /// What has arrived and is not yet handed on.
    pending: Bytes,
    part_open: bool,
}

impl Multipart {
    pub(super) fn new(content_type: &str) -> Result<Self, Error> {
        let boundary = boundary(content_type).ok_or(Error::ContentType)?;
        let needle = format!("\r\n--{boundary}");
        Ok(Self {
            mark: needle.len(),
            finder: memmem::Finder::new(needle.as_bytes()).into_owned(),
            state: State::Preamble,
            // The first boundary may stand at the very beginning, without a line break before it.
            pending: Bytes::from_static(b"\r\n"),
            part_open: false,
        })
    }

    /// Takes bytes in. Call `next` until it gives `None` before feeding more: what is pending then
    /// is short.
    pub(super) fn feed(&mut self, bytes: Bytes) {
        if self.pending.is_empty() {
            self.pending = bytes;
            return;
        }
        let mut joined = BytesMut::with_capacity(self.pending.len() + bytes.len());
        joined.extend_from_slice(&self.pending);
        joined.extend_from_slice(&bytes);
        self.pending = joined.freeze();
    }

    /// The next event, or `None` when more bytes are needed.
    pub(super) fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            match self.state {
                State::Preamble => {
                    let Some(at) = self.finder.find(&self.pending) else {
                        let seam = self.possible_mark();
                        let _ = self.pending.split_to(seam);
                        return Ok(None);
                    };
                    let _ = self.pending.split_to(at + self.mark);
                    self.state = State::AfterBoundary;
                }
                State::AfterBoundary => match self.after_boundary()? {
                    None => return Ok(None),
                    Some(State::End) => {
                        self.state = State::End;
                        return Ok(Some(Event::EndOfForm));
                    }
                    Some(state) => self.state = state,
                },
                State::Head => {
                    let Some(head) = self.head()? else {
                        return Ok(None);
                    };
                    let name = name_of(&head).ok_or(Error::NoName)?;
                    self.state = State::Content;
                    self.part_open = true;
                    return Ok(Some(Event::Part { name }));
                }
                State::Content => return Ok(self.content()),
                State::End => {
                    self.pending = Bytes::new();
                    return Ok(None);
                }
            }
        }
    }

    /// Says whether the body may end here.
    pub(super) fn end(&self) -> Result<(), Error> {
        match self.state {
            State::End => Ok(()),
            // An empty body is an empty form.
            State::Preamble if !self.part_open && self.pending.as_ref() == b"\r\n" => Ok(()),
            _ => Err(Error::Truncated),
        }
    }

    /// Behind a boundary: `--` ends the form; blanks and a line break begin a part.
    fn after_boundary(&mut self) -> Result<Option<State>, Error> {
        let blanks = self
            .pending
            .iter()
            .take_while(|b| **b == b' ' || **b == b'\t')
            .count();
        match self.pending[blanks..] {
            [b'-', b'-', ..] if blanks == 0 => Ok(Some(State::End)),
            [b'\r', b'\n', ..] => {
                // The line break stays: a head without lines is then an empty line like any other.
                let _ = self.pending.split_to(blanks);
                Ok(Some(State::Head))
            }
            [] | [b'-'] | [b'\r'] if blanks < HEAD_MAX => Ok(None),
            _ => Err(Error::Syntax("a boundary is not followed by a line break")),
        }
    }

    /// The lines of a part's head, once they are all here.
    fn head(&mut self) -> Result<Option<Bytes>, Error> {
        match memmem::find(&self.pending, b"\r\n\r\n") {
            Some(at) if at <= HEAD_MAX => {
                let head = self.pending.split_to(at + 4);
                Ok(Some(head))
            }
            None if self.pending.len() <= HEAD_MAX => Ok(None),
            _ => Err(Error::HeadTooLong),
        }
    }

    fn content(&mut self) -> Option<Event> {
        if let Some(at) = self.finder.find(&self.pending) {
            if at > 0 {
                return Some(Event::Data(self.pending.split_to(at)));
            }
            let _ = self.pending.split_to(self.mark);
            self.state = State::AfterBoundary;
            self.part_open = false;
            return Some(Event::EndOfPart);
        }
        let sure = self.possible_mark();
        (sure > 0).then(|| Event::Data(self.pending.split_to(sure)))
    }

    /// Where a boundary might begin that has not arrived whole. There is none before the last
    /// `mark - 1` bytes, and it begins with a carriage return.
    fn possible_mark(&self) -> usize {
        let tail = self.pending.len().saturating_sub(self.mark - 1);
        let needle = self.finder.needle();
        (tail..self.pending.len())
            .find(|&at| needle.starts_with(&self.pending[at..]))
            .unwrap_or(self.pending.len())
    }
}

/// The boundary parameter of a multipart/form-data Content-Type.
fn boundary(content_type: &str) -> Option<String> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let value = parameter(parameters, "boundary")?;
    let fits = !value.is_empty() && value.len() <= BOUNDARY_MAX && !value.contains(['\r', '\n']);
    fits.then_some(value)
}

/// The `name` parameter of the part's Content-Disposition line.
fn name_of(head: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    let line = text.split("\r\n").find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.trim()
            .eq_ignore_ascii_case("content-disposition")
            .then(|| value.to_string())
    })?;
    let (kind, parameters) = line.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("form-data") {
        return None;
    }
    parameter(parameters, "name")
}

/// One of `; key=value; key="quoted \" value"`.
fn parameter(text: &str, wanted: &str) -> Option<String> {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([';', ' ', '\t']);
        let (key, after) = rest.split_once('=')?;
        let (value, left) = parameter_value(after.trim_start());
        if key.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = left;
    }
}

fn parameter_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return (text[..end].trim().to_string(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            // Browsers send backslashes of Windows names unescaped, so only a quote is unescaped.
            '\\' if quoted[at + 1..].starts_with('"') => {
                value.push('"');
                chars.next();
            }
            _ => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=XX";

    /// Feeds `body` in pieces of `size` bytes and returns the parts, each whole.
    fn parts(body: &[u8], size: usize) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let mut form = Multipart::new(TYPE)?;
        let mut parts: Vec<(String, Vec<u8>)> = Vec::new();
        for piece in body.chunks(size.max(1)) {
            form.feed(Bytes::copy_from_slice(piece));
            while let Some(event) = form.next()? {
                match event {
                    Event::Part { name } => parts.push((name, Vec::new())),
                    Event::Data(data) => {
                        assert!(!data.is_empty());
                        parts.last_mut().unwrap().1.extend_from_slice(&data);
                    }
                    Event::EndOfPart | Event::EndOfForm => {}
                }
            }
        }
        form.end().map(|()| parts)
    }

    fn encoded(parts: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut body = Vec::new();
        for (name, content) in parts {
            body.extend_from_slice(
                format!("--XX\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n")
                    .as_bytes(),
            );
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--XX--\r\n");
        body
    }

    #[test]
    fn preamble_blanks_quotes_and_what_follows_the_end() {
        let body = b"ignored\r\n--XX  \r\nX: y\r\nContent-Disposition: form-data; filename=\"a;name=b\"; name=\"q\\\"q\"\r\n\r\nhello\r\n--XX--rest";
        assert_eq!(
            parts(body, 7).unwrap(),
            [("q\"q".to_string(), b"hello".to_vec())]
        );
        assert_eq!(parts(b"--XX--", 1).unwrap(), []);
        assert_eq!(parts(b"", 1).unwrap(), []);
    }

    #[test]
    fn broken_forms_are_named() {
        assert_eq!(parts(b"--XX\r\n\r\nbody\r\n--XX--", 3), Err(Error::NoName));
        assert_eq!(
            parts(
                b"--XX\r\ncontent-disposition: form-data; name=a\r\n\r\nbo",
                3
            ),
            Err(Error::Truncated)
        );
        assert_eq!(parts(b"no form at all", 3), Err(Error::Truncated));
        assert!(matches!(
            parts(b"--XXYY\r\n\r\n", 30),
            Err(Error::Syntax(_))
        ));
        let long = [b"--XX\r\nx: ".as_slice(), &vec![b'y'; HEAD_MAX + 10]].concat();
        assert_eq!(parts(&long, 4096), Err(Error::HeadTooLong));
        for wrong in [
            "",
            "text/plain; boundary=X",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/mixed; boundary=a",
        ] {
            assert_eq!(
                Multipart::new(wrong).err(),
                Some(Error::ContentType),
                "{wrong}"
            );
        }
        assert!(Multipart::new("Multipart/Form-Data; charset=x; Boundary=\"a b\"").is_ok());
    }

    proptest! {
        #[test]
        fn any_parts_survive_any_chunking(
            // The alphabet makes near-boundaries common.
            contents in prop::collection::vec(prop::collection::vec(prop::sample::select(b"\r\n-Xab\0".to_vec()), 0..80), 0..5),
            size in 1usize..40,
        ) {
            let given: Vec<(String, Vec<u8>)> =
                contents.into_iter().enumerate().map(|(i, content)| (format!("p{i}"), content)).collect();
            // Content that holds the boundary itself is not a valid form.
            prop_assume!(given.iter().all(|(_, content)| memmem::find(&[b"\r\n", content.as_slice()].concat(), b"\r\n--XX").is_none()));
            prop_assert_eq!(parts(&encoded(&given), size).unwrap(), given);
        }

        #[test]
        fn any_bytes_are_answered(body in prop::collection::vec(prop::sample::select(b"\r\n-X:;=\"a ".to_vec()), 0..200), size in 1usize..40) {
            let _ = parts(&body, size);
        }
    }
}
