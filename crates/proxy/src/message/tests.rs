//! Heads and lengths: what parses, and what is refused because two parsers could disagree about it.

use proptest::prelude::*;

use super::*;

fn request(text: &str) -> Result<Length, Malformed> {
    let mut head = HeadParser::default();
    assert!(head.parse_request(text.as_bytes())?, "{text}");
    head.head(text.as_bytes()).request_length()
}

fn response(text: &str, is_for_head: bool) -> Result<Length, Malformed> {
    let mut head = HeadParser::default();
    assert!(head.parse_response(text.as_bytes())?, "{text}");
    head.head(text.as_bytes()).response_length(is_for_head)
}

#[test]
fn a_head_is_read_where_it_lies() {
    let bytes =
        b"POST /a?b HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nA:  b c \r\n\r\nrest";
    let mut head = HeadParser::default();
    for cut in 0..bytes.len() - 4 {
        assert_eq!(head.parse_request(&bytes[..cut]), Ok(false), "{cut}");
    }
    assert_eq!(head.parse_request(bytes), Ok(true));
    let message = head.head(bytes);
    assert_eq!(message.byte_len(), bytes.len() - 4);
    assert_eq!((message.method(), message.target()), ("POST", "/a?b"));
    assert!(message.is_1_1() && message.keeps_alive());
    assert_eq!(message.values("a").collect::<Vec<_>>(), [b"b c"]);
    let options: Vec<_> = message.items("connection").collect();
    assert_eq!(options, ["keep-alive", "Upgrade"]);

    let bytes = b"HTTP/1.0 404 Not Found\r\nServer: x\r\n\r\n";
    assert_eq!(head.parse_response(bytes), Ok(true));
    let message = head.head(bytes);
    assert_eq!((message.status(), message.reason()), (404, "Not Found"));
    assert!(!message.keeps_alive());
}

#[test]
fn a_head_ends_where_the_parser_says_and_nowhere_before() {
    let mut parser = HeadParser::default();
    for text in [
        "GET / HTTP/1.1\r\na: b\r\n\r\n",
        "GET / HTTP/1.1\na: b\n\n",
        "GET / HTTP/1.1\r\n\r\n",
        "\r\n\n\r\nGET / HTTP/1.1\r\na: b\n\r\n",
    ] {
        let bytes = text.as_bytes();
        let followed = format!("{text}GET / HTTP/1.1\r\n\r\n");
        for from in 0..bytes.len() {
            let end = head_end(followed.as_bytes(), from);
            assert_eq!(end, Some(bytes.len()), "{text:?} {from}");
        }
        assert_eq!(head_end(&bytes[..bytes.len() - 1], 0), None, "{text:?}");
        assert_eq!(parser.parse_request(followed.as_bytes()), Ok(true));
        assert_eq!(parser.head(followed.as_bytes()).byte_len(), bytes.len());
    }
    assert_eq!(head_end(b"\r\n\r\n\r\n", 0), None);
}

#[test]
fn the_target_is_found_in_the_request_line_alone() {
    for (text, target) in [
        ("GET /a?b HTTP/1.1\r\nx: y z\r\n\r\n", Some("/a?b")),
        ("\r\n\nGET /a HTTP/1.1\r\n\r\n", Some("/a")),
        ("GET  /a HTTP/1.1\r\n\r\n", Some("")),
        ("GET /a\r\n\r\n", Some("/a\r")),
        ("GET /a", None),
        ("\r\n", None),
        ("GET \u{80}", None),
    ] {
        assert_eq!(peek_target(text.as_bytes()), target, "{text:?}");
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
        let mut head = HeadParser::default();
        assert!(head.parse_request(text.as_bytes()).is_err(), "{text:?}");
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
            response(&head(status, headers), is_for_head),
            Ok(expected),
            "{status} {headers}"
        );
    }
    assert!(
        response(
            &head(200, "Content-Length: 5\r\nContent-Length: 6\r\n"),
            false
        )
        .is_err()
    );
    let mut odd = HeadParser::default();
    assert!(odd.parse_response(b"HTTP/1.1 042 x\r\n\r\n").is_err());
    assert!(
        response(
            "HTTP/1.0 200 x\r\nTransfer-Encoding: chunked\r\n\r\n",
            false
        )
        .is_err()
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_find_more_than_came(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut head = HeadParser::default();
        for read in [head.parse_request(&bytes), head.parse_response(&bytes)] {
            prop_assert!(read != Ok(true) || head.head(&bytes).byte_len() <= bytes.len());
        }
        let _ = (head_end(&bytes, 0), peek_target(&bytes));
    }

    #[test]
    fn whatever_parses_has_the_target_and_the_end_that_were_peeked_at(
        empty in "(\r?\n){0,2}",
        method in "[A-Z]{1,7}",
        target in "[!-~]{1,20}",
        headers in "([a-z]{1,5}: [ -~]{0,10}\r?\n){0,3}",
        behind in "[ -~\r\n]{0,20}",
    ) {
        let head = format!("{empty}{method} {target} HTTP/1.1\r\n{headers}\r\n");
        let text = format!("{head}{behind}");
        let mut parser = HeadParser::default();
        if parser.parse_request(text.as_bytes()) == Ok(true) {
            let parsed = parser.head(text.as_bytes());
            prop_assert_eq!(peek_target(text.as_bytes()), Some(parsed.target()));
            prop_assert_eq!(head_end(text.as_bytes(), 0), Some(parsed.byte_len()));
        }
    }
}
