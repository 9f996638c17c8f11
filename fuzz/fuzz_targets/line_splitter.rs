//! The line splitter: no byte of output is lost, however it arrives.

#![no_main]

use api::frame::{LineMode, LineSplitter, TEXT_BYTES_MAX};
use libfuzzer_sys::fuzz_target;

fn split(mode: LineMode, pieces: &[&[u8]], flush: bool) -> Vec<String> {
    let mut splitter = LineSplitter::new(mode);
    let mut texts = Vec::new();
    for piece in pieces {
        splitter.push(piece, |text| texts.push(text.to_owned()));
        if flush {
            splitter.flush(|text| texts.push(text.to_owned()));
        }
    }
    splitter.finish(|text| texts.push(text.to_owned()));
    assert!(texts.iter().all(|text| text.len() <= 3 * TEXT_BYTES_MAX));
    texts
}

fuzz_target!(|input: (u8, bool, &[u8])| {
    let (cut, flush, bytes) = input;
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(cut) + 1).collect();
    let kept = split(LineMode::Keep, &pieces, flush).concat();
    assert_eq!(kept, String::from_utf8_lossy(bytes));
    assert_eq!(
        split(LineMode::Strip, &pieces, flush),
        split(LineMode::Strip, &[bytes], false)
    );
});
