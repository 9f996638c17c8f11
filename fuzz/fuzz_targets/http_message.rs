//! HTTP messages that are forwarded: whatever bytes come, in whatever pieces, are refused, or parsed as
//! another parser does, and what is forwarded of a body means the same as what came.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proxy::body::{BodyFraming, Length};
use proxy::message::{HeadParser, Malformed, head_end, peek_target};

/// A head as another parser finds it, line by line: its length, its first line and its headers.
fn lines(bytes: &[u8]) -> Option<(usize, Vec<u8>, Vec<(String, Vec<u8>)>)> {
    let mut at = 0;
    let mut line = || {
        let rest = &bytes[at..];
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        at += end + 1;
        Some((rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]), at))
    };
    let first = loop {
        let (line, _) = line()?;
        if !line.is_empty() {
            break line.to_vec();
        }
    };
    let mut headers = Vec::new();
    loop {
        let (line, end) = line()?;
        if line.is_empty() {
            return Some((end, first, headers));
        }
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = String::from_utf8(line[..colon].to_vec()).ok()?;
        headers.push((name, line[colon + 1..].trim_ascii().to_vec()));
    }
}

fn head(bytes: &[u8]) {
    let mut parser = HeadParser::default();
    for is_request in [true, false] {
        let mut parse = |bytes: &[u8]| match is_request {
            true => parser.parse_request(bytes),
            false => parser.parse_response(bytes),
        };
        if parse(bytes) != Ok(true) {
            continue;
        }
        let (len, first, headers) = lines(bytes).expect("a head for others too");
        for from in [0, len / 2, len - 1] {
            assert_eq!(head_end(bytes, from), Some(len));
        }
        assert_eq!(parse(&bytes[..len - 1]), Ok(false));
        assert_eq!(parse(&bytes[..len]), Ok(true));
        let message = parser.head(bytes);
        assert_eq!(message.byte_len(), len);
        let seen = message.headers().map(|(k, v)| (k.to_owned(), v.to_vec()));
        assert_eq!(seen.collect::<Vec<_>>(), headers);
        if is_request {
            let version = if message.is_1_1() { "1.1" } else { "1.0" };
            let line = format!("{} {} HTTP/{version}", message.method(), message.target());
            assert_eq!(line.as_bytes(), first);
            assert_eq!(peek_target(bytes), Some(message.target()));
        } else {
            assert!((100..1000).contains(&message.status()));
        }
        let has = |name: &str| headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
        match message.request_length() {
            Ok(Length::Exactly(0)) => assert!(!has("transfer-encoding")),
            Ok(Length::Exactly(_)) => assert!(has("content-length") && !has("transfer-encoding")),
            Ok(Length::Chunked) => assert!(has("transfer-encoding") && !has("content-length")),
            Ok(Length::UntilClosed) => panic!("no request is"),
            Err(_) => assert!(has("transfer-encoding") || has("content-length")),
        }
    }
}

/// Filters a body in pieces: what is forwarded, how much was used, and whether that was all.
fn filter(bytes: &[u8], piece: usize) -> Result<(Vec<u8>, usize, bool), Malformed> {
    let mut body = BodyFraming::new(Length::Chunked);
    let (mut passed, mut used) = (Vec::new(), 0);
    while used < bytes.len() && !body.is_done() {
        let mut piece = bytes[used..bytes.len().min(used + piece)].to_vec();
        let step = body.filter(&mut piece, usize::MAX)?;
        assert!(step.kept <= step.used && step.used > 0);
        passed.extend_from_slice(&piece[..step.kept]);
        used += step.used;
    }
    Ok((passed, used, body.is_done()))
}

/// The data in chunks, and where they end, as somebody else reads them.
fn data(bytes: &[u8]) -> (Vec<u8>, Option<usize>) {
    let (mut data, mut at) = (Vec::new(), 0);
    loop {
        let size = httparse::parse_chunk_size(&bytes[at..]).expect("a size for others too");
        let httparse::Status::Complete((line, size)) = size else {
            return (data, None);
        };
        at += line;
        if size == 0 {
            break;
        }
        let rest = &bytes[at..];
        let count = usize::try_from(size).map_or(rest.len(), |size| size.min(rest.len()));
        data.extend_from_slice(&rest[..count]);
        at += count + 2;
        if at > bytes.len() {
            return (data, None);
        }
        assert_eq!(&bytes[at - 2..at], b"\r\n");
    }
    // Trailers, up to the empty line.
    loop {
        let rest = &bytes[at..];
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
            return (data, None);
        };
        at += end + 2;
        if end == 0 {
            return (data, Some(at));
        }
    }
}

fn chunks(bytes: &[u8], piece: usize) {
    let at_once = filter(bytes, usize::MAX);
    assert_eq!(at_once, filter(bytes, piece));
    let mut body = BodyFraming::new(Length::Chunked);
    let measured = body.measure(bytes);
    let Ok((passed, used, is_done)) = at_once else {
        assert_eq!(measured, Err(Malformed::Chunk));
        return;
    };
    assert_eq!((measured, body.is_done()), (Ok(used), is_done));
    let (came, end) = data(&bytes[..used]);
    assert_eq!(end, is_done.then_some(used));
    assert_eq!(data(&passed), (came, is_done.then_some(passed.len())));
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    head(bytes);
    chunks(bytes, usize::from(piece) + 1);
});
