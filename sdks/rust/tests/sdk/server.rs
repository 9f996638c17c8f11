//! A real server on the embedded runtime, in a directory and on a port of its own.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use opensandbox::{Client, ConnectionConfig, SandboxFilter};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// What it takes at most to start, also on a busy machine.
const START: Duration = Duration::from_secs(60);

/// The key of the server.
pub(crate) const API_KEY: &str = "sdk-test-key";

pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    /// Kept for as long as the server runs.
    _place: tempfile::TempDir,
    log: tokio::task::JoinHandle<()>,
}

/// The programs stand beside this one: `target/debug/deps/sdk-…`, `target/debug/osb`.
fn program(name: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    this.ancestors().nth(2).unwrap().join(name)
}

/// What the tests need and what provides it; nothing is missing when it is `None`.
pub(crate) fn missing() -> Option<String> {
    let needs = [
        (
            rustix::process::geteuid().is_root(),
            "root",
            "sudo -E cargo test -p opensandbox",
        ),
        (
            program("osb").is_file() && program("execd").is_file(),
            "osb and execd in the same target directory",
            "cargo build -p osb -p execd",
        ),
    ];
    let unmet = needs.into_iter().find(|(is_met, ..)| !is_met);
    unmet.map(|(_, what, command)| format!("these tests need {what}; run: {command}"))
}

impl Server {
    pub(crate) async fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().display();
        let mut child = Command::new(program("osb"))
            .args(["server", "--port", "0", "--set", "log.format=json"])
            .args(["--set", &format!("server.api_key={API_KEY}")])
            .args(["--set", &format!("embedded.data_dir={path}")])
            .args(["--set", "embedded.ready_sandboxes=4"])
            .args(["--set"])
            .arg(format!("runtime.execd_path={}", program("execd").display()))
            .env_remove("SANDBOX_CONFIG_PATH")
            .env("HOME", place.path())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = async {
            loop {
                let line = lines.next_line().await.unwrap();
                let line = line.expect("the server starts");
                let parsed: serde_json::Value = serde_json::from_str(&line)
                    .unwrap_or_else(|_| panic!("the server did not start: {line}"));
                if parsed["message"] == "ready" {
                    break parsed["address"].as_str().unwrap().to_owned();
                }
            }
        };
        let address = tokio::time::timeout(START, ready).await.expect("ready");
        let log = tokio::spawn(async move {
            // Read on, so that the server never waits for its log to be taken.
            while let Ok(Some(_)) = lines.next_line().await {}
        });
        Self {
            child,
            address,
            _place: place,
            log,
        }
    }

    pub(crate) fn config(&self) -> ConnectionConfig {
        ConnectionConfig::new()
            .domain(self.address.clone())
            .api_key(API_KEY)
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.config()).unwrap()
    }

    /// Sandboxes outlive their server, also those that a case left alive.
    pub(crate) async fn stop(mut self) {
        let client = self.client();
        let left = client.list(&SandboxFilter::default()).await.unwrap();
        for sandbox in left.items {
            // One that has ended meanwhile is as good as one that was ended.
            let _ = client.kill(sandbox.id.as_str()).await;
        }
        let id = self.child.id().expect("it runs");
        let id = rustix::process::Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let ended = tokio::time::timeout(START, self.child.wait()).await;
        ended.expect("the server stops").unwrap();
        self.log.await.unwrap();
    }
}
