//! Terminal frames and messages: what is read reads back as the same.

#![no_main]

use api::exec::pty::{ClientFrame, ClientMessage, ServerFrame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = ClientFrame::decode(bytes) {
        let mut out = Vec::new();
        frame.encode(&mut out);
        assert_eq!(out, bytes);
    }
    if let Ok(frame) = ServerFrame::decode(bytes) {
        let mut out = Vec::new();
        frame.encode(&mut out);
        assert_eq!(out, bytes);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        match ClientMessage::parse(text) {
            Ok(Some(message)) => {
                let again = serde_json::to_string(&message).expect("messages are plain data");
                assert_eq!(ClientMessage::parse(&again), Ok(Some(message)));
            }
            Ok(None) => {}
            Err(error) => assert!(error.to_string().len() < 1024),
        }
    }
});
