//! The rules for metadata.

#![no_main]

use api::label::{LABEL_BYTES_MAX, check_key, check_value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str)| {
    let (key, value) = input;
    match check_key(key) {
        Ok(()) => assert!(key.is_ascii() && !key.is_empty() && !key.starts_with("opensandbox.io/")),
        Err(error) => assert!(error.to_string().len() < 1024),
    }
    match check_value(key, value) {
        Ok(()) => assert!(value.is_ascii() && value.len() <= LABEL_BYTES_MAX),
        Err(error) => assert!(error.to_string().len() < 2048),
    }
});
