//! That nothing public is left untested: the SDK's own source against the source of the tests and of the
//! runner of the conformance scenarios.

use std::path::Path;
use std::sync::Arc;

use crate::server::Server;

fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
    text
}

pub(crate) async fn every_public_method_is_called_by_a_test(_: Arc<Server>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let product = sources(&root.join("src"));
    let tests = sources(&root.join("tests/sdk")) + &sources(&root.join("conformance"));
    let mut missing = Vec::new();
    for line in product.lines() {
        let line = line.trim_start();
        let name = ["pub async fn ", "pub fn ", "pub const fn "]
            .iter()
            .find_map(|prefix| line.strip_prefix(prefix));
        let Some(name) = name.and_then(|rest| rest.split(['(', '<']).next()) else {
            continue;
        };
        let is_called = [
            format!(".{name}("),
            format!("::{name}("),
            format!("::{name}::<"),
        ]
        .iter()
        .any(|call| tests.contains(call));
        if !is_called {
            missing.push(name);
        }
    }
    assert!(missing.is_empty(), "no test calls {missing:?}");
}
