//! The frames between execd and a language driver, as laid out at the top of `drivers/python.py`.
//!
//! The driver runs user code, so what it sends is untrusted: a frame over the limit is passed
//! over, not kept, and one that does not add up ends the driver.

use std::collections::VecDeque;

use crate::limits;

/// A frame: what it is, and its fields.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) fields: Vec<Vec<u8>>,
}

/// What arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    Frame(Frame),
    /// A frame over [`limits::RESULT_BYTES`] was passed over.
    TooLarge(usize),
}

/// The bytes do not add up to frames.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the interpreter's driver sent something that is not a frame")]
pub(super) struct Garbled;

/// A frame as bytes.
pub(super) fn encode(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
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
    passing_over: usize,
    arrived: VecDeque<Arrived>,
}

impl Decoder {
    /// Takes what was read.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), Garbled> {
        let skipped = bytes.len().min(self.passing_over);
        self.passing_over -= skipped;
        bytes = &bytes[skipped..];
        self.pending.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(length) = length_at(&self.pending, at) {
            let body = at + 4;
            if length > limits::RESULT_BYTES {
                let here = (self.pending.len() - body).min(length);
                self.passing_over = length - here;
                self.arrived.push_back(Arrived::TooLarge(length));
                at = body + here;
                continue;
            }
            let Some(bytes) = self.pending.get(body..body + length) else {
                break;
            };
            self.arrived.push_back(Arrived::Frame(parse(bytes)?));
            at = body + length;
        }
        self.pending.drain(..at);
        Ok(())
    }

    /// The oldest frame not yet taken.
    pub(super) fn next(&mut self) -> Option<Arrived> {
        self.arrived.pop_front()
    }
}

fn length_at(bytes: &[u8], at: usize) -> Option<usize> {
    let head = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(head.try_into().expect("four bytes")) as usize)
}

fn parse(body: &[u8]) -> Result<Frame, Garbled> {
    let (&kind, mut rest) = body.split_first().ok_or(Garbled)?;
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let length = length_at(rest, 0).ok_or(Garbled)?;
        fields.push(rest.get(4..4 + length).ok_or(Garbled)?.to_vec());
        rest = &rest[4 + length..];
    }
    Ok(Frame { kind, fields })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(chunks: &[&[u8]]) -> Result<Vec<Arrived>, Garbled> {
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
            frames in prop::collection::vec((any::<u8>(), prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..4)), 0..5),
            cut in 1usize..40,
        ) {
            let mut bytes = Vec::new();
            for (kind, fields) in &frames {
                let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
                bytes.extend(encode(*kind, &fields));
            }
            let chunks: Vec<&[u8]> = bytes.chunks(cut).collect();
            let expected: Vec<Arrived> = frames
                .into_iter()
                .map(|(kind, fields)| Arrived::Frame(Frame { kind, fields }))
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
        decoder.push(&encode(b'F', &[b"1"])).unwrap();
        assert_eq!(decoder.next(), Some(Arrived::TooLarge(length)));
        let finished = Frame {
            kind: b'F',
            fields: vec![b"1".to_vec()],
        };
        assert_eq!(decoder.next(), Some(Arrived::Frame(finished)));
    }
}
