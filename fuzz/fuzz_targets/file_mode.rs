//! File modes, as numbers, texts and JSON.

#![no_main]

use api::file_mode::FileMode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, &str)| {
    let (number, text) = input;
    if let Ok(mode) = FileMode::from_written(number) {
        assert_eq!(u64::from(mode.written()), number);
        assert!(mode.bits() <= 0o7777);
    }
    if let Ok(mode) = text.parse::<FileMode>() {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    if let Ok(mode) = serde_json::from_str::<FileMode>(text) {
        let written = serde_json::to_string(&mode).expect("a mode is a number");
        assert_eq!(
            serde_json::from_str::<FileMode>(&written).expect("it reads back"),
            mode
        );
    }
});
