//! Routes: what is read reads back as the same, and no guessed signature holds.

#![no_main]

use api::signed_route::v2::{Claim, Purpose};
use api::signed_route::{Route, Signature, from_base36, to_base36};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(route) = Route::parse_host(text) {
        assert_eq!(Route::parse_host(&route.host_label()).as_ref(), Ok(&route));
    }
    if let Ok((route, rest)) = Route::parse_path(text) {
        assert!(rest.starts_with('/'));
        let again = format!("{}{rest}", route.path());
        assert_eq!(Route::parse_path(&again), Ok((route.clone(), rest)));
        let (secret, id, port) = (b"a key of some length", &route.sandbox_id, route.port);
        match route.signature {
            Some(Signature::V1(signature)) => {
                let _ = signature.verify(secret, id, port, 0);
            }
            Some(Signature::V2(signature)) => {
                let claim = Claim {
                    purpose: Purpose::Route,
                    sandbox_id: id,
                    port: Some(port),
                    expires: 0,
                    epoch: 0,
                };
                assert!(signature.verify(secret, &claim, 0).is_err());
            }
            None => {}
        }
    }
    if let Some(number) = from_base36(text) {
        assert_eq!(to_base36(number), text);
    }
});
