//! The frames between execd and a language driver, as `drivers/README.md` specifies them.
//!
//! The driver runs user code, so what it sends is untrusted: a frame over the limit is passed
//! over, not kept, one of an unknown kind is dropped, and one that does not add up ends the driver.

use std::collections::VecDeque;

use crate::limits;

/// What a driver tells execd. The letter is the kind byte of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    Ready,
    Begun,
    Display,
    Clear,
    Result,
    Error,
    Sync,
    Prompt,
    Pong,
    Status,
    Finished,
}

impl Report {
    pub(super) const ALL: [Self; 11] = [
        Self::Ready,
        Self::Begun,
        Self::Display,
        Self::Clear,
        Self::Result,
        Self::Error,
        Self::Sync,
        Self::Prompt,
        Self::Pong,
        Self::Status,
        Self::Finished,
    ];

    pub(super) const fn letter(self) -> u8 {
        match self {
            Self::Ready => b'H',
            Self::Begun => b'B',
            Self::Display => b'D',
            Self::Clear => b'L',
            Self::Result => b'R',
            Self::Error => b'E',
            Self::Sync => b'Q',
            Self::Prompt => b'I',
            Self::Pong => b'P',
            Self::Status => b'S',
            Self::Finished => b'F',
        }
    }

    fn from_letter(letter: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.letter() == letter)
    }
}

/// What execd tells a driver. The letter is the kind byte of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Execute,
    Synced,
    NoInput,
    Ping,
    Cancel,
}

impl Command {
    #[cfg(test)]
    const ALL: [Self; 5] = [
        Self::Execute,
        Self::Synced,
        Self::NoInput,
        Self::Ping,
        Self::Cancel,
    ];

    const fn letter(self) -> u8 {
        match self {
            Self::Execute => b'X',
            Self::Synced => b'K',
            Self::NoInput => b'Z',
            Self::Ping => b'P',
            Self::Cancel => b'C',
        }
    }
}

/// A frame from a driver: what it is, and its fields.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Report,
    pub(super) fields: Vec<Vec<u8>>,
}

/// What arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    Frame(Frame),
    /// A frame over [`limits::RESULT_BYTES`] was passed over.
    TooLarge(usize),
}

/// The bytes do not add up to frames.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the interpreter's driver sent something that is not a frame")]
pub(super) struct MalformedFrame;

/// A frame to a driver, as bytes.
pub(super) fn encode(command: Command, fields: &[&[u8]]) -> Vec<u8> {
    encode_kind(command.letter(), fields)
}

fn encode_kind(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
    let body = 1 + fields.iter().map(|field| 4 + field.len()).sum::<usize>();
    let mut out = Vec::with_capacity(4 + body);
    put_length(&mut out, body);
    out.push(kind);
    for field in fields {
        put_length(&mut out, field.len());
        out.extend_from_slice(field);
    }
    out
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).expect("request bodies are far below 4 GiB");
    out.extend_from_slice(&length.to_be_bytes());
}

/// Puts frames together from pieces of any size.
#[derive(Default)]
pub(super) struct Decoder {
    pending: Vec<u8>,
    /// Bytes of a frame over the limit that are still to come.
    skipping: usize,
    arrived: VecDeque<Decoded>,
}

impl Decoder {
    /// Takes what was read.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), MalformedFrame> {
        let skipped = bytes.len().min(self.skipping);
        self.skipping -= skipped;
        bytes = &bytes[skipped..];
        self.pending.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(length) = length_at(&self.pending, at) {
            let body = at + 4;
            if length > limits::RESULT_BYTES {
                let here = (self.pending.len() - body).min(length);
                self.skipping = length - here;
                self.arrived.push_back(Decoded::TooLarge(length));
                at = body + here;
                continue;
            }
            let Some(bytes) = self.pending.get(body..body + length) else {
                break;
            };
            if let Some(frame) = parse(bytes)? {
                self.arrived.push_back(Decoded::Frame(frame));
            }
            at = body + length;
        }
        self.pending.drain(..at);
        Ok(())
    }

    /// The oldest frame not yet taken.
    pub(super) fn next(&mut self) -> Option<Decoded> {
        self.arrived.pop_front()
    }
}

fn length_at(bytes: &[u8], at: usize) -> Option<usize> {
    let head = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(head.try_into().expect("four bytes")) as usize)
}

/// `None` for a kind that execd does not know: user code may write anything to the channel.
fn parse(body: &[u8]) -> Result<Option<Frame>, MalformedFrame> {
    let (&kind, mut rest) = body.split_first().ok_or(MalformedFrame)?;
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let length = length_at(rest, 0).ok_or(MalformedFrame)?;
        fields.push(rest.get(4..4 + length).ok_or(MalformedFrame)?.to_vec());
        rest = &rest[4 + length..];
    }
    Ok(Report::from_letter(kind).map(|kind| Frame { kind, fields }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(chunks: &[&[u8]]) -> Result<Vec<Decoded>, MalformedFrame> {
        let mut decoder = Decoder::default();
        let mut all = Vec::new();
        for chunk in chunks {
            decoder.push(chunk)?;
            while let Some(arrived) = decoder.next() {
                all.push(arrived);
            }
        }
        Ok(all)
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut(
            frames in prop::collection::vec((0..Report::ALL.len(), prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..4)), 0..5),
            cut in 1usize..40,
        ) {
            let mut bytes = Vec::new();
            for (kind, fields) in &frames {
                let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
                bytes.extend(encode_kind(Report::ALL[*kind].letter(), &fields));
            }
            let chunks: Vec<&[u8]> = bytes.chunks(cut).collect();
            let expected: Vec<Decoded> = frames
                .into_iter()
                .map(|(kind, fields)| Decoded::Frame(Frame { kind: Report::ALL[kind], fields }))
                .collect();
            prop_assert_eq!(decode(&chunks).unwrap(), expected);
        }

        #[test]
        fn anything_else_is_an_error_and_not_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&[&bytes]);
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_passed_over_without_being_kept() {
        let length = limits::RESULT_BYTES + 10;
        let mut decoder = Decoder::default();
        decoder
            .push(&u32::try_from(length).unwrap().to_be_bytes())
            .unwrap();
        let piece = vec![0; 1024 * 1024];
        let mut left = length;
        while left > 0 {
            let size = left.min(piece.len());
            decoder.push(&piece[..size]).unwrap();
            left -= size;
            assert!(decoder.pending.len() < 8, "nothing of it is kept");
        }
        let finished = encode_kind(Report::Finished.letter(), &[b"1"]);
        decoder.push(&finished).unwrap();
        assert_eq!(decoder.next(), Some(Decoded::TooLarge(length)));
        let finished = Frame {
            kind: Report::Finished,
            fields: vec![b"1".to_vec()],
        };
        assert_eq!(decoder.next(), Some(Decoded::Frame(finished)));
    }

    #[test]
    fn an_unknown_kind_is_dropped() {
        assert_eq!(decode(&[&encode_kind(b'?', &[b"x"])]), Ok(Vec::new()));
    }

    /// The rows of the tables of the specification, as (letter, name).
    fn specified(heading: &str) -> Vec<(u8, String)> {
        let text = include_str!("drivers/README.md");
        let section = text.split(heading).nth(1).expect("the section exists");
        let section = section.split("\n## ").next().expect("it has a text");
        section
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| `")?.split('|');
                let letter = cells.next()?.trim().trim_end_matches('`').bytes().next()?;
                Some((letter, cells.next()?.trim().to_owned()))
            })
            .collect()
    }

    #[test]
    fn the_specification_lists_every_kind_and_no_other() {
        let names = |kinds: &[(u8, String)]| {
            kinds
                .iter()
                .map(|(letter, name)| format!("{} {name}", char::from(*letter)))
                .collect::<Vec<_>>()
        };
        let commands = Command::ALL.map(|kind| (kind.letter(), format!("{kind:?}")));
        assert_eq!(names(&specified("## From execd")), names(&commands));
        let reports = Report::ALL.map(|kind| (kind.letter(), format!("{kind:?}")));
        assert_eq!(names(&specified("## To execd")), names(&reports));
    }

    /// Every letter that a driver sends or compares with is of a kind that execd knows.
    #[test]
    fn the_drivers_know_only_kinds_of_the_specification() {
        let python = include_str!("drivers/python.py");
        let node = include_str!("drivers/node.js");
        let after = |text: &str, marks: &[&str]| {
            let mut letters = Vec::new();
            for mark in marks {
                let found = text
                    .split(mark)
                    .skip(1)
                    .filter_map(|rest| rest.bytes().next());
                letters.extend(found);
            }
            letters
        };
        let sent = [
            after(python, &["send(b\""]),
            after(node, &["send('"]),
            // What the shell's printf writes.
            vec![Report::Ready.letter(), Report::Status.letter()],
        ]
        .concat();
        for kind in Report::ALL {
            assert!(sent.contains(&kind.letter()), "no driver sends {kind:?}");
        }
        let is_report = |letter: &u8| Report::from_letter(*letter).is_some();
        assert!(sent.iter().all(is_report), "{sent:?}");
        let taken = [
            after(python, &["kind == b\""]),
            after(node, &["kind === '"]),
        ]
        .concat();
        let is_command = |letter: &u8| Command::ALL.iter().any(|kind| kind.letter() == *letter);
        assert!(
            !taken.is_empty() && taken.iter().all(is_command),
            "{taken:?}"
        );
    }
}
