//! The examples do what they say.

use std::sync::Arc;

use tokio::process::Command;

use crate::server::{API_KEY, Server};

pub(crate) async fn the_first_sandbox_runs(server: Arc<Server>) {
    // Beside this program: `target/debug/deps/sdk-…`, `target/debug/examples/first_sandbox`.
    let this = std::env::current_exe().unwrap();
    let program = this
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples/first_sandbox");
    assert!(
        program.is_file(),
        "run: cargo build -p opensandbox --examples"
    );
    let ended = Command::new(program)
        .arg("host")
        .env("OPEN_SANDBOX_DOMAIN", &server.address)
        .env("OPEN_SANDBOX_API_KEY", API_KEY)
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(said, "line 1\nline 2\nline 3\nsum 6\n", "{ended:?}");
}
