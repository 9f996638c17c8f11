//! A real execd with a unix socket in a directory of its own, and requests to it.
//!
//! The socket listens before the daemon runs, so the first request simply waits for it.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::{
    os::{fd::OwnedFd, unix::net::UnixListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::net::UnixStream;

/// No test takes longer unless it hangs, however busy the machine; the longest runs ten thousand
/// commands.
const DEADLINE: Duration = Duration::from_secs(300);

/// A killed process is gone in milliseconds; this is for a machine that stands still.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// Kills the process when the test does not end it in time, so that whatever waits for it fails
/// instead of waiting on.
#[expect(clippy::print_stderr, reason = "says why the test is about to fail")]
pub(crate) fn limit_time(pid: u32) {
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    std::thread::spawn(move || {
        let deadline = Timespec::try_from(DEADLINE).unwrap();
        let mut ended = [PollFd::new(&pidfd, PollFlags::IN)];
        if poll(&mut ended, Some(&deadline)).unwrap() == 0 {
            eprintln!("{test}: not over after {DEADLINE:?}; the daemon is killed");
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        }
    });
}

/// A process by something that no other process can get, unlike its number.
pub(crate) struct Watched(OwnedFd);

impl Watched {
    /// Of a process that is known to run.
    pub(crate) fn new(pid: i32) -> Self {
        let pid = Pid::from_raw(pid).unwrap();
        Self(pidfd_open(pid, PidfdFlags::empty()).unwrap())
    }

    /// Waits for its end, which a process that was killed reaches soon; kills it when it does not.
    pub(crate) fn has_ended(&self) -> bool {
        let deadline = Timespec::try_from(ENDS_WITHIN).unwrap();
        let mut ended = [PollFd::new(&self.0, PollFlags::IN)];
        let has_ended = poll(&mut ended, Some(&deadline)).unwrap() > 0;
        if !has_ended {
            let _ = pidfd_send_signal(&self.0, Signal::KILL);
        }
        has_ended
    }
}

pub(crate) struct Daemon {
    child: Child,
    pub(crate) directory: tempfile::TempDir,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap().to_string()
    }
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// With these variables (`NAME=value`) in its environment; `{dir}` is its directory.
    pub(crate) fn start_with(variables: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Other users' files are part of the tests.
        std::fs::set_permissions(
            directory.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        let listener: OwnedFd = UnixListener::bind(directory.path().join("socket"))
            .unwrap()
            .into();
        // The shell moves the listener from its input to the descriptor the daemon is told.
        let child = Command::new("/bin/sh")
            .args([
                "-c",
                r#"exec "$0" --port 0 --listen-fd 3 3<&0 </dev/null"#,
                env!("CARGO_BIN_EXE_execd"),
            ])
            .envs(variables.iter().map(|variable| {
                let (name, value) = variable.split_once('=').unwrap();
                (
                    name,
                    value.replace("{dir}", directory.path().to_str().unwrap()),
                )
            }))
            .env(MARK, directory.path())
            .stdin(Stdio::from(listener))
            .spawn()
            .unwrap();
        limit_time(child.id());
        Self { child, directory }
    }

    /// As `kill -9` does it, without a chance to clean up.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.path("socket")).await.unwrap()
    }

    /// Sends a request on a connection of its own and reads the whole answer.
    pub(crate) async fn send<B>(&self, request: Request<B>) -> Answer
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let response = self.begin(request).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: head.status,
            headers: head.headers,
            body,
        }
    }

    /// Sends a request; the answer's body is still to be read.
    pub(crate) async fn begin<B>(&self, request: Request<B>) -> Response<hyper::body::Incoming>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(self.connect().await))
            .await
            .unwrap();
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await.unwrap()
    }

    pub(crate) async fn get(&self, uri: &str) -> Answer {
        self.call(Method::GET, uri, "").await
    }

    pub(crate) async fn call(&self, method: Method, uri: &str, body: impl Into<Bytes>) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("host", "execd");
        self.send(request.body(Full::new(body.into())).unwrap())
            .await
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Outside a sandbox nothing ends what its commands left in the background.
        let mark = format!("{MARK}={}", self.directory.path().display());
        while kill_marked(mark.as_bytes()) {}
    }
}

/// In the environment of a daemon, and so of everything that it starts: the daemon's directory.
const MARK: &str = "EXECD_TEST_DAEMON";

/// Kills every process with this variable; whether there was one. One that forks meanwhile leaves a child for the
/// next look, and one that has been killed has no environment any more (proc_pid_environ(5)).
fn kill_marked(mark: &[u8]) -> bool {
    let mut has_found = false;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().into_string().ok();
        let Some(pid) = pid.and_then(|pid| Pid::from_raw(pid.parse().ok()?)) else {
            continue;
        };
        // Opened first: the number may be another process's when it has ended.
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|it| it == mark) {
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            has_found = true;
        }
    }
    has_found
}
