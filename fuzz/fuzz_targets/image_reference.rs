//! Image references: what is read reads back as the same, in both forms.

#![no_main]

use api::image_reference::ImageReference;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match text.parse::<ImageReference>() {
        Ok(reference) => {
            assert_eq!(reference.to_string().parse().as_ref(), Ok(&reference));
            assert_eq!(reference.familiar().parse().as_ref(), Ok(&reference));
        }
        Err(error) => assert!(error.to_string().len() < 1024),
    }
});
