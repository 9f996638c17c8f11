//! Tests of both framings against each other and against the ways published clients cut lines.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::error::{ErrorBody, ErrorCode};
use crate::exec::event::{Event, EventKind, ExecutionError};

/// Whatever ends a line for `str.splitlines` of Python, which one client uses.
const LINE_ENDS: &[char] = &[
    '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}',
];

fn encoded(framing: Framing, event: &Event) -> String {
    let mut out = Vec::new();
    Encoder::new(framing).event(&mut out, event);
    String::from_utf8(out).unwrap()
}

fn decode_all(pieces: &[&[u8]], limit: usize) -> Result<Vec<StreamItem>, DecodeError> {
    let mut decoder = Decoder::new(limit);
    let mut items = Vec::new();
    for piece in pieces {
        let mut input = *piece;
        while let Some(frame) = decoder.next(&mut input)? {
            items.push(frame.item()?);
        }
        assert!(
            input.is_empty(),
            "a decoder that wants more has taken everything"
        );
    }
    if let Some(frame) = decoder.finish()? {
        items.push(frame.item()?);
    }
    Ok(items)
}

#[test]
fn an_event_is_one_line_in_both_framings() {
    let event = Event::with_text(EventKind::Stdout, 7, "a\"\\\n\u{2028}é");
    let line = r#"{"type":"stdout","text":"a\"\\\n\u2028é","timestamp":7}"#;
    assert_eq!(encoded(Framing::Bare, &event), format!("{line}\n\n"));
    assert_eq!(encoded(Framing::Data, &event), format!("data: {line}\n\n"));
}

#[test]
fn a_failure_after_the_beginning_is_told_from_an_event() {
    let mut out = Vec::new();
    let encoder = Encoder::new(Framing::Bare);
    encoder.text(&mut out, EventKind::Init, "abc", 1, Some(1));
    let failure = ErrorBody::new(ErrorCode::RuntimeError, "the context is busy");
    encoder.json(&mut out, &failure);
    let items = decode_all(&[&out], EVENT_BYTES_MAX).unwrap();
    let mut init = Event::with_text(EventKind::Init, 1, "abc");
    init.seq = Some(1);
    assert_eq!(
        items,
        [StreamItem::Event(init), StreamItem::Failure(failure)]
    );
}

#[test]
fn server_sent_events_of_others_are_read() {
    let stream = "\u{feff}: hello\r\nretry: 10\r\nid: 4\r\nevent: state\r\ndata: {\"a\":\r\n\
                  data:  1}\r\n\r\nevent: lost\n\ndata:[2]\n";
    let mut decoder = Decoder::new(64);
    let mut input = stream.as_bytes();
    let frame = decoder.next(&mut input).unwrap().unwrap();
    assert_eq!((frame.id, frame.name), (Some("4"), Some("state")));
    assert_eq!(frame.json::<Value>().unwrap(), serde_json::json!({"a": 1}));
    assert_eq!(decoder.next(&mut input).unwrap(), None);
    let frame = decoder.finish().unwrap().unwrap();
    assert_eq!(
        (frame.data, frame.id, frame.name),
        (&b"[2]"[..], Some("4"), None)
    );
    assert_eq!(decoder.finish().unwrap(), None);
}

#[test]
fn lines_that_end_once_are_events_too() {
    let items = decode_all(&[b"{\"type\":\"ping\"}\n{\"type\":\"ping\"}"], 64).unwrap();
    assert_eq!(items.len(), 2);
}

#[test]
fn what_is_no_stream_is_an_error() {
    let not = decode_all(&[b"<html>502 Bad Gateway</html>\n"], 64).unwrap_err();
    assert!(matches!(not, DecodeError::NotAnEvent { .. }), "{not}");
    let long = decode_all(&[&[b'x'; 65]], 64).unwrap_err();
    assert_eq!(long, DecodeError::TooLong { limit: 64 });
    let many = "data: 12345678\n".repeat(9);
    let long = decode_all(&[many.as_bytes()], 64).unwrap_err();
    assert_eq!(long, DecodeError::TooLong { limit: 64 });
    let deep = format!("{}\n", "[".repeat(10_000));
    let malformed = decode_all(&[deep.as_bytes()], EVENT_BYTES_MAX).unwrap_err();
    assert!(
        matches!(malformed, DecodeError::Malformed { .. }),
        "{malformed}"
    );
}

fn split(mode: LineMode, pieces: &[&[u8]]) -> Vec<String> {
    let mut splitter = LineSplitter::new(mode);
    let mut texts = Vec::new();
    for piece in pieces {
        splitter.push(piece, |text| texts.push(text.to_owned()));
    }
    splitter.finish(|text| texts.push(text.to_owned()));
    texts
}

#[test]
fn older_clients_get_lines_without_their_ends() {
    assert_eq!(
        split(LineMode::Strip, &[b"a\n\nb\n\n\nc\n"]),
        ["a", "\n", "b", "\n", "\n", "c"]
    );
    assert_eq!(split(LineMode::Strip, &[b"a\r\nb\rc"]), ["a", "b", "c"]);
    assert_eq!(
        split(LineMode::Strip, &[b"a\r", b"\nb\r\n\r\n"]),
        ["a", "b", "\n"]
    );
}

#[test]
fn newer_clients_get_every_byte() {
    assert_eq!(split(LineMode::Keep, &[b"a\r\n\nb"]), ["a\r\n", "\n", "b"]);
    assert_eq!(split(LineMode::Keep, &[b"\xE2\x82", b"\xAC\n"]), ["€\n"]);
    assert_eq!(split(LineMode::Keep, &[b"\xFFx\n"]), ["\u{fffd}x\n"]);
}

#[test]
fn a_partial_line_is_given_out_without_half_a_character() {
    let mut splitter = LineSplitter::new(LineMode::Keep);
    let mut texts = Vec::new();
    splitter.push(b"50% \xF0\x9F\x98", |text| texts.push(text.to_owned()));
    splitter.flush(|text| texts.push(text.to_owned()));
    assert!(splitter.has_partial());
    splitter.push(b"\x80\n", |text| texts.push(text.to_owned()));
    assert_eq!(texts, ["50% ", "😀\n"]);
}

#[test]
fn a_line_longer_than_an_event_is_cut_and_its_end_is_not_a_line() {
    let long = vec![b'x'; TEXT_BYTES_MAX];
    assert_eq!(split(LineMode::Strip, &[&long, b"\ny\n"]).len(), 2);
    assert_eq!(
        split(LineMode::Keep, &[&long, b"\n"]).concat().len(),
        TEXT_BYTES_MAX + 1
    );
}

prop_compose! {
    fn any_event()(
        kind in prop::sample::select(EventKind::KNOWN),
        text in any::<Option<String>>(),
        line_end in prop::sample::select(LINE_ENDS),
        execution_count in any::<Option<u64>>(),
        execution_time in any::<Option<u64>>(),
        timestamp in any::<i64>(),
        results in any::<Option<std::collections::BTreeMap<String, String>>>(),
        error in any::<Option<(String, String, Vec<String>)>>(),
        seq in any::<Option<u64>>(),
    ) -> Event {
        let error =
            error.map(|(ename, evalue, traceback)| ExecutionError { ename, evalue, traceback });
        let text = text.map(|text| format!("{text}{line_end}"));
        Event { kind, text, execution_count, execution_time, timestamp, results, error, seq }
    }
}

proptest! {
    #[test]
    fn every_event_survives_both_framings_in_any_pieces(
        events in prop::collection::vec(any_event(), 0..5),
        is_data in any::<bool>(),
        cut in 1_usize..64,
    ) {
        let framing = if is_data { Framing::Data } else { Framing::Bare };
        let stream: String = events.iter().map(|event| encoded(framing, event)).collect();
        let pieces: Vec<&[u8]> = stream.as_bytes().chunks(cut).collect();
        let items = decode_all(&pieces, EVENT_BYTES_MAX).unwrap();
        let wanted: Vec<_> = events.into_iter().map(StreamItem::Event).collect();
        prop_assert_eq!(items, wanted);
    }

    #[test]
    fn an_event_never_holds_a_line_end(event in any_event()) {
        let line = encoded(Framing::Bare, &event);
        prop_assert!(!line.strip_suffix("\n\n").unwrap().contains(LINE_ENDS));
    }

    #[test]
    fn text_events_are_written_as_any_other(
        kind in prop::sample::select(EventKind::KNOWN),
        text in any::<String>(),
        timestamp in any::<i64>(),
        seq in any::<Option<u64>>(),
    ) {
        let mut fast = Vec::new();
        Encoder::default().text(&mut fast, kind, &text, timestamp, seq);
        let event = Event { seq, ..Event::with_text(kind, timestamp, text) };
        prop_assert_eq!(String::from_utf8(fast).unwrap(), encoded(Framing::Bare, &event));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        cut in 1_usize..64,
    ) {
        let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
        let _ = decode_all(&pieces, 128);
    }

    #[test]
    fn kept_lines_put_together_are_the_output(
        output in any::<Vec<u8>>(),
        cut in 1_usize..64,
        flush in any::<bool>(),
    ) {
        let mut splitter = LineSplitter::new(LineMode::Keep);
        let mut text = String::new();
        for piece in output.chunks(cut) {
            splitter.push(piece, |line| text.push_str(line));
            if flush {
                splitter.flush(|line| text.push_str(line));
            }
        }
        splitter.finish(|line| text.push_str(line));
        prop_assert_eq!(text, String::from_utf8_lossy(&output));
    }

    #[test]
    fn stripped_lines_do_not_depend_on_the_pieces(
        output in "[a\n\ré]{0,40}",
        cut in 1_usize..8,
    ) {
        let pieces: Vec<&[u8]> = output.as_bytes().chunks(cut).collect();
        prop_assert_eq!(
            split(LineMode::Strip, &pieces),
            split(LineMode::Strip, &[output.as_bytes()])
        );
    }
}
