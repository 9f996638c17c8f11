//! The examples do what they say.

use std::sync::Arc;

use tokio::process::Command;

use crate::server::{API_KEY, Server};

pub(crate) async fn the_first_sandbox_runs(server: Arc<Server>) {
    let said = run("first_sandbox", &server).await;
    assert_eq!(said, "line 1\nline 2\nline 3\nsum 6\n");
}

/// The same program runs at the published server: tests/reference/run.
pub(crate) async fn every_part_of_every_server_works_at_ours(server: Arc<Server>) {
    let said = run("every_server", &server).await;
    assert!(said.ends_with("works: kill\n"), "{said}");
}

async fn run(example: &str, server: &Server) -> String {
    // Beside this program: `target/debug/deps/sdk-…`, `target/debug/examples/…`.
    let this = std::env::current_exe().unwrap();
    let folder = this.ancestors().nth(2).unwrap().join("examples");
    let program = folder.join(example);
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
    assert!(ended.status.success(), "{ended:?}");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}
