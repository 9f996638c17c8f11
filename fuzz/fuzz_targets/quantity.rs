//! Amounts: what is read reads back as the same.

#![no_main]

use api::quantity::Quantity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match text.parse::<Quantity>() {
        Ok(quantity) => {
            let _ = (quantity.millis(), quantity.whole());
            assert_eq!(quantity.to_string().parse(), Ok(quantity));
        }
        Err(error) => assert!(error.to_string().len() < 1024),
    }
});
