//! What clients and commands get wrong: a clear answer each, and the daemon goes on.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::commands::{has_ended, run_until_timeout};
use crate::daemon::Daemon;
use crate::events::{Outcome, PATIENCE, run};

/// Sends bytes as they are and returns the answer's head.
fn raw(daemon: &Daemon, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(daemon.path("socket")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The daemon may answer and close before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = vec![0; 4096];
    let read = stream.read(&mut answer).unwrap_or(0);
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

async fn still_answers(daemon: &Daemon) {
    assert_eq!(
        run(daemon, &json!({"argv": ["echo", "on"]})).await.stdout,
        "on\n"
    );
}

#[tokio::test]
async fn routes_and_methods() {
    let daemon = Daemon::start();
    let nowhere = daemon.get("/nowhere").await;
    assert_eq!(
        (nowhere.status, nowhere.code().as_str()),
        (StatusCode::NOT_FOUND, "ROUTE_NOT_FOUND")
    );
    let wrong = daemon.call(Method::PUT, "/command", "").await;
    assert_eq!(
        (wrong.status, wrong.code().as_str()),
        (StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED")
    );
    assert!(wrong.headers.contains_key("allow"));
    assert_eq!(daemon.get("/ping").await.status, StatusCode::OK);
    assert_eq!(daemon.get("/ping").await.body.len(), 0);
    let isolated = daemon.get("/v1/isolated/capabilities").await.json();
    assert_eq!(isolated["available"], false);
    let refused = daemon
        .call(Method::POST, "/v1/isolated/session", "{}")
        .await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (StatusCode::NOT_IMPLEMENTED, "NOT_SUPPORTED")
    );
    still_answers(&daemon).await;
}

#[tokio::test]
async fn requests_that_make_no_sense() {
    let daemon = Daemon::start();
    let bodies: Vec<(&str, Value)> = vec![
        ("exactly one", json!({})),
        ("exactly one", json!({"command": "true", "argv": ["true"]})),
        ("empty", json!({"command": ""})),
        ("empty", json!({"argv": []})),
        ("negative", json!({"command": "true", "timeout": -5})),
        ("uid", json!({"command": "true", "gid": 5})),
        ("NUL", json!({"command": "true\u{0}"})),
        ("NUL", json!({"argv": ["echo", "a\u{0}b"]})),
        ("variable", json!({"command": "true", "envs": {"A=B": "x"}})),
        ("NUL", json!({"command": "true", "envs": {"A": "x\u{0}"}})),
        (
            "not usable",
            json!({"command": "true", "cwd": "/no/such/place"}),
        ),
        (
            "not a directory",
            json!({"command": "true", "cwd": "/etc/passwd"}),
        ),
        (
            "not usable",
            json!({"command": "true", "cwd": "/tmp/\u{0}"}),
        ),
        (
            "not set",
            json!({"command": "true", "cwd": "$NOT_SET_ANYWHERE/x"}),
        ),
        ("JSON", json!({"command": 5})),
    ];
    for (word, body) in bodies {
        let answer = daemon
            .call(Method::POST, "/command", body.to_string())
            .await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::BAD_REQUEST, "INVALID_REQUEST_BODY"),
            "{body}"
        );
        assert!(answer.text().contains(word), "{body}: {}", answer.text());
    }
    for body in ["", "{", "null", "\u{feff}{}"] {
        let answer = daemon.call(Method::POST, "/command", body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body:?}");
    }
    let large = daemon
        .call(
            Method::POST,
            "/command",
            format!("{{\"command\":\"{}\"}}", "x".repeat(9 << 20)),
        )
        .await;
    assert_eq!(
        (large.status, large.code().as_str()),
        (StatusCode::PAYLOAD_TOO_LARGE, "LIMIT_REACHED")
    );
    assert!(large.text().contains("JSON_BODY_BYTES"));
    let missing = daemon.call(Method::DELETE, "/command", "").await;
    assert_eq!(
        (missing.status, missing.code().as_str()),
        (StatusCode::BAD_REQUEST, "MISSING_QUERY")
    );
    still_answers(&daemon).await;
}

#[tokio::test]
async fn things_that_do_not_exist() {
    let daemon = Daemon::start();
    for (method, uri) in [
        (Method::GET, "/command/status/nope"),
        (Method::GET, "/command/nope/logs"),
        (Method::GET, "/command/nope/stream"),
        (Method::POST, "/command/nope/stdin"),
        (Method::DELETE, "/command?id=nope"),
        (Method::DELETE, "/session/nope"),
        (Method::GET, "/pty/nope"),
        (Method::GET, "/pty/nope/ws"),
        (Method::GET, "/command/status/..%2f..%2fetc"),
    ] {
        let answer = daemon.call(method.clone(), uri, "").await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::NOT_FOUND, "CONTEXT_NOT_FOUND"),
            "{method} {uri}"
        );
    }
    let id = run(&daemon, &json!({"argv": ["true"]})).await.id;
    let bad = daemon
        .get(&format!("/command/{id}/stream?after=many"))
        .await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn bytes_that_are_no_http() {
    let daemon = Daemon::start();
    let huge = format!(
        "GET /ping HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n",
        "y".repeat(200_000)
    );
    assert!(
        raw(&daemon, huge.as_bytes()).starts_with("HTTP/1.1 431"),
        "a huge header is too large"
    );
    let many = format!(
        "GET /ping HTTP/1.1\r\nhost: x\r\n{}\r\n",
        "a: b\r\n".repeat(2000)
    );
    assert!(
        raw(&daemon, many.as_bytes()).starts_with("HTTP/1.1 431"),
        "many headers are too many"
    );
    let long = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "y".repeat(200_000));
    assert!(
        raw(&daemon, long.as_bytes()).starts_with("HTTP/1.1 4"),
        "a huge path is refused"
    );
    assert!(
        raw(&daemon, b"\x16\x03\x01\x02\x00\x01").is_empty()
            || raw(&daemon, b"hello\r\n\r\n").starts_with("HTTP/1.1 400")
    );
    assert!(
        raw(
            &daemon,
            b"POST /command HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n"
        )
        .starts_with("HTTP/1.1 400")
    );
    assert!(
        raw(&daemon, b"GET /pty/x\x00y HTTP/1.1\r\nhost: x\r\n\r\n").starts_with("HTTP/1.1 400")
    );
    // A client that leaves in the middle of its body.
    let mut stream = UnixStream::connect(daemon.path("socket")).unwrap();
    stream
        .write_all(b"POST /command HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"comm")
        .unwrap();
    drop(stream);
    still_answers(&daemon).await;
}

/// A control group of the test's own with the daemon in it, as a sandbox has one.
struct Limited {
    directory: std::path::PathBuf,
}

impl Limited {
    /// `v1` and `v2` are the limit's file and value in the two versions of the hierarchy.
    fn new(daemon: &Daemon, controller: &str, v1: [&str; 2], v2: [&str; 2]) -> Self {
        crate::init::needs_root();
        let root = std::path::Path::new("/sys/fs/cgroup");
        let (parent, [file, value]) = if root.join(controller).is_dir() {
            (root.join(controller), v1)
        } else {
            let enable = format!("+{controller}");
            std::fs::write(root.join("cgroup.subtree_control"), enable).unwrap();
            (root.to_owned(), v2)
        };
        let directory = parent.join(format!("execd-test-{controller}-{}", daemon.pid()));
        std::fs::create_dir(&directory).unwrap();
        let limited = Self { directory };
        std::fs::write(limited.directory.join(file), value).unwrap();
        let procs = limited.directory.join("cgroup.procs");
        std::fs::write(procs, daemon.pid().to_string()).unwrap();
        limited
    }

    fn members(&self) -> Vec<String> {
        let procs = std::fs::read_to_string(self.directory.join("cgroup.procs")).unwrap();
        procs.lines().map(str::to_owned).collect()
    }
}

impl Limited {
    /// How many processes and threads are charged to the group.
    fn count(&self) -> usize {
        let count = std::fs::read_to_string(self.directory.join("pids.current")).unwrap();
        count.trim().parse().unwrap()
    }
}

impl Drop for Limited {
    /// Only an empty group can be removed, so its members go back to the root first.
    fn drop(&mut self) {
        let root = self.directory.parent().unwrap().join("cgroup.procs");
        for pid in self.members() {
            let _ = std::fs::write(&root, pid);
        }
        let _ = std::fs::remove_dir(&self.directory);
    }
}

#[tokio::test]
async fn a_fork_bomb_ends_at_its_timeout() {
    let daemon = Daemon::start();
    let limited = Limited::new(&daemon, "pids", ["pids.max", "120"], ["pids.max", "120"]);
    let bomb = "bomb() { bomb | bomb & }; bomb; wait; sleep 1000";
    let has_reached_the_limit =
        |outcome: &Outcome| outcome.stderr.contains("Resource temporarily unavailable");
    let body = json!({"command": bomb});
    let outcome = run_until_timeout(&daemon, body, has_reached_the_limit).await;
    assert_eq!(outcome.code, "-1");
    for pid in limited.members() {
        let is_daemon = pid == daemon.pid().to_string();
        assert!(is_daemon || has_ended(&pid), "{pid} lives on");
    }
    // The dead count until the machine's first process has collected them.
    while limited.count() > 60 {
        assert_eq!(daemon.get("/ping").await.status, StatusCode::OK);
    }
    still_answers(&daemon).await;
}

#[tokio::test]
async fn a_full_disk_stops_nothing() {
    crate::init::needs_root();
    let daemon = Daemon::start();
    let small = daemon.path("small");
    std::fs::create_dir(&small).unwrap();
    let script = format!(
        "unshare -m sh -c 'mount -t tmpfs -o size=64k none {0} && head -c 1000000 /dev/zero > {0}/file; echo code $?; df {0} | tail -1 | grep -c 100%'",
        small.display()
    );
    let outcome = run(&daemon, &json!({"command": script})).await;
    assert_eq!(outcome.stdout, "code 1\n1\n");
    assert!(
        outcome.stderr.contains("No space left"),
        "{}",
        outcome.stderr
    );
    still_answers(&daemon).await;
}

#[tokio::test]
async fn a_command_killed_for_memory_reports_the_kill() {
    let daemon = Daemon::start();
    let most = "100000000";
    let limit = ["memory.limit_in_bytes", most];
    let _limited = Limited::new(&daemon, "memory", limit, ["memory.max", most]);
    // `tail` keeps all of what it may have to print.
    let greedy = "head -c 1000000000 /dev/zero | tail -c 900000000 > /dev/null";
    let text = format!("set -o pipefail; {greedy}; echo code $?");
    let outcome = run(&daemon, &json!({"command": text})).await;
    assert_eq!(outcome.stdout, "code 137\n");
    let alone = json!({"argv": ["python3", "-c", "x = bytearray(10**9)"]});
    let outcome = run(&daemon, &alone).await;
    let last = outcome.events.last().unwrap();
    assert_eq!(last["error"]["traceback"], json!(["signal: killed"]));
    still_answers(&daemon).await;
}
