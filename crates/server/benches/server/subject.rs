//! The server under measurement: a process of its own with a directory of its own.

use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::client::{Client, Sandbox, Target, Way};

pub(crate) struct Subject {
    server: Child,
    address: String,
    directory: tempfile::TempDir,
}

/// Kernel clock ticks per second, as `/proc` counts processor time: 100 on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

impl Subject {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut server = Command::new(beside("osb"))
            .args(["server", "--port", "0", "--set", "log.format=json", "--set"])
            .arg(format!("embedded.data_dir={}", directory.path().display()))
            .env_remove("SANDBOX_CONFIG_PATH")
            .env("HOME", directory.path())
            .stderr(Stdio::piped())
            .spawn()
            .expect("osb; build it with cargo build --release -p osb -p execd");
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("the server starts").unwrap();
            let line: serde_json::Value = serde_json::from_str(&line)
                .unwrap_or_else(|_| panic!("the server did not start: {line}"));
            if line["message"] == "ready" {
                break line["address"].as_str().unwrap().to_owned();
            }
        };
        // What it says from now on is nobody's business, but the pipe must not fill up.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            server,
            address,
            directory,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.address)
    }

    pub(crate) fn data_dir(&self) -> &Path {
        self.directory.path()
    }

    /// Processor time as a share of one core, and resident memory, over a while.
    pub(crate) async fn watch_idle(&self, window: Duration) -> (f64, u64) {
        let before = self.ticks();
        tokio::time::sleep(window).await;
        let used = (self.ticks() - before) / TICKS_PER_SECOND;
        (100.0 * used / window.as_secs_f64(), self.resident())
    }

    fn ticks(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.server.id())).unwrap();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .collect();
        // utime and stime are the 14th and 15th of proc_pid_stat(5), counted from the pid.
        fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
    }

    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            * 1024
    }

    pub(crate) async fn stop(mut self) {
        let pid = i32::try_from(self.server.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.server.wait().unwrap();
    }
}

impl Drop for Subject {
    /// A bench that broke off leaves no server behind.
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A daemon on this machine's loopback, in no sandbox.
pub(crate) struct Daemon {
    process: Child,
    socket: PathBuf,
    port: u16,
}

impl Daemon {
    pub(crate) fn start(directory: &Path, token: &str) -> Self {
        let socket = directory.join("daemon.sock");
        let listener: OwnedFd = UnixListener::bind(&socket).unwrap().into();
        // Free now, and nobody else here asks for one.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        // What commands find in a sandbox, for what is in it decides how long a shell takes to start.
        let environment = [
            (
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            ),
            ("HOME", "/root"),
            ("LC_CTYPE", "C.UTF-8"),
        ];
        let process = Command::new(beside("execd"))
            .env_clear()
            .envs(environment)
            .args(["--listen-fd", "0", "--access-token", token, "--port"])
            .arg(port.to_string())
            .stdin(Stdio::from(listener))
            .spawn()
            .expect("execd; build it with cargo build --release -p osb -p execd");
        Self {
            process,
            socket,
            port,
        }
    }

    /// The way to it over TCP, once it answers.
    pub(crate) async fn way(&self, sandbox: &Sandbox) -> Way {
        let token = sandbox.token();
        let up = Way::new(Target::Unix(self.socket.clone()), String::new(), token);
        up.command().await;
        let address = format!("127.0.0.1:{}", self.port);
        Way::new(Target::Tcp(address), String::new(), token)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program of this build: beside the directory in which the bench itself is.
fn beside(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(Path::parent).unwrap().join(name)
}
