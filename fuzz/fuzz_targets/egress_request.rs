//! Everything the egress API is asked, and the targets of its rules.

#![no_main]

use api::egress::policy::{NetworkPolicy, NetworkRule};
use api::egress::vault::{CreateVaultRequest, MutateVaultRequest};
use api::json::{from_slice, list_from_slice};
use api::validate::Target;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let _ = from_slice::<NetworkPolicy>(body).map(|it| it.validate());
    let _ = list_from_slice::<NetworkRule>(body);
    let _ = list_from_slice::<String>(body);
    let _ = from_slice::<CreateVaultRequest>(body).map(|it| it.validate());
    let _ = from_slice::<MutateVaultRequest>(body).map(|it| it.validate());
    if let Ok(text) = std::str::from_utf8(body)
        && let Ok(Target::Name(name) | Target::NamesBelow(name)) = text.parse()
    {
        assert!(name.is_ascii() && !name.ends_with('.') && name.len() <= 253);
    }
});
