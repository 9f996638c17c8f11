//! The stream decoder: whatever comes, in whatever pieces, is read or refused, and the pieces make
//! no difference.

#![no_main]

use api::frame::{Decoder, StreamItem};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 4096;

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<String>, String> {
    let mut decoder = Decoder::new(LIMIT);
    let mut seen = Vec::new();
    for mut piece in pieces {
        while let Some(frame) = decoder
            .next(&mut piece)
            .map_err(|error| error.to_string())?
        {
            assert!(frame.data.len() <= LIMIT);
            seen.push(String::from_utf8_lossy(frame.data).into_owned());
            match frame.item() {
                Ok(StreamItem::Event(event)) => drop(event),
                Ok(StreamItem::Failure(failure)) => drop(failure),
                Err(error) => assert!(error.to_string().len() < 1024),
            }
        }
    }
    if let Some(frame) = decoder.finish().map_err(|error| error.to_string())? {
        seen.push(String::from_utf8_lossy(frame.data).into_owned());
    }
    Ok(seen)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let in_pieces = decode(bytes.chunks(usize::from(cut) + 1));
    let at_once = decode(std::iter::once(bytes));
    assert_eq!(in_pieces, at_once);
});
