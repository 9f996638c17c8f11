//! Heads, lengths and chunks: what is read, and what is refused because it could be read twice.

use proptest::prelude::*;

use super::*;

fn request(text: &str) -> Result<Length, Malformed> {
    let mut head = Head::default();
    assert!(head.read_request(text.as_bytes())?, "{text}");
    head.of(text.as_bytes()).request_length()
}

fn answer(text: &str, is_for_head: bool) -> Result<Length, Malformed> {
    let mut head = Head::default();
    assert!(head.read_answer(text.as_bytes())?, "{text}");
    head.of(text.as_bytes()).answer_length(is_for_head)
}

#[test]
fn a_head_is_read_where_it_lies() {
    let bytes =
        b"POST /a?b HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nA:  b c \r\n\r\nrest";
    let mut head = Head::default();
    for cut in 0..bytes.len() - 4 {
        assert_eq!(head.read_request(&bytes[..cut]), Ok(false), "{cut}");
    }
    assert_eq!(head.read_request(bytes), Ok(true));
    let message = head.of(bytes);
    assert_eq!(message.head_len(), bytes.len() - 4);
    assert_eq!((message.method(), message.target()), ("POST", "/a?b"));
    assert!(message.is_1_1() && message.keeps_open());
    assert_eq!(message.values("a").collect::<Vec<_>>(), [b"b c"]);
    let options: Vec<_> = message.items("connection").collect();
    assert_eq!(options, ["keep-alive", "Upgrade"]);

    let bytes = b"HTTP/1.0 404 Not Found\r\nServer: x\r\n\r\n";
    assert_eq!(head.read_answer(bytes), Ok(true));
    let message = head.of(bytes);
    assert_eq!((message.status(), message.reason()), (404, "Not Found"));
    assert!(!message.keeps_open());
}

#[test]
fn a_head_ends_where_the_parser_says_and_nowhere_before() {
    for text in [
        "GET / HTTP/1.1\r\na: b\r\n\r\n",
        "GET / HTTP/1.1\na: b\n\n",
        "GET / HTTP/1.1\r\n\r\n",
    ] {
        let bytes = text.as_bytes();
        for from in 0..bytes.len() {
            assert!(may_end(bytes, from), "{text:?} {from}");
        }
        assert!(!may_end(&bytes[..bytes.len() - 1], 0), "{text:?}");
    }
}

#[test]
fn the_length_of_a_request_is_clear_or_it_is_refused() {
    let head = |headers: &str| format!("POST / HTTP/1.1\r\n{headers}\r\n");
    for (headers, length) in [
        ("", Length::Exactly(0)),
        ("Content-Length: 5\r\n", Length::Exactly(5)),
        (
            "Content-Length: 5\r\ncontent-length: 5\r\n",
            Length::Exactly(5),
        ),
        ("Content-Length: 5, 5\r\n", Length::Exactly(5)),
        ("Transfer-Encoding: Chunked\r\n", Length::Chunked),
    ] {
        assert_eq!(request(&head(headers)), Ok(length), "{headers}");
    }
    for headers in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length:\r\n",
        "Content-Length: 5,\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: \u{b}chunked\r\n",
        "Transfer-Encoding:\r\n",
    ] {
        assert!(request(&head(headers)).is_err(), "{headers}");
    }
    assert!(request("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    for text in [
        "POST / HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nA: b\r\n Transfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nA: b\rTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nA: b\0\r\n\r\n",
    ] {
        let mut head = Head::default();
        assert!(head.read_request(text.as_bytes()).is_err(), "{text:?}");
    }
}

#[test]
fn the_length_of_an_answer_follows_from_its_status_and_headers() {
    let head = |status: u16, headers: &str| format!("HTTP/1.1 {status} x\r\n{headers}\r\n");
    let length = "Content-Length: 5\r\n";
    for (status, headers, is_for_head, expected) in [
        (200, length, false, Length::Exactly(5)),
        (200, length, true, Length::Exactly(0)),
        (204, length, false, Length::Exactly(0)),
        (304, length, false, Length::Exactly(0)),
        (101, "", false, Length::Exactly(0)),
        (200, "", false, Length::UntilClosed),
        (
            200,
            "Transfer-Encoding: chunked\r\n",
            false,
            Length::Chunked,
        ),
        (
            200,
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            false,
            Length::Chunked,
        ),
    ] {
        assert_eq!(
            answer(&head(status, headers), is_for_head),
            Ok(expected),
            "{status} {headers}"
        );
    }
    assert!(
        answer(
            &head(200, "Content-Length: 5\r\nContent-Length: 6\r\n"),
            false
        )
        .is_err()
    );
    let mut odd = Head::default();
    assert!(odd.read_answer(b"HTTP/1.1 042 x\r\n\r\n").is_err());
    assert!(
        answer(
            "HTTP/1.0 200 x\r\nTransfer-Encoding: chunked\r\n\r\n",
            false
        )
        .is_err()
    );
}

/// Passes a body in pieces cut at these places.
fn pass(text: &[u8], cuts: &[usize]) -> Result<(Vec<u8>, usize, bool), Malformed> {
    let mut body = Body::new(Length::Chunked);
    let (mut passed, mut used) = (Vec::new(), 0);
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
    ends.push(text.len());
    ends.sort_unstable();
    for end in ends {
        while used < end && !body.is_done() {
            let mut piece = text[used..end].to_vec();
            let step = body.pass(&mut piece)?;
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
        let mut body = Body::new(length);
        body.pass(&mut bytes.as_bytes().to_vec()).unwrap();
        assert_eq!(body.close(), Err(Malformed::Cut));
    }
    let mut body = Body::new(Length::UntilClosed);
    assert!(!body.is_done());
    assert_eq!(body.close(), Ok(()));
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
        let mut head = Head::default();
        for read in [head.read_request(&bytes), head.read_answer(&bytes)] {
            prop_assert!(read != Ok(true) || head.of(&bytes).head_len() <= bytes.len());
        }
    }
}
