//! The chunked coding: what passes, what is dropped, and what is refused.

use proptest::prelude::*;

use super::*;

/// Filters a body in pieces cut at these places: what is forwarded, how much of the text was used,
/// and whether that was all.
fn pass(text: &[u8], cuts: &[usize]) -> Result<(Vec<u8>, usize, bool), Malformed> {
    let mut body = BodyFraming::new(Length::Chunked);
    let (mut passed, mut used) = (Vec::new(), 0);
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
    ends.push(text.len());
    ends.sort_unstable();
    for end in ends {
        while used < end && !body.is_done() {
            let mut piece = text[used..end].to_vec();
            let step = body.filter(&mut piece, usize::MAX)?;
            passed.extend_from_slice(&piece[..step.kept]);
            used += step.used;
        }
    }
    Ok((passed, used, body.is_done()))
}

#[test]
fn chunks_pass_without_what_only_some_would_read() {
    for (text, passed) in [
        ("5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        (
            "5;a=\"b\"\r\nhello\r\n0 ;x\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
        ("0\r\nA: b\r\nC: d\r\n\r\n", "0\r\n\r\n"),
        (
            "00A\r\n0123456789\r\n0\r\n\r\n",
            "00A\r\n0123456789\r\n0\r\n\r\n",
        ),
    ] {
        let behind = format!("{text}GET / HTTP/1.1");
        assert_eq!(
            pass(behind.as_bytes(), &[]),
            Ok((passed.as_bytes().to_vec(), text.len(), true)),
            "{text:?}"
        );
    }
    for text in [
        "\r\n",
        "g\r\n",
        "5\nhello\r\n",
        "5\r\nhelloo\r\n",
        "5\r\nhello\n",
        "-5\r\n",
        "0x5\r\n",
        " 5\r\n",
        "5\r\r\n",
        "5 5\r\n",
        "5;\0\r\n",
        "5;\n\r\n",
        "11111111111111111\r\n",
        "0\r\n\n",
        "0\r\nA: b\n\r\n",
        "0\r\nA\0\r\n",
    ] {
        assert_eq!(
            pass(text.as_bytes(), &[]),
            Err(Malformed::Chunk),
            "{text:?}"
        );
    }
    let endless = format!("5;{}", "x".repeat(100_000));
    assert_eq!(pass(endless.as_bytes(), &[]), Err(Malformed::Chunk));
}

#[test]
fn a_body_that_ends_early_is_cut() {
    for (length, bytes) in [(Length::Exactly(5), "abc"), (Length::Chunked, "5\r\nab")] {
        let mut body = BodyFraming::new(length);
        body.filter(&mut bytes.as_bytes().to_vec(), usize::MAX)
            .unwrap();
        assert_eq!(body.end_of_stream(), Err(Malformed::Cut));
    }
    let mut body = BodyFraming::new(Length::UntilClosed);
    assert!(!body.is_done());
    assert_eq!(body.end_of_stream(), Ok(()));
    assert!(body.is_done());
}

proptest! {
    #[test]
    fn however_chunks_are_cut_the_same_passes(
        chunks in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..40), "(;[a-z=\"]{0,8})?"), 0..6),
        trailer in "([A-Z]: [a-z]{0,5}\r\n){0,2}",
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let (mut text, mut plain) = (Vec::new(), Vec::new());
        for (data, extension) in &chunks {
            text.extend_from_slice(format!("{:x}{extension}\r\n", data.len()).as_bytes());
            plain.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
            for out in [&mut text, &mut plain] {
                out.extend_from_slice(data);
                out.extend_from_slice(b"\r\n");
            }
        }
        text.extend_from_slice(format!("0\r\n{trailer}\r\n").as_bytes());
        plain.extend_from_slice(b"0\r\n\r\n");
        let length = text.len();
        text.extend_from_slice(b"5\r\nnext");
        prop_assert_eq!(pass(&text, &cuts), Ok((plain, length, true)));
    }

    #[test]
    fn no_bytes_make_it_panic_or_pass_more_than_came(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cuts in prop::collection::vec(any::<usize>(), 0..6),
    ) {
        if let Ok((passed, used, _)) = pass(&bytes, &cuts) {
            prop_assert!(passed.len() <= used && used <= bytes.len());
        }
    }
}

#[test]
fn a_turn_ends_when_enough_framing_was_seen_and_the_next_goes_on() {
    let mut bytes = b"1\r\na\r\n1;x\r\nb\r\n0\r\n\r\n".to_vec();
    let (mut body, mut out) = (BodyFraming::new(Length::Chunked), Vec::new());
    let mut at = 0;
    while !body.is_done() {
        let step = body.filter(&mut bytes[at..], 3).unwrap();
        assert!(step.framing <= 3 && step.used > 0, "{step:?}");
        out.extend_from_slice(&bytes[at..at + step.kept]);
        at += step.used;
    }
    assert_eq!(out, b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n");
}

#[test]
fn a_body_that_is_ended_early_ends_behind_a_whole_chunk() {
    let text = b"2\r\nab\r\n3;x\r\ncde\r\n0\r\n\r\n";
    let whole = [&b""[..], b"2\r\nab\r\n", b"2\r\nab\r\n3\r\ncde\r\n"];
    for cut in 0..=text.len() {
        let mut body = BodyFraming::new(Length::Chunked);
        let mut passed = Vec::new();
        let mut pass_on = |body: &mut BodyFraming, piece: &[u8]| {
            let mut piece = piece.to_vec();
            let step = body.filter(&mut piece, usize::MAX).unwrap();
            passed.extend_from_slice(&piece[..step.kept]);
        };
        pass_on(&mut body, &text[..cut]);
        body.end_at_chunk();
        pass_on(&mut body, &text[cut..]);
        assert!(body.is_done(), "{cut}");
        if body.is_ended_early() {
            assert!(whole.contains(&&*passed), "{cut}");
        } else {
            // Its own last chunk had begun.
            assert!(passed.ends_with(b"0\r\n\r\n"), "{cut}");
        }
    }
}

#[test]
fn what_is_decoded_has_no_framing() {
    let chunked = b"5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: 1\r\n\r\nnext";
    for step in [1, 2, 7, chunked.len()] {
        let mut framing = BodyFraming::new(Length::Chunked);
        let (mut out, mut used) = (bytes::BytesMut::new(), 0);
        for piece in chunked.chunks(step) {
            used += framing.decode(piece, &mut out).unwrap();
        }
        assert_eq!((&out[..], used), (&b"hello world"[..], chunked.len() - 4));
        assert!(framing.is_done());
    }
    let (mut framing, mut out) = (BodyFraming::new(Length::Exactly(3)), bytes::BytesMut::new());
    assert_eq!(framing.decode(b"abcd", &mut out), Ok(3));
    assert_eq!(&out[..], b"abc");
}
