//! The stream encoder: every text is one line for every client, and reads back.

#![no_main]

use api::exec::event::{Event, EventKind};
use api::frame::{Decoder, Encoder, Framing, StreamItem};
use libfuzzer_sys::fuzz_target;

/// Whatever ends a line for `str.splitlines` of Python.
const LINE_ENDS: &[char] = &[
    '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}',
];

fuzz_target!(|input: (&str, i64, Option<u64>, bool)| {
    let (text, timestamp, seq, is_data) = input;
    let encoder = Encoder::new(if is_data {
        Framing::Data
    } else {
        Framing::Bare
    });
    let event = Event {
        seq,
        ..Event::with_text(EventKind::Stdout, timestamp, text)
    };
    let (mut fast, mut slow) = (Vec::new(), Vec::new());
    encoder.text(&mut fast, EventKind::Stdout, text, timestamp, seq);
    encoder.event(&mut slow, &event);
    assert_eq!(fast, slow);
    let line = std::str::from_utf8(&fast).expect("JSON is UTF-8");
    assert!(!line.trim_end_matches('\n').contains(LINE_ENDS));
    let mut decoder = Decoder::new(fast.len());
    let mut rest = fast.as_slice();
    let frame = decoder
        .next(&mut rest)
        .expect("it reads back")
        .expect("it is whole");
    assert_eq!(frame.item(), Ok(StreamItem::Event(event)));
});
