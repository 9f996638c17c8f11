//! A PostgreSQL server of our own in a temporary directory, reached over a unix socket.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use secrecy::SecretString;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Where Debian puts the server's programs, newest last.
const PLACES: &str = "/usr/lib/postgresql";

/// PostgreSQL does not run as root; this user exists wherever it is installed.
const USER: &str = "postgres";

/// Making and starting a database on a loaded machine.
const START: Duration = Duration::from_secs(90);

pub(super) struct PostgresServer {
    directory: TempDir,
    _process: Child,
}

impl PostgresServer {
    /// Starts a server, or says loudly why not; in continuous integration that is a failure.
    pub(super) async fn start() -> Option<PostgresServer> {
        let Some(programs) = programs() else {
            let need = "PostgreSQL is not installed: apt-get install postgresql";
            assert!(std::env::var_os("CI").is_none(), "{need}");
            eprintln!("NOT TESTED: {need}");
            return None;
        };
        Some(
            tokio::time::timeout(START, start(&programs))
                .await
                .expect("PostgreSQL starts"),
        )
    }

    pub(super) fn dsn(&self) -> SecretString {
        let socket = self
            .directory
            .path()
            .display()
            .to_string()
            .replace('/', "%2F");
        SecretString::from(format!(
            "postgresql://{USER}@localhost/{USER}?host={socket}"
        ))
    }

    pub(super) async fn stop(&mut self) {
        self._process.kill().await.expect("it is ours");
    }
}

fn programs() -> Option<PathBuf> {
    let mut versions: Vec<_> = std::fs::read_dir(PLACES)
        .ok()?
        .flatten()
        .map(|e| e.path())
        .collect();
    versions.sort();
    versions.pop().map(|version| version.join("bin"))
}

/// A command that runs as the unprivileged user when we are root.
fn command(program: &Path) -> Command {
    if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        let reuid = format!("--reuid={USER}");
        command
            .args([reuid.as_str(), "--regid=postgres", "--init-groups", "--"])
            .arg(program);
        command
    } else {
        Command::new(program)
    }
}

async fn start(programs: &Path) -> PostgresServer {
    let directory = tempfile::Builder::new()
        .prefix("osb-pg-")
        .tempdir()
        .unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory.path(), everybody).unwrap();
    let data = directory.path().join("data");
    let made = command(&programs.join("initdb"))
        .args([
            "--auth=trust",
            "--no-sync",
            "--username",
            USER,
            "--encoding=UTF8",
            "-D",
        ])
        .arg(&data)
        .stdout(Stdio::null())
        .output()
        .await
        .expect("initdb runs");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let mut process = command(&programs.join("postgres"))
        .arg("-D")
        .arg(&data)
        .args([
            "-c",
            "listen_addresses=",
            "-c",
            "logging_collector=off",
            "-k",
        ])
        .arg(directory.path())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("postgres runs");
    let mut lines = BufReader::new(process.stderr.take().expect("piped")).lines();
    // The server says on its own when it takes connections.
    loop {
        let line = lines
            .next_line()
            .await
            .unwrap()
            .expect("postgres ended before it was ready");
        if line.contains("ready to accept connections") {
            break;
        }
    }
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    PostgresServer {
        directory,
        _process: process,
    }
}
