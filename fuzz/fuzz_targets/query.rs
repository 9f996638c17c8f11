//! Query strings of the lists.

#![no_main]

use api::query::{ListSandboxesQuery, ListSnapshotsQuery};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|raw: &str| {
    if let Ok(query) = ListSandboxesQuery::parse(raw) {
        assert_eq!(ListSandboxesQuery::parse(&query.to_query()), Ok(query));
    }
    if let Ok(query) = ListSnapshotsQuery::parse(raw) {
        assert_eq!(ListSnapshotsQuery::parse(&query.to_query()), Ok(query));
    }
});
